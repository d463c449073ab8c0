"""Starts at which something goes wrong, in virtual time."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pooled_nb.errors import ModelNotFound, ModelTooBig, NotReady, RoomClosed
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.messages import Message, chat
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.hostroom import HostRoom
from tests.room.rooms import Rooms, alone, ask, open_rooms
from tests.room.toy import MODEL
from tests.sim.clock import simulate


def test_reports_of_an_earlier_deal_do_not_count() -> None:
    """PROTOCOL section 6: a late ``ai-ready`` of the deal before must not bring the room online."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        first = rooms.devices[0]
        loop, send, held = asyncio.get_running_loop(), first.mesh.send, list[Message]()

        def late(to: str, message: Message) -> bool:
            if isinstance(message, wire.Ready) and not held:
                held.append(message)
                loop.call_later(0.4, send, to, message)
                return True
            return send(to, message)

        first.mesh.send = late  # type: ignore[method-assign]  # a slow link for one message
        load, loads = rooms.shards[0].load, list[int]()

        async def slow_second_time(spec: Any, progress: Any = None) -> Any:
            loads.append(1)
            await asyncio.sleep(3.0 if len(loads) == 2 else 0.0)
            return await load(spec, progress)

        async def fails(spec: Any, progress: Any = None) -> Any:
            await asyncio.sleep(0.3)
            raise ModelNotFound("no files.", "Get them.")

        rooms.shards[0].load = slow_second_time  # type: ignore[method-assign]  # timing of one load
        rooms.shards[1].load = fails  # type: ignore[method-assign]  # a device that cannot load
        await rooms.host.start()
        assert first._lending.worker is not None
        assert first._lending.worker.layers is not None, "online only once it really holds its layers"
        assert (await ask(rooms.host, "q")).text == (await alone(["q"]))[0].text
        await rooms.close()

    simulate(scenario)


def test_the_newest_of_two_deals_wins() -> None:
    """PROTOCOL section 6: two ``ai-load`` in a row, while a frame runs: the newest counts, once."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        device, worker = rooms.devices[0], rooms.devices[0]._lending.worker
        assert worker is not None
        assert worker._deal is not None
        rooms.shards[0].delay = 0.05
        payload = struct.pack("<4I", 1, 0, 0, 0)
        worker.on_frame(rooms.host.mesh.id, Frame(Kind.HIDDEN_B, 0, 1, payload, Encoding.F32, reset=True))
        await asyncio.sleep(0.01)
        deal = worker._deal
        for lo in (3, 1):
            device.on_message(device.mesh.creator, msgspec.structs.replace(deal, range=[lo, 6]))
        await asyncio.sleep(1)
        assert worker.layers == (1, 6)
        running = [t for t in asyncio.all_tasks() if t.get_name() == "pooled-worker-run"]
        assert len(running) == 1
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("workers", [(), (1.0,)])
def test_leaving_while_the_room_loads_ends_both(workers: tuple[float, ...]) -> None:
    """Every wait ends: a closed room stays closed, and who waited for the start hears it."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=workers, delay=0.5)
        starting = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(0.1)
        await rooms.host.leave()
        with pytest.raises(RoomClosed):
            await starting
        assert rooms.host.status().state == "closed"
        with pytest.raises(RoomClosed):
            await rooms.host.start()
        await rooms.close()

    simulate(scenario)


def test_the_hosts_shard_dies_while_another_loads() -> None:
    """PROTOCOL section 6, ``ai-share``: the host was killed while it loaded, and others hold half of that."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        rooms.shards[0].delay = 5.0
        starting = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(0.5)
        assert rooms.host_shard.on_died
        rooms.host_shard.on_died("The process that computes was killed.")
        await starting
        assert [d.layers for d in rooms.host.status().devices] == [(0, 1), (1, 6)]
        assert any("gets half of its share" in notice for notice in rooms.notices)
        assert (await ask(rooms.host, "q")).text == (await alone(["q"]))[0].text
        await rooms.close()

    simulate(scenario)


def test_a_device_left_out_gives_its_memory_back() -> None:
    """PROTOCOL section 6, ``ai-layers``: who is not among the ranges holds nothing."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        await rooms.host.start()
        left_out = rooms.devices[0]
        member = next(m for m in rooms.host.mesh.roster if m.id == left_out.mesh.id)
        assert member.meta.contrib_gb
        left_out.mesh.set_meta(msgspec.structs.replace(member.meta, contrib_gb=0.0))
        await asyncio.sleep(1)
        await rooms.host.start()
        await asyncio.sleep(1)
        assert left_out.role == "guest"
        assert rooms.shards[0].spec is None
        await rooms.close()

    simulate(scenario)


def test_a_deal_that_cannot_be_made_leaves_the_room_online() -> None:
    """PROTOCOL section 6: what does not fit is refused, and everything is as it was."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        model, rooms.host._dealer.model = (
            rooms.host._dealer.model,
            msgspec.structs.replace(MODEL, layer_bytes=[10**12] * 6),
        )
        with pytest.raises(ModelTooBig):
            await rooms.host.start()
        rooms.host._dealer.model = model
        assert rooms.host.status().state == "online"
        assert (await ask(rooms.host, "q")).done.reason == "stop"
        await rooms.close()

    simulate(scenario)


async def host_fails(rooms: Rooms, load: Callable[..., Any]) -> None:
    rooms.host_shard.load = load  # type: ignore[method-assign]  # an error no door promises
    with pytest.raises(OSError, match="disk"):
        await rooms.host.start()
    assert rooms.host.status().state == "open"


async def worker_fails(rooms: Rooms, load: Callable[..., Any]) -> None:
    rooms.shards[0].load = load  # type: ignore[method-assign]  # an error no door promises
    await rooms.host.start()
    assert rooms.devices[0].role == "guest"


@pytest.mark.parametrize("fails", [host_fails, worker_fails])
def test_an_unforeseen_error_while_loading_ends_the_wait(fails: Callable[..., Any]) -> None:
    """Every wait ends in an answer or in words, also where the door's promise was broken."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))

        async def load(*_: Any, **__: Any) -> Any:
            raise OSError("disk")

        await fails(rooms, load)
        await rooms.close()

    simulate(scenario)


def test_frames_stay_as_the_first_start_fixed_them() -> None:
    """PROTOCOL section 5: ``width`` and ``cols`` are fixed at the first start; who offers less is out."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        assert rooms.host._dealer.deal is not None
        cols = rooms.host._dealer.deal.cols
        odd = await rooms.add(name="odd")
        member = next(m for m in rooms.host.mesh.roster if m.id == odd.mesh.id)
        assert member.meta.nb
        await odd.leave()
        await asyncio.sleep(1)
        for narrow in (7, 16):
            nb = msgspec.structs.replace(member.meta.nb, cols=narrow)
            room = await rooms.add(name=f"cols {narrow}", meta=msgspec.structs.replace(member.meta, nb=nb))
            await rooms.host.start()
            assert rooms.host._dealer.deal.cols == cols
            assert rooms.host._dealer.deal.seat(room.mesh.id) is None
        await rooms.close()

    simulate(scenario)


def test_a_link_that_does_not_come_to_be_costs_the_silent_end() -> None:
    """CASES: a device that died is left out, not the healthy one before it that could not reach it."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        first, second = rooms.devices
        rooms.shards[0].delay = 8.0
        starting = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(0.5)
        rooms.net.kill(second.mesh.id)
        await starting
        status = rooms.host.status()
        assert [d.name for d in status.devices if d.layers] == ["host", "worker"]
        assert first.role == "worker"
        assert (await ask(rooms.host, "q")).text == (await alone(["q"]))[0].text
        await rooms.close()

    simulate(scenario, limit=3_600)


def test_who_lends_is_a_worker_before_anything_is_dealt() -> None:
    """PROTOCOL section 1: a guest has no layers; who joined to lend must not look as if that had failed."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0.0, name="guest")
        everybody: list[HostRoom | DeviceRoom] = [rooms.host, *rooms.devices]
        for room in everybody:
            assert [d.role for d in room.status().devices] == ["host", "worker", "guest"]
        assert (rooms.devices[0].role, guest.role) == ("worker", "guest")
        await rooms.close()

    simulate(scenario)


def test_an_empty_question_starts_no_room() -> None:
    """PROTOCOL section 7: bad input leaves everything as it was, also what no device of ours would send."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0.0)
        rooms.host.on_message(guest.mesh.id, chat.Ask(text=" \n"))
        await asyncio.sleep(1)
        assert rooms.host.status().state == "open"
        assert rooms.host_shard.spec is None
        assert not rooms.notices
        await rooms.close()

    simulate(scenario)


def test_nobody_waits_for_a_start_that_ended_before_it_began() -> None:
    """PROTOCOL section 6: a device leaves between question and start, and what is left holds no model."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0.0)
        make, calls = rooms.host._dealer.make, list[int]()

        def fits_once(excluded: Any) -> Any:
            calls.append(1)
            if len(calls) == 2:
                raise ModelTooBig("The memory lent is short by 1 GB for Toy.", "Let another device join.")
            return make(excluded)

        rooms.host._dealer.make = fits_once  # type: ignore[method-assign]  # the roster of that moment
        with pytest.raises(NotReady, match="short by 1 GB"):
            await asyncio.wait_for(ask(guest, "q"), 60)
        assert rooms.host.status().waiting == 0
        assert (await ask(guest, "q", max_tokens=3)).done.reason == "max"
        await rooms.close()

    simulate(scenario)
