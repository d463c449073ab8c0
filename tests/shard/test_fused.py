"""Fused layers: which are fused, and that their kernels compute what transformers' layers compute.

Kernels run in Triton's interpreter, on a CPU, where Triton is installed; on a GPU `tests/gpu/test_fused.py`
runs them as they are.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pooled_nb.errors import ModelNotSupported, ModelTooBig
from pooled_nb.shard import stage as stage_module
from pooled_nb.shard.fused import families, fuse, ready
from pooled_nb.shard.quant import products
from tests.shard.conftest import Make
from tests.shard.runs import BUCKET, Chain, first_difference, load, roles, some_tokens

CPU = torch.device("cpu")
ROLES = roles(9, 4, 5)
TOKENS = some_tokens(len(ROLES))

interpreted = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1",
    reason="needs Triton and TRITON_INTERPRET=1",
)


@pytest.mark.parametrize("name", ["llama", "llama_tied", "qwen2", "qwen3"])
def test_families(name: str, tiny_model: Make) -> None:
    """Llama, Mistral, Qwen 2 and 3 are fused, if no layer has a window."""
    stage = load(tiny_model(name))._need()
    layers = list(stage.layers)
    without = [None] * len(layers)
    # On a CPU weights are packed, and packed weights are none that can be joined.
    assert families.why_not(stage.base, layers, without) == "their weights are not plain ones"
    assert "window" in families.why_not(stage.base, layers, [40, *without[1:]])


def test_a_window_in_the_config_counts_for_every_range(tiny_model: Make) -> None:
    """A range without a windowed layer decides as the whole model does: devices of one sig agree."""
    stage = load(tiny_model("qwen2"))._need()
    stage.base.config.sliding_window = 40
    assert families.why_not(stage.base, list(stage.layers), [None] * 6) == "their attention has a window"


@pytest.mark.parametrize("name", ["gemma2", "gpt2", "granite", "olmo2", "smollm3", "qwen3_moe", "phi3"])
def test_other_families_are_not_fused(name: str, tiny_model: Make) -> None:
    stage = load(tiny_model(name))._need()
    layers = list(stage.layers)
    assert families.why_not(stage.base, layers, [None] * len(layers)).startswith(
        "there are no fused layers for"
    )


def test_a_position_that_looks_at_the_length_is_not_fused(tiny_model: Make) -> None:
    stage = load(tiny_model("llama"))._need()
    stage.base.rotary_emb.rope_type = "dynamic"
    assert (
        families.why_not(stage.base, list(stage.layers), [None] * 6)
        == "their positions are of the kind dynamic"
    )


@pytest.mark.parametrize("bias", [True, False])
def test_joined_weights_are_held_once(bias: bool) -> None:
    """The modules' weights are views of the joined one, and they compute what they computed."""
    linears = [torch.nn.Linear(32, out, bias=bias) for out in (48, 16, 16)]
    x = torch.randn(5, 32)
    with torch.inference_mode():
        before = [linear(x) for linear in linears]
        weight, joined = families.together(linears)
        assert all(torch.equal(linear(x), y) for linear, y in zip(linears, before, strict=True))
        whole = torch.nn.functional.linear(x, weight, joined)
    assert torch.allclose(whole, torch.cat(before, 1), atol=1e-6)
    held = {linear.weight.untyped_storage().data_ptr() for linear in linears}
    assert held == {weight.untyped_storage().data_ptr()}
    assert (joined is not None) == bias


def test_where_fused_layers_do_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ready.why_not(CPU, torch.bfloat16) == "fused layers are for NVIDIA GPUs"
    gpu = torch.device("cuda", 0)
    assert ready.why_not(gpu, torch.float32) == "fused layers are for bfloat16 and float16"
    monkeypatch.setenv("POOLED_FUSED", "0")
    assert ready.why_not(gpu, torch.bfloat16) == "POOLED_FUSED=0"
    assert not ready.available(gpu, torch.bfloat16)


def test_a_trial_that_fails_is_a_reason_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: Any, dtype: Any) -> bool:
        raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.\nmore")

    monkeypatch.setattr(ready, "works", fail)
    monkeypatch.setattr(ready, "on", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.version, "hip", None)
    ready._tried.cache_clear()
    try:
        why = ready.why_not(torch.device("cuda", 0), torch.float16)
    finally:
        ready._tried.cache_clear()
    assert why.startswith("Triton does not run here: RuntimeError: Failed to find C compiler")
    assert "\n" not in why


class _Again:
    """Runs again what was recorded: a tape cannot see kernels that torch does not call."""

    def record(self, run: Callable[[], None]) -> Callable[[], None]:
        return run


@pytest.mark.parametrize("what", [ready._tried, products._right])
def test_memory_that_runs_out_is_no_reason(what: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes, and the device's sig stands for fused layers: a load fails in words, the next tries."""

    def full(device: Any, dtype: Any) -> bool:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")

    monkeypatch.setattr(ready, "on", lambda device: contextlib.nullcontext())
    what.cache_clear()
    try:
        for module in (ready, products):
            monkeypatch.setattr(module, "works", full)
        with pytest.raises(torch.OutOfMemoryError):
            what(CPU, torch.float16)
        for module in (ready, products):
            monkeypatch.setattr(module, "works", lambda device, dtype: True)
        assert what(CPU, torch.float16) in ("", True)
    finally:
        what.cache_clear()


@pytest.mark.parametrize("exact", [True, False])
def test_layers_that_do_not_lie_whole_on_a_gpu_that_fuses(
    exact: bool, tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 5, rule 5: transformers' layers would give bits that its sig does not stand for."""

    def offload(layers: Any) -> None:
        layers[0].mlp._hf_hook = object()

    monkeypatch.setattr(stage_module, "recorder_for", lambda device: _Again())
    monkeypatch.setattr("pooled_nb.shard.engine.pack_all", offload)
    words = "plain layers: they lie on several devices"
    assert load(tiny_model("llama"), exact=exact)._need().runs == words
    monkeypatch.setattr(ready, "why_not", lambda device, dtype: "")
    assert load(tiny_model("olmo2"), exact=exact)._need().runs == words
    if not exact:
        assert load(tiny_model("llama"), exact=exact)._need().runs == words
        return
    with pytest.raises(ModelTooBig, match="do not fit into this GPU's free memory"):
        load(tiny_model("llama"))


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines of this test fuse and record, on a CPU."""
    monkeypatch.setattr(stage_module, "recorder_for", lambda device: _Again())
    monkeypatch.setattr(ready, "why_not", lambda device, dtype: "")
    monkeypatch.setattr("pooled_nb.shard.engine.pack_all", lambda module: None)


@interpreted
def test_kernels_give_what_torch_gives() -> None:
    assert ready.works(CPU, torch.float16)


@interpreted
@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
def test_a_fused_model_in_any_cut(name: str, tiny_model: Make, fused: None) -> None:
    """DESIGN section 5: fused columns keep their bits however frames are cut, on one device or on two."""
    whole = load(tiny_model(name), dtype="float16", ctx=256)
    assert whole._need().runs == "CUDA graphs, fused layers"
    out = Chain([whole], "float16").run(TOKENS, ROLES)
    parts = [load(tiny_model(name), lo, hi, dtype="float16", ctx=256) for lo, hi in ((0, 2), (2, 6))]
    for engines, most in (([whole], 3), (parts, 5)):
        again = Chain(engines, "float16").run(TOKENS, ROLES, lambda n, most=most: min(n, most))
        assert first_difference(again, out) is None


@interpreted
def test_fused_layers_that_give_other_numbers_are_refused(
    tiny_model: Make, fused: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pooled_nb.shard.fused import ops

    gate = ops.gate
    monkeypatch.setattr(ops, "gate", lambda both: gate(both.flip(1)))
    with pytest.raises(ModelNotSupported, match="Fused layers give other numbers here"):
        load(tiny_model("llama"), dtype="float16", ctx=256)


@interpreted
def test_int8_caches_are_not_fused(tiny_model: Make, fused: None) -> None:
    stage = load(tiny_model("llama"), dtype="float16", kv="q8", ctx=256)._need()
    assert stage.runs == "CUDA graphs, transformers' layers (their caches are kept as int8)"
    windows = [None] * 6
    assert fuse(stage.base, list(stage.layers), stage.slab, windows, torch.float16, CPU)[0] is None
    assert stage.rules.capacity % BUCKET == 0
