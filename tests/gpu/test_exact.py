"""With graphs and fused layers: a column's bits depend on its token, its place and what came before."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pooled_nb.shard.door import BUCKET, Control, Sampling
from tests.gpu import driving
from tests.gpu.driving import COLS, CTX, DEVICE, WIDTH, chain, cutter, longest, run
from tests.shard.runs import Chain, first_difference, roles, some_tokens
from tests.shard.test_random_walks import Rooms, step, stray, text

Make = Callable[[str], Path]

ROLES = roles(250, 20, 230, 30, 225, 30)  # answers cross the buckets at 256, 512 and 768
TOKENS = some_tokens(len(ROLES))
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"attn": "eager"}),
    ("llama", {"dtype": "float16"}),
    ("llama", {"kv": "q8"}),
    ("llama_tied", {"cols": 32}),
    ("mistral", {}),
    ("qwen2", {}),
    ("qwen3", {}),
    ("qwen3", {"dtype": "float16", "attn": "eager"}),
    ("qwen3_tied", {}),
    ("gemma2", {}),
    ("gemma2", {"dtype": "float16"}),
    ("gemma3_text", {}),
    ("gpt2", {}),
    ("phi3", {}),
    ("qwen3_moe", {}),
    ("gpt_oss", {}),
    ("qwen3_next", {}),
    ("lfm2", {}),
]
FEW = [KINDS[i] for i in (0, 1, 2, 7, 10, 13, 17)]


def named(value: Any) -> str:
    """A parameter's name: the same in each process of a run."""
    if isinstance(value, dict):
        return "-".join(f"{key}={value[key]}" for key in sorted(value)) or "plain"
    return str(value)


@pytest.fixture
def made(name: str, changes: dict[str, Any], tiny_model: Make) -> Iterator[tuple[Chain, torch.Tensor, int]]:
    """A model on one device, what it gives in the longest frames, and columns of its wide class."""
    cols = int(changes.get("cols", COLS))
    alone = chain(tiny_model(name), **changes)
    yield alone, run(alone, TOKENS, ROLES, cols=cols), cols
    driving.end(alone)


@pytest.mark.parametrize(("name", "changes"), KINDS, ids=named)
def test_cut_and_split_anywhere(
    name: str, changes: dict[str, Any], made: tuple[Chain, torch.Tensor, int], tiny_model: Make
) -> None:
    """DESIGN section 5, rules 1 to 3: however frames and layers are cut, over buckets, again and again."""
    alone, whole, cols = made
    assert bool(torch.isfinite(whole).all())
    # The same again: what ran plainly the first time runs as a graph now.
    assert first_difference(run(alone, TOKENS, ROLES, cols=cols), whole) is None
    for seed in range(3):
        assert first_difference(run(alone, TOKENS, ROLES, cutter(seed), cols), whole) is None, seed
    for shards in (2, 3):
        split = chain(tiny_model(name), shards, **changes)
        for seed in (10 * shards, 10 * shards + 1):
            again = run(split, TOKENS, ROLES, cutter(seed), cols)
            assert first_difference(again, whole) is None, (shards, seed)
        driving.end(split)


@pytest.mark.parametrize(("name", "changes"), FEW, ids=named)
def test_drafts_taken_back_leave_no_trace(
    name: str, changes: dict[str, Any], made: tuple[Chain, torch.Tensor, int], tiny_model: Make
) -> None:
    """DESIGN section 5, rule 1: verify frames, right or wrong, with rollback, over a bucket's end."""
    for shards in (1, 2):
        both = chain(tiny_model(name), shards, **changes) if shards > 1 else made[0]
        whole, draw = made[1], random.Random(shards)
        for begin in (250, 480 + 20):
            run(both, TOKENS[:begin], ROLES[:begin])
            pos, rb = begin, None
            end = begin + (20 if begin == 250 else 30)
            while pos < end:
                right = draw.randint(1, min(longest(pos, ROLES), end - pos))
                room = min(WIDTH, BUCKET - pos % BUCKET) - right
                tokens = TOKENS[pos : pos + right] + [5] * draw.randint(0, room)
                data = both.lap(tokens, pos, wide=False, control=Control(spec=True, rb=rb))
                states = both.states(data)[:right]
                assert first_difference(states, whole[pos : pos + right]) is None, pos
                pos, rb = pos + right, right - 1  # the next frame keeps the right columns of this one
            n = longest(pos, ROLES)
            data = both.lap(TOKENS[pos : pos + n], pos, wide=not ROLES[pos], control=Control(rb=rb))
            assert first_difference(both.states(data), whole[pos : pos + n]) is None
        if shards > 1:
            driving.end(both)


@pytest.mark.parametrize(("name", "changes"), FEW, ids=named)
def test_a_reused_prompt_and_what_a_slot_kept(
    name: str, changes: dict[str, Any], made: tuple[Chain, torch.Tensor, int]
) -> None:
    """DESIGN section 5, rule 3; PROTOCOL section 5: reuse, ``sv`` and ``ld`` agree with a fresh run."""
    alone, whole, _ = made
    run(alone, TOKENS[:250], ROLES[:250])
    n = longest(250, ROLES)
    alone.lap(TOKENS[250 : 250 + n], 250, wide=False, control=Control(sv=3))
    other = some_tokens(300, 3)
    run(alone, other, [False] * 300)  # another conversation, over the same columns
    again = alone.lap(TOKENS[250 : 250 + n], 250, wide=False, control=Control(ld=3))
    assert first_difference(alone.states(again), whole[250 : 250 + n]) is None
    pos = 250 + n
    while pos < 530:
        n = longest(pos, ROLES[:530])
        data = alone.lap(TOKENS[pos : pos + n], pos, wide=not ROLES[pos])
        assert first_difference(alone.states(data), whole[pos : pos + n]) is None, pos
        pos += n
    # A reset moves a length; graphs of later buckets stay and are used again.
    assert first_difference(run(alone, TOKENS[:300], ROLES[:300]), whole[:300]) is None
    assert first_difference(run(alone, TOKENS, ROLES), whole) is None


WALKS: list[tuple[str, int, str, dict[str, Any]]] = [
    ("llama", 1, "memory", {"dtype": "bfloat16"}),
    ("llama", 2, "some of both", {"dtype": "float16", "attn": "eager"}),
    ("qwen3", 2, "a room's disk", {"dtype": "bfloat16", "cols": 256}),
    ("gemma2", 1, "disk", {"dtype": "bfloat16"}),
    ("qwen2", 1, "nowhere else", {"dtype": "bfloat16", "kv": "q8"}),
    ("gpt2", 2, "memory", {"dtype": "float16", "cols": 256}),
    ("qwen3_next", 2, "some of both", {"dtype": "bfloat16"}),
]


@pytest.mark.parametrize(("name", "shards", "place", "changes"), WALKS, ids=named)
def test_walks(
    name: str, shards: int, place: str, changes: dict[str, Any], tiny_model: Make, tmp_path: Path
) -> None:
    """PROTOCOL section 5: cut, taken back, saved, loaded, reset, under graphs: the bits stay the same."""
    rooms = Rooms(tiny_model(name), shards, place, tmp_path / "copies", {"device": DEVICE, **changes})

    @settings(
        max_examples=6,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(st.data())
    def check(data: st.DataObject) -> None:
        walk = rooms.fresh()
        if not data.draw(st.integers(0, 2)):  # near the end of a bucket
            for pos in range(0, 240, 32):
                walk.frame(text(pos, min(32, 240 - pos)), wide=True)
        for _ in range(data.draw(st.integers(4, 16))):
            kind = data.draw(st.integers(0, 9))
            if kind == 0:
                stray(data.draw, walk)
            elif kind == 1 and place == "a room's disk":
                rooms.come_back(walk)
            else:
                step(data.draw, walk)
            rooms.agree(walk)
        walk.check()

    check()
    driving.end(rooms.chain)


@pytest.mark.parametrize("name", ["llama", "llama_tied", "gemma2", "gpt2"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_head_is_exact(name: str, dtype: str, tiny_model: Make) -> None:
    """DESIGN section 5, rule 1: the head's bits do not depend on how many columns are asked."""
    alone = chain(tiny_model(name), dtype=dtype)
    hidden = run(alone, TOKENS[:40], ROLES[:40])
    together = alone.logits(hidden[:16])
    for cuts in ([1] * 16, [5, 2, 9], [15, 1]):
        parts, pos = [], 0
        for n in cuts:
            parts.append(alone.logits(hidden[pos : pos + n]))
            pos += n
        assert first_difference(torch.cat(parts), together) is None, cuts
    driving.end(alone)


@pytest.mark.parametrize("sampling", range(3))
def test_drafts_draw_the_same_tokens(sampling: int, tiny_model: Make) -> None:
    """DESIGN section 5: plain decoding's stream, greedy and seeded, whole or split, whatever is guessed."""
    how = (
        Sampling(),
        Sampling(temperature=0.8, top_p=0.95, seed=11),
        Sampling(temperature=0.9, top_k=40, min_p=0.01, seed=5),
    )[sampling]
    engine, _ = driving.start(tiny_model("qwen3"))
    plain = driving.answer(engine, TOKENS[:20], 40, how)
    assert driving.answer(engine, TOKENS[:20], 40, how) == plain
    for drafts in (1, 4, 15):
        assert driving.answer(engine, TOKENS[:20], 40, how, drafts=drafts) == plain, drafts
    engine.unload()
    assert len(plain) == 40
    assert CTX > 60
