from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.room.dealing import COLS_CPU
from pooled_nb.room.prefill import IN_FLIGHT, MAX_BATCH, Fed, cut
from pooled_nb.shard import BUCKET
from tests.room.rooms import ask, open_rooms
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork

ROLES = st.lists(st.tuples(st.booleans(), st.integers(1, 300)), min_size=1, max_size=6).map(
    lambda runs: [flag for flag, n in runs for _ in range(n)]
)


@settings(deadline=None, max_examples=200)
@given(ROLES, st.data(), st.sampled_from([16, 32, 64, 256]), st.sampled_from([1, 8, 16]))
def test_frames_cover_every_token_once_in_its_class(
    generated: list[bool], data: st.DataObject, cols: int, width: int
) -> None:
    """DESIGN section 5, rule 3; PROTOCOL section 5, frame classes of exact mode."""
    start = data.draw(st.integers(0, len(generated)))
    frames = cut(generated, start, cols=cols, width=width)
    pos = start
    for f in frames:
        assert f.pos == pos
        assert f.n >= 1
        pos += f.n
        assert {generated[i] for i in range(f.pos, pos)} == {not f.wide}
        assert f.pos // BUCKET == (pos - 1) // BUCKET, "no frame crosses a bucket"
        if f.wide:
            assert f.pos // cols == (pos - 1) // cols, "a wide frame ends at a multiple of cols"
        else:
            assert f.n <= (width if width > 1 else MAX_BATCH)
    assert pos == len(generated)


def test_wide_frames_end_at_multiples_wherever_they_begin() -> None:
    """PROTOCOL section 5: a wide frame ends at a multiple of ``cols`` or at the end of the prompt."""
    frames = cut([False] * 70, 5, cols=32, width=16)
    assert [(f.pos, f.n) for f in frames] == [(5, 27), (32, 32), (64, 6)]


@pytest.mark.parametrize(
    ("fed", "prompt", "reused"),
    [([], [1, 2], 0), ([1], [1, 2], 1), ([1, 2], [1, 2], 0), ([1, 3], [1, 2, 3], 0), ([1, 2, 3], [1, 2], 0)],
)
def test_only_a_proper_prefix_is_reused(fed: list[int], prompt: list[int], reused: int) -> None:
    """PROTOCOL section 7: only what follows ``fed`` is run when it is a **proper** prefix, else reset."""
    cache = Fed(fed, [False] * len(fed))
    assert cache.reusable(prompt, [False] * len(prompt)) == reused


def test_a_prefix_of_another_class_is_not_reused() -> None:
    """DESIGN section 5, rule 3: the same token run in another class has other bits."""
    cache = Fed([1, 2], [False, True])
    assert cache.reusable([1, 2, 3], [False, True, False]) == 2
    assert cache.reusable([1, 2, 3], [False, False, False]) == 0
    cache.extend([3], [False])
    assert len(cache) == 3
    cache.clear()
    assert cache.reusable([1], [False]) == 0


def test_a_frame_begins_where_it_is_asked_to() -> None:
    """PROTOCOL section 7: a frame begins where the system prompt ends, so that its state can be saved."""
    frames = cut([False] * 70, 0, cols=32, width=16, at=40)
    assert [(f.pos, f.n) for f in frames] == [(0, 32), (32, 8), (40, 24), (64, 6)]
    assert cut([False] * 70, 40, cols=32, width=16, at=40) == cut([False] * 70, 40, cols=32, width=16)


def test_what_the_caches_hold_is_cut_and_changed() -> None:
    """PROTOCOL section 7: `fed` is exactly what every device holds: what is taken back leaves it."""
    cache = Fed([1, 2, 3], [False, True, True])
    cache.cut(2)
    assert (cache.ids, cache.generated) == ([1, 2], [False, True])
    loaded = [7, 8]
    cache.hold(loaded, [False, False])
    cache.extend([9], [True])
    assert cache.ids == [7, 8, 9]
    assert loaded == [7, 8]


def first_token(latency: float, tokens: int, cols: int) -> float:
    """Seconds to the first token over three devices, each 25 ms a frame."""

    async def scenario() -> float:
        rooms = await open_rooms(
            workers=(1.0, 1.0), net=SimNetwork(latency=latency), delay=0.025, cols=cols, ctx=2048
        )
        await rooms.host.start()
        heard = await ask(rooms.host, "x" * (tokens - 1), max_tokens=1)
        assert heard.done.stats.prompt == tokens
        await rooms.close()
        return heard.done.stats.first_ms / 1e3

    return simulate(scenario)


def test_a_prompt_waits_for_the_wire_once() -> None:
    """PROTOCOL section 7: "up to 6 frames in flight": 200 tokens over three devices, 50 ms a hop."""
    extra = first_token(0.05, 200, COLS_CPU) - first_token(0.0, 200, COLS_CPU)
    assert extra == pytest.approx(0.15, abs=0.01), "three hops, and no second round"
    # What the width of prompt frames is for: in frames of 32 the seventh waits for the first.
    assert first_token(0.05, 200, 32) - first_token(0.0, 200, 32) > 0.2
    longest = IN_FLIGHT * COLS_CPU
    assert first_token(0.05, longest, COLS_CPU) - first_token(0.0, longest, COLS_CPU) < 0.16


def test_a_worker_runs_one_frame_after_the_other() -> None:
    """PROTOCOL section 5: "A worker runs frames one at a time in that order", however many have come."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.01)
        await rooms.host.start()
        forward, running = rooms.shards[0].forward, [0, 0]

        async def watched(*args: Any, **more: Any) -> Any:
            running[0] += 1
            running[1] = max(running)
            try:
                return await forward(*args, **more)
            finally:
                running[0] -= 1

        rooms.shards[0].forward = watched  # type: ignore[method-assign]  # watched, and passed on
        await ask(rooms.host, "x" * 200, max_tokens=2)
        assert running == [0, 1]
        starts = [c.pos for c, _ in rooms.shards[0].frames]
        assert starts == sorted(starts)
        assert len(starts) > IN_FLIGHT
        await rooms.close()

    simulate(scenario)
