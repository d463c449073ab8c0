"""Gathers a connection's candidates: own addresses, what STUN servers see, a relay (PROTOCOL section 2, ICE).

aioice does it for one STUN server and one relay, offers every address that it finds, and keeps to itself
why a server failed. Here all STUN servers are asked at once, relays one after the other, and failures are
kept in words. A relay's candidate tells no address of this device.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Coroutine, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from aioice import Candidate, stun
from aioice.candidate import candidate_foundation, candidate_priority
from aioice.ice import StunProtocol

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh import relay

if TYPE_CHECKING:
    from aiortc import RTCPeerConnection

    from pooled_nb.mesh.ice import IcePolicy, TurnServer

log = logging.getLogger(__name__)

NEXT_RELAY_S = 0.8
"""A relay that has not answered by then gets company: where UDP is blocked, one over TLS may do."""
OTHERS_S = 0.5
"""Once one of this device's addresses is seen outside, the others get this long: a bridge leads nowhere."""
SILENT_S = 60.0
HUSHED_S = 0.5
"""For so many seconds a server that did not answer gets no more than this: each connection gathers anew."""
NOWHERE = {4: ("0.0.0.0", 9), 6: ("::", 9)}
"""Where a relay's candidate says it comes from (RFC 8839 section 5.1): nobody's business."""


class Gathering:
    """Of one connection. Takes the place of its `get_component_candidates` when made.

    Parameters
    ----------
    pc
        With its channels.
    limit
        Seconds that servers have to answer.

    Attributes
    ----------
    ice
        The `aioice.Connection` below. Here alone it is reached for: aiortc has no door to it.
    relay
        The relay that let this device in.
    trouble
        Why none did, in words; empty while that is not known.

    Raises
    ------
    LinkFailed
        aiortc or aioice is of a version that has none of these parts.
    """

    def __init__(self, policy: IcePolicy, pc: RTCPeerConnection, *, limit: float) -> None:
        self.relay: TurnServer | None = None
        self.trouble = ""
        self.ice: Any = _ice_of(pc)
        self._policy, self._limit = policy, limit
        # aioice has no setting for any of it; the one ICE connection is asked for its candidates here.
        self._bind = self.ice.get_component_candidates
        self.ice.get_component_candidates = self._gather

    @property
    def relay_only(self) -> bool:
        """Whether this connection may use the relay alone."""
        return self._policy.relay_only and not self._policy.local_only

    async def _gather(self, component: int, addresses: list[str], **_: Any) -> list[Candidate]:
        offered = self._policy.addresses(addresses)
        found: list[Candidate] = await self._bind(component=component, addresses=offered, timeout=self._limit)
        if self._policy.local_only:
            return found
        urls = [server.url for server in self._policy.relays]
        ended = await asyncio.gather(
            self._within(self._policy.stun, self._ask_stun(component, found)),
            self._within(urls, self._ask_relays(component, found)),
            return_exceptions=True,  # what is found besides counts
        )
        for error in ended:
            if error is not None:
                log.warning("asking STUN servers and relays ended with %s", type(error).__name__)
        if self._policy.relays and self.relay is None:
            self.trouble = self.trouble or f"the relay {self._policy.relays[0].place} does not answer"
        elif self.relay_only and not self._policy.relays:
            self.trouble = "only a relay may be used, and there is none"
        return found

    async def _within(self, urls: Sequence[str], asking: Coroutine[Any, Any, None]) -> None:
        """Wait for an answer of these servers; what is not done in time is ended, to its end."""
        now, silent = asyncio.get_running_loop().time(), self._policy.silent
        hushed = bool(urls) and not self.relay_only and all(silent.get(url, 0.0) > now for url in urls)
        try:
            async with asyncio.timeout(min(HUSHED_S, self._limit) if hushed else self._limit):
                await asking
        except TimeoutError:
            silent.update((url, now + SILENT_S) for url in urls)

    # STUN

    async def _ask_stun(self, component: int, found: list[Candidate]) -> None:
        sockets = [p for p in self.ice._protocols if _version(p.local_candidate.host) == 4]
        if not sockets or not self._policy.stun:
            return
        seen: dict[Any, Candidate] = {}
        timers: list[asyncio.TimerHandle] = []
        done = asyncio.Event()

        async def ask(url: str) -> None:
            at = await _address(url)
            await asyncio.gather(*(one(protocol, at) for protocol in sockets), return_exceptions=True)

        async def one(protocol: Any, at: tuple[str, int]) -> None:
            request = stun.Message(message_method=stun.Method.BINDING, message_class=stun.Class.REQUEST)
            response, _ = await protocol.request(request, at)
            mapped = response.attributes["XOR-MAPPED-ADDRESS"]
            if protocol not in seen:
                seen[protocol] = _reflexive(component, protocol.local_candidate, mapped)
                found.append(seen[protocol])
            if len(seen) == len(sockets):
                done.set()
            elif len(seen) == 1:
                timers.append(asyncio.get_running_loop().call_later(OTHERS_S, done.set))

        asking = [asyncio.ensure_future(ask(url)) for url in self._policy.stun]
        over = asyncio.gather(*asking, return_exceptions=True)
        over.add_done_callback(lambda _: done.set())
        try:
            await done.wait()
        finally:
            for timer in timers:
                timer.cancel()
            await _end(asking)

    # TURN

    async def _ask_relays(self, component: int, found: list[Candidate]) -> None:
        now, silent = asyncio.get_running_loop().time(), self._policy.silent
        waiting = sorted(self._policy.relays, key=lambda server: silent.get(server.url, 0.0) > now)
        asked: dict[asyncio.Future[Any], TurnServer] = {}
        try:
            while waiting or asked:
                if waiting:
                    server = waiting.pop(0)
                    asked[asyncio.ensure_future(relay.allocate(server, self._protocol))] = server
                done, _ = await asyncio.wait(
                    asked,
                    timeout=NEXT_RELAY_S if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for job in done:
                    server = asked.pop(job)
                    error = job.exception()
                    if error is None and self.relay is None:
                        self._take(component, found, server, job.result()[1])
                    elif error is None:
                        job.result()[0].close()
                    else:
                        self.trouble = self.trouble or f"the relay {server.place}: {relay.why(error, server)}"
                if self.relay is not None:
                    self.trouble = ""
                    silent.update((server.url, now + SILENT_S) for server in asked.values())
                    return
        finally:
            await _end(list(asked))
            for job in asked:  # one that was let in while it was being ended gives its place back
                if not job.cancelled() and job.exception() is None:
                    job.result()[0].close()

    def _protocol(self) -> _RelayProtocol:
        return _RelayProtocol(self.ice)

    def _take(self, component: int, found: list[Candidate], server: TurnServer, protocol: Any) -> None:
        host, port = protocol.transport.get_extra_info("sockname")
        related = NOWHERE[_version(host)]
        protocol.local_candidate = Candidate(
            foundation=candidate_foundation("relay", "udp", host),
            component=component,
            transport="udp",
            priority=candidate_priority(component, "relay"),
            host=host,
            port=port,
            type="relay",
            related_address=related[0],
            related_port=related[1],
        )
        self.ice._protocols.append(protocol)
        found.append(protocol.local_candidate)
        self.relay = server


class _RelayProtocol(StunProtocol):
    """The end of a relayed path, that does not wait for ever for a relay to say goodbye."""

    async def close(self) -> None:
        """See `relay.give_back`."""
        await relay.give_back(self.transport)


def _ice_of(pc: RTCPeerConnection) -> Any:
    try:
        ice: Any = pc.sctp.transport.transport._connection  # type: ignore[union-attr]
        for part in ("get_component_candidates", "remote_candidates", "_protocols", "_nominated"):
            getattr(ice, part)
    except AttributeError:
        found = " and ".join(f"{name} {version(name)}" for name in ("aiortc", "aioice"))
        raise LinkFailed(
            f"No connection can be made with {found}, which this pooled_nb does not know.",
            "Run: pip install -U pooled-nb, and then pooled-nb doctor, which names the versions that fit.",
        ) from None
    return ice


def _reflexive(component: int, own: Candidate, mapped: tuple[str, int]) -> Candidate:
    return Candidate(
        foundation=candidate_foundation("srflx", "udp", own.host),
        component=component,
        transport="udp",
        priority=candidate_priority(component, "srflx"),
        host=mapped[0],
        port=mapped[1],
        type="srflx",
        related_address=own.host,
        related_port=own.port,
    )


def _version(host: str) -> int:
    return ipaddress.ip_address(host).version


async def _address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("stun:").partition(":")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, int(port or 3478), family=socket.AF_INET, type=socket.SOCK_DGRAM)
    return str(found[0][4][0]), int(found[0][4][1])


async def _end(jobs: Sequence[asyncio.Future[Any]]) -> None:
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
