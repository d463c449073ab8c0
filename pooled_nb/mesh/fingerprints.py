"""Certificate fingerprints in session descriptions (PROTOCOL section 4, binding).

The text that signaling carried counts, not what a stack made of it: a stack that accepts any of several
fingerprints would let signaling add one.
"""

from __future__ import annotations

import re

_MARK = "a=fingerprint"
_LINE = re.compile(r"a=fingerprint:([A-Za-z0-9-]{1,20}) ((?:[0-9A-Fa-f]{2}:)+[0-9A-Fa-f]{2})[ \t]*")
_BYTES = {"sha-1": 20, "sha-224": 28, "sha-256": 32, "sha-384": 48, "sha-512": 64, "md5": 16, "md2": 16}


def only_sha256(sdp: str) -> str:
    """The description without fingerprints of any other hash.

    aiortc writes three for one certificate, and a reader that wants exactly one would refuse them.
    """
    return "".join(line for line in sdp.splitlines(keepends=True) if not _is_mark(line) or _is_sha256(line))


def one(sdp: str) -> str | None:
    """The one fingerprint of a description, ``"sha-256 ab:cd:…"`` in lower case.

    None unless there is exactly one distinct one and every fingerprint line can be read.
    """
    found: set[str] = set()
    # `splitlines` parts at more than CR and LF, as aiortc's parser does: no line must hide from one of them.
    for line in sdp.splitlines():
        if not _is_mark(line):
            continue
        read = _LINE.fullmatch(line)
        if read is None:
            return None
        algorithm, digits = read[1].lower(), read[2].lower()
        if len(digits) != 3 * _BYTES.get(algorithm, 0) - 1:
            return None
        found.add(f"{algorithm} {digits}")
    return found.pop() if len(found) == 1 else None


def binding(own: str | None, remote: str | None) -> str | None:
    """What proofs are bound to: both ends' fingerprints, sorted, joined by ``,``; None where one has none."""
    if own is None or remote is None:
        return None
    return ",".join(sorted({own, remote}))


def _is_mark(line: str) -> bool:
    return line.lstrip().lower().startswith(_MARK)


def _is_sha256(line: str) -> bool:
    return line.lstrip().lower().startswith(f"{_MARK}:sha-256 ")
