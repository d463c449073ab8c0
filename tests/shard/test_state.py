"""Layers that keep a running state: exact in any frames and ranges, and every draft can be taken back."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pooled_nb.errors import ModelNotSupported
from pooled_nb.shard import mixers, trial
from pooled_nb.shard.door import Control
from pooled_nb.shard.frames import Placed
from pooled_nb.shard.stage import Stage
from pooled_nb.shard.state import StateLayer
from tests.shard import tiny
from tests.shard.conftest import Make
from tests.shard.runs import DEVICE, WIDTH, Chain, first_difference, load, longest, roles, some_tokens

ROLES = roles(37, 21, 6, 4)
TOKENS = some_tokens(len(ROLES))
LIGHT = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
PATHS = ["whole", "one by one"]
FEW = ["qwen3_next", "lfm2", "falcon_h1", "mamba"]
"""One of each kind of state; one by one, all mixers go through the same code of ours."""
EVERY = [(name, "whole") for name in tiny.HYBRID] + [(name, "one by one") for name in FEW]


def one_by_one(chain: Chain) -> Chain:
    """The generic path: each column goes through a mixer's own kernel for one token."""
    for engine in chain.engines:
        mixers.go_slowly(engine._need()._mixers)
    return chain


@functools.cache
def _chain(folder: Path, dtype: str, path: str) -> tuple[Chain, torch.Tensor]:
    chain = Chain([load(folder, dtype=dtype, ctx=256)], dtype)
    if path == "one by one":
        one_by_one(chain)
    return chain, chain.run(TOKENS, ROLES)


def layers_of(chain: Chain) -> list[StateLayer]:
    slabs = [layer for engine in chain.engines for layer in engine._need().slab.slabs]
    return [layer for layer in slabs if isinstance(layer, StateLayer) and layer.slots]


def states_of(chain: Chain) -> list[torch.Tensor]:
    return [state for layer in layers_of(chain) for state in StateLayer.copies(layer, 0)]


def same(mine: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(mine) == len(other) and all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))


@pytest.mark.parametrize(("name", "path"), EVERY)
def test_both_paths_give_what_transformers_gives(name: str, path: str, tiny_model: Make) -> None:
    """DESIGN section 5: prompt and answer, in frames, are the model's own numbers up to rounding."""
    folder = tiny_model(name)
    chain, mine = _chain(folder, "float32", path)
    with torch.inference_mode():
        theirs = tiny.reference(folder, name)(input_ids=torch.tensor([TOKENS])).logits[0]
    error = (chain.logits(mine) - theirs).norm(dim=-1) / theirs.norm(dim=-1)
    # Random weights may be steep at a column or two.
    assert float(error.mean()) < 1e-3
    assert float(error.max()) < 1e-2


@pytest.mark.parametrize(
    ("name", "path", "dtype"),
    [(*each, "bfloat16") for each in EVERY] + [(name, "whole", "float32") for name in FEW],
)
def test_frames_cut_anywhere(name: str, path: str, dtype: str, tiny_model: Make) -> None:
    """DESIGN section 5, rules 1 to 3: however frames are cut, columns keep their bits, and so do states."""
    chain, whole = _chain(tiny_model(name), dtype, path)
    chain.run(TOKENS, ROLES)
    states = states_of(chain)
    for size in (1, 7):
        again = chain.run(TOKENS, ROLES, lambda most, size=size: min(most, size))
        assert first_difference(again, whole) is None
        assert same(states_of(chain), states)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", FEW)
def test_drafts_taken_back_leave_no_trace(name: str, path: str, tiny_model: Make) -> None:
    """PROTOCOL section 5, `spec` and `rb`: verify frames, right or wrong, give the bits of plain laps."""
    chain, whole = _chain(tiny_model(name), "bfloat16", path)
    start = 37

    @LIGHT
    @given(st.data())
    def check(data: st.DataObject) -> None:
        chain.run(TOKENS[:start], ROLES[:start])
        pos, rb = start, None
        while pos < start + 21:
            right = data.draw(st.integers(1, longest(pos, ROLES)))
            wrong = data.draw(st.integers(0, WIDTH - right))
            tokens = TOKENS[pos : pos + right] + [5] * wrong
            control = Control(spec=True, rb=rb)
            states = chain.states(chain.lap(tokens, pos, wide=False, control=control))
            assert first_difference(states[:right], whole[pos : pos + right]) is None
            pos, rb = pos + right, right - 1
        n = longest(pos, ROLES)
        control = Control(rb=rb)
        states = chain.states(chain.lap(TOKENS[pos : pos + n], pos, wide=True, control=control))
        assert first_difference(states, whole[pos : pos + n]) is None

    check()


@pytest.mark.parametrize("path", PATHS)
def test_snapshots_last_until_the_next_draft(path: str, tiny_model: Make) -> None:
    """PROTOCOL section 5: snapshots live until the next ``spec`` frame or reset, across plain frames too."""
    chain, whole = _chain(tiny_model("qwen3_5_text"), "float32", path)
    chain.run(TOKENS[:37], ROLES[:37])
    chain.lap(TOKENS[37:42], 37, wide=False, control=Control(spec=True))
    chain.lap(TOKENS[42:50], 42, wide=False)
    back = chain.states(chain.lap(TOKENS[40:50], 40, wide=False, control=Control(rb=2)))
    assert first_difference(back, whole[40:50]) is None
    again = chain.states(chain.lap(TOKENS[38:42], 38, wide=False, control=Control(rb=0)))
    assert first_difference(again, whole[38:42]) is None


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["qwen3_next", "lfm2_moe", "bamba", "mamba"])
def test_pads_never_enter_a_state(name: str, path: str, tiny_model: Make) -> None:
    """DESIGN section 5, rule 1: what stands in padded columns changes no state."""
    chain, _ = _chain(tiny_model(name), "float32", path)
    chain.run(TOKENS[:32], ROLES[:32])
    full = states_of(chain)
    chain.run(TOKENS[:32], ROLES[:32], lambda most: min(most, 20))
    assert same(states_of(chain), full)
    # One column in a frame of 32, by hand with other pads: the state is that of one column.
    stage = chain.engines[0]._need()
    chain.lap(TOKENS[:1], 0, wide=True, control=Control(reset=True))
    one = states_of(chain)
    with torch.inference_mode():
        stage.slab.restart()
        positions = torch.zeros(32, dtype=torch.int64, device=DEVICE)
        mask = stage._plan.prepare(positions, 256, torch.float32)
        stage.slab.frame = Placed(0, 1, 32, 256)
        stage._call(torch.tensor(TOKENS[:1] + TOKENS[30:61], device=DEVICE), positions, mask)
    assert same(states_of(chain), one)


@pytest.mark.parametrize("path", PATHS)
def test_a_reset_equals_a_fresh_start(path: str, tiny_model: Make) -> None:
    """PROTOCOL section 5, `reset`: whatever ran before, position 0 starts from nothing."""
    folder = tiny_model("qwen3_next")
    chain, whole = _chain(folder, "bfloat16", path)
    chain.run(some_tokens(30, 3), [False] * 30)
    chain.lap([5] * 9, 30, wide=False, control=Control(spec=True))
    assert first_difference(chain.run(TOKENS, ROLES), whole) is None
    fresh = Chain([load(folder, dtype="bfloat16", ctx=256)], "bfloat16")
    if path == "one by one":
        one_by_one(fresh)
    assert first_difference(fresh.run(TOKENS, ROLES), whole) is None
    assert not any(bool(state.any()) for state in states_of(Chain([load(folder, ctx=256)])))


def test_a_frame_that_failed_leaves_no_state_behind(tiny_model: Make) -> None:
    """PROTOCOL section 5, `reset`: states that a scan left for a cache that was never asked are forgotten."""
    chain, whole = _chain(tiny_model("qwen3_5_text"), "float32", "one by one")
    layer = layers_of(chain)[0]
    layer.ends = [torch.ones_like(layer.held(("recurrent", 0)))]
    assert first_difference(chain.run(TOKENS[:37], ROLES[:37]), whole[:37]) is None


@pytest.mark.parametrize("name", ["qwen3_5_text", "falcon_h1"])
def test_a_copy_brings_the_state_back(name: str, tiny_model: Make) -> None:
    """PROTOCOL section 5, `sv` and `ld`: a copy is independent of what runs later, and comes back whole."""
    chain, whole = _chain(tiny_model(name), "float32", "whole")
    slab = chain.engines[0]._need().slab
    chain.run(TOKENS[:37], ROLES[:37])
    copy = slab.copies(37)
    chain.lap(TOKENS[37:42], 37, wide=False, control=Control(spec=True))
    chain.lap([7] * 4, 42, wide=False)
    slab.paste(copy, 37)
    chain.engines[0]._need().lane._now.length = 37
    states = chain.states(chain.lap(TOKENS[37:50], 37, wide=False))
    assert first_difference(states, whole[37:50]) is None


def test_bytes_count_snapshots(tiny_model: Make) -> None:
    """DESIGN section 5: a snapshot after every column takes memory, and is counted."""
    chain, _ = _chain(tiny_model("qwen3_5_text"), "float32", "whole")
    chain.run(TOKENS[:37], ROLES[:37])
    layer = layers_of(chain)[0]
    plain = layer.conv_states[0].nbytes + layer.recurrent_states[0].nbytes
    assert layer.nbytes == plain
    chain.lap(TOKENS[37:47], 37, wide=False, control=Control(spec=True))
    assert layer.nbytes >= plain + 9 * layer.recurrent_states[0].nbytes
    chain.lap(TOKENS[:3], 0, wide=True, control=Control(reset=True))
    assert layer.nbytes == plain


def test_states_keep_the_dtype_that_the_model_gives_them(tiny_model: Make) -> None:
    """DESIGN section 5: a recurrent state stays in float32 where the model itself keeps it so."""
    chain, _ = _chain(tiny_model("qwen3_5_text"), "bfloat16", "whole")
    layer = layers_of(chain)[0]
    assert layer.recurrent_states[0].dtype == torch.float32
    assert layer.conv_states[0].dtype == torch.bfloat16


@pytest.mark.parametrize(("lo", "hi"), [(0, 3), (1, 2), (3, 4), (4, 6), (2, 5)])
def test_a_range_may_hold_states_only(lo: int, hi: int, tiny_model: Make) -> None:
    """DESIGN section 5: a range of any layers, without attention too, takes frames."""
    folder = tiny_model("qwen3_next")
    ranges = [(0, lo)] * (lo > 0) + [(lo, hi)] + [(hi, 6)] * (hi < 6)
    chain = Chain([load(folder, a, b, ctx=256) for a, b in ranges])
    _, whole = _chain(folder, "float32", "whole")
    assert first_difference(chain.run(TOKENS[:50], ROLES[:50]), whole[:50]) is None


def test_other_models_in_the_process_stay_as_they_are(tiny_model: Make) -> None:
    """DESIGN section 3, thread mode: transformers in the user's own kernel computes as it always does."""
    folder = tiny_model("qwen3_next")
    ids = torch.tensor([TOKENS[:40]])
    theirs = tiny.reference(folder, "qwen3_next")
    with torch.inference_mode():
        before = theirs(input_ids=ids).logits
        chain = Chain([load(folder, ctx=256)])
        chain.run(TOKENS[:40], ROLES[:40])
        assert torch.equal(theirs(input_ids=ids).logits, before)
        assert torch.equal(tiny.reference(folder, "qwen3_next")(input_ids=ids).logits, before)


@pytest.mark.parametrize("fails", [False, True])
def test_kernels_that_disagree_are_not_used(
    fails: bool, tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 5: a fast path is taken only while it gives what the model's own code gives."""

    def wrong(states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if fails:
            raise TypeError
        return torch.zeros_like(states)

    folder = tiny_model("lfm2")
    monkeypatch.setattr(mixers, "convolve", wrong)
    chain = Chain([load(folder, ctx=256)])
    assert not any(mixer.whole for mixer in chain.engines[0]._need()._mixers)
    _, whole = _chain(folder, "float32", "one by one")
    assert first_difference(chain.run(TOKENS[:50], ROLES[:50]), whole[:50]) is None


@pytest.mark.parametrize("without_memory", [False, True])
@pytest.mark.parametrize("name", tiny.HYBRID)
def test_a_trial_lets_them_through(name: str, without_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 6: the trial before the download sees every kind of layer, and refuses none of these."""
    if without_memory:
        monkeypatch.setattr(trial, "MOST", 0)
    trial.try_model(tiny.config_of(name))


def test_embeddings_that_later_layers_look_at_are_seen() -> None:
    """DESIGN section 5: what only the first device has cannot be looked at by later ones."""
    with pytest.raises(ModelNotSupported, match="looks at its embeddings again"):
        trial.try_model(tiny.config_of("zamba2"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("recurrent_gemma", "keeps a state of its own"),
        ("minimax", "cannot be cut into frames"),
        ("zaya", "beside its layers"),
    ],
)
def test_states_that_no_cache_of_ours_holds_are_refused(name: str, why: str, tiny_model: Make) -> None:
    """DESIGN section 5: what cannot be taken back, or passes more than a state on, is refused in words."""
    with pytest.raises(ModelNotSupported, match=why):
        load(tiny_model(name), ctx=256)


def test_a_refused_stage_leaves_mixers_alone(tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5: nothing stays in layers that were not taken, and layers can be taken twice."""
    ready = load(tiny_model("qwen3_next"), 1, 5, ctx=256)._need()
    mixed = [mixer.module for mixer in ready._mixers]
    assert len(mixed) == 3

    def fail(*args: Any) -> bool:
        raise ModelNotSupported("No.", "Choose another.")

    from pooled_nb.shard.arch import Parts

    parts = Parts(ready.base, "layers", "norm")
    with monkeypatch.context() as patch:
        patch.setattr(Stage, "_check_frames", fail)
        with pytest.raises(ModelNotSupported, match="No"):
            Stage(parts, 1, ready.rules, torch.float32, embeds=False)
    assert not any("forward" in module.__dict__ for module in mixed)
