"""What a panel, a terminal or a call says of a setting, made into what a room takes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec

from pooled_nb.errors import BadOption
from pooled_nb.room import wirechoice
from pooled_nb.room.core import ChatSettings
from pooled_nb.room.doorfacts import GateChoices, NetworkChoice, Starts
from pooled_nb.room.questions import LENGTHS
from pooled_nb.typed import Unseen

THINKING: dict[str, bool | None] = {"on": True, "off": False, "auto": None}
ON_OFF: dict[str, bool] = {"on": True, "off": False}
_FIELDS = ChatSettings.__struct_fields__


def chosen(options: dict[str, object]) -> dict[str, Any]:
    """Fields of `ChatSettings`, from ``{field: value}`` or ``{"key": field, "value": value}``.

    Raises
    ------
    BadOption
        There is no such setting.
    """
    if "key" in options:
        options = {str(options["key"]): options.get("value")}
    return {name: _value(name, value) for name, value in options.items()}


def _value(name: str, value: object) -> Any:
    if name not in _FIELDS:
        raise BadOption("There is no such setting.", f"A room has {', '.join(_FIELDS)}.")
    if name == "thinking" and isinstance(value, str):
        return THINKING.get(value, value)
    if name == "max_tokens" and isinstance(value, str):
        return length(value)
    if name == "redeal" and isinstance(value, str):
        return ON_OFF.get(value, value)
    return value


def length(text: str) -> int:
    """Tokens of ``short``, ``medium``, ``long`` or a number.

    Raises
    ------
    BadOption
        It is none of them.
    """
    if text in LENGTHS:
        return LENGTHS[text]
    if text.isascii() and text.isdigit() and 0 < len(text) < 9:
        return int(text)
    raise BadOption(f"{text[:40]!r} is no length.", f"Use {', '.join(LENGTHS)}, or a number of tokens.")


def gate_choices(now: GateChoices, changes: Mapping[str, object]) -> GateChoices:
    """Who comes in after these changes; what is None stays.

    Raises
    ------
    BadOption
        A value that there is not.
    TypeError
        There is no such choice.
    """
    wished = _given("gate", GateChoices.__struct_fields__, changes)
    for name, value in wished.items():
        if name == "starts":
            if value not in get_args(Starts):
                raise BadOption(
                    "A room is started by all, or by the host.", "Say starts all, or starts host."
                )
        elif not isinstance(value, bool):
            raise BadOption(f"{name} of the gate is on or off.", "Say True or False.")
    return msgspec.structs.replace(now, **wished)


def network_choice(changes: Mapping[str, object]) -> NetworkChoice | None:
    """By which ways; None where nothing was said. What is None stays; the relay's secret is repeated nowhere.

    Raises
    ------
    BadOption
        A value that there is not.
    TypeError
        There is no such choice.
    """
    wished = _given("network", NetworkChoice.__struct_fields__, changes)
    turn, stun = wished.get("turn"), wished.get("stun")
    if turn is not None:
        if not isinstance(turn, str):
            raise BadOption("A relay is a text.", "Write it as turn:USER:PASSWORD@HOST:PORT.")
        wished["turn"] = Unseen(turn)
    if stun is not None:
        if isinstance(stun, str):
            stun = stun.split(",")
        if not isinstance(stun, Sequence) or not all(isinstance(url, str) for url in stun):
            raise BadOption("STUN servers are texts.", "Write one as stun:HOST:PORT, several with commas.")
        wished["stun"] = [url.strip() for url in stun if url.strip()]
    for name in ("relay_only", "remember"):
        if not isinstance(wished.get(name, False), bool):
            raise BadOption(f"{name} is on or off.", "Say True or False.")
    wirechoice.check(wished)
    said = wished.keys() - {"remember"}
    return NetworkChoice(**wished) if said or wished.get("remember") else None


def _given(what: str, fields: Sequence[str], changes: Mapping[str, object]) -> dict[str, Any]:
    unknown = [name for name in changes if name not in fields]
    if unknown:
        raise TypeError(f"{what}() has no {unknown[0]!r}; it has {', '.join(fields)}")
    return {name: value for name, value in changes.items() if value is not None}
