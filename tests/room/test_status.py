"""The room as each device's person sees it."""

from __future__ import annotations

import asyncio

import pytest

from tests.room.rooms import ask, open_rooms
from tests.room.toy import LAYERS
from tests.sim.clock import simulate

ALWAYS = ["set", "invite", "kick", "close", "network", "leave"]
"""What a host may do where others are."""


def test_what_the_model_needs_and_computes_in() -> None:
    """PROTOCOL section 6, `ai-layers`: *(nb)* `dtype`; what all hold is what the model needs here."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        guest = await rooms.add(gb=0.0)
        before = rooms.host.status()
        need = (7 * 10_000_000 + 1024 * 64 * 2 * LAYERS) / 1e9
        assert (before.dtype, before.need_gb) == ("float32", pytest.approx(need))
        await rooms.host.start()
        await asyncio.sleep(1)
        status = rooms.host.status()
        assert status.need_gb == pytest.approx(need)
        assert sum(d.held_gb for d in status.devices) == pytest.approx(need)
        for device in rooms.devices:
            there = device.status()
            assert (there.dtype, there.layers) == ("float32", LAYERS)
            assert there.need_gb == pytest.approx(need, abs=0.002), "as rounded on the wire"
        assert guest.status().tps == 0.0
        await rooms.close()

    simulate(scenario)


def test_names_of_those_who_wait_and_whose_answer_runs() -> None:
    """PROTOCOL section 7, `ai-queue`: everyone knows how many wait; the host also who."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), end_after=10_000, delay=0.01)
        guest = await rooms.add(gb=0.0, name="mira")
        await rooms.host.start()
        tasks = [asyncio.create_task(ask(guest, "one", max_tokens=30))]
        await asyncio.sleep(0.1)
        tasks += [
            asyncio.create_task(ask(room, "q", max_tokens=2)) for room in (rooms.devices[0], rooms.host)
        ]
        await asyncio.sleep(0.1)
        here, mira, worker = (r.status() for r in (rooms.host, guest, rooms.devices[0]))
        assert sorted(here.queue) == ["host", "worker"]
        assert (mira.queue, worker.queue) == ([], [])
        assert (mira.waiting, worker.waiting) == (2, 2)
        assert (here.mine, mira.mine, worker.mine) == (False, True, False)
        assert (here.answering, worker.answering) == ("mira", "mira")
        assert ["stop" in s.can for s in (here, mira, worker)] == [True, True, False]
        await asyncio.gather(*tasks)
        await asyncio.sleep(1)
        assert not any(r.status().mine for r in (guest, rooms.devices[0]))
        speed = rooms.host.status().tps
        assert speed > 0
        assert [r.status().tps for r in (guest, rooms.devices[0])] == [pytest.approx(speed)] * 2
        assert rooms.host.status().newest == guest.status().newest == 3
        await rooms.close()

    simulate(scenario)


def test_a_new_deal_is_offered_once_devices_came() -> None:
    """PROTOCOL section 6, `ai-redeal`: "over the devices now here"; who lends nothing changes nothing."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        assert rooms.host.status().can == ["start", *ALWAYS]
        await rooms.host.start()
        await rooms.add(gb=0.0)
        await asyncio.sleep(1)
        assert "redeal" not in rooms.host.status().can
        await rooms.add(gb=1.0)
        await asyncio.sleep(1)
        assert rooms.host.status().can[0] == "redeal"
        await rooms.host.start()
        assert "redeal" not in rooms.host.status().can
        assert "reset" not in rooms.host.status().can
        await ask(rooms.host, "q", max_tokens=2)
        assert rooms.host.status().can == ["continue", "regen", "reset", *ALWAYS]
        await rooms.devices[2].leave()
        await asyncio.sleep(1)
        assert rooms.host.status().can == ["redeal", "reset", *ALWAYS]
        assert rooms.devices[0].status().can == ["network", "leave"]
        await rooms.host.leave()
        assert rooms.host.status().can == []
        await rooms.close()

    simulate(scenario)
