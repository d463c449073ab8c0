"""One connection to one device over a WebRTC stack: `network.Connection` (PROTOCOL sections 2 and 5)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh import descriptions, fingerprints, paths, stacks
from pooled_nb.mesh.channel import RtcChannel
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.deadline import Deadline
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.network import Channel, ConnectionStats, Path
from pooled_nb.mesh.peerjs import shapes
from pooled_nb.mesh.stack import Stack, StackChannel

log = logging.getLogger(__name__)

WIRE_ID = 77
KEEPALIVE_ID = 78
CONNECT_S = 15.0
"""A connection that is not even trying paths any more is given up after this."""
CHECKING_S = 40.0
"""One that still tries paths is given up after this (PROTOCOL section 2)."""
TEARDOWN_S = 5.0
MAX_REFUSED = 1
"""Channels that the other end opens besides, and that are closed, before the connection is. Some stacks keep
what comes over one meanwhile (libwebrtc: 16 MB), and the other end need not let it close.
"""


T = TypeVar("T")


class _Closed(Exception):
    """The connection ended before this step did."""


class RtcConnection:
    """See `network.Connection`.

    Made in one step on the mesh loop, so that its channels exist, and listen, before any description is
    applied: a stack may silently drop data for a stream that it does not know.

    Parameters
    ----------
    stack
        What it runs on; None: aiortc.

    Attributes
    ----------
    failure
        Why it failed, in words; empty while it did not.
    """

    def __init__(
        self,
        *,
        remote: str,
        connection_id: str,
        label: str,
        dialed: bool,
        clock: Clock,
        ice: IcePolicy,
        stack: Stack | None = None,
    ) -> None:
        self.remote = remote
        self.connection_id = connection_id
        self.label = label
        self.dialed = dialed
        self.failure = ""
        self.on_state: Callable[[str], None] | None = None
        self.on_released: Callable[[], None] | None = None
        self._clock = clock
        self._state = "new"
        self._path: Path = "unknown"
        self._own: str | None = None
        self._other: str | None = None
        self._candidates: list[shapes.IceCandidate] | None = []
        self._candidates_seen = 0
        self._names = 0
        self._refused = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._steps: set[asyncio.Task[Any]] = set()
        self._teardown: asyncio.Task[None] | None = None

        self._relay_only = ice.relay_only and not ice.local_only
        self._peer = (stack or stacks.get()).peer(ice, remote)
        self._control = RtcChannel(label, self._fail)
        wire, keepalive = RtcChannel("swarm-wire", self._fail), RtcChannel("swarm-ka", self._fail)
        self._channels = (self._control, wire, keepalive)
        self.control: Channel = self._control
        self.wire: Channel = wire
        self.keepalive: Channel = keepalive
        wire.adopt(self._peer.channel("swarm-wire", id=WIRE_ID))
        keepalive.adopt(self._peer.channel("swarm-ka", id=KEEPALIVE_ID, ordered=False, retransmits=0))
        if dialed:
            self._control.adopt(self._peer.channel(label))
        self._peer.on_channel = self._incoming
        self._peer.on_state = self._changed
        self._peer.on_fault = self._fail
        self._deadlines = [
            Deadline(clock, CONNECT_S, lambda: self._judge(last=False)),
            Deadline(clock, CHECKING_S, lambda: self._judge(last=True)),
        ]

    @property
    def state(self) -> str:
        """See `network.Connection`."""
        return self._state

    @property
    def path(self) -> Path:
        """See `network.Connection`. Keeps its last value when the connection ends."""
        if (path := self._peer.path) is not None:
            self._path = path
        return self._path

    @property
    def is_checking(self) -> bool:
        """Whether paths are still being tried."""
        return self._peer.ice_state == "checking"

    @property
    def obstacle(self) -> str:
        """Why there is no path so far, in words: the rest of a sentence."""
        if self._other is None:
            return "the other device has not answered"
        told = len(self._peer.told)
        return paths.obstacle(told=told, names=self._names, trouble=self._peer.trouble)

    def fingerprints(self) -> tuple[str, str] | None:
        """See `network.Connection`."""
        return None if self._own is None or self._other is None else (self._own, self._other)

    def stats(self) -> ConnectionStats | None:
        """See `network.Connection`."""
        return self._peer.stats()

    async def offer(self) -> str:
        """Gather, and return the description to signal.

        Raises
        ------
        LinkFailed
            This device has no address to offer, or the connection was closed meanwhile.
        """
        self._enter("connecting")
        return await self._describe(self._peer.offer)

    async def answer(self, taken: descriptions.Taken) -> str:
        """Apply an OFFER, gather, and return the answer to signal. Raises as `offer`."""
        self._enter("connecting")
        await self._apply(taken, "offer")
        return await self._describe(self._peer.answer)

    async def accept(self, taken: descriptions.Taken) -> None:
        """Apply the ANSWER to our offer.

        Raises
        ------
        LinkFailed
            It does not answer this offer.
        """
        await self._apply(taken, "answer")

    def candidate(self, candidate: shapes.IceCandidate) -> None:
        """Take a trickled candidate, also before the description it belongs to. Never raises."""
        self._candidates_seen += 1
        if self._candidates_seen > descriptions.MAX_CANDIDATES or not descriptions.is_usable(
            candidate.candidate
        ):
            return
        if self._candidates is not None:
            self._candidates.append(candidate)
        else:
            self._spawn(self._add(candidate.candidate))

    async def close(self) -> None:
        """See `network.Connection`. Leaves no task behind."""
        # Its own task: a caller that is cancelled must not leave the stack half closed.
        await asyncio.shield(self._release("closed"))

    # from here on: what happens inside

    async def _describe(self, gather: Callable[[], Coroutine[Any, Any, str]]) -> str:
        try:
            sdp = descriptions.outgoing(await self._whole(gather()), relay_only=self._relay_only)
        except Exception as error:
            raise self._broken("could not describe itself", error) from error
        if not descriptions.has_candidates(sdp):
            raise self._no_way()
        self._own = fingerprints.one(sdp)
        return sdp

    async def _apply(self, taken: descriptions.Taken, type: str) -> None:
        try:
            await self._whole(self._peer.apply(taken.sdp, type))
        except Exception as error:  # a parser raises whatever it stumbles on
            raise self._broken("did not understand the other's description", error) from error
        self._other = taken.fingerprint
        for name in taken.names:
            self._spawn(self._add(name))
        early, self._candidates = self._candidates or [], None
        for candidate in early:
            self._spawn(self._add(candidate.candidate))

    async def _whole(self, job: Coroutine[Any, Any, T]) -> T:
        """Run a step of the stack to its end, even if the caller is cancelled: half of one leaks sockets."""
        if self._teardown is not None:
            job.close()
            raise _Closed
        task = asyncio.get_running_loop().create_task(job)
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)
        result = await asyncio.shield(task)
        if self._teardown is not None:
            raise _Closed
        return result

    async def _add(self, line: str) -> None:
        """Add one candidate; one that is no good is dropped."""
        if descriptions.is_name(line):
            self._names += 1
            if self._relay_only:
                return  # no relay reaches it, and to ask for it is to speak to this device's own network
        try:
            await self._peer.add(line)
        except Exception as error:
            log.debug("a candidate of %s was dropped: %s", self.remote, error)

    def _incoming(self, channel: StackChannel) -> None:
        if self._control.is_adopted or self.dialed or not channel.is_reliable:
            self._refused += 1
            channel.close()
            if self._refused > MAX_REFUSED:
                self._fail("it opens channels that nobody asked for")
            return
        self._control.adopt(channel)

    def _changed(self, state: str) -> None:
        if self._teardown is not None:
            return
        if state == "connected":
            self._disarm()
            self._enter("connected")
        elif state == "failed":
            self._fail(self.obstacle if self._state == "connecting" else "the path broke")
        elif state == "closed":
            # The other end closed it.
            self._release("closed")

    def _judge(self, *, last: bool) -> None:
        if self._state in ("new", "connecting") and (
            last or self._peer.ice_state not in ("checking", "connected", "completed")
        ):
            seconds = CHECKING_S if last else CONNECT_S
            self._fail(f"no path was found in {seconds:.0f} s: {self.obstacle}")

    def _fail(self, why: str) -> None:
        if self._state in ("failed", "closed"):
            return
        self.failure = why
        self._release("failed")

    def _enter(self, state: str) -> None:
        if state == self._state or self._state == "closed" or (self._state == "failed" and state != "closed"):
            return
        self._state = state
        if self.on_state is not None:
            try:
                self.on_state(state)
            except Exception:
                log.exception("a state handler of the connection to %s failed", self.remote)

    def _release(self, state: str) -> asyncio.Task[None]:
        """Give everything back, once; and enter the state."""
        _ = self.path  # kept for people
        self._disarm()
        if self._teardown is None:
            self._teardown = asyncio.get_running_loop().create_task(self._tear_down())
            for channel in self._channels:
                channel.ended()
        self._enter(state)
        return self._teardown

    async def _tear_down(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._steps, return_exceptions=True)
        try:
            await asyncio.wait_for(self._peer.close(), TEARDOWN_S)
        except Exception as error:
            log.debug("closing the connection to %s: %s", self.remote, error)
        if self.on_released is not None:
            self.on_released()

    def _disarm(self) -> None:
        for deadline in self._deadlines:
            deadline.cancel()
        self._deadlines.clear()

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        if self._teardown is not None:
            job.close()
            return
        task = asyncio.get_running_loop().create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _no_way(self) -> LinkFailed:
        trouble = self._peer.trouble
        if self._relay_only:
            return LinkFailed(
                f"This device may be reached by a relay alone, and has none: {trouble}.",
                "Name a TURN server that works in the network box, or in POOLED_TURN before you join; or "
                "switch relay only off.",
            )
        return LinkFailed(
            "This device found no network address to offer" + (f", and {trouble}." if trouble else "."),
            "Check its network, or name a TURN server in the network box, or in POOLED_TURN before you join.",
        )

    def _broken(self, what: str, error: Exception) -> LinkFailed:
        if isinstance(error, _Closed):
            return LinkFailed(f"The connection to {self.remote} was closed while it was being made.")
        log.debug("the connection to %s %s", self.remote, what, exc_info=error)
        with contextlib.suppress(Exception):
            self._fail(what)
        return LinkFailed(
            f"The connection to {self.remote} {what}.", "Try again; if it stays so, update both devices."
        )
