"""What a notebook keeps of a room that was open: its chain in letters, a table, and when that was.

Read without a kernel, later and elsewhere; it holds no key, nobody's digits, and nobody's questions.
"""

from __future__ import annotations

import time
from html import escape

import msgspec

from pooled_nb import plain, show
from pooled_nb.counted import lasting
from pooled_nb.room import doorwords
from pooled_nb.room.core import DeviceLine, State, Status

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
WIDTH = 48
"""Letters of a chain, about; each device has one at least."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WAITED: dict[State, str] = {
    "waiting": "A device did not respond, and the answer waited for it.",
    "degraded": "A device was gone, and its layers were missing.",
    "away": "The host did not answer.",
}
"""How it was, where the room's own sentence only counts seconds."""


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
        part, numbers = _part(device, _letter(n, device), status.layers)
        gap = " · " if n else ""
        above += gap + part
        below += " " * len(gap) + numbers
    return f"{above} · head\n{below.rstrip()}"


def legend(status: Status) -> str:
    """Whose letters they are: ``A studio (host) · B mira``."""
    parts = [
        f"{_letter(n, d)} {plain.isolated(plain.visible(d.name))}"
        f"{' (gone)' if d.gone else ' (host)' if d.role == 'host' else ''}"
        for n, d in enumerate(_held(status))
    ]
    return " · ".join(parts)


def _held(status: Status) -> list[DeviceLine]:
    held = [d for d in status.devices if d.layers is not None] if status.layers else []
    return sorted(held, key=lambda d: d.layers or (0, 0))


def _letter(n: int, device: DeviceLine) -> str:
    """Its letter; a line where its layers are missing."""
    return "-" if device.gone else LETTERS[n % len(LETTERS)]


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
    # Who waits at the door, what to compare, and what was waited for is of that moment alone.
    sentence = lasting(status.sentence.removesuffix(doorwords.waits(status.lobby)).strip())
    devices = [msgspec.structs.replace(d, silent_s=0, patience_s=0) for d in status.devices]
    made = show.status_bundle(
        msgspec.structs.replace(
            status,
            sentence=sentence or _WAITED.get(status.state, "The room is open."),
            devices=devices,
            lobby=[],
            trust="",
            digits="",
            waits_for=[],
            redeal_in=None,
        )
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
