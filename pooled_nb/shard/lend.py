"""How much memory a device lends: ``"6GB"``, a number of GB, ``"50%"``, or a share of what is free."""

from __future__ import annotations

import math
import re

from pooled_nb.errors import BadOption
from pooled_nb.shard.door import DeviceFacts

_SIZE = re.compile(r"\s*(\d+(?:[.,]\d+)?)\s*((?:[kmgt]i?)?b|%)?\s*", re.IGNORECASE)
_UNITS = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "b": 1.0}
_UNITS |= {"kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}

_SHARE = {"cuda": 0.8, "xpu": 0.8}
"""Default share of the free memory; memory that every other program uses too (CPU, Apple) is lent by half."""


def lend_gb(facts: DeviceFacts, wanted: float | str | None = None) -> float:
    """GB (10⁹ bytes) this device lends.

    Parameters
    ----------
    facts
        The device.
    wanted
        A number of GB, a text like ``"6GB"``, ``"512 MiB"`` or ``"50%"`` (of what is free), or None: 80 % of
        what is free on a GPU with memory of its own, 50 % elsewhere.

    Raises
    ------
    BadOption
        It is no such size, not positive, or more than is free.
    """
    if wanted is None:
        return round(facts.free_gb * _SHARE.get(facts.kind, 0.5), 3)
    gb = _parse(wanted, facts.free_gb)
    if gb is None or not math.isfinite(gb) or gb <= 0:
        raise BadOption(
            f"{wanted!r} is not an amount of memory to lend.", 'Write it like "6GB", "512MB", "50%" or 6.'
        )
    if gb > facts.free_gb:
        raise BadOption(
            f"{gb:.1f} GB to lend are more than the {facts.free_gb:.1f} GB that are free on this device.",
            f"Lend at most {facts.free_gb:.1f} GB, or close what uses the rest.",
        )
    return gb


def _parse(wanted: float | str, free_gb: float) -> float | None:
    if isinstance(wanted, bool):
        return None
    if isinstance(wanted, int | float):
        return float(wanted)
    match = _SIZE.fullmatch(wanted)
    if match is None:
        return None
    number, unit = float(match[1].replace(",", ".")), (match[2] or "gb").lower()
    return free_gb * number / 100 if unit == "%" else number * _UNITS[unit] / 1e9
