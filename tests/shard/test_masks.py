"""Which columns each layer sees, learned from the model's own code."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig

from pooled_nb.errors import ModelNotSupported
from pooled_nb.shard import masks, trial
from pooled_nb.shard.cache import Slab
from pooled_nb.shard.masks import Plan
from tests.shard import tiny
from tests.shard.conftest import Make
from tests.shard.runs import load

LEAST = torch.finfo(torch.bfloat16).min


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 500), st.integers(1, 16), st.none() | st.integers(1, 300))
def test_a_column_sees_itself_and_what_its_window_reaches(pos: int, n: int, window: int | None) -> None:
    """DESIGN section 5, rule 2: a masked buffer whose length depends on the bucket only."""
    positions = (torch.arange(pos, pos + 16)).clamp(max=pos + n - 1)
    mask = Plan((window,), None).prepare(positions, 768, torch.bfloat16)
    assert mask.shape == (1, 1, 16, 768)
    for row, at in enumerate(positions.tolist()):
        first = 0 if window is None else max(0, at - window + 1)
        seen = torch.zeros(768, dtype=torch.bool)
        seen[first : at + 1] = True
        assert torch.equal(mask[0, 0, row] == 0, seen)
        assert torch.equal(mask[0, 0, row] == LEAST, ~seen)


@pytest.mark.parametrize(
    ("name", "lo", "windows", "single"),
    [
        ("llama", 0, {None}, True),
        ("mistral", 1, {40}, True),
        ("mixtral", 1, {40}, True),
        ("phi3", 0, {40}, True),
        ("starcoder2", 1, {40}, True),
        ("gemma3_text", 0, {40, None}, False),
        ("gemma3_text", 3, {40}, True),
        ("gpt_oss", 1, {40, None}, False),
    ],
)
def test_the_model_says_which_layer_sees_what(
    name: str, lo: int, windows: set[int | None], single: bool, tiny_model: Make
) -> None:
    """DESIGN section 5: full and sliding layers in every form; the config alone does not tell."""
    stage = load(tiny_model(name), lo, 6)._need()
    assert set(stage._plan.windows) == windows
    assert len(stage._plan.windows) == 6 - lo
    assert (stage._plan.keys is None) == single


def test_a_model_that_masks_in_another_way_is_refused(
    tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 5: what is not understood is refused, not run wrongly."""
    folder = tiny_model("llama")
    # As if the model called a function that we do not know.
    monkeypatch.delitem(masks._WINDOWS, masks._FULL)
    with pytest.raises(ModelNotSupported, match="cannot be cut into frames: it uses create_causal_mask"):
        load(folder, 0, 2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("lo", "hi"), [(0, 6), (0, 3), (2, 4)])
@pytest.mark.parametrize("name", tiny.OTHER)
def test_a_model_that_masks_by_itself_is_refused(
    name: str, lo: int, hi: int, dtype: str, tiny_model: Make
) -> None:
    """DESIGN section 5, rule 2: hiding columns by the buffer's length is seen, on any range, in any dtype."""
    with pytest.raises(ModelNotSupported, match=r"cannot be cut into|does not take prepared"):
        load(tiny_model(name), lo, hi, ctx=1024, dtype=dtype)


def test_masks_that_hide_a_column_are_seen(tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5, rule 2: any layer whose attention depends on the buffer is found."""
    folder = tiny_model("llama")
    plain = Slab.update

    def hiding(self: Slab, keys: torch.Tensor, values: torch.Tensor, layer: int, **kwargs: Any) -> Any:
        keys, values = plain(self, keys, values, layer, **kwargs)
        # As if this layer kept a window of its own.
        return (keys, values) if layer != 3 or self.frame.length <= 40 else (keys, values.clone().zero_())

    monkeypatch.setattr(Slab, "update", hiding)
    load(folder, 0, 3)
    with pytest.raises(ModelNotSupported, match="a layer masks by itself"):
        load(folder, 0, 5)


@pytest.mark.parametrize("without_memory", [False, True])
@pytest.mark.parametrize("name", tiny.CONFIGS)
def test_a_trial_lets_through_what_can_be_run(
    name: str, without_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 6: the trial before the download refuses no model that loads."""
    if without_memory:
        monkeypatch.setattr(trial, "MOST", 0)
    trial.try_model(tiny.config_of(name))


@pytest.mark.parametrize("name", tiny.OTHER)
def test_a_trial_refuses_before_the_download(name: str) -> None:
    """DESIGN section 6: what no range could run is refused from the config alone."""
    with pytest.raises(ModelNotSupported):
        trial.try_model(tiny.config_of(name))


def test_a_trial_of_large_layers_takes_no_memory() -> None:
    """DESIGN section 6: layers too large to try with numbers are tried by their shapes."""
    sizes = {**tiny.OTHER["mpt"], "d_model": 16384, "n_heads": 128}
    with pytest.raises(ModelNotSupported, match="get no causal mask"):
        trial.try_model(AutoConfig.for_model("mpt", **sizes))
    large = {**tiny.CONFIGS["llama"], "hidden_size": 16384, "intermediate_size": 53248, "vocab_size": 128256}
    trial.try_model(AutoConfig.for_model("llama", **{**large, "num_attention_heads": 128}))


def test_a_lone_column_needs_no_mask_unless_a_window_hides_some() -> None:
    """DESIGN section 5: fast mode runs one column without a mask."""
    assert Plan((None,), None).alone(5000) is None
    assert Plan((40, None), (("a", 40), ("b", None))).alone(40) == {"a": None, "b": None}
    assert Plan((40, None), (("a", 40), ("b", None))).alone(41) is False
    assert masks.Plan((40,), None).alone(41) is False
