"""Answers that lose their chain in the middle, at any moment, and what they are compared with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Literal

from pooled_nb.mesh.frame import Frame
from pooled_nb.room.chain import Chain
from pooled_nb.room.core import Notice
from tests.room.rooms import Heard, Rooms, ask, open_rooms

Moment = Literal["before", "during", "flight", "drawing", "held"]
"""When a lap is lost: before the host's layers, while they run, while the frame is out, while its token is
drawn; ``held``: while it is out, and the room waits two seconds for a device."""
MOMENTS: tuple[Moment, ...] = ("before", "during", "flight", "drawing", "held")


def chain_of(rooms: Rooms) -> Chain:
    """The chain as it is now."""
    chain = rooms.host.answering.chain
    assert chain
    return chain


def hold(rooms: Rooms, seconds: float = 2.0, why: str = "mira does not answer.") -> None:
    """The room waits, and is whole again after so many seconds."""
    answering, chain = rooms.host.answering, chain_of(rooms)
    answering.hold(why)
    asyncio.get_running_loop().call_later(seconds, answering.online, chain)


class Losing:
    """The host's shard loses laps of the next answers.

    Parameters
    ----------
    at
        Which laps, from 1: frames that the host runs, those of another try included.
    """

    def __init__(self, rooms: Rooms, at: Collection[int], moment: Moment) -> None:
        self.lost = 0
        self._rooms, self._at, self._moment = rooms, at, moment
        self._laps = 0
        self._shard = rooms.host_shard
        self._forward, self._sample = self._shard.forward, self._shard.sample

    def __enter__(self) -> Losing:
        self._shard.forward = self._lose_forward  # type: ignore[method-assign]  # watched, and passed on
        self._shard.sample = self._lose_sample  # type: ignore[method-assign]  # watched, and passed on
        return self

    def __exit__(self, *_: object) -> None:
        self._shard.forward = self._forward  # type: ignore[method-assign]  # as it was
        self._shard.sample = self._sample  # type: ignore[method-assign]  # as it was

    def _lose(self) -> None:
        self.lost += 1
        chain_of(self._rooms).lose("made up")

    async def _lose_forward(self, *args: Any, **more: Any) -> Any:
        self._laps += 1
        mine = self._laps in self._at
        if mine and self._moment == "before":
            self._lose()
        if mine and self._moment == "during":
            asyncio.get_running_loop().call_soon(self._lose)
        ran = await self._forward(*args, **more)
        if mine and self._moment == "flight":
            asyncio.get_running_loop().call_soon(self._lose)
        if mine and self._moment == "held":
            self.lost += 1
            hold(self._rooms)
        return ran

    async def _lose_sample(self, *args: Any, **more: Any) -> Any:
        drawn = await self._sample(*args, **more)
        if self._laps in self._at and self._moment == "drawing":
            self._lose()
        return drawn


def lose_returns(rooms: Rooms, at: Collection[int]) -> Callable[[], int]:
    """The last worker's returns of these numbers, from 1, never arrive; how many were lost so far."""
    last = chain_of(rooms).workers[-1]
    mesh = next(device.mesh for device in rooms.devices if device.mesh.id == last)
    sent = lost = 0
    plain = mesh.send_frame

    def send_frame(to: str, frame: Frame) -> bool:
        nonlocal sent, lost
        if not frame.kind.is_return:
            return plain(to, frame)
        sent += 1
        if sent in at:
            lost += 1
            return True
        return plain(to, frame)

    mesh.send_frame = send_frame  # type: ignore[method-assign]  # watched, and passed on
    return lambda: lost


async def undisturbed(*questions: str, options: dict[str, Any], **room: Any) -> list[Heard]:
    """The same conversation on one device, which guesses nothing and keeps nothing."""
    rooms = await open_rooms(speculate=False, checkpoints=0, **room)
    await rooms.host.start()
    heard = [await ask(rooms.host, q, **options) for q in questions]
    await rooms.close()
    return heard


def notices(heard: Heard) -> list[str]:
    """What the asker read about its answer while it ran."""
    return [event.text for event in heard.events if isinstance(event, Notice)]
