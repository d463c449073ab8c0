"""What a device asks before it downloads much, as a room's panel shows it; what it does then. Pure.

The question is the panel's sentence, and its two answers are that sentence's buttons.
"""

from __future__ import annotations

from typing import Any

from pooled_nb.room.core import Status
from pooled_nb.room.sentences import layers_of
from pooled_nb.widgets.formats import finite, line, say, sentence

ANSWERS = {"download": True, "refuse": False}
"""What its buttons say, and what that means."""


def asked(status: Status) -> bool:
    """Whether this device's person has to decide now."""
    return status.asks is not None and "download" in status.can and status.state != "closed"


def question(status: Status) -> dict[str, str]:
    """The line of the panel: how much, what for, how much room there is."""
    ask = status.asks
    assert ask is not None
    free = finite(ask.free_gb)
    room = f"; {size(free)} are free" if free is not None else ""
    model = status.label if status.label and ask.model == status.model else ask.model
    layers = layers_of(ask.lo, ask.hi) if 0 <= ask.lo < ask.hi else "layers"
    about = f"For {layers} of {line(model, 120)}{room}."
    return say("warn", f"May this device download {size(ask.gb)}?", about)


def answers(status: Status) -> list[dict[str, Any]]:
    """Its buttons. ``careful``: a click that was meant for what stood there before does nothing."""
    assert status.asks is not None
    words = f"Download {size(status.asks.gb)}"
    return [
        {"cmd": "download", "label": words, "main": True, "careful": True},
        {"cmd": "refuse", "label": "Refuse", "main": False, "careful": True},
    ]


def size(gb: float) -> str:
    """``12 GB``, ``8.4 GB``, ``120 MB``."""
    known = finite(gb)
    if known is None or known < 0:
        return "some GB"
    if known < 0.9995:
        return f"{known * 1e3:.0f} MB"
    return f"{known:,.0f} GB" if known >= 9.95 else f"{known:.1f} GB"


def own_load(status: Status) -> str:
    """What this device does for its layers, as a sentence; empty: nothing."""
    return sentence(f"Here: {line(status.loading, 200)}") if status.loading else ""


def known(status: Status) -> str:
    """What is worth to know of where this device's layers came from, where nothing newer is to be told."""
    if status.state == "closed":
        return ""
    return sentence(status.unverified or status.given)
