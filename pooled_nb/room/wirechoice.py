"""How frames travel in a room: stripes, small frames twice, keep-alive, transport (PROTOCOL section 5).

What a person chose for this room counts before what is remembered (`networkbox`), that before the
environment (``POOLED_STRIPES``, ``POOLED_TWICE``, ``POOLED_KEEPALIVE_MS``, ``POOLED_TRANSPORT``), and at last
what fits the place (`meeting.wiring`). The word ``auto`` asks for that at once, whatever comes after.

Both ends of a link read them once, as it is made: so they are those of a room, from its opening to its end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pooled_nb.errors import BadOption
from pooled_nb.mesh import stacks
from pooled_nb.mesh.wiresettings import MAX_STRIPES, SCTP, STOCK, WireSettings
from pooled_nb.room.doorfacts import WireChoice

FIELDS = WireChoice.__struct_fields__
AUTO = "auto"
KEEPALIVE_MS = (1.0, 1_000.0)
"""Below it is no pause, above it no keep-alive: after 1.5 s without a frame none is sent at all."""
YES = ("1", "true", "yes", "on")
NO = ("0", "false", "no", "off")

_VARIABLES = {
    "stripes": "POOLED_STRIPES",
    "twice": "POOLED_TWICE",
    "keepalive_ms": "POOLED_KEEPALIVE_MS",
    "transport": "POOLED_TRANSPORT",
}
_CHOICES = {
    "stripes": f"a number of connections from 0 to {MAX_STRIPES}, or auto",
    "twice": "on, off or auto",
    "keepalive_ms": f"milliseconds from {KEEPALIVE_MS[0]:.0f} to {KEEPALIVE_MS[1]:,.0f}, 0 (off), or auto",
    "transport": f"{', '.join(stacks.NAMES)} or auto",
}


def said(values: Any, *, of: str = "") -> WireChoice:
    """What somebody chose, checked: of a `NetworkChoice`, or of anything else with these fields.

    Parameters
    ----------
    of
        Whose they are, where not of who calls: ``The network box's``.

    Raises
    ------
    BadOption
        A value that there is not: names those that there are.
    """
    given = {name: getattr(values, name) for name in FIELDS}
    check(given, of=of)
    return WireChoice(**given)


def check(given: Mapping[str, object], *, of: str = "") -> None:
    """Whether each field of it has a value that there is. Raises as `said`."""
    for name in FIELDS:
        value = given.get(name)
        if value is not None and value != AUTO and not _is_one(name, value):
            raise _bad(f"{of} {name}".lstrip(), name)


def from_env(env: Mapping[str, str]) -> WireChoice:
    """What the environment says. Raises `BadOption`, naming the variable."""
    given: dict[str, Any] = {}
    for name, variable in _VARIABLES.items():
        if text := env.get(variable, "").strip():
            given[name] = typed(name, text, variable)
    if env.get(SCTP, "").strip().lower() not in ("", STOCK):
        raise BadOption(f"{SCTP} has no such value.", f"Choose {STOCK}, or unset it.")
    return WireChoice(**given)


def typed(name: str, text: str, what: str) -> Any:
    """The value of one field, as it was typed; ``what``: where. Raises `BadOption`, naming what there is."""
    value = _read(name, text.lower())
    if value is None:
        raise _bad(what, name)
    return value


def _read(name: str, text: str) -> Any:
    if text == AUTO:
        return AUTO
    value: Any = text
    if name == "twice":
        value = True if text in YES else False if text in NO else None
    elif name == "stripes":
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else None
    elif name == "keepalive_ms":
        try:
            value = float(text)
        except ValueError:
            return None
    return value if value is not None and _is_one(name, value) else None


def settled(base: WireSettings, *sources: WireChoice) -> WireChoice:
    """Every field as it counts: the first source that says something, else ``base``, what fits the place."""
    fits = WireChoice(
        stripes=base.stripes, twice=base.twice, keepalive_ms=base.keepalive_ms, transport=stacks.DEFAULT
    )
    return WireChoice(**{name: _first(name, sources, fits) for name in FIELDS})


def settings(choice: WireChoice) -> WireSettings:
    """What the links of a room take; of a choice that is `settled`."""
    assert isinstance(choice.stripes, int)
    assert isinstance(choice.twice, bool)
    assert isinstance(choice.keepalive_ms, int | float)
    return WireSettings(keepalive_ms=float(choice.keepalive_ms), stripes=choice.stripes, twice=choice.twice)


def differs(now: WireChoice, later: WireChoice) -> WireChoice:
    """What ``later`` says otherwise than ``now``."""
    pairs = {name: getattr(later, name) for name in FIELDS}
    return WireChoice(**{name: v for name, v in pairs.items() if v not in (None, getattr(now, name))})


def check_transport(name: str | None) -> None:
    """Raises `BadOption` with what to install, where it needs a package that is not here."""
    if name not in (None, AUTO):
        stacks.check(name)


def _first(name: str, sources: tuple[WireChoice, ...], fits: WireChoice) -> Any:
    for source in sources:
        if (value := getattr(source, name)) is not None:
            return getattr(fits, name) if value == AUTO else value
    return getattr(fits, name)


def _is_one(name: str, value: object) -> bool:
    match name, value:
        case "twice", bool():
            return True
        case _, bool():
            return False
        case "stripes", int():
            return 0 <= value <= MAX_STRIPES
        case "keepalive_ms", int() | float():
            return value == 0 or (math.isfinite(value) and KEEPALIVE_MS[0] <= value <= KEEPALIVE_MS[1])
        case "transport", str():
            return value in stacks.NAMES
    return False


def _bad(what: str, name: str) -> BadOption:
    return BadOption(f"{what} has no such value.", f"Choose {_CHOICES[name]}.")
