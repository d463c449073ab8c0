"""Names, numbers and units as every panel writes them. All text of others passes through `line` or `text`."""

from __future__ import annotations

import math

from pooled_nb.plain import isolated, visible

NAME = 60
"""Characters of a name that a panel carries; the browser cuts what does not fit the column."""
SENTENCE = 400
NONE = "–"
"""What was not measured, never 0."""
LARGEST = 1e9
"""No size, time or rate of a room comes near it; its digits still fit a column."""
_TURNS = dict.fromkeys([0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
"""Unicode's marks of direction: one in a name would end the isolation around it."""


def clean(words: str) -> str:
    """Text of others for a browser: no control characters, no half of a character, which JSON refuses."""
    return visible(words).encode("utf-8", "replace").decode()


def text(words: str, most: int) -> str:
    """The same, not longer than ``most`` characters."""
    # Cut first: work is bounded by what is shown, not by what was sent.
    whole = clean(words[: 4 * most])
    return whole if len(whole) <= most else f"{whole[: most - 1]}…"


def line(words: str, most: int = NAME) -> str:
    """The same, on one line."""
    return text(" ".join(words[: 4 * most].split()), most)


def named(name: str) -> str:
    """A name inside of a sentence: one that reads from the right turns nothing around it."""
    return isolated(line(name.translate(_TURNS)))


def finite(number: float | None) -> float | None:
    """None for what is no number of a room: JSON has no infinity, and a kernel refuses to send one."""
    return number if number is not None and math.isfinite(number) and abs(number) <= LARGEST else None


def gb(size: float) -> str:
    """``16.4 GB``."""
    return f"{number(size)} GB"


def number(size: float) -> str:
    """``16.4``."""
    return NONE if finite(size) is None else f"{size:.1f}"


def ms(milliseconds: float) -> str:
    """``6.2 ms``, ``24 ms``."""
    return f"{milliseconds:.1f} ms" if milliseconds < 10 else f"{milliseconds:.0f} ms"


def count(n: int, one: str, many: str = "") -> str:
    """``1 device``, ``3 devices``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def sentence(words: str, most: int = SENTENCE) -> str:
    """Words with a full stop; empty stays empty. It may begin with a name, which stays as typed."""
    words = line(words, most)
    return words if not words or words[-1] in ".…!?" else f"{words}."


def say(tone: str, what: str, about: str) -> dict[str, str]:
    """The line of a panel: what is so, then what happens next or what to do."""
    return {"tone": tone, "what": text(what, 200), "about": text(about, SENTENCE)}


def begun(words: str) -> str:
    """Words of a work under way as a sentence; ``mira: reading layers`` begins with a name."""
    words = sentence(words, 200)
    return words if words.partition(" ")[0].endswith(":") else words[:1].upper() + words[1:]


def percent(part: float | None) -> int:
    """0 to 100."""
    return round(max(0.0, min(100.0, finite(part) or 0.0)))
