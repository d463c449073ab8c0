"""Tries tuned connections before any room relies on them: two of them, in this process, over loopback.

Real sockets, ICE and DTLS, so it works without any network, as a room on one machine does. What it sends is
compared byte for byte; packets are lost on purpose. Whatever differs, raises or takes too long is a reason
not to tune (DESIGN section 4).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from aiortc import RTCConfiguration, RTCDataChannel, RTCPeerConnection

from pooled_nb.mesh.gathering import Gathering
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.loop import new_loop

log = logging.getLogger(__name__)

LIMIT_S = 2.0
"""Of one try; it takes about 0.1 s on a machine that has time."""
TRIES = 2
"""A machine that is just loading a model may be late once; one where it does not work is late again."""
CLOSE_S = 0.5
LOOK_S = 0.002
SMALL = [bytes([n]) * (1 + 61 * n) for n in range(40)]
"""Messages of one packet and of several."""
LARGE = bytes(range(251)) * 259
"""About 65 kB, the most that an association takes (`association`)."""
SOME = LARGE[:40_000]
LOST = (4, 11)
"""Packets that do not arrive, counted from when it begins to matter."""

Make = Callable[[RTCConfiguration], RTCPeerConnection]


def run(make: Make | None = None) -> str:
    """Try; to be called in a thread without a loop.

    Returns
    -------
    Why connections that are tuned do not work, in words; nothing where they do.
    """
    if make is None:
        from pooled_nb.mesh.sctp.peer import Peer

        make = Peer
    for _ in range(TRIES):
        trial = Trial(make)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            why = runner.run(trial.tried())
        if not trial.is_late:
            break
    return why


class Trial:
    """One try.

    Attributes
    ----------
    is_late
        It took too long: a busy machine, or something that never comes.
    """

    def __init__(self, make: Make) -> None:
        self.is_late = False
        self._make = make
        self._doing = ""
        self._raised = ""
        self._pcs: list[RTCPeerConnection] = []

    async def tried(self) -> str:
        """See `run`."""
        asyncio.get_running_loop().set_exception_handler(self._heard)
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._all()
        except TimeoutError:
            self.is_late = True
            return f"{self._doing}: nothing came of it in {LIMIT_S:.0f} s"
        except _Differs:
            return f"{self._doing}: what came differs"
        except Exception as error:
            log.debug("the trial of tuned connections failed", exc_info=error)
            return f"{self._doing}: {type(error).__name__}"
        finally:
            for pc in self._pcs:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(pc.close(), CLOSE_S)
        return self._raised

    def _heard(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What was raised where nobody waits: in a timer, a socket's callback, a task."""
        error = context.get("exception")
        log.debug("the trial of tuned connections: %s", context.get("message"), exc_info=error)
        self._raised = self._raised or f"{self._doing}: {type(error).__name__}"

    async def _all(self) -> None:
        self._doing = "opening a connection"
        self._pcs = [self._make(RTCConfiguration(iceServers=[])) for _ in range(2)]
        near, far = self._pcs
        reliable = [End(pc.createDataChannel("reliable", negotiated=True, id=1)) for pc in self._pcs]
        partial = [
            End(pc.createDataChannel("partial", negotiated=True, id=3, ordered=False, maxRetransmits=0))
            for pc in self._pcs
        ]
        named, named_far = End(near.createDataChannel("named")), End()
        far.on("datachannel", named_far.adopt)
        await self._connect(near, far)
        ends = [*reliable, *partial, named, named_far]
        await _until(lambda: all(end.state == "open" for end in ends))

        self._doing = "small messages"
        await _both_ways(SMALL, *reliable)
        await _both_ways(["text, größer", b"", ""], named, named_far)
        self._doing = "a large message"
        await _both_ways([LARGE], *reliable)
        self._doing = "a message that loses packets"
        with _losing(near), _losing(far):
            await _both_ways([SOME, b"after"], *reliable)
        self._doing = "messages that are not repeated"
        with _losing(far):
            await _some_way(*partial)
        await _both_ways([SOME], *reliable)  # what was given up holds nothing up

        self._doing = "closing a channel"
        named.close()
        await _until(lambda: named.state == named_far.state == "closed")
        await _both_ways(SMALL[:9], *reliable)
        await _until(lambda: all(end.buffered == 0 for end in reliable))
        self._doing = "closing a connection"
        await near.close()
        await _until(lambda: far.connectionState == "closed" and reliable[1].state == "closed")

    async def _connect(self, near: RTCPeerConnection, far: RTCPeerConnection) -> None:
        for pc in self._pcs:
            Gathering(IcePolicy.local(), pc, limit=LIMIT_S)
        await near.setLocalDescription(await near.createOffer())
        await far.setRemoteDescription(near.localDescription)
        await far.setLocalDescription(await far.createAnswer())
        await near.setRemoteDescription(far.localDescription)


class _Differs(Exception):
    """What came is not what was sent."""


class End:
    """One end of a channel, and what came there."""

    def __init__(self, channel: RTCDataChannel | None = None) -> None:
        self.got: list[bytes | str] = []
        self._channel: Any = None
        if channel is not None:
            self.adopt(channel)

    def adopt(self, channel: RTCDataChannel) -> None:
        """Listen to a channel."""
        self._channel = channel
        channel.on("message", self.got.append)

    @property
    def state(self) -> str:
        """W3C ``readyState``; empty while there is no channel."""
        return "" if self._channel is None else str(self._channel.readyState)

    @property
    def buffered(self) -> int:
        """W3C ``bufferedAmount``."""
        return int(self._channel.bufferedAmount)

    def send(self, messages: Sequence[bytes | str]) -> None:
        """Send them all at once."""
        for message in messages:
            self._channel.send(message)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


async def _both_ways(messages: Sequence[bytes | str], one: End, other: End) -> None:
    for end in (one, other):
        end.got.clear()
    for end in (one, other):
        end.send(messages)
    await _until(lambda: min(len(one.got), len(other.got)) >= len(messages))
    if not one.got == other.got == list(messages):
        raise _Differs


async def _some_way(one: End, other: End) -> None:
    """Some may be missing; none is wrong, and none comes twice."""
    sent = [bytes([n]) * 1000 for n in range(20)]
    one.send(sent)
    await _until(lambda: sent[-1] in other.got)
    if len(set(other.got)) != len(other.got) or not set(other.got) < set(sent):
        raise _Differs


async def _until(what: Callable[[], bool]) -> None:
    while not what():  # noqa: ASYNC110  # many things, no one event
        await asyncio.sleep(LOOK_S)


@contextlib.contextmanager
def _losing(pc: RTCPeerConnection) -> Any:
    """Some packets do not reach this end's association."""
    association: Any = pc.sctp
    arrive, count = association.receive_now, 0

    def receive_now(packet: bytes) -> None:
        nonlocal count
        count += 1
        if count not in LOST:
            arrive(packet)

    association.receive_now = receive_now
    try:
        yield
    finally:
        del association.receive_now
