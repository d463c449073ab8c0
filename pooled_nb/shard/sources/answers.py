"""What an answer to a range request means (RFC 9110 sections 14 and 15). Decides only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from pooled_nb.errors import ModelNotFound

_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_LENGTH = re.compile(r"\d{1,18}")
_LIMIT = re.compile(r"(?:^|;)\s*t\s*=\s*(\d{1,6})")
_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_EXPIRED = {400, 401, 403, 404, 410}


class Part(NamedTuple):
    """The body is bytes ``[lo, hi)`` of a file of ``size`` bytes; ``hi`` may be less than was asked for."""

    lo: int
    hi: int
    size: int
    ranged: bool
    """False: the server ignores ranges, and sends the whole file."""


class Again(Exception):
    """Ask again later: ``why`` in a few words, ``after`` so many seconds if the server says so."""

    def __init__(self, why: str, after: float | None = None, status: int = 0) -> None:
        super().__init__(why)
        self.why = why
        self.after = after
        self.status = status


class Expired(Exception):
    """The address that the hub led to holds no more: ask the hub for another."""


class Refused(Exception):
    """The answer is no, and stays it."""


def judge(
    status: int, headers: Mapping[str, str], lo: int, hi: int, *, size: int | None, name: str, led: bool
) -> Part:
    """Read the head of an answer.

    Parameters
    ----------
    headers
        By names in lower case, or in any.
    lo, hi
        What was asked for.
    size
        Bytes of the file, where they are known.
    led
        Asked was an address that the hub led to earlier, not the hub.

    Raises
    ------
    Again, Expired, Refused
    ModelNotFound
        The file is not the one that was meant.
    """
    known = {key.lower(): value for key, value in headers.items()}
    if status == 206:
        return _part(known.get("content-range", ""), lo, hi, size, name)
    if status == 200:
        said = known.get("content-length", "")
        whole = int(said) if _LENGTH.fullmatch(said) else size
        if whole is None:
            raise ModelNotFound(f"{name} is not fetched: the hub does not say how large it is.", OTHER)
        _same(whole, size, name)
        return Part(0, whole, whole, ranged=False)
    if status == 416:
        found = re.fullmatch(r"bytes \*/(\d{1,18})", known.get("content-range", ""))
        raise changed(name, f"it ends before byte {lo}" if not found else f"it has {found[1]} bytes now")
    if status in _AGAIN:
        raise Again(f"it answered {status}", wait_of(known), status)
    if led and status in _EXPIRED:
        raise Expired
    raise Refused


def _part(said: str, lo: int, hi: int, size: int | None, name: str) -> Part:
    found = _RANGE.fullmatch(said.strip())
    if not found:
        raise ModelNotFound(f"The hub sends a part of {name}, and does not say which.", OTHER)
    first, last = int(found[1]), int(found[2])
    whole = size if found[3] == "*" else int(found[3])
    if whole is None:
        raise ModelNotFound(f"{name} is not fetched: the hub does not say how large it is.", OTHER)
    _same(whole, size, name)
    if first != lo or not first <= last < hi:
        raise ModelNotFound(
            f"The hub sends bytes {first}–{last} of {name}, and bytes {lo}–{hi - 1} were asked for.", OTHER
        )
    return Part(first, last + 1, whole, ranged=True)


OTHER = "Try again later, or set HF_ENDPOINT to another mirror."


def _same(whole: int, size: int | None, name: str) -> None:
    if size is not None and whole != size:
        raise changed(name, f"it has {whole} bytes now, and had {size}")


def changed(name: str, how: str) -> ModelNotFound:
    """Say that a file is another one than before."""
    return ModelNotFound(
        f"{name} changed on the hub while it was fetched: {how}.",
        "Start the room again, so that it uses the hub's files of now.",
    )


def wait_of(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait: ``Retry-After``, or the hub's own ``RateLimit``."""
    said = headers.get("retry-after", "").strip()
    if said.isdigit():
        return float(said[:6])
    if said:
        try:
            date = parsedate_to_datetime(said)
            now = parsedate_to_datetime(headers.get("date", ""))
            return max(0.0, (date - now).total_seconds())  # by the server's own clock
        except (TypeError, ValueError):
            return None
    found = _LIMIT.search(headers.get("ratelimit", ""))
    return float(found[1]) if found else None
