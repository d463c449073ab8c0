"""Frames that are lost between two devices, and what a device says of those after them (section 5)."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.messages import deal
from pooled_nb.room.losses import FRAME
from pooled_nb.room.onward import missed
from tests.room.bench import Bench, load, run
from tests.room.rooms import ask, open_rooms
from tests.room.test_waiting_answers import same
from tests.room.waits import notices, undisturbed
from tests.sim.clock import simulate


def frame(pos: int = 0, n: int = 16, **more: Any) -> Frame:
    return Frame(Kind.HIDDEN_B, pos, n, struct.pack("<4I", 0, 0, 0, 0) * n, Encoding.F32, **more)


@pytest.mark.parametrize(
    ("before", "now", "lost"),
    [
        (None, frame(16), False),
        (frame(0), frame(16), False),
        (frame(0), frame(32), True),
        (frame(0), frame(17), True),
        (frame(32), frame(33, 1, rb=0), False),
        (frame(0), frame(64, ld=3), False),
        (frame(0, epoch=1), frame(16, epoch=2), True),
        (frame(48, epoch=1), frame(0, epoch=2, reset=True), False),
    ],
    ids=["first", "next", "one is missing", "a column", "rolled back", "loaded", "its reset", "reset"],
)
def test_a_gap_is_told_from_what_goes_on(before: Frame | None, now: Frame, lost: bool) -> None:
    """PROTOCOL section 5: each frame begins where the one before ended, a checkpoint, or nothing."""
    assert missed(now, before) is lost


def test_a_worker_runs_nothing_after_a_gap() -> None:
    """PROTOCOL section 6, ``ai-error``: said once, then frames wait for one with ``reset``."""

    async def scenario(bench: Bench) -> None:
        bench.worker.load(load(7, after="next"))
        await asyncio.sleep(1)
        for pos, reset in ((0, True), (2, False), (3, False), (0, True)):
            bench.frame(1, pos=pos, reset=reset)
        await asyncio.sleep(1)
        (error,) = bench.links.heard(deal.Error)
        assert (error.lost, error.pos, error.load, error.killed) == (FRAME, 2, False, False)
        assert [f.pos for _, f in bench.links.frames] == [0, 0]

    run(scenario)


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_frame_lost_between_two_workers_costs_no_answer(number: int) -> None:
    """PROTOCOL section 8: it is a loss, and no fault of the frames after it: the answer goes on at once."""

    async def scenario() -> None:
        question = "x" * 150
        (want,) = await undisturbed(question, options={})
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.01)
        await rooms.host.start()
        await ask(rooms.host, "first")  # so that caches hold something
        await rooms.host.reset()
        mesh, sent = rooms.devices[0].mesh, 0
        plain = mesh.send_frame

        def send_frame(to: str, one: Frame) -> bool:
            nonlocal sent
            sent += 1
            return True if sent == number else plain(to, one)

        mesh.send_frame = send_frame  # type: ignore[method-assign]  # watched, and passed on
        began = asyncio.get_running_loop().time()
        heard = await ask(rooms.host, question)
        same(heard, want)
        assert notices(heard)[0].endswith(
            "a frame before this one was lost on the way. The answer tries again."
        )
        assert asyncio.get_running_loop().time() - began < 5, "at once, not at its limit"
        await rooms.close()

    simulate(scenario)
