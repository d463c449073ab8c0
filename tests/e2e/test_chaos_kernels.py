"""Real kernels that start again in the middle of an answer (PROTOCOL sections 3 and 8, CASES).

A restart as the menu of a notebook does it, by which a kernel is asked to end, or one after a kill. The
first for a host and for a worker is what `make test` has in ``tests/front/test_restart_kernel.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pooled_nb.demo.kernels import Kernel, kernels
from tests.e2e.chaos import FULL, ROOT
from tests.e2e.chaosroom import PACE_S, QUESTION, Question

pytestmark = [pytest.mark.timeout(240), FULL]

Alone = Callable[[Question], str]
Tiny = tuple[Path, list[int]]
ALL = """
%load_ext pooled_nb
import pooled_nb as pooled
from pooled_nb.room import opening
from tests.e2e import chaosdevice
opening.open_shard = chaosdevice.open_shard
"""
HOST = "room = pooled.host({model!r}, split='memory', lend='1GB', ctx=1024, progress=False)"
JOIN = "room = pooled.join({link!r}, role='worker', lend='1GB', progress=False)"
ASK = "live = room.ask({text!r}, wait=False, **{options!r})"


class Two:
    """Kernels of a host and of a worker, in one room that was started."""

    def __init__(self, host: Kernel, worker: Kernel, tiny: Tiny) -> None:
        self.host, self.worker = host, worker
        self._model, self._never = tiny
        self.link = ""

    async def open(self) -> Two:
        """Host and join, each in a cell."""
        await asyncio.gather(self.host.run(ALL), self.worker.run(ALL))
        await self.host.run(HOST.format(model=str(self._model)))
        self.link = await self.host.value("room.invite().link")
        await self.join()
        await self.host.run("room.start()")
        assert await self.host.value("[d.layers is not None for d in room.status().devices]") == [True, True]
        return self

    async def join(self) -> None:
        """The worker's cell, for the first time or again."""
        await self.worker.run(JOIN.format(link=self.link))

    async def ask(self, kernel: Kernel, pieces: int) -> None:
        """Ask in a cell, and wait until so much is shown."""
        options = QUESTION.options(self._never)
        options["logit_bias"] = {int(token): by for token, by in options["logit_bias"].items()}
        await kernel.run(ASK.format(text=QUESTION.text, options=options))
        async with asyncio.timeout(60):
            while await kernel.value("len(live.text)") < pieces:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert not await kernel.value("live.done()")

    async def restart(self, kernel: Kernel, *, kill: bool) -> None:
        """As a notebook's menu does it, or after its process was killed."""
        await kernel._manager.restart_kernel(now=kill)
        await kernel._client.wait_for_ready(timeout=60)
        await kernel.run(ALL)


@pytest.fixture
async def two(tmp_path: Path, tiny: Tiny) -> AsyncIterator[Two]:
    env = {
        "PYTHONPATH": str(ROOT),
        "POOLED_RUNTIME_DIR": str(tmp_path / "run"),
        "POOLED_DATA_DIR": str(tmp_path / "data"),
        "POOLED_CONFIG_DIR": str(tmp_path / "config"),
        "POOLED_CHAOS_PACE": str(PACE_S),
        "POOLED_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    async with kernels(["host", "worker"], tmp_path, env) as [host, worker]:
        yield await Two(host, worker, tiny).open()


@pytest.mark.parametrize("kill", [False, True])
async def test_the_kernel_of_a_worker_starts_again(two: Two, alone: Alone, kill: bool) -> None:
    """PROTOCOL section 3, dead links: its cell runs again, and it takes its seat by its pass. One that was
    asked to end has said that it leaves, so that it holds layers from the next deal on.
    """
    await two.ask(two.host, 10)
    await two.restart(two.worker, kill=kill)
    await two.join()
    assert await two.host.value("live.result().text") == alone(QUESTION)
    if not kill:
        await two.host.run("room.start()")
    assert await two.host.value("[d.layers is not None for d in room.status().devices]") == [True, True]


@pytest.mark.parametrize(
    ("asker", "kill"),
    [("worker", False), ("worker", True), ("host", False), ("host", True)],
)
async def test_the_kernel_of_a_host_starts_again(two: Two, alone: Alone, asker: str, kill: bool) -> None:
    """CASES: the same worker object serves again without a rerun, and the host gets its code back. PROTOCOL
    section 8, host resume: a question that was being answered is answered.
    """
    kernel = two.worker if asker == "worker" else two.host
    await two.worker.run("before = room")
    await two.ask(kernel, 10)
    shown = await kernel.value("live.text")
    await two.restart(two.host, kill=kill)
    await two.host.run("%pooled resume")
    await two.host.run("room = pooled.current()")
    if asker == "host":
        await two.host.run("[live] = room.asked_again")
    text = await kernel.value("live.result().text")
    assert text == alone(QUESTION)
    assert text.startswith(shown)
    assert await two.host.value("room.invite().link") == two.link
    assert await two.host.value("[d.layers is not None for d in room.status().devices]") == [True, True]
    assert await two.worker.value("before is room and pooled.current() is room and not room.left")
