"""A place at a relay (TURN, RFC 8656), and why there is none, in words (PROTOCOL section 2, ICE).

User and password reach no log, no exception and no sentence (DESIGN section 7).
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pooled_nb.mesh.ice import TurnServer

LEAVE_S = 1.0
"""Longest wait for a relay to say goodbye."""
INSIDE = "it leads into this device's own network, and whoever named it is outside of that"
REFUSED = {
    401: "it refuses this user or password",
    403: "it refuses this user",
    437: "it takes the same way for another one's; try again",
    441: "it refuses this user or password",
    442: "it does not relay UDP",
    486: "this user has all the places that the relay gives to one (quota)",
    508: "it has no place left",
}


async def allocate(server: TurnServer, protocol: Callable[[], Any]) -> tuple[Any, Any]:
    """Ask a relay for an address of its own.

    Returns
    -------
    ``(transport, protocol)`` as of `aioice.turn.create_turn_endpoint`. `give_back` ends both.

    Raises
    ------
    Exception
        Whatever aioice and the system raise. `why` puts it in words; its own text is not to be shown.
    """
    from aioice import turn as client

    hide_secrets()
    # By name aioice would take the first address of any kind, also one that leads nowhere here.
    host, port, address = await located(server)
    tls = server.transport == "tls"
    # The certificates of a system take a while to read: not on the loop.
    loop = asyncio.get_running_loop()
    context = await loop.run_in_executor(None, ssl.create_default_context) if tls else None
    transport, made = await client.create_turn_endpoint(
        protocol,
        server_addr=(host if tls else address, port),
        username=server.username or None,
        password=server.credential or None,
        ssl=context,
        transport="udp" if server.transport == "udp" else "tcp",
    )
    if (inner := getattr(transport, "_TurnTransport__inner_protocol", None)) is not None:
        inner.channel_refresh_at = _Steady()
    return transport, made


async def located(server: TurnServer) -> tuple[str, int, str]:
    """Host, port and address of a relay that may be asked.

    Raises
    ------
    OSError
        Its name is not found; or a server in the open names a place in this device's own network.
    """
    host, _, port = server.place.rpartition(":")
    host = host.strip("[]")
    address = await _resolved(host, int(port))
    checked = server.named_by and _is_inside(address)
    if checked and not _is_inside(await _resolved(server.named_by, int(port))):
        raise OSError(errno.EPERM, INSIDE)
    return host, int(port), address


async def give_back(transport: Any) -> None:
    """Give the place at a relay back; one that does not answer is left, for the place to run out there."""
    transport.close()
    # aioice asks for half a minute, and no call ends it: its task closes the socket when cancelled.
    task = getattr(transport, "_TurnTransport__close_task", None)
    if task is None:
        return
    try:
        await asyncio.wait({task}, timeout=LEAVE_S)
    finally:
        task.cancel()


def why(error: BaseException, server: TurnServer, now: Callable[[], float] = time.time) -> str:
    """What went wrong, in words without a secret.

    Parameters
    ----------
    now
        Seconds since 1970: users of time-limited passwords begin with the time of their end.
    """
    match error:
        case TimeoutError():
            return "no answer"
        case socket.gaierror():
            return "its name is not found"
        case ssl.SSLCertVerificationError():
            return "its certificate does not prove its name"
        case ssl.SSLError():
            return "it does not speak TLS at this port"
        case ConnectionRefusedError():
            return "nothing answers at this port"
        case ConnectionError():
            return "no answer that makes sense"
        case OSError():
            return error.strerror or "it cannot be reached"
    response = getattr(error, "response", None)
    if response is None:
        return "no answer" if type(error).__name__ == "TransactionTimeout" else "no answer that makes sense"
    given = getattr(response, "attributes", {}).get("ERROR-CODE")
    return refusal(given[0] if isinstance(given, tuple) and given else 0, server, now)


def refusal(code: object, server: TurnServer, now: Callable[[], float] = time.time) -> str:
    """What an error of a relay says (RFC 8656 section 19), in words; see `why`."""
    code = code if isinstance(code, int) else 0
    if code == 401 and not (server.username and server.credential):
        return "it asks for a user and a password"
    if code in (401, 403, 441) and _is_over(server.username, now()):
        return "this password was for a limited time, and that is over"
    return REFUSED.get(code, f"it answers with error {code}" if code else "no answer that makes sense")


def hide_secrets() -> None:
    """Keep aioice's lines about a relay's packets out of every log: users, realms and nonces stand there."""
    log = logging.getLogger("aioice.turn")
    if _no_packets not in log.filters:
        log.addFilter(_no_packets)


def _no_packets(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def _is_over(username: str, now: float) -> bool:
    until = username.partition(":")[0]
    return until.isascii() and until.isdigit() and 9 <= len(until) <= 11 and int(until) < now


class _Steady(dict[int, float]):
    """When channels at a relay are to be renewed. aioice asks the wall clock, and a relay forgets a channel
    after 10 minutes: a clock that was set back would end the link (CASES, Network).
    """

    def __setitem__(self, channel: int, at: float) -> None:
        super().__setitem__(channel, at - time.time() + time.monotonic())

    def __getitem__(self, channel: int) -> float:
        return super().__getitem__(channel) - time.monotonic() + time.time()


async def _resolved(host: str, port: int) -> str:
    """The first of its addresses that this device has a way to, IPv4 before IPv6."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    found.sort(key=lambda one: one[0] != socket.AF_INET)
    first = next((one for one in found if _has_way(one[0], one[4])), found[0])
    return str(first[4][0])


def _has_way(family: int, where: Any) -> bool:
    """Whether this system would send there. To connect a datagram socket sends nothing."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(where)
    except OSError:
        return False
    return True


def _is_inside(address: str) -> bool:
    """Loopback, a private network, or nowhere in the open."""
    found = ipaddress.ip_address(address)
    return found.is_multicast or not found.is_global
