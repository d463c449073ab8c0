"""Whether UDP datagrams arrive: on loopback, and at this machine's own addresses (DESIGN section 4)."""

from __future__ import annotations

import asyncio
import secrets

from msgspec import Struct

from pooled_nb.doctor.findings import Finding
from pooled_nb.mesh.addresses import own_addresses
from pooled_nb.mesh.ice import LOOPBACK, can_bind

ARRIVES_S = 1.0
TRIES = 3
MAX_ADDRESSES = 4


class Udp(Struct, frozen=True, kw_only=True):
    """One address of this machine: ``problem`` empty where a datagram arrived there."""

    address: str
    loopback: bool
    problem: str = ""


async def look() -> list[Udp]:
    """Send a datagram to every address of this machine, and receive it."""
    loopback = [LOOPBACK] if can_bind(LOOPBACK) else ["127.0.0.1"]
    places = [(address, True) for address in loopback] + [
        (address, False) for address in own_addresses()[:MAX_ADDRESSES]
    ]
    return list(await asyncio.gather(*(_try(address, loop) for address, loop in places)))


async def _try(address: str, loopback: bool) -> Udp:
    loop = asyncio.get_running_loop()
    said = secrets.token_bytes(8)
    heard = asyncio.Event()

    class Ear(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: object) -> None:
            if data == said:
                heard.set()

    try:
        ear, _ = await loop.create_datagram_endpoint(Ear, local_addr=(address, 0))
    except OSError as error:
        return Udp(address=address, loopback=loopback, problem=error.strerror or str(error))
    try:
        to = ear.get_extra_info("sockname")
        mouth, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=(address, 0))
        try:
            for _ in range(TRIES):  # one may be lost where others are not
                mouth.sendto(said, to)
                try:
                    await asyncio.wait_for(heard.wait(), ARRIVES_S / TRIES)
                except TimeoutError:
                    continue
                return Udp(address=address, loopback=loopback)
        finally:
            mouth.close()
    except OSError as error:
        return Udp(address=address, loopback=loopback, problem=error.strerror or str(error))
    finally:
        ear.close()
    return Udp(address=address, loopback=loopback, problem="no datagram arrives")


def judge(seen: list[Udp]) -> list[Finding]:
    """Facts in, findings out."""
    here = [one for one in seen if one.loopback]
    network = [one for one in seen if not one.loopback]
    return [_loopback(here), _network(network)]


def _loopback(here: list[Udp]) -> Finding:
    what = "UDP on this machine"
    if any(not one.problem for one in here):
        return Finding(what=what, mark="ok", result="datagrams arrive")
    why = here[0].problem if here else "there is no loopback address"
    return Finding(
        what=what,
        mark="fail",
        result=f"datagrams do not arrive: {why}",
        todo="Allow UDP for this Python in the firewall or the sandbox it runs in.",
    )


def _network(network: list[Udp]) -> Finding:
    what = "UDP on the network"
    if not network:
        return Finding(
            what=what,
            mark="warn",
            result="this machine has no network address",
            todo="Rooms on this machine work. For others, connect it to a network.",
        )
    broken = [one for one in network if one.problem]
    if not broken:
        return Finding(what=what, mark="ok", result=f"datagrams arrive at {_listed(network)}")
    if len(broken) < len(network):
        return Finding(
            what=what,
            mark="ok",
            result=f"datagrams arrive at {_listed([o for o in network if not o.problem])}, "
            f"not at {_listed(broken)}",
        )
    return Finding(
        what=what,
        mark="warn",
        result=f"datagrams do not arrive at {_listed(broken)}: {broken[0].problem}",
        todo="Rooms on this machine work. For others, allow UDP for this Python in the firewall.",
    )


def _listed(some: list[Udp]) -> str:
    return ", ".join(one.address for one in some)
