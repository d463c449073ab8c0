"""Session descriptions and candidates as they cross signaling: what is sent and taken (DESIGN section 4).

Text in, text out, no I/O. Everything signaled is untrusted.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh import fingerprints

MAX_CANDIDATES = 64
"""Of one description, and of those trickled to one connection."""
_RELATED = re.compile(r" raddr \S+ rport \S+")
_PORT = re.compile(r"^(m=\S+) \d+ ")
_LOCAL_NAME = re.compile(r"[A-Za-z0-9-]{1,63}\.local")


@dataclass(frozen=True, slots=True)
class Taken:
    """A description that may be applied.

    Attributes
    ----------
    sdp
        The text without candidates that nobody can use.
    fingerprint
        ``"sha-256 <hex:…>"`` in lower case, the only one.
    names
        Candidate lines (``candidate:…``) whose address is a ``….local`` name, to be resolved apart:
        one that nobody resolves must not hold up the others.
    """

    sdp: str
    fingerprint: str
    names: tuple[str, ...]


def outgoing(sdp: str, *, relay_only: bool = False) -> str:
    """Our gathered description with the sha-256 fingerprint alone (aiortc writes three).

    With ``relay_only`` no address in it is this device's own, whatever was gathered (PROTOCOL section 2).
    """
    sdp = fingerprints.only_sha256(sdp)
    return with_candidates(sdp, lambda line: kind(line) == "relay") if relay_only else sdp


def with_candidates(sdp: str, keep: Callable[[str], bool]) -> str:
    """The description with some of its candidates, and no address besides.

    A relay's does not say where it leads (RFC 8839 section 5.1).

    Parameters
    ----------
    keep
        Asked of each ``candidate:…`` line.
    """
    lines: list[str] = []
    for line in sdp.splitlines():
        if line.startswith("c="):
            lines.append("c=IN IP4 0.0.0.0")
        elif line.startswith("m="):
            lines.append(_PORT.sub(r"\g<1> 9 ", line))
        elif not line.startswith("a=candidate:"):
            lines.append(line)
        elif keep(line[2:]):
            hidden = kind(line[2:]) == "relay"
            lines.append(_RELATED.sub(" raddr 0.0.0.0 rport 9", line) if hidden else line)
    return "\r\n".join([*lines, ""])


def has_candidates(sdp: str) -> bool:
    """Whether the description names any way to its sender."""
    return "\na=candidate:" in sdp


def take(sdp: str) -> Taken:
    """Check a signaled description.

    Raises
    ------
    LinkFailed
        It is not one data section, or does not name exactly one fingerprint (PROTOCOL section 4: a stack
        that accepts any of several must refuse more than one).
    """
    # `splitlines` parts at more than CR and LF, as aiortc's parser does: no line may hide from either.
    lines = [line for line in sdp.splitlines() if line.strip()]  # a blank one is no line (RFC 8866 section 5)
    media = [line for line in lines if line.startswith("m=")]
    if len(media) != 1 or not media[0].startswith("m=application "):
        raise LinkFailed("The other device described something else than one data connection.", _UPDATE)
    found = fingerprints.one(sdp)
    if found is None:
        raise LinkFailed("The other device did not name exactly one certificate.", _UPDATE)
    kept: list[str] = []
    names: list[str] = []
    candidates = 0
    for line in lines:
        if line.startswith("a=candidate:"):
            candidates += 1
            leads = _leads(line[2:])
            if leads == "name" and len(names) < MAX_CANDIDATES:
                names.append(line[2:])
            if leads != "address" or candidates > MAX_CANDIDATES:
                continue
        kept.append(line)
    if names:
        # With these still to come the list is not at its end, whatever the sender thought.
        kept = [line for line in kept if line != "a=end-of-candidates"]
    return Taken("\r\n".join([*kept, ""]), found, tuple(names))


def is_usable(candidate: str) -> bool:
    """Whether a trickled ``candidate:…`` line is UDP, to an address or a ``….local`` name."""
    return _leads(candidate) != "no"


def address(candidate: str) -> str:
    """Address of a ``candidate:…`` line that `is_usable`."""
    return candidate.split()[4]


def kind(candidate: str) -> str:
    """``host``, ``srflx``, ``prflx`` or ``relay``, of a ``candidate:…`` line; empty where it says none."""
    parts = candidate.split()
    return parts[7] if len(parts) > 7 else ""


def is_name(candidate: str) -> bool:
    """Whether its address is a ``….local`` name."""
    return _leads(candidate) == "name"


def _leads(candidate: str) -> str:
    """``"address"``, ``"name"`` or ``"no"``."""
    parts = candidate.split()
    # candidate:<foundation> <component> <protocol> <priority> <address> <port> typ <type> …
    if len(parts) < 8 or not parts[0].startswith("candidate:") or parts[6] != "typ":
        return "no"
    if parts[2].lower() != "udp" or parts[1] != "1" or not (parts[3].isascii() and parts[3].isdigit()):
        return "no"
    if not (parts[5].isascii() and parts[5].isdigit() and 0 < int(parts[5]) < 65536):
        return "no"
    if _LOCAL_NAME.fullmatch(parts[4]):
        return "name"
    try:
        ipaddress.ip_address(parts[4])
    except ValueError:
        return "no"
    return "address"


_UPDATE = "Update pooled_nb on both devices, or try another signaling server."
