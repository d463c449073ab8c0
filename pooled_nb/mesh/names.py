"""Names of devices: text that is safe to show, short, and unique in a room (PROTOCOL section 3)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container

MAX_NAME = 40
"""Characters, counted as a browser counts them (UTF-16 units): both ends must cut a name alike."""
DEFAULT = "device"

_MARKUP = frozenset("<>\"'&`")
_JOINERS = frozenset("\u200c\u200d")
"""Persian and family emoji need these two. All other invisible characters go: they can turn text around."""
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and symbols that show nothing."""
_GONE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_CLINGING = frozenset({"Mn", "Me"})
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_SIX_DIGITS = re.compile(r"(?:0[\W_]*){6,}")


def clean(text: str) -> str:
    """A name as it may be shown: one line, no control characters, no markup, at most 40 characters.

    What is left empty becomes ``device``.
    """
    # Normalized first: U+1FEF, for one, becomes a backtick. And again: what stood between two is gone.
    text = unicodedata.normalize("NFC", text[: 8 * MAX_NAME])
    kept = "".join(" " if c.isspace() else c for c in text if c.isspace() or _shown(c))
    name = unicodedata.normalize("NFC", " ".join(kept.split()))
    name = _cut(name, MAX_NAME)
    return name if any(not _clings(c) for c in name) else DEFAULT


def unique(name: str, taken: Container[str]) -> str:
    """``name``, cleaned; with the first number from 2 on that makes it none of ``taken``: ``laptop 2``."""
    base = clean(name)
    candidate, n = base, 1
    while candidate in taken:
        n += 1
        suffix = f" {n}"
        candidate = _cut(base, MAX_NAME - len(suffix)) + suffix
    return candidate


def without_digits(text: str) -> str:
    """``#`` for each digit of six or more in a row, whatever parts them: ``leo 482 019``, ``leo ### ###``.

    Beside the six digits that two people compare stands what a stranger says of itself: it may know those of
    the other screen by then, and they must not be read there (PROTOCOL section 4).
    """
    alike = "".join("0" if c.isnumeric() else c for c in text)
    hidden = {i for run in _SIX_DIGITS.finditer(alike) for i in range(*run.span()) if alike[i] == "0"}
    return "".join("#" if i in hidden else c for i, c in enumerate(text))


def _shown(c: str) -> bool:
    return c in _JOINERS or (c not in _MARKUP and c not in _BLANK and unicodedata.category(c) not in _GONE)


def _units(c: str) -> int:
    return 2 if ord(c) > 0xFFFF else 1


def _clings(c: str) -> bool:
    """Whether it changes the character before it: accents, joiners, skin tones."""
    return c in _JOINERS or unicodedata.category(c) in _CLINGING or ord(c) in _SKIN_TONES


def _cut(name: str, limit: int) -> str:
    end = used = 0
    while end < len(name) and used + _units(name[end]) <= limit:
        used += _units(name[end])
        end += 1
    hard = end
    # Not in the middle of what people see as one character, unless that alone is too long.
    while 0 < end < len(name) and (_clings(name[end]) or name[end - 1] in _JOINERS):
        end -= 1
    return name[: end or hard].rstrip()
