"""What a notebook keeps of a room that was open: its chain in letters, a table, and when that was.

Read without a kernel, later and elsewhere; it holds no key, nobody's digits, and nobody's questions.
"""

from __future__ import annotations

import time
from html import escape

import msgspec

from pooled_nb import plain, show
from pooled_nb.room import doorwords
from pooled_nb.room.core import DeviceLine, Status

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
WIDTH = 48
"""Letters of a chain, about; each device has one at least."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def when(now: time.struct_time | None = None) -> str:
    """Say when it was: ``Saved 29 Nov 2026, 21:16; the room may be closed by now. …``."""
    now = now or time.localtime()
    at = f"{now.tm_mday} {MONTHS[now.tm_mon - 1]} {now.tm_year}, {now.tm_hour:02}:{now.tm_min:02}"
    return f"Saved {at}; the room may be closed by now. Run the cell to open one."


def letters(status: Status) -> str:
    """The chain in letters, with the layers' numbers below; empty before a deal."""
    held = _held(status)
    if not held:
        return ""
    above, below = "embed ", "      "
    for n, device in enumerate(held):
        part, numbers = _part(device, LETTERS[n % len(LETTERS)], status.layers)
        gap = " · " if n else ""
        above += gap + part
        below += " " * len(gap) + numbers
    return f"{above} · head\n{below.rstrip()}"


def legend(status: Status) -> str:
    """Whose letters they are: ``A studio (host) · B mira``."""
    parts = [
        f"{LETTERS[n % len(LETTERS)]} {plain.isolated(plain.visible(d.name))}"
        f"{' (host)' if d.role == 'host' else ''}"
        for n, d in enumerate(_held(status))
    ]
    return " · ".join(parts)


def _held(status: Status) -> list[DeviceLine]:
    held = [d for d in status.devices if d.layers is not None] if status.layers else []
    return sorted(held, key=lambda d: d.layers or (0, 0))


def _part(device: DeviceLine, letter: str, layers: int) -> tuple[str, str]:
    lo, hi = device.layers or (0, 0)
    first, last = str(lo + 1), str(hi)
    width = max(round((hi - lo) / layers * WIDTH), len(first) + 1 + len(last) if hi - lo > 1 else len(last))
    numbers = f"{first:{width - len(last)}}{last}" if hi - lo > 1 else f"{last:{width}}"
    return letter * width, numbers


def bundle(status: Status, now: time.struct_time | None = None) -> dict[str, str]:
    """A room that is open, for a notebook: what is there now, and that it may not last."""
    if status.state == "closed":
        return show.status_bundle(status)
    # Who waits at the door, and what to compare, is of that moment alone.
    sentence = status.sentence.removesuffix(doorwords.waits(status.lobby)).strip() or "The room is open."
    made = show.status_bundle(
        msgspec.structs.replace(status, sentence=sentence, lobby=[], trust="", digits="")
    )
    said = when(now)
    chain = "\n".join(part for part in (letters(status), legend(status)) if part)
    rows = f"<pre>{escape(chain)}</pre>" if chain else ""
    block = f"\n\n```\n{chain}\n```" if chain else ""
    return {
        "text/plain": "\n".join(part for part in (made["text/plain"], chain, said) if part),
        "text/markdown": f"{made['text/markdown']}{block}\n\n{plain.literal(said)}",
        "text/html": f"{made['text/html']}{rows}<small>{escape(said)}</small>",
    }
