"""Relays and STUN servers as people and servers write them (PROTOCOL section 2, ICE).

A relay is ``turn:USER:PASSWORD@HOST:PORT`` in ``POOLED_TURN`` and the network box. The whole text is a
secret, since it holds one: no error repeats any of it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

from pooled_nb.errors import BadOption
from pooled_nb.mesh.ice import PUBLIC_STUN, TurnServer
from pooled_nb.mesh.unseen import Unseen

PORTS = {"turn": 3478, "turns": 5349}
STUN_PORT = 3478
OFF = "off"
"""Instead of a server: none, also where another setting or the deployment would name one."""
DEFAULT = "default"
"""Instead of STUN servers: the public ones."""
MAX_STUN = 8
MAX_RELAYS = 4
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
_PORT = r"(?::(?P<port>[0-9]{1,5}))?"
_PLACE = re.compile(
    rf"(?P<host>{_NAME}|\[(?P<v6>[0-9A-F:.]{{2,45}})\]){_PORT}(?:\?transport=(?P<transport>udp|tcp))?",
    re.IGNORECASE,
)
_STUN = re.compile(rf"(?:stun:)?(?P<host>{_NAME}){_PORT}", re.IGNORECASE)
_MAX = 1_000
_ORDER = {"udp": 0, "tcp": 1, "tls": 2}


def parse(text: str, setting: str = "POOLED_TURN") -> TurnServer | None:
    """Read one; None for an empty text. User and password are percent-decoded: a colon in it is ``%3A``.

    Parameters
    ----------
    setting
        Where it stands, for the error.

    Raises
    ------
    BadOption
        It is no relay. The text is not repeated.
    """
    text = Unseen(text.strip())
    if not text:
        return None
    found = _read(text)
    if found is None:
        raise BadOption(
            f"{setting} names no relay that can be read.",
            "Write it as turn:USER:PASSWORD@HOST:PORT, or turns:… for one that speaks TLS.",
        )
    return found


def _read(text: str) -> TurnServer | None:
    # Apart from what raises: a traceback may show what the variables of its frames hold.
    scheme, mark, rest = text.partition(":")
    login, at, where = rest.removeprefix("//").rpartition("@")
    # The last colon: a user's name may hold one (a relay's time-limited names begin with the time).
    user, colon, password = login.rpartition(":")
    good = mark and bool(at) == bool(colon) and len(text) <= _MAX and login.isprintable() and " " not in login
    return server(f"{scheme}:{where}", unquote(user), unquote(password)) if good else None


def server(url: str, username: str, credential: str) -> TurnServer | None:
    """A relay by its URL (RFC 7065) and what it asks for; None where it is none that can be used."""
    scheme, _, rest = url.partition(":")
    scheme = scheme.lower()
    found = _PLACE.fullmatch(rest)
    if found is None or scheme not in PORTS:
        return None
    transport = (found["transport"] or ("tcp" if scheme == "turns" else "udp")).lower()
    port = int(found["port"] or PORTS[scheme])
    if not 0 < port < 65_536 or (scheme == "turns" and found["transport"] and transport != "tcp"):
        return None
    if found["v6"] and not _is_v6(found["v6"]):
        return None
    return TurnServer(
        url=f"{scheme}:{found['host']}:{port}?transport={transport}",
        username=username,
        credential=credential,
    )


def _is_v6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def in_order(found: Iterable[TurnServer]) -> tuple[TurnServer, ...]:
    """The few that are tried, in the order in which they are: UDP costs laps least, TLS passes most walls."""
    once = {relay.url: relay for relay in found}
    return tuple(sorted(once.values(), key=lambda relay: _ORDER[relay.transport])[:MAX_RELAYS])


def stun(texts: Sequence[str], setting: str = "POOLED_STUN") -> tuple[str, ...]:
    """Read a list of STUN servers: ``stun:HOST:PORT`` or ``HOST:PORT``.

    Returns
    -------
    Their URLs; empty for none (an empty list, or `OFF`).

    Raises
    ------
    BadOption
        One of them is none. It is not repeated.
    """
    wanted = [text.strip() for text in texts if text.strip()]
    if [text.lower() for text in wanted] == [OFF]:
        return ()
    if [text.lower() for text in wanted] == [DEFAULT]:
        return PUBLIC_STUN
    urls = []
    for text in wanted:
        found = _STUN.fullmatch(text) if len(text) <= _MAX else None
        port = int(found["port"] or STUN_PORT) if found else 0
        if found is None or not 0 < port < 65_536 or len(wanted) > MAX_STUN:
            raise BadOption(
                f"{setting} names no STUN servers that can be read.",
                f"Write each as stun:HOST:PORT ({MAX_STUN} at most), or one of the words off and default.",
            )
        urls.append(f"stun:{found['host']}:{port}")
    return tuple(dict.fromkeys(urls))
