"""How a connection over libwebrtc gathers its candidates (PROTOCOL section 2, ICE).

libwebrtc asks all STUN servers and all relays at once, from every interface, and offers all that they give.
What it cannot do is said here: it asks no relay that wants neither user nor password; it trusts a relay over
TLS by the certificates built into it, not by those of this system; and where several relays let this device
in, each of them keeps a place for it until the connection ends.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from pooled_nb.mesh import descriptions, relay
from pooled_nb.mesh.gathering import HUSHED_S, OTHERS_S, SILENT_S
from pooled_nb.mesh.ice import IcePolicy, TurnServer

NO_ANSWER = 701
"""Of a server that was not reached, or did not answer (W3C ``icecandidateerror``)."""


@dataclass(slots=True)
class Gathered:
    """What came so far, and whether it will do: no I/O, time handed in.

    Attributes
    ----------
    seen
        When STUN first showed an address of this device; None: not yet.
    urls
        Servers that answered.
    """

    policy: IcePolicy
    relays: int
    seen: float | None = None
    is_relayed: bool = False
    urls: set[str] = field(default_factory=set)

    def came(self, line: str, url: str, now: float) -> None:
        """Count a candidate, and the server that gave it."""
        kind = descriptions.kind(line)
        if url:
            self.urls.add(url)
        if kind == "relay":
            self.is_relayed = True
        elif kind == "srflx" and self.seen is None:
            self.seen = now

    def wait(self, now: float) -> float | None:
        """For how many more seconds to wait for others; None: until something comes.

        A bridge that leads nowhere is not waited for once one address was seen outside.
        """
        if self.relays and not self.is_relayed:
            return None
        if self.policy.relay_only or not self.policy.stun:
            return 0.0 if self.relays else None
        return None if self.seen is None else max(0.0, self.seen + OTHERS_S - now)


class WrtcGathering:
    """Of one connection.

    Parameters
    ----------
    pc
        A `webrtc.RTCPeerConnection` without a local description.
    limit
        Seconds that servers have to answer; half as many before that, for a relay's name to be found.

    Attributes
    ----------
    trouble
        Why no relay let this device in, in words; empty while that is not known.
    """

    def __init__(self, webrtc: Any, pc: Any, policy: IcePolicy, *, limit: float) -> None:
        self.trouble = ""
        self._webrtc, self._pc = webrtc, pc
        self._policy, self._limit = policy, limit
        self._asked: dict[str, TurnServer] = {}
        self._gathered = Gathered(policy, 0)
        self._news = asyncio.Event()
        for event in ("icecandidate", "icegatheringstatechange"):
            pc.on(event, self._came)
        pc.on("icecandidateerror", self._failed)

    async def prepare(self) -> None:
        """Say which servers to ask. Nobody is asked before there is a local description."""
        if self._policy.local_only:
            return
        relays = self._policy.relays
        for server, url in zip(relays, await asyncio.gather(*map(self._found, relays)), strict=True):
            if url is not None:
                self._asked[url] = server
        if self._policy.relay_only and not self._policy.relays:
            self.trouble = "only a relay may be used, and there is none"
        self._gathered = Gathered(self._policy, len(self._asked))
        self._pc.set_configuration(configuration(self._webrtc, self._policy, self._asked))

    async def finish(self) -> str:
        """Wait for what servers say, for a bounded time, and return the description to offer."""
        asked = {self._named(url): url for url in (*self._asked, *self._stun())}
        try:
            async with asyncio.timeout(self._patience(asked)):
                await self._enough()
        except TimeoutError:
            self._were_silent(name for name, url in asked.items() if url not in self._gathered.urls)
        if self._gathered.is_relayed:
            self.trouble = ""
        elif self._asked and not self.trouble:
            self.trouble = f"the relay {self._policy.relays[0].place} does not answer"
        sdp = str(self._pc.local_description.sdp)
        kept = offered(self._policy, [x[2:] for x in sdp.splitlines() if x.startswith("a=candidate:")])
        return descriptions.with_candidates(sdp, lambda line: line in kept)

    async def _enough(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pc.ice_gathering_state != "complete":
            wait = self._gathered.wait(loop.time())
            if wait == 0.0:
                return
            self._news.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._news.wait()
            except TimeoutError:
                return

    def _came(self, event: Any) -> None:
        candidate = getattr(event, "candidate", None)
        if candidate is not None and candidate.candidate:
            url = str(getattr(event, "url", None) or "")
            self._gathered.came(candidate.candidate, url, asyncio.get_running_loop().time())
        self._news.set()

    def _failed(self, event: Any) -> None:
        server = self._asked.get(str(event.url))
        if server is not None:
            code = int(event.error_code)
            self._blame(server, "no answer" if code == NO_ANSWER else relay.refusal(code, server))

    def _blame(self, server: TurnServer, why: str) -> None:
        if not self._gathered.is_relayed:
            self.trouble = self.trouble or f"the relay {server.place}: {why}"

    def _patience(self, urls: Collection[str]) -> float:
        """Seconds that these servers have; fewer where all were silent a moment ago."""
        now, silent = asyncio.get_running_loop().time(), self._policy.silent
        hushed = bool(urls) and not self._policy.relay_only and all(silent.get(x, 0.0) > now for x in urls)
        return min(HUSHED_S, self._limit) if hushed else self._limit

    def _were_silent(self, urls: Iterable[str]) -> None:
        until = asyncio.get_running_loop().time() + SILENT_S
        self._policy.silent.update((url, until) for url in urls)

    async def _found(self, server: TurnServer) -> str | None:
        """Where to ask a relay; None: it is not asked. A name may take the resolver half a minute."""
        try:
            return await asyncio.wait_for(self._url(server), self._patience([server.url]) / 2)
        except TimeoutError:
            self._were_silent([server.url])
            self._blame(server, "its name is not found")
        except Exception as error:
            self._blame(server, relay.why(error, server))
        return None

    def _stun(self) -> tuple[str, ...]:
        return () if self._policy.local_only or self._policy.relay_only else self._policy.stun

    def _named(self, url: str) -> str:
        """As `IcePolicy.silent` knows it."""
        server = self._asked.get(url)
        return url if server is None else server.url

    async def _url(self, server: TurnServer) -> str:
        """With the address in place of the name: one that changes meanwhile leads nowhere else.

        Over TLS the name stays, since the certificate is for it.
        """
        if not (server.username and server.credential):
            raise PermissionError(1, "without a user and a password the transport wrtc asks no relay")
        host, port, address = await relay.located(server)
        if server.transport == "tls":
            return f"turns:{_bracketed(host)}:{port}?transport=tcp"
        return f"turn:{_bracketed(address)}:{port}?transport={server.transport}"


def configuration(webrtc: Any, policy: IcePolicy, relays: dict[str, TurnServer]) -> Any:
    """What libwebrtc is given; without servers it asks none.

    Parameters
    ----------
    relays
        By the URL under which they are asked.
    """
    servers = [
        webrtc.RTCIceServer(urls=url, username=server.username, credential=server.credential)
        for url, server in relays.items()
    ]
    if policy.stun and not policy.local_only and not policy.relay_only:
        servers.append(webrtc.RTCIceServer(urls=list(policy.stun)))
    only = policy.relay_only and not policy.local_only
    return webrtc.RTCConfiguration(ice_servers=servers, ice_transport_policy="relay" if only else "all")


def offered(policy: IcePolicy, lines: list[str]) -> set[str]:
    """Which of the gathered ``candidate:…`` lines are said to the other end.

    UDP alone; in a room on one machine the loopback alone, where libwebrtc may use it (127.0.0.1: it binds
    addresses of interfaces only, and 127.0.0.2 is none); else all but that, unless there is nothing else.
    """
    usable = [line for line in lines if descriptions.is_usable(line) and not descriptions.is_name(line)]
    hosts = [line for line in usable if descriptions.kind(line) == "host"]
    loopback = [line for line in hosts if _is_loopback(line)]
    if policy.local_only:
        plain = [line for line in loopback if ":" not in descriptions.address(line)]
        return set(plain or loopback or hosts)
    return {line for line in usable if line not in loopback} or set(loopback)


def _is_loopback(line: str) -> bool:
    return ipaddress.ip_address(descriptions.address(line)).is_loopback


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
