"""Room codes and invite links (PROTOCOL section 2)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qs, unquote, urlencode, urlsplit

from pooled_nb.errors import BadCode, SignalingDown
from pooled_nb.mesh import specs

ALPHABET = "ABCDEFGHJKMNPQRSTVWXYZ23456789"
"""Without I, L, O, U, 0 and 1, which people mix up."""
LENGTH = 6
LENGTHS = (6, 4)
"""Lengths that are read: ours, and the older one."""
MAX_TEXT = 2_000
"""Characters of a link; longer is none."""
LINK_BASE = "pooled://room/r/"
"""What an invite link begins with where no web page stands for the room."""

_DROPPED = re.compile(r"[\s\-_.]", re.ASCII)
_PATH = re.compile(r"/(?:r|room)/([^/]*)/?$")
_KEY = re.compile(r"[A-Za-z0-9_-]{22,64}")
_FAIR = 256 - 256 % len(ALPHABET)

_NEXT = "Type the six characters as the host shows them, like 4TK-G9P, or paste the whole invite link."


@dataclass(frozen=True, slots=True)
class Invite:
    """What a code or a link says.

    Attributes
    ----------
    code
        6 (or 4) characters of `ALPHABET`, upper case, no hyphen.
    key
        The invite key, a secret; None where there is none, or one of the wrong form. Never shown.
    signal
        The spec of a signaling server, as written; `pooled_nb.mesh.specs.parse` reads it.
    """

    code: str
    key: str | None = field(default=None, repr=False)
    signal: str | None = None


def draw(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """Draw a new code.

    Bytes that would favour some letters are thrown away: 256 is no multiple of 30.

    Parameters
    ----------
    random_bytes
        Gives that many random bytes.
    """
    code = ""
    while len(code) < LENGTH:
        code += "".join(ALPHABET[b % len(ALPHABET)] for b in random_bytes(2 * LENGTH) if b < _FAIR)
    return code[:LENGTH]


def shown(code: str) -> str:
    """As people see it: ``4TK-G9P``."""
    return f"{code[:3]}-{code[3:]}" if len(code) == LENGTH else code


def link(code: str, key: str, signal: str) -> str:
    """The invite link of a room: a secret, since the key is in it (in the fragment: no server sees it).

    Where the signaling server is a web server that is known by its address, the link is one of its pages
    (ours says there how to join); else nothing opens it but this package: ``pooled://``.

    Parameters
    ----------
    code, key
        The room's code as typed in links, and its invite key.
    signal
        The spec of the signaling server that the room is registered at; an embedded one by its URL. What
        reads the link joins there. No relay is in a link, ever: its credentials are each device's own.
    """
    query = urlencode({"signal": signal})
    return f"{_link_base(signal)}{code}?{query}#k={key}"


def _link_base(signal: str) -> str:
    try:
        server = specs.parse(signal)
    except SignalingDown:
        return LINK_BASE
    return f"{server.http}r/" if server.kind == "url" else LINK_BASE


def room_id(code: str) -> str:
    """The PeerJS id under which the creator of this room registers."""
    return f"pooled-room-{code}"


def good_key(key: str) -> bool:
    """Whether it has the form of an invite key, pass or nonce (PROTOCOL section 4)."""
    return _KEY.fullmatch(key) is not None


def parse(text: str) -> Invite:
    """Read what a person typed or pasted: a code, or an invite link.

    Raises
    ------
    BadCode
        It is neither. The text is not repeated: it may hold a key.
    """
    if len(text) > MAX_TEXT:
        raise BadCode("This is too long for a room code or an invite link.", _NEXT)
    if not any(mark in text for mark in "/?#"):
        if (code := _code(text)) is not None:
            return Invite(code)
        raise BadCode(_why(text), _NEXT)
    try:
        url = urlsplit(text.strip())
        query = parse_qs(url.query, max_num_fields=50)
    except ValueError as exc:
        raise BadCode("This is not a link that can be read.", _NEXT) from exc
    parts = url.fragment.split("&")
    code = _code_of(url, query, parts[0])
    if code is None:
        raise BadCode("This link names no room.", _NEXT)
    key = next((p[2:] for p in parts if p.startswith("k=")), None)
    signal = next((s.strip() for s in query.get("signal", []) if s.strip()), None)
    return Invite(code, key if key is not None and good_key(key) else None, signal)


def _code_of(url: SplitResult, query: dict[str, list[str]], fragment: str) -> str | None:
    """The first of path, query and fragment that is a code."""
    path = _PATH.search(url.path)
    places = ([unquote(path[1])] if path else []) + query.get("code", []) + [unquote(fragment)]
    return next((code for place in places if (code := _code(place)) is not None), None)


def _code(text: str) -> str | None:
    # ASCII first: other digits (٤) and letters whose upper case is ASCII (ı) must not slip in.
    if not text.isascii():
        return None
    code = _DROPPED.sub("", text).upper()
    return code if len(code) in LENGTHS and set(code) <= set(ALPHABET) else None


def _why(text: str) -> str:
    """What is wrong with a text that is not a code, in one sentence."""
    code = _DROPPED.sub("", text)
    if not code:
        return "No room code was given."
    if not code.isascii() or not code.isalnum():
        return "A room code has only the letters A–Z and digits."
    if wrong := [c for c in code.upper() if c not in ALPHABET]:
        return f"A room code never has the character {wrong[0]}: I, L, O, U, 0 and 1 are left out."
    return f"A room code has 6 characters; this has {len(code)}."
