"""A column's bits depend on its token, its position and what came before, on nothing else."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pooled_nb.shard.door import Control, Sampling
from tests.shard.conftest import Make
from tests.shard.runs import WIDTH, Chain, first_difference, load, longest, roles, some_tokens

KINDS = [("float32", "sdpa"), ("float32", "eager"), ("bfloat16", "sdpa"), ("bfloat16", "eager")]
ROLES = roles(70, 31, 45, 40, 50, 34)  # 270 columns: the last answer crosses the bucket at 256
TOKENS = some_tokens(len(ROLES))
LIGHT = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


@functools.cache
def _chain(folder: Any, dtype: str, attn: str) -> tuple[Chain, torch.Tensor]:
    chain = Chain([load(folder, dtype=dtype, attn=attn)], dtype)
    return chain, chain.run(TOKENS, ROLES)


def _cuts(draw: Any, most: int) -> int:
    # All, one, or anything: the ends are where kernels change.
    return int(draw(st.one_of(st.just(most), st.just(1), st.integers(1, most))))


@pytest.mark.parametrize(("dtype", "attn"), KINDS)
def test_frames_cut_anywhere(dtype: str, attn: str, tiny_model: Make) -> None:
    """DESIGN section 5, rules 1 to 3: however frames are cut, prompt and answer columns keep their bits."""
    chain, whole = _chain(tiny_model("llama"), dtype, attn)

    @LIGHT
    @given(st.data())
    def check(data: st.DataObject) -> None:
        again = chain.run(TOKENS, ROLES, lambda most: _cuts(data.draw, most))
        assert first_difference(again, whole) is None

    check()


@pytest.mark.parametrize(("dtype", "attn"), KINDS)
def test_a_reused_prefix_equals_a_fresh_run(dtype: str, attn: str, tiny_model: Make) -> None:
    """DESIGN section 5, rule 3: reuse, resume and a fresh run agree, whatever the caches held before."""
    chain, whole = _chain(tiny_model("llama"), dtype, attn)

    @LIGHT
    @given(other=st.integers(1, 40), seed=st.integers(0, 99))
    def check(other: int, seed: int) -> None:
        # Another conversation leaves its columns behind; a reset only moves the length.
        chain.run(some_tokens(other, seed), [False] * other)
        fresh = chain.run(TOKENS[:90], ROLES[:90])
        assert first_difference(fresh, whole[:90]) is None
        n = longest(90, ROLES)
        states = chain.states(chain.lap(TOKENS[90 : 90 + n], 90, wide=not ROLES[90]))
        assert first_difference(states, whole[90 : 90 + n]) is None

    check()


@pytest.mark.parametrize(("dtype", "attn"), KINDS)
def test_drafts_taken_back_leave_no_trace(dtype: str, attn: str, tiny_model: Make) -> None:
    """DESIGN section 5, rule 1: verify frames, right or wrong, with rollback, give the bits of plain laps."""
    chain, whole = _chain(tiny_model("llama"), dtype, attn)
    start = 70

    @LIGHT
    @given(st.data())
    def check(data: st.DataObject) -> None:
        chain.run(TOKENS[:start], ROLES[:start])
        pos, rb = start, None
        while pos < start + 31:
            most = longest(pos, ROLES)
            right = _cuts(data.draw, most)
            wrong = data.draw(st.integers(0, WIDTH - right))
            tokens = TOKENS[pos : pos + right] + [5] * wrong
            control = Control(spec=True, rb=rb)
            states = chain.states(chain.lap(tokens, pos, wide=False, control=control))
            assert first_difference(states[:right], whole[pos : pos + right]) is None
            # The next frame keeps the right columns of this one.
            pos, rb = pos + right, right - 1
        n = longest(pos, ROLES)
        control = Control(rb=rb)
        states = chain.states(chain.lap(TOKENS[pos : pos + n], pos, wide=True, control=control))
        assert first_difference(states, whole[pos : pos + n]) is None

    check()


@pytest.mark.parametrize("name", ["qwen3_moe", "mixtral", "deepseek_v3", "gpt_oss", "gemma2"])
def test_mixtures_and_windows_are_exact_too(name: str, tiny_model: Make) -> None:
    """DESIGN section 5, rule 1: pads never change an expert's kernel; windows see the same columns."""
    chain = Chain([load(tiny_model(name), dtype="bfloat16")], "bfloat16")
    whole = chain.run(TOKENS[:110], ROLES[:110])
    for size in (1, 3, 16):
        again = chain.run(TOKENS[:110], ROLES[:110], lambda most, size=size: min(most, size))
        assert first_difference(again, whole) is None


@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
def test_the_last_column_of_a_bucket(name: str, tiny_model: Make) -> None:
    """DESIGN section 5, rule 2: a column at a bucket's end sees all of it, and runs like every other."""
    chain = Chain([load(tiny_model(name), dtype="bfloat16")], "bfloat16")
    kinds = roles(240, 20)
    whole = chain.run(TOKENS[:260], kinds)
    one = chain.run(TOKENS[:260], kinds, lambda most: most if most > 16 else 1)
    assert first_difference(one, whole) is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_head_is_exact(dtype: str, tiny_model: Make) -> None:
    """DESIGN section 5, rule 1: the head's bits do not depend on how many columns are asked."""
    for name in ("llama", "llama_tied"):
        chain = Chain([load(tiny_model(name), dtype=dtype)], dtype)
        hidden = chain.run(TOKENS[:40], ROLES[:40])
        together = chain.logits(hidden[:16])
        alone = torch.cat([chain.logits(hidden[i : i + 1]) for i in range(16)])
        uneven = torch.cat([chain.logits(hidden[:5]), chain.logits(hidden[5:7]), chain.logits(hidden[7:16])])
        assert first_difference(together, alone) is None
        assert first_difference(together, uneven) is None


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, top_k=40, top_p=0.9, seed=11)])
def test_speculation_draws_the_same_tokens(sampling: Sampling, tiny_model: Make) -> None:
    """DESIGN section 5: a draft counts only while it equals the sampled token: plain decoding's stream."""
    engine = load(tiny_model("llama"), dtype="bfloat16")
    chain = Chain([engine], "bfloat16")
    prompt = TOKENS[:20]

    def begin() -> int:
        data = chain.lap(prompt, 0, wide=True, control=Control(reset=True))
        last = chain.states(data)[-1:].contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        return engine.sample(last, pos=19, n=1, sampling=sampling)[0]

    plain = [begin()]
    for pos in range(20, 50):
        data = chain.lap(plain[-1:], pos, wide=False)
        plain += engine.sample(data, pos=pos, n=1, sampling=sampling)
    drafted, rb = [begin()], None
    while len(drafted) < len(plain):
        pos = 19 + len(drafted)
        # Drafts that are right for a while, then wrong.
        right = plain[len(drafted) : len(drafted) + pos % 5]
        tokens = [drafted[-1], *right, 9, 9]
        data = chain.lap(tokens, pos, wide=False, control=Control(spec=True, rb=rb))
        sampled = engine.sample(data, pos=pos, n=len(tokens), sampling=sampling)
        kept = 1
        while kept < len(tokens) and tokens[kept] == sampled[kept - 1]:
            kept += 1
        drafted += sampled[:kept]
        rb = kept - 1
    assert drafted[: len(plain)] == plain
