"""Questions that wait while the room does, and are taken back (PROTOCOL sections 7 and 8)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.errors import NotReady
from pooled_nb.room.holding import WAIT_S
from tests.room.rooms import ask, open_rooms
from tests.sim.clock import simulate


@pytest.mark.parametrize("how", ["takes it back", "leaves"])
def test_a_question_does_not_wait_less_for_one_that_is_gone(how: str) -> None:
    """PROTOCOL section 8, 6 min: they are those of who waits, not of a question that is gone by then."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        one, two = [await rooms.add(gb=0, name=name) for name in ("one", "two")]
        await rooms.host.start()
        rooms.host.answering.hold("mira dropped.")
        first = asyncio.create_task(ask(one, "first"))
        await asyncio.sleep(300)
        assert len(rooms.host.answering.queue) == 1
        if how == "leaves":
            await one.leave()
        else:
            await one.stop()
        with pytest.raises(Exception, match=r"taken back|left"):
            await first
        await asyncio.sleep(1)
        assert len(rooms.host.answering.queue) == 0
        began = asyncio.get_running_loop().time()
        with pytest.raises(NotReady, match="It waited 6 min"):
            await ask(two, "second")
        assert asyncio.get_running_loop().time() - began == pytest.approx(WAIT_S, abs=1)
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("asker", ["host", "guest"])
def test_nobody_waits_for_an_answer_that_had_no_end(asker: str) -> None:
    """PROTOCOL section 7: whatever goes wrong here, every question ends, and the next one is answered."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0, name="guest")
        await rooms.host.start()
        replays = rooms.host.answering._replays
        add = replays.add

        def fails(*_: object) -> None:
            replays.add = add  # type: ignore[method-assign]  # as it was
            raise RuntimeError("made up")

        replays.add = fails  # type: ignore[method-assign]  # at the very end of an answer
        who = guest if asker == "guest" else rooms.host
        task = asyncio.create_task(ask(who, "first"))
        second = asyncio.create_task(ask(guest, "second"))
        assert (await second).done.reason == "stop"
        if asker == "host":
            with pytest.raises(NotReady, match="made up"):
                await task
        else:
            assert (await task).done.why.startswith("host says: made up.")
        await rooms.close()

    simulate(scenario)
