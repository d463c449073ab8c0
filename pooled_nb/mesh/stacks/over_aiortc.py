"""aiortc behind `stack.Stack`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from aiortc import RTCConfiguration, RTCDataChannel, RTCPeerConnection, RTCSessionDescription
from aiortc.sdp import candidate_from_sdp

from pooled_nb.mesh import paths, sctp
from pooled_nb.mesh.gathering import Gathering
from pooled_nb.mesh.ice import GATHER_S, IcePolicy
from pooled_nb.mesh.network import ConnectionStats, Path
from pooled_nb.mesh.stack import ChannelEvents, StackChannel


class AiortcStack:
    """See `stack.Stack`. Tuned, where that is known to work (`sctp`)."""

    name = "aiortc"

    def __init__(self) -> None:
        self._windows = sctp.Windows()

    async def settle(self) -> None:
        """See `stack.Stack.settle`."""
        await sctp.settle()  # what is found then counts for all connections

    def peer(self, ice: IcePolicy, remote: str) -> AiortcPeer:
        """See `stack.Stack.peer`."""
        return AiortcPeer(sctp.peer_connection(configuration(), self._windows.of(remote)), ice)


make = AiortcStack


def configuration() -> RTCConfiguration:
    """What aiortc is given: an empty list of servers, since with none it would ask a public one.

    They are asked by `gathering`: aiortc takes one of each kind, and keeps to itself why it failed.
    """
    return RTCConfiguration(iceServers=[])


class AiortcPeer:
    """See `stack.Peer`.

    aiortc silently drops data for a stream that it does not know: so make its channels before any
    description is applied.
    """

    def __init__(self, pc: RTCPeerConnection, ice: IcePolicy) -> None:
        self.on_state: Callable[[str], None] | None = None
        self.on_channel: Callable[[StackChannel], None] | None = None
        self.on_fault: Callable[[str], None] | None = None
        self.pc = pc
        self._policy = ice
        self._gathering: Gathering | None = None
        pc.on("connectionstatechange", self._changed)
        pc.on("datachannel", self._incoming)

    @property
    def gathering(self) -> Gathering:
        """How it gathers; there once it has a channel."""
        assert self._gathering is not None, "a peer without a channel"
        return self._gathering

    @property
    def ice_state(self) -> str:
        """See `stack.Peer`."""
        return str(self.pc.iceConnectionState)

    @property
    def told(self) -> Sequence[paths.Way]:
        """See `stack.Peer`."""
        told: Sequence[paths.Way] = self.gathering.ice.remote_candidates
        return told

    @property
    def trouble(self) -> str:
        """See `stack.Peer`."""
        return self.gathering.trouble

    @property
    def path(self) -> Path | None:
        """See `stack.Peer`."""
        pair = self.gathering.ice._nominated.get(1)
        return None if pair is None else paths.path_of(pair.local_candidate, pair.remote_candidate, self.told)

    def channel(
        self, label: str, *, id: int | None = None, ordered: bool = True, retransmits: int | None = None
    ) -> StackChannel:
        """See `stack.Peer`."""
        made = self.pc.createDataChannel(
            label, negotiated=id is not None, id=id, ordered=ordered, maxRetransmits=retransmits
        )
        if self._gathering is None:  # below it aiortc has an ICE connection only now
            self._gathering = Gathering(self._policy, self.pc, limit=GATHER_S)
            association: Any = self.pc.sctp
            if hasattr(association, "on_abort"):  # ours; stock aiortc tells nobody
                association.on_abort = self._aborted
        return AiortcChannel(made)

    async def offer(self) -> str:
        """See `stack.Peer`."""
        return await self._describe(await self.pc.createOffer())

    async def answer(self) -> str:
        """See `stack.Peer`."""
        return await self._describe(await self.pc.createAnswer())

    async def apply(self, sdp: str, type: str) -> None:
        """See `stack.Peer`."""
        await self.pc.setRemoteDescription(RTCSessionDescription(sdp=sdp, type=type))

    async def add(self, line: str) -> None:
        """See `stack.Peer`."""
        candidate = candidate_from_sdp(line.removeprefix("candidate:"))
        # There is one section only, whatever a sender calls it.
        candidate.sdpMid, candidate.sdpMLineIndex = None, 0
        await self.pc.addIceCandidate(candidate)

    def stats(self) -> ConnectionStats | None:
        """See `stack.Peer`."""
        return sctp.stats(self.pc)

    async def close(self) -> None:
        """See `stack.Peer`."""
        was_checking = self.ice_state == "checking"
        await self.pc.close()
        if was_checking:
            # aioice looks every 20 ms whether it is done, and when closed just after its last check
            # succeeded it still starts to ask for consent, for ever. A second close ends that.
            await asyncio.sleep(0.03)
            await self.gathering.ice.close()

    async def _describe(self, description: RTCSessionDescription) -> str:
        await self.pc.setLocalDescription(description)
        return str(self.pc.localDescription.sdp)

    def _changed(self) -> None:
        if self.on_state is not None:
            self.on_state(self.pc.connectionState)

    def _aborted(self, why: str) -> None:
        if self.on_fault is not None:
            self.on_fault(why)

    def _incoming(self, channel: RTCDataChannel) -> None:
        if self.on_channel is not None:
            self.on_channel(AiortcChannel(channel))


class AiortcChannel:
    """See `stack.StackChannel`."""

    def __init__(self, channel: RTCDataChannel) -> None:
        self._channel: Any = channel
        self.send = channel.send  # raises ValueError by itself; one call less per slice

    @property
    def is_open(self) -> bool:
        """See `stack.StackChannel`."""
        return bool(self._channel.readyState == "open")

    @property
    def is_reliable(self) -> bool:
        """See `stack.StackChannel`."""
        channel = self._channel
        return bool(channel.ordered and channel.maxRetransmits is None and channel.maxPacketLifeTime is None)

    @property
    def buffered(self) -> int:
        """See `stack.StackChannel`.

        Stock aiortc stops counting a message when it cuts it into chunks, one message at a time: so up to
        one more may not have left yet. ``low`` follows the same count.
        """
        return int(self._channel.bufferedAmount)

    @property
    def low_threshold(self) -> int:
        """See `stack.StackChannel`."""
        return int(self._channel.bufferedAmountLowThreshold)

    @low_threshold.setter
    def low_threshold(self, size: int) -> None:
        self._channel.bufferedAmountLowThreshold = size

    def listen(self, events: ChannelEvents) -> None:
        """See `stack.StackChannel`."""
        self._channel.on("open", events.open)
        association: Any = self._channel.transport
        if hasattr(association, "listen"):  # ours, which needs no event for each message
            association.listen(self._channel, events.message)
        else:
            self._channel.on("message", events.message)
        self._channel.on("close", events.close)
        self._channel.on("bufferedamountlow", events.low)

    def close(self) -> None:
        """See `stack.StackChannel`."""
        self._channel.close()
