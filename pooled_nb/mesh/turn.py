"""A relay as people write it: ``turn:USER:PASSWORD@HOST:PORT`` in ``POOLED_TURN`` (PROTOCOL section 2, ICE).

The whole text is a secret, since it holds one: no error repeats any of it.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from pooled_nb.errors import BadOption
from pooled_nb.mesh.ice import TurnServer

PORTS = {"turn": 3478, "turns": 5349}
_PLACE = re.compile(
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)(?::(?P<port>[0-9]{1,5}))?"
    r"(?:\?transport=(?P<transport>udp|tcp))?",
    re.IGNORECASE,
)
_MAX = 1_000


def parse(text: str) -> TurnServer | None:
    """Read one; None for an empty text. User and password are percent-decoded: a colon in it is ``%3A``.

    Raises
    ------
    BadOption
        It is no relay. The text is not repeated.
    """
    text = text.strip()
    if not text:
        return None
    scheme, mark, rest = text.partition(":")
    scheme = scheme.lower()
    login, at, where = rest.removeprefix("//").rpartition("@")
    found = _PLACE.fullmatch(where)
    good = mark and scheme in PORTS and len(text) <= _MAX and login.isprintable() and " " not in login
    port = int(found["port"] or PORTS[scheme]) if found and good else 0
    # The last colon: a user's name may hold one (a relay's time-limited names begin with the time).
    user, colon, password = login.rpartition(":")
    if found is None or not 0 < port < 65_536 or bool(at) != bool(colon):
        raise BadOption(
            "POOLED_TURN names no relay that can be read.",
            "Write it as turn:USER:PASSWORD@HOST:PORT, or turns:… for one that speaks TLS.",
        )
    transport = "tcp" if scheme == "turns" else (found["transport"] or "udp").lower()
    return TurnServer(
        url=f"{scheme}:{found['host']}:{port}?transport={transport}",
        username=unquote(user),
        credential=unquote(password),
    )
