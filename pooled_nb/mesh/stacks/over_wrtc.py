"""libwebrtc, the engine of Chromium, behind `stack.Stack`: the package wrtc.

Its threads do the network's work. What happens is handed to the loop that made the connection, in order, many
messages per wake-up; nothing here runs on another thread.

What it cannot do: it tells neither what its association sent again nor how large its window is, so there are
no `stats`; the connections to one device share no window; for relays see `wrtcgathering`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pooled_nb.errors import BadOption
from pooled_nb.mesh import descriptions, paths
from pooled_nb.mesh.ice import GATHER_S, IcePolicy
from pooled_nb.mesh.network import ConnectionStats, Path
from pooled_nb.mesh.stack import StackChannel
from pooled_nb.mesh.stacks import wrtcgathering
from pooled_nb.mesh.stacks.wrtcchannel import Flood, WrtcChannel, backlog


@dataclass(slots=True)
class Told:
    """One candidate: `paths.Way`."""

    host: str
    type: str


class WrtcStack:
    """See `stack.Stack`."""

    name = "wrtc"

    async def settle(self) -> None:
        """See `stack.Stack.settle`."""
        await asyncio.get_running_loop().run_in_executor(None, load)

    def peer(self, ice: IcePolicy, remote: str) -> WrtcPeer:
        """See `stack.Stack.peer`."""
        return WrtcPeer(load(), ice)


make = WrtcStack
_loaded: list[Any] = []


def load() -> Any:
    """Import the package: a third of a second, once. Raises `BadOption`.

    Typed as anything: most installations have none of it.
    """
    if not _loaded:
        try:
            webrtc = import_module("webrtc")
        except ImportError as error:
            raise BadOption(
                f"The transport wrtc cannot be loaded: {error}.",
                "Run: pip install -U 'pooled-nb[wrtc]', or use the transport aiortc.",
            ) from None
        # For a room on one machine. It counts for the whole process: `wrtcgathering.offered` decides. Where
        # somebody in this process was first it comes too late, and interfaces are offered.
        with contextlib.suppress(webrtc.InvalidStateError):
            webrtc.allow_loopback()
        _loaded.append(webrtc)
    return _loaded[0]


class WrtcPeer:
    """See `stack.Peer`."""

    def __init__(self, webrtc: Any, ice: IcePolicy) -> None:
        self.on_state: Callable[[str], None] | None = None
        self.on_channel: Callable[[StackChannel], None] | None = None
        self.on_fault: Callable[[str], None] | None = None
        self._flood = Flood(backlog(), self._flooded)
        self.told: Sequence[paths.Way] = ()
        self._webrtc = webrtc
        # Without servers, whatever its default is; they are named once there is a path to look for.
        self.pc = webrtc.RTCPeerConnection(wrtcgathering.configuration(webrtc, IcePolicy.local(), {}))
        self._gathering = wrtcgathering.WrtcGathering(webrtc, self.pc, ice, limit=GATHER_S)
        self._dtls: Any = None
        self.pc.on("connectionstatechange", self._changed)
        self.pc.on("datachannel", self._incoming)

    @property
    def ice_state(self) -> str:
        """See `stack.Peer`.

        libwebrtc stays ``new`` until it has a pair to try; aiortc says ``checking`` once each end knows the
        other's description, and that is what "paths are being tried" means here.
        """
        state = str(self.pc.ice_connection_state.value)
        return "checking" if state == "new" and self._dtls is not None else state

    @property
    def trouble(self) -> str:
        """See `stack.Peer`."""
        return self._gathering.trouble

    @property
    def path(self) -> Path | None:
        """See `stack.Peer`."""
        pair = None if self._dtls is None else self._dtls.ice_transport.get_selected_candidate_pair()
        if pair is None:
            return None
        # One that the other end did not tell has no address here (W3C), so it may be its relay.
        own, other = (
            Told(way.address or "", "prflx" if way.type is None else str(way.type.value))
            for way in (pair.local, pair.remote)
        )
        return paths.path_of(own, other, self.told)

    def channel(
        self, label: str, *, id: int | None = None, ordered: bool = True, retransmits: int | None = None
    ) -> StackChannel:
        """See `stack.Peer`."""
        options = self._webrtc.RTCDataChannelInit(
            negotiated=id is not None, id=id, ordered=ordered, max_retransmits=retransmits
        )
        return WrtcChannel(self.pc.create_data_channel(label, options), self._flood)

    async def offer(self) -> str:
        """See `stack.Peer`."""
        return await self._describe(self.pc.create_offer)

    async def answer(self) -> str:
        """See `stack.Peer`."""
        return await self._describe(self.pc.create_answer)

    async def apply(self, sdp: str, type: str) -> None:
        """See `stack.Peer`."""
        await self.pc.set_remote_description(self._webrtc.RTCSessionDescriptionInit(type, sdp))
        self._tell([line[2:] for line in sdp.splitlines() if line.startswith("a=candidate:")])
        self._watch()

    async def add(self, line: str) -> None:
        """See `stack.Peer`."""
        if descriptions.is_name(line):
            line = await _resolved(line)
        # There is one section only, whatever a sender calls it.
        await self.pc.add_ice_candidate(self._webrtc.RTCIceCandidateInit(line, sdp_m_line_index=0))
        self._tell([line])

    def stats(self) -> ConnectionStats | None:
        """See `stack.Peer`."""
        return None

    async def close(self) -> None:
        """See `stack.Peer`."""
        self.pc.close()

    async def _describe(self, create: Callable[[], Awaitable[Any]]) -> str:
        await self._gathering.prepare()
        await self.pc.set_local_description(await create())
        self._watch()
        return await self._gathering.finish()

    def _tell(self, lines: list[str]) -> None:
        new = [
            Told(descriptions.address(x), descriptions.kind(x)) for x in lines if descriptions.is_usable(x)
        ]
        self.told = (*self.told, *new)

    def _watch(self) -> None:
        """Hear of the other end's closing: libwebrtc leaves the connection itself as it is (W3C)."""
        if self._dtls is None and self.pc.sctp is not None and self.pc.signaling_state == "stable":
            self._dtls = self.pc.sctp.transport
            self._dtls.on("statechange", self._security)

    def _security(self, _: Any) -> None:
        if self._dtls.state == "closed":
            self._say("closed")

    def _changed(self, _: Any) -> None:
        state = str(self.pc.connection_state.value)
        if state in ("connected", "failed"):
            self._say(state)

    def _say(self, state: str) -> None:
        if self.on_state is not None:
            self.on_state(state)

    def _flooded(self) -> None:
        if self.on_fault is not None:
            self.on_fault("it sends faster than this device can take in")

    def _incoming(self, event: Any) -> None:
        if self.on_channel is not None:
            self.on_channel(WrtcChannel(event.channel, self._flood))


async def _resolved(line: str) -> str:
    """The candidate with an address in place of its ``….local`` name; libwebrtc asks no mDNS by itself."""
    from aioice import ice as under

    asking = object()
    protocol = await under.get_or_create_mdns_protocol(asking)
    try:
        address = await protocol.resolve(descriptions.address(line))
    finally:
        await under.unref_mdns_protocol(asking)
    if address is None:
        raise ValueError("nobody answers to this name")
    parts = line.split()
    return " ".join([*parts[:4], address, *parts[5:]])
