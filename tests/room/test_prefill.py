import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.room.prefill import MAX_BATCH, Fed, cut
from pooled_nb.shard import BUCKET

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
            assert f.n <= min(width, MAX_BATCH)
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
