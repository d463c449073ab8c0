"""Weights in 8 and 4 bits on the device: exact within their class, and never held there in 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gpu import driving

FORMS = ["int8", "int4"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_splits_cuts_and_graphs_give_the_same_bits(
    form: str, dtype: str, tiny_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 5: within a class, whatever the split and the cuts, with graphs or without."""
    from tests.shard.runs import first_difference, roles, some_tokens

    generated = roles(300, 40, 30, 20)
    tokens = some_tokens(len(generated))
    folder = tiny_model("llama")
    one = driving.chain(folder, quant=form, dtype=dtype)
    whole = driving.run(one, tokens, generated)
    for seed in (1, 2):
        again = driving.run(one, tokens, generated, driving.cutter(seed))
        assert first_difference(again, whole) is None
    driving.end(one)
    three = driving.chain(folder, 3, quant=form, dtype=dtype)
    assert first_difference(driving.run(three, tokens, generated), whole) is None
    driving.end(three)
    monkeypatch.setenv("POOLED_GRAPHS", "0")
    plain = driving.chain(folder, quant=form, dtype=dtype)
    assert first_difference(driving.run(plain, tokens, generated), whole) is None
    driving.end(plain)


@pytest.mark.parametrize("form", FORMS)
def test_the_model_stays_itself(form: str, tiny_model: Callable[[str], Path]) -> None:
    """DESIGN section 5: weights alone are rounded; another class, the same model."""
    import torch

    from tests.shard.runs import roles, some_tokens

    generated = roles(60, 20)
    tokens = some_tokens(len(generated))
    folder, logits = tiny_model("llama"), []
    for quant in ("", form):
        made = driving.chain(folder, quant=quant)
        hidden = driving.run(made, tokens, generated)
        logits.append(made.logits(hidden[-16:]).float().cpu())
        driving.end(made)
    near = torch.cosine_similarity(logits[0], logits[1], dim=1)
    assert float(near.median()) > (0.99 if form == "int8" else 0.7)


@pytest.mark.parametrize("form", FORMS)
def test_the_device_never_holds_the_range_in_16_bits(form: str, tmp_path: Path) -> None:
    """DESIGN section 6: weights are rounded on the host as they are read, then moved."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if driving.DEVICE != "cuda":
        pytest.skip("only a CUDA device counts its memory")
    config = LlamaConfig(
        vocab_size=256, hidden_size=2048, intermediate_size=6144, num_hidden_layers=driving.LAYERS,
        num_attention_heads=16, num_key_value_heads=8, max_position_embeddings=1024,
    )  # fmt: skip
    torch.manual_seed(1)
    model = LlamaForCausalLM(config).bfloat16()
    model.save_pretrained(tmp_path)
    full = sum(p.nbytes for p in model.parameters())
    del model
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    engine, loaded = driving.start(tmp_path, ctx=256, quant=form)
    largest = 2 * 2048 * 6144
    peak = torch.cuda.max_memory_allocated() - before
    # Products turn back one weight at a time, through a few copies of it.
    assert loaded.weights < (0.6 if form == "int8" else 0.35) * full
    assert peak < loaded.weights + loaded.cache + 8 * largest
    engine.unload()
