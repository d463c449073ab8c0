"""What a device that lost its host says while it knocks (PROTOCOL section 3, dead links)."""

from __future__ import annotations

PERSISTS = "It goes on by itself when the host is back"
MINUTE = 60.0
BACK = "Back in the room."
DEALT = "The layers are dealt again; the answer goes on then."


def lost(name: str) -> str:
    """It has just lost it."""
    return f"{name or 'The host'} does not answer; this device knocks, and goes on when it is back."


def at_the_door(digits: str) -> str:
    """The host is there again, and does not know this device's pass: people decide (section 4)."""
    compare = f" Both screens show {digits}: compare them." if digits else ""
    return f"The host is back and decides anew whether this device comes in.{compare}"


def sentence(knocking: tuple[float, float] | None, *, layers: bool, asked: bool) -> str:
    """How long it has knocked, of how long; and what it keeps meanwhile.

    Parameters
    ----------
    knocking
        As of `Mesh.knocking`; None: it is not known yet.
    layers
        It holds layers.
    asked
        A question of its own is under way.
    """
    kept = ["its layers"] * layers + ["your question"] * asked
    keeps = f" and keeps {' and '.join(kept)}" if kept else ""
    how = f" ({_so_far(*knocking)})" if knocking else ""
    return f"The host does not answer; this device knocks{how}{keeps}. {PERSISTS}; %pooled leave gives up."


def seconds(knocking: tuple[float, float]) -> tuple[int, int]:
    """For how long it has knocked, and how long it will in all; the first second counts as one."""
    since, most = knocking
    return max(1, int(min(since, most))), int(most)


def _so_far(since: float, most: float) -> str:
    if most <= 2 * MINUTE:
        return "{} of {} s".format(*seconds((since, most)))
    return f"{int(min(since, most) // MINUTE)} of {int(most // MINUTE)} min"
