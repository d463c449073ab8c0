"""A job that nobody waits for any more ends early, and leaves nothing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from pooled_nb.errors import PooledError, ShardError
from pooled_nb.shard import Columns, Control, LoadSpec, protocol
from pooled_nb.shard import desk as desk_module
from pooled_nb.shard.desk import Desk
from pooled_nb.shard.process import ProcessShard
from pooled_nb.shard.stopping import Stopped, Stops
from pooled_nb.shard.thread import ThreadShard
from tests.shard.rawfiles import large_model
from tests.shard.runs import spec
from tests.shard.waiting import gone

ONE = Columns(pos=0, n=1, wide=True)


def test_only_what_is_asked_for_is_stopped() -> None:
    """DESIGN section 3: a job ends early that waits or runs; the others, and what follows, do not."""
    stops = Stops()
    stops.ended(3)
    for number in (2, 3, 5):
        stops.ask(number)
    stops.of(4)()
    with pytest.raises(Stopped):
        stops.of(5)()
    stops.of(2)()
    stops.of(3)()
    stops.ended(5)
    stops.of(5)()
    assert not issubclass(Stopped, Exception), "a library that tries again would take it for a failure"


def whole(folder: Path, layers: int, **changes: Any) -> LoadSpec:
    return spec(folder, 0, layers, ctx=256, dtype="bfloat16", device="cpu", **changes)


@pytest.fixture
def halting(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Fetching that goes on until it is stopped; the event says that it has begun."""
    begun = threading.Event()

    def endless(*args: Any, progress: Any, stop: Any, **kwargs: Any) -> None:
        begun.set()
        while True:
            stop()

    for name in ("fetch", "lacks", "find"):
        monkeypatch.setattr(desk_module, name, endless)
    return begun


@pytest.mark.parametrize("job", ["load", "missing", "inspect"])
async def test_who_goes_away_stops_the_job(job: str, halting: threading.Event, tmp_path: Path) -> None:
    """DESIGN section 6: a load can be stopped, and what is asked after it has its turn."""
    shard = ThreadShard()
    what: Any = tmp_path.name if job == "inspect" else whole(tmp_path, 1)
    waiting = asyncio.create_task(getattr(shard, job)(what))
    second = asyncio.create_task(getattr(shard, job)(what))
    after = asyncio.create_task(shard.flush())
    await asyncio.to_thread(halting.wait, 10)
    second.cancel()  # it has not begun
    waiting.cancel()
    assert await after == ""
    await shard.close()


async def test_close_stops_the_job(halting: threading.Event, tmp_path: Path) -> None:
    """DESIGN section 3: close waits for no download."""
    shard = ThreadShard()
    job = asyncio.create_task(shard.load(whole(tmp_path, 1)))
    await asyncio.to_thread(halting.wait, 10)
    await shard.close()
    with pytest.raises(ShardError, match="stopped"):
        await job


def test_a_frame_is_never_left_out(tmp_path: Path) -> None:
    """DESIGN section 3: whoever asked, a frame has its place in the order: the caches stay in step."""
    stoppable = {protocol.Inspect, protocol.Lacks, protocol.Load}
    assert set(protocol.STOPPABLE) == stoppable
    desk = Desk()

    def stop() -> None:
        raise Stopped

    assert desk.run(protocol.Flush(), lambda *_: None, stop) == ""
    with pytest.raises(ShardError, match="No layers"):
        desk.run(protocol.Forward(columns=ONE, control=Control(), tokens=[1]), lambda *_: None, stop)


def resident(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) * 1024


async def stopped(shard: ProcessShard, wanted: LoadSpec, words: str) -> int:
    """Cancel a load once its progress says so; the bytes that the child held then."""
    held = 0

    def heard(pct: int, said: str) -> None:
        nonlocal held
        if said.startswith(words) and pct > 40:
            held = held or resident(shard.pid)
            job.cancel()

    job = asyncio.create_task(shard.load(wanted, heard))
    with pytest.raises(asyncio.CancelledError):
        await job
    return held


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
async def test_a_stopped_load_frees_everything(tmp_path: Path) -> None:
    """DESIGN section 6: the child lives, holds nothing of the model, and loads the next one at once."""
    layers, dim = 24, 1024
    folder = large_model(tmp_path / "large", layers=layers, dim=dim)
    size = (folder / "model.safetensors").stat().st_size
    shard = ProcessShard({"POOLED_THREADS": "1"})
    try:
        facts = await shard.inspect(str(folder))

        def of(hi: int) -> LoadSpec:
            known = {"revision": facts.revision, "files": facts.files, "repo": facts.repo}
            return whole(folder, hi, **known)

        await shard.load(of(1))
        frame = await shard.forward(ONE, Control(reset=True), tokens=[1])
        before = resident(shard.pid)
        held = await stopped(shard, of(layers), "reading layers")
        with pytest.raises(PooledError, match="No layers are loaded"):
            await shard.forward(ONE, Control(reset=True), tokens=[1])
        assert held > before + size // 8
        assert resident(shard.pid) < before + size // 20
        await shard.load(of(1))
        assert (await shard.forward(ONE, Control(reset=True), tokens=[1])).data == frame.data
        # And one that is closed in the middle ends with it.
        begun = asyncio.Event()
        job = asyncio.create_task(shard.load(of(layers), lambda *_: begun.set()))
        await begun.wait()
    finally:
        await shard.close()
    with pytest.raises(PooledError):
        await job
    assert gone(shard.pid or 0)
