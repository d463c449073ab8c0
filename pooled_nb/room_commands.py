"""What a panel or a terminal says of a setting, made into what `Room.set` takes. Pure; it may be anything."""

from __future__ import annotations

from typing import Any

from pooled_nb.errors import BadOption
from pooled_nb.room.core import ChatSettings
from pooled_nb.room.questions import LENGTHS

THINKING: dict[str, bool | None] = {"on": True, "off": False, "auto": None}
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
