"""The shard in a thread of this process."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pooled_nb.errors import ModelNotFound, ShardError
from pooled_nb.shard import Prompt, protocol
from pooled_nb.shard.desk import Desk
from pooled_nb.shard.thread import ThreadShard


@pytest.fixture
def slow_desk(monkeypatch):
    """A desk whose jobs wait for a word, and say in which order they ran."""
    go, ran = threading.Event(), []

    def run(self, job, progress, stop):
        assert go.wait(10)
        ran.append(job)
        progress(50, "half")
        if isinstance(job, protocol.Inspect):
            raise ZeroDivisionError("odd")
        return Prompt(ids=[len(ran)], generated=[False])

    monkeypatch.setattr(Desk, "run", run)
    return go, ran


async def test_jobs_run_in_order_also_when_a_caller_goes_away(slow_desk):
    """DESIGN section 3: one job at a time, in frame order."""
    go, ran = slow_desk
    shard = ThreadShard()
    jobs = [asyncio.create_task(shard.render([])) for _ in range(3)]
    await asyncio.sleep(0)
    jobs[1].cancel()
    await asyncio.sleep(0)
    go.set()
    assert (await jobs[0]).ids == [1]
    assert (await jobs[2]).ids == [3]
    assert len(ran) == 3
    await shard.close()


async def test_what_is_none_of_our_errors_gets_words(slow_desk, capsys):
    """DESIGN section 1: errors say what happened and the next step."""
    go, _ = slow_desk
    go.set()
    shard = ThreadShard()
    heard: list[tuple[int, str]] = []
    with pytest.raises(ShardError, match="ZeroDivisionError: odd") as caught:
        await shard.inspect("x", progress=lambda pct, words: heard.append((pct, words)))
    assert caught.value.next_step
    assert heard == [(50, "half")]
    assert "ZeroDivisionError" in capsys.readouterr().err
    await shard.close()


async def test_closed_for_good():
    """DESIGN section 3: close ends the thread, frees what was loaded, and never raises."""
    before = threading.active_count()
    shard = ThreadShard()
    with pytest.raises(ModelNotFound):
        await shard.inspect("/no/such/folder")
    await shard.close()
    await shard.close()
    with pytest.raises(ShardError, match="closed"):
        await shard.flush()
    for _ in range(200):
        if threading.active_count() <= before:
            break
        await asyncio.sleep(0.01)
    assert threading.active_count() <= before


async def test_close_before_the_first_job():
    """DESIGN section 3: nothing started, nothing to end."""
    await ThreadShard().close()
