"""Descriptions and candidates that lead to another place (RFC 8839); all else of them stays as it was."""

from __future__ import annotations

import re

Address = tuple[str, int]

_CANDIDATE = re.compile(
    r"(?P<head>candidate:\S+ 1 udp \d+ )(?P<host>\d+(?:\.\d+){3}) (?P<port>\d+) typ ",
    re.IGNORECASE,
)


def address_of(line: str) -> Address | None:
    """Where a candidate (``candidate:…``, ``a=candidate:…``) leads; None: nowhere by UDP and IPv4."""
    found = _CANDIDATE.match(line.removeprefix("a="))
    return None if found is None else (found["host"], int(found["port"]))


def first(sdp: str) -> Address:
    """Where the first candidate of a description leads.

    Raises
    ------
    ValueError
        It has none.
    """
    for line in sdp.splitlines():
        if line.startswith("a=candidate:") and (address := address_of(line)) is not None:
            return address
    raise ValueError("a description without a candidate of UDP over IPv4")


def moved(line: str, to: Address) -> str:
    """The candidate, leading there."""
    found = _CANDIDATE.match(line.removeprefix("a="))
    assert found is not None, line
    start = "a=" if line.startswith("a=") else ""
    return f"{start}{found['head']}{to[0]} {to[1]} typ host"


def rewritten(sdp: str, to: Address) -> str:
    """The description with one candidate alone, that leads there; fingerprints and all else are untouched."""
    lines: list[str] = []
    is_done = False
    for line in sdp.splitlines():
        if not line.startswith("a=candidate:"):
            lines.append(line)
        elif not is_done and address_of(line) is not None:
            lines.append(moved(line, to))
            is_done = True
    return "\r\n".join([*lines, ""])
