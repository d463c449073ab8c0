"""What a room says to whom, message by message."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from pooled_nb.errors import ModelNotFound
from pooled_nb.mesh.frame import Encoding, Frame
from pooled_nb.mesh.messages import Message, chat
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.versions import PROTOCOL
from pooled_nb.room.deviceroom import DeviceRoom
from tests.room.rooms import Rooms, ask, open_rooms
from tests.sim.clock import simulate


def listen(room: DeviceRoom) -> list[Message]:
    """Every message the device hears from now on, in order."""
    heard: list[Message] = []
    take = room.on_message

    def on_message(sender: str, message: Message) -> None:
        heard.append(message)
        take(sender, message)

    room.on_message = on_message  # type: ignore[method-assign]  # a wire tap
    return heard


def kinds(heard: list[Message]) -> list[str]:
    """Their types, repetitions of one type taken together."""
    names = [m.t for m in heard]
    return [n for i, n in enumerate(names) if i == 0 or names[i - 1] != n]


async def worker_room(**options: Any) -> tuple[Rooms, list[Message]]:
    rooms = await open_rooms(workers=(1.0, 1.0), **options)
    return rooms, listen(rooms.devices[0])


def test_a_start_is_told_in_order() -> None:
    """PROTOCOL section 6: `ai-start-req`, `ai-inv-req` before dealing, `ai-load`, `ai-hostprog`.

    Then `ai-layers` and `ai-ready-all`.
    """

    async def scenario() -> None:
        rooms, heard = await worker_room(delay=2.0)
        await rooms.host.start()
        await asyncio.sleep(1)
        before = ["ai-start-req", "ai-inv-req"]
        assert kinds(heard) == [*before, "ai-load", "ai-hostprog", "ai-layers", "ai-ready-all"]
        request, load = heard[0], next(m for m in heard if isinstance(m, wire.Load))
        assert isinstance(request, wire.StartReq)
        assert (request.boss, request.by) == (rooms.host.mesh.id, "host")
        assert load.nb is not None
        me, after = rooms.devices[0].mesh.id, rooms.devices[1].mesh.id
        assert (load.v, load.host, load.next, load.nb.prev) == (
            PROTOCOL,
            rooms.host.mesh.id,
            after,
            rooms.host.mesh.id,
        )
        assert load.nb.ranges[me] == load.range
        assert (load.nb.dtype, load.nb.enc, load.nb.width, load.nb.cols) == ("float32", "f32", 16, 32)
        layers = next(m for m in heard if isinstance(m, wire.LayersHeld))
        assert layers.by["worker"] == f"{load.range[0]}–{load.range[1] - 1}", "0-based, inclusive, en dash"
        assert layers.same
        progress = [m.all for m in heard if isinstance(m, wire.HostProgress)]
        assert all(a["worker"] <= b["worker"] for a, b in pairwise(progress))
        await rooms.close()

    simulate(scenario)


def test_a_newcomer_waits_while_nothing_is_loaded() -> None:
    """PROTOCOL section 6: `ai-wait` to who is admitted before the room is online, or while it loads.

    Then what changes only now and then: how many wait (section 7, `ai-queue`).
    """

    async def scenario() -> None:
        rooms = await open_rooms(delay=2.0)
        heard: list[Message] = []
        take = DeviceRoom.on_message

        def on_message(self: DeviceRoom, sender: str, message: Message) -> None:
            heard.append(message)
            take(self, sender, message)

        DeviceRoom.on_message = on_message  # type: ignore[method-assign]  # a wire tap from the first message
        try:
            await rooms.add(gb=0.0)
            await asyncio.sleep(0.5)
            assert kinds(heard) == ["ai-wait", "ai-queue"]
            await rooms.host.start()
            await asyncio.sleep(1)
            heard.clear()
            await rooms.add(gb=0.0, name="late")
            await asyncio.sleep(0.5)
            assert kinds(heard) == ["ai-layers", "ai-ready-all", "ai-history", "ai-queue"]
        finally:
            DeviceRoom.on_message = take  # type: ignore[method-assign]  # as it was
        await rooms.close()

    simulate(scenario)


def test_a_second_start_is_a_new_deal() -> None:
    """PROTOCOL section 6: `ai-redeal` says who deals again; `ai-start-failed` when it did not work."""

    async def scenario() -> None:
        rooms, heard = await worker_room()
        await rooms.host.start()
        await asyncio.sleep(1)
        heard.clear()
        await rooms.host.start()
        await asyncio.sleep(1)
        assert kinds(heard)[:3] == ["ai-redeal", "ai-inv-req", "ai-load"]
        heard.clear()
        rooms.host_shard.fail_load = "no licence."
        with pytest.raises(ModelNotFound, match="no licence"):
            await rooms.host.start()
        await asyncio.sleep(1)
        failed = [m for m in heard if isinstance(m, wire.StartFailed)]
        assert len(failed) == 1
        assert "no licence" in failed[0].why
        assert rooms.shards[0].spec is None, "its memory is given back"
        await rooms.close()

    simulate(scenario)


def test_an_answer_is_told_in_order() -> None:
    """PROTOCOL section 7: `ai-ask` from any device; `ai-genstart`, `ai-token`, `ai-gendone`; `mid` rises."""

    async def scenario() -> None:
        rooms, heard = await worker_room()
        await rooms.host.start()
        await asyncio.sleep(1)
        heard.clear()
        await ask(rooms.devices[1], "Why?", max_tokens=4)
        await asyncio.sleep(1)
        said = [k for k in kinds(heard) if k != "ai-queue"]
        assert said == ["ai-genstart", "ai-token", "ai-gendone"]
        start = next(m for m in heard if isinstance(m, chat.GenStart))
        done = next(m for m in heard if isinstance(m, chat.GenDone))
        assert (start.asker, start.name, start.text) == (rooms.devices[1].mesh.id, "worker 2", "Why?")
        assert (done.mid, done.reason, done.capped) == (start.mid, "max", True)
        assert done.ctx is not None
        assert done.ctx.used == len("Why?") + 1 + 3, "the last sampled token is in no cache yet"
        assert done.nb is not None
        assert done.nb.tokens == 4
        await ask(rooms.host, "And?", max_tokens=1)
        await asyncio.sleep(1)
        mids = [m.mid for m in heard if isinstance(m, chat.GenStart)]
        assert mids == [start.mid, start.mid + 1]
        await rooms.close()

    simulate(scenario)


def test_frames_carry_the_rooms_own_encoding_and_control() -> None:
    """PROTOCOL section 5: "the wire carries the activations' own dtype"; "control rides on frames".

    `reset` comes on the first frame of a fresh cache and on no other; returns carry no control.
    """

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        there: list[Frame] = []
        back: list[Frame] = []
        take, home = rooms.devices[0].on_frame, rooms.host.on_frame

        def to_worker(sender: str, frame: Frame) -> None:
            there.append(frame)
            take(sender, frame)

        def to_host(sender: str, frame: Frame) -> None:
            back.append(frame)
            home(sender, frame)

        rooms.devices[0].on_frame = to_worker  # type: ignore[method-assign]  # a wire tap
        rooms.host.on_frame = to_host  # type: ignore[method-assign]  # a wire tap
        await ask(rooms.host, "x" * 70, max_tokens=3)
        await ask(rooms.host, "more", max_tokens=2)
        assert {f.enc for f in [*there, *back]} == {Encoding.F32}
        assert [f.reset for f in there].index(True) == 0
        assert sum(f.reset for f in there) == 1
        assert not any(f.reset or f.spec or f.rb is not None or f.sv or f.ld or f.dp for f in back)
        assert [(f.pos, f.n) for f in there[:3]] == [(0, 32), (32, 32), (64, 7)]
        assert [(f.pos, f.n) for f in back[:3]] == [(31, 1), (63, 1), (70, 1)], "only the last column returns"
        positions = [f.pos for f in there]
        assert positions == sorted(positions), "a worker runs frames one at a time in that order"
        await rooms.close()

    simulate(scenario)
