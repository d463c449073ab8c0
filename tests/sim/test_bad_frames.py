"""What a worker, or a device that is not the host, can send wrongly, in whole rooms (PROTOCOL section 5).

Each is named, and costs at most the answer that runs; the room answers the next question.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.sim.limits import Scene

pytestmark = pytest.mark.torch


async def _next_is_right(it: Scene) -> None:
    again = it.ask(text="and now?", tokens=8)
    await it.until(lambda: again.over)
    assert again.outcome in ("max", "stop")
    assert it.status().state == "online"


@pytest.mark.parametrize("who", ["w1", "w2"])
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("shape", ("not asked for", "bytes", "hidden states")),
        ("position", ("not asked for", "position")),
        ("nan", ("NaN or infinity",)),
        ("columns", ("not asked for", "column", "frame")),
        ("twice", ("not asked for", "position")),
    ],
)
def test_a_wrong_frame_costs_that_answer(who: str, how: str, words: tuple[str, ...]) -> None:
    """PROTOCOL section 5: a frame of a wrong shape, position or number of columns, with a NaN, or sent twice,
    is named with its device, costs at most the answer that runs, and is not tried again.
    """
    from pooled_nb.room.core import Notice
    from tests.sim.limits import scene

    async def play(it: Scene) -> None:
        heard = it.ask()
        await it.tokens(heard, 6)
        shown = heard.said
        it.world.devices[who].tamper.next.append(how)
        await it.until(lambda: heard.over)
        done = heard.done
        assert done is not None
        told = " ".join(e.text for _, e in heard.events if isinstance(e, Notice))
        if done.reason == "error":
            assert heard.said.startswith(shown)
            assert any(part in done.why for part in words), done.why
            assert any(part in done.why for part in ("w1", "w2"))
        elif how == "position":  # as if one before it were lost: that is named, and tried again
            assert "w2 says" in told.lower()
        else:  # the second of two equal frames may come when the answer is over
            assert how == "twice"
        await _next_is_right(it)

    scene(play, workers=(1.0, 1.0))


def test_a_frame_that_never_comes_costs_nothing_but_time() -> None:
    """PROTOCOL section 8, lap timeout: a worker that answers with nothing; the answer goes on after it."""
    from tests.sim.limits import scene

    async def play(it: Scene) -> None:
        heard = it.ask()
        await it.tokens(heard, 6)
        it.loses("w2")
        await it.until(lambda: heard.over)
        assert heard.outcome == "max"
        await _next_is_right(it)

    scene(play, workers=(1.0, 1.0))


def test_a_stale_frame_after_a_new_deal_changes_nothing() -> None:
    """PROTOCOL section 5, epochs: what a worker sends late, of a deal before, is dropped."""
    from dataclasses import replace

    from pooled_nb.mesh.frame import Frame
    from tests.sim.limits import scene

    async def play(it: Scene) -> None:
        worker = it.world.devices["w2"]
        kept: list[tuple[str, Frame]] = []
        real = worker.room.mesh.send_frame

        def keeps(to: str, frame: Frame) -> bool:
            kept.append((to, frame))
            return real(to, frame)

        worker.room.mesh.send_frame = keeps  # type: ignore[method-assign]  # as its room uses it
        heard = it.ask()
        await it.tokens(heard, 6)
        it.befall("shard", "w1")  # dealt anew, while the answer runs
        await it.until(lambda: it.status().state == "loading")
        await it.until(lambda: it.status().state == "answering")
        for to, frame in kept[-3:]:
            worker.machine.call(
                lambda to=to, frame=frame: real(to, replace(frame, payload=bytes(frame.payload)))
            )
        await it.until(lambda: heard.over)
        assert heard.outcome == "max"
        await _next_is_right(it)

    scene(play, workers=(1.0, 1.0))


def test_a_device_that_is_not_the_host_is_not_obeyed() -> None:
    """PROTOCOL sections 6 and 7: what only the host may say counts for nothing from another device."""
    from pooled_nb.mesh.messages import chat
    from pooled_nb.mesh.messages import deal as wire
    from tests.sim.limits import scene

    async def play(it: Scene) -> None:
        one, other = it.world.devices["w1"], it.world.devices["w2"]
        liar = other.room.mesh
        heard = it.ask("w1")
        await it.tokens(heard, 6)
        for message in (
            chat.Token(text="LIES", mid=heard.mid),
            chat.GenDone(mid=heard.mid, reason="stop"),
            chat.Reset(),
            wire.Degraded(why="Not so."),
            wire.StartFailed(why="Not so."),
            wire.LayersHeld(ranges={}),
            wire.ReadyAll(model="other", label="Other", ctx=1),
        ):
            other.machine.call(lambda message=message: liar.send(one.room.mesh.id, message))
            other.machine.call(lambda message=message: liar.send(liar.creator, message))
        await asyncio.sleep(0.5)
        status = one.room.status()
        assert status.state in ("answering", "online")
        assert status.label == "Tiny"
        await it.until(lambda: heard.over)
        assert heard.outcome == "max"
        assert "LIES" not in heard.said
        await _next_is_right(it)

    scene(play, workers=(1.0, 1.0))
