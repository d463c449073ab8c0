"""Rooms with devices that are killed while they load or compute, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.errors import OutOfMemory, ShardDied
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.newcomer import Newcomer
from tests.room.rooms import alone, ask, open_rooms
from tests.room.test_comes_back import QUESTION, told
from tests.room.toy import ToyShard
from tests.sim.clock import simulate


class Killed(ToyShard):
    """Its process is killed as soon as it is to hold more than so many layers."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    async def load(self, spec: Any, progress: Any = None) -> Any:
        if spec.hi - spec.lo > self.most:
            self.loads += 1
            await asyncio.sleep(0.5)
            raise ShardDied(
                "The shard's process was killed, most likely because memory ran out.", "Lend less."
            )
        return await super().load(spec, progress)


@pytest.mark.parametrize(("most", "holds"), [(1, 1), (0, 0)])
def test_who_is_killed_while_it_loads_gets_half_then_nothing(most: int, holds: int) -> None:
    """PROTOCOL section 6, ``ai-share``: half its share, a layer at least; after the second kill, without."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        small = await rooms.add(shard=Killed(most), name="small")
        heard = told(rooms)
        shares: list[wire.Share] = []
        hears = small.on_message
        small.on_message = lambda sender, message: (  # type: ignore[method-assign]  # listens
            shares.append(message) if isinstance(message, wire.Share) else None,
            hears(sender, message),
        )[1]
        await rooms.host.start()
        line = next(d for d in rooms.host.status().devices if d.name == "small")
        held = line.layers[1] - line.layers[0] if line.layers else 0
        assert held == holds
        assert [bool(s.drop) for s in shares] == ([False] if holds else [False, True])
        assert "It gets half of its share" in heard[0][1]
        assert (await ask(rooms.host, QUESTION)).text == (await alone([QUESTION]))[0].text
        await rooms.close()

    simulate(scenario)


def test_a_host_that_is_killed_while_it_loads_gives_half_to_others() -> None:
    """PROTOCOL section 6, ``ai-share``: as of any device, where others can take it; else it fails."""

    async def scenario() -> None:
        for workers in ((1.0,), ()):
            rooms = await open_rooms(workers=workers)
            small = Killed(2)
            rooms.host._dealer.shard = small
            if workers:
                await rooms.host.start()
                held = [d.layers for d in rooms.host.status().devices]
                assert held == [(0, 1), (1, 6)]
            else:
                with pytest.raises(ShardDied):
                    await rooms.host.start()
                assert rooms.host.status().state == "open"
            await rooms.close()

    simulate(scenario)


def test_who_was_killed_while_it_loaded_hears_it_when_it_comes_back() -> None:
    """PROTOCOL section 6, ``ai-share``: the room dealt without it meanwhile; the next deal brings it in."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        slow = await rooms.add(shard=ToyShard(delay=10_000.0), name="slow")
        credentials = slow._admission.newcomer.credentials
        starting = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(1)
        rooms.net.kill(slow.mesh.id)
        await starting
        assert [d.name for d in rooms.host.status().devices if d.layers] == ["host", "worker"]
        again = await rooms.add(name="slow", newcomer=Newcomer(credentials))
        await asyncio.sleep(1)
        lends = next(m.meta.contrib_gb for m in rooms.host.mesh.roster if m.id == again.mesh.id)
        assert lends is not None
        assert 0.01 < lends < 0.02, "one layer of the two that it was killed with"
        await rooms.host.start()
        line = next(d for d in rooms.host.status().devices if d.id == again.mesh.id)
        assert line.layers == (5, 6)
        await rooms.close()

    simulate(scenario)


def test_who_only_vanished_while_it_loaded_was_not_killed() -> None:
    """PROTOCOL section 6, ``ai-share``: a network that broke takes no memory from who comes back."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        slow = await rooms.add(shard=ToyShard(delay=10_000.0), name="slow")
        before = slow.mesh.id
        starting = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(1)
        rooms.net.partition(rooms.host.mesh.id, before)
        await starting
        assert [d.name for d in rooms.host.status().devices if d.layers] == ["host", "worker"]
        rooms.net.heal(rooms.host.mesh.id, before)
        await asyncio.sleep(90)
        assert slow.mesh.id == before, "the same process"
        lends = next(m.meta.contrib_gb for m in rooms.host.mesh.roster if m.id == before)
        assert lends == 1.0
        slow._lending._shard.delay = 0.0  # type: ignore[union-attr]
        await rooms.host.start()
        assert len([d for d in rooms.host.status().devices if d.layers]) == 3
        await rooms.close()

    simulate(scenario)


def dies_once(shard: ToyShard) -> None:
    """Memory runs out with the next frame, and holds from then on."""
    forward = shard.forward

    async def fails(*_: Any, **__: Any) -> Any:
        shard.forward = forward  # type: ignore[method-assign]  # as it was
        raise OutOfMemory("This device ran out of memory.", "Let it lend less.")

    shard.forward = fails  # type: ignore[method-assign]  # what a shard says


def test_who_runs_out_of_memory_while_it_computes_gets_half() -> None:
    """PROTOCOL section 6, ``ai-share``: dealt the same again it would be killed again; no text is lost."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        await rooms.host.start()
        heard, said = told(rooms), list[str]()
        rooms.devices[0].on_notice = said.append
        dies_once(rooms.shards[0])
        task = asyncio.create_task(ask(rooms.host, QUESTION))
        await asyncio.sleep(30)
        assert task.result().text == (await alone([QUESTION]))[0].text
        line = next(d for d in rooms.host.status().devices if d.name == "worker")
        assert line.layers is not None
        assert line.layers[1] - line.layers[0] == 1, [text for _, text in heard]
        assert any("worker was killed while it computed, most likely because memory" in t for t in said), said
        await rooms.close()

    simulate(scenario)


def test_a_room_that_needs_all_of_it_deals_it_the_same_again() -> None:
    """PROTOCOL section 6, ``ai-share``: with half of it the model would fit nowhere."""

    async def scenario() -> None:
        whole = await open_rooms(workers=(1.0,))
        await whole.host.start()
        need = whole.host.status().need_gb
        await whole.close()
        rooms = await open_rooms(workers=(need,), host_gb=need * 0.6)
        await rooms.host.start()
        before = [d.layers for d in rooms.host.status().devices]
        dies_once(rooms.shards[0])
        task = asyncio.create_task(ask(rooms.host, QUESTION))
        await asyncio.sleep(30)
        assert task.result().text == (await alone([QUESTION]))[0].text
        assert [d.layers for d in rooms.host.status().devices] == before
        await rooms.close()

    simulate(scenario)
