"""Whether STUN servers answer over UDP, and how this network's NAT behaves (RFC 8489, PROTOCOL section 2)."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence

from msgspec import Struct

from pooled_nb.doctor.findings import Finding
from pooled_nb.mesh.ice import PUBLIC_STUN

SEND_AT_S = (0.0, 0.4, 0.8)
ANSWER_S = 3.0
DEFAULT_PORT = 3478
TURN_STEP = "set POOLED_TURN to a relay: turn:USER:PASSWORD@HOST:PORT"


class Stun(Struct, frozen=True, kw_only=True):
    """One server. ``mapped`` is this machine as it sees it (never shown), ``ms`` how long it took."""

    server: str
    ms: float | None = None
    mapped: tuple[str, int] | None = None
    problem: str = ""


async def look(urls: Sequence[str] = PUBLIC_STUN, *, limit: float = ANSWER_S) -> list[Stun]:
    """Ask them all from one socket: a NAT that gives it another port for each of them is seen by that."""
    from aioice import stun as messages

    loop = asyncio.get_running_loop()
    waiting: dict[bytes, asyncio.Future[tuple[float, tuple[str, int] | None]]] = {}

    class Ear(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: object) -> None:
            try:
                said = messages.parse_message(data)
            except Exception:  # whatever anybody sends to an open port
                return
            answer = waiting.get(said.transaction_id)
            if answer is not None and not answer.done():
                mapped = said.attributes.get("XOR-MAPPED-ADDRESS")
                answer.set_result((loop.time(), mapped if _is_address(mapped) else None))

    try:
        ear, _ = await loop.create_datagram_endpoint(Ear, local_addr=("0.0.0.0", 0))
    except OSError as error:
        return [Stun(server=_shown(url), problem=error.strerror or str(error)) for url in urls]

    async def ask(url: str) -> Stun:
        host, port = _place(url)
        request = messages.Message(
            message_method=messages.Method.BINDING, message_class=messages.Class.REQUEST
        )
        answer = waiting[request.transaction_id] = loop.create_future()
        try:
            async with asyncio.timeout(limit):
                found = await loop.getaddrinfo(host, port, family=socket.AF_INET, type=socket.SOCK_DGRAM)
                began = loop.time()
                for at in SEND_AT_S:
                    ear.sendto(bytes(request), found[0][4])
                    await asyncio.wait({answer}, timeout=SEND_AT_S[1] if at < SEND_AT_S[-1] else None)
                    if answer.done():
                        break
                ended, mapped = await answer
        except TimeoutError:
            return Stun(server=_shown(url), problem="no answer")
        except OSError as error:
            name = isinstance(error, socket.gaierror)
            return Stun(
                server=_shown(url), problem="its name is not found" if name else error.strerror or str(error)
            )
        return Stun(server=_shown(url), ms=(ended - began) * 1e3, mapped=mapped)

    try:
        return list(await asyncio.gather(*map(ask, urls)))
    finally:
        ear.close()


def judge(seen: Sequence[Stun], *, needed: bool, relay: bool) -> list[Finding]:
    """Facts in, findings out.

    Parameters
    ----------
    needed
        Rooms with devices elsewhere are configured (a signaling server in the open): then it is a failure.
    relay
        A relay is configured, which does what a direct path cannot.
    """
    found = []
    answered = [one for one in seen if not one.problem]
    for one in seen:
        what = f"STUN {one.server}"
        if not one.problem:
            found.append(Finding(what=what, mark="ok", result=f"answers in {one.ms or 0:.0f} ms"))
        elif answered or relay:
            found.append(Finding(what=what, mark="warn", result=one.problem))
        else:
            # Of warnings once, below the last of them.
            todo = f"Rooms on this machine and its network work. For others, {TURN_STEP}."
            found.append(
                Finding(
                    what=what,
                    mark="fail" if needed else "warn",
                    result=one.problem,
                    todo=todo if needed or one is seen[-1] else "",
                )
            )
    mapped = {one.mapped for one in answered if one.mapped is not None}
    if len(mapped) > 1:
        step = f"Where a device elsewhere finds no path, {TURN_STEP}."
        found.append(
            Finding(
                what="NAT",
                mark="warn",
                result="this network gives each destination another port, which direct links seldom survive",
                todo="" if relay else step,
            )
        )
    return found


def _is_address(mapped: object) -> bool:
    if not isinstance(mapped, tuple) or len(mapped) != 2:
        return False
    try:
        ipaddress.ip_address(mapped[0])
    except ValueError:
        return False
    return isinstance(mapped[1], int)


def _shown(url: str) -> str:
    return _place(url)[0]


def _place(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("stun:").partition(":")
    return host, int(port or DEFAULT_PORT)
