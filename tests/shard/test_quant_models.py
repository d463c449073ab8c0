"""Whole models with weights in 8 and 4 bits: exact within their class, and as large as was counted."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from pooled_nb.errors import ModelNotFound, ModelNotSupported, ModelTooBig, WrongNumbers
from pooled_nb.shard.disk import copy_key
from pooled_nb.shard.door import Columns, Control
from pooled_nb.shard.engine import DTYPES, Engine
from pooled_nb.shard.packed import PackedLinear
from pooled_nb.shard.quant.forms import saved_bytes
from pooled_nb.shard.quant.linear import Int4Linear, Int8Linear, QuantLinear
from pooled_nb.shard.quant.loading import Waiting
from pooled_nb.shard.sizes import facts
from tests.shard import tiny
from tests.shard.conftest import Make
from tests.shard.runs import Chain, first_difference, load, longest, roles, some_tokens, spec

ROLES = roles(45, 20, 20, 15)
TOKENS = some_tokens(len(ROLES))
FORMS = ["int8", "int4"]
MODELS = ["llama", "llama_tied", "qwen2", "phi", "phi3", "gemma3_text", "deepseek_v3", "gpt_oss", "qwen3_moe"]
MODELS += ["qwen3_next", "lfm2", "falcon_h1"]


class Stopped(Exception):
    """What a stop raises."""


LIGHT = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODELS)
def test_every_split_gives_the_bits_of_one_device(name: str, form: str, tiny_model: Make) -> None:
    """DESIGN section 5: within a class, one device gives what two and three give; 16 bits are another."""
    folder = tiny_model(name)
    runs = [
        Chain([load(folder, lo, hi, ctx=256, quant=form) for lo, hi in ranges]).run(TOKENS, ROLES)
        for ranges in ([(0, 6)], [(0, 2), (2, 6)], [(0, 1), (1, 4), (4, 6)])
    ]
    assert first_difference(runs[0], runs[1]) is None
    assert first_difference(runs[0], runs[2]) is None
    plain = Chain([load(folder, ctx=256)]).run(TOKENS, ROLES)
    assert first_difference(runs[0], plain) == 0
    off = (runs[0] - plain).norm(dim=-1) / plain.norm(dim=-1)
    assert float(off.median()) < (0.3 if form == "int8" else 1.5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_frames_cut_anywhere_and_drafts_taken_back(dtype: str, form: str, tiny_model: Make) -> None:
    """DESIGN section 5, rule 1: cuts, wrong drafts and rollbacks leave no trace."""
    chain = Chain([load(tiny_model("llama"), ctx=256, dtype=dtype, quant=form)], dtype)
    whole = chain.run(TOKENS, ROLES)

    @LIGHT
    @given(st.data())
    def check(data: st.DataObject) -> None:
        again = chain.run(TOKENS[:45], ROLES[:45], lambda most: data.draw(st.integers(1, most)))
        assert first_difference(again, whole[:45]) is None
        pos, rb = 45, None
        while pos < 60:
            right = data.draw(st.integers(1, longest(pos, ROLES)))
            wrong = data.draw(st.integers(0, 16 - right))
            frame = TOKENS[pos : pos + right] + some_tokens(wrong, seed=pos)
            states = chain.states(chain.lap(frame, pos, wide=False, control=Control(spec=True, rb=rb)))
            assert first_difference(states[:right], whole[pos : pos + right]) is None
            rb = right - 1
            pos += right

    check()


@pytest.mark.parametrize("form", FORMS)
def test_a_checkpoint_goes_on_as_if_nothing_had_been(form: str, tiny_model: Make) -> None:
    """PROTOCOL section 7: states that are kept give the bits of a run from the start, in every class."""
    chain = Chain([load(tiny_model("llama"), dtype="bfloat16", quant=form)], "bfloat16")
    whole = chain.run(TOKENS, ROLES)
    chain.run(TOKENS[:45], ROLES[:45])
    chain.lap(TOKENS[45:55], 45, wide=False, control=Control(sv=2))
    chain.run(some_tokens(30, 3), [False] * 30)
    states = chain.states(chain.lap(TOKENS[45:60], 45, wide=False, control=Control(reset=True, ld=2)))
    assert first_difference(states, whole[45:60]) is None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", list(DTYPES))
def test_logits_stay_near_those_of_16_bits(dtype: str, form: str, tiny_model: Make) -> None:
    """DESIGN section 5: int8 is the same model to a hundredth; int4 of random numbers is told apart."""
    folder = tiny_model("qwen2")
    logits = []
    for quant in ("", form):
        chain = Chain([load(folder, dtype=dtype, quant=quant)], dtype)
        logits.append(chain.logits(chain.run(TOKENS, ROLES)).float())
    near = torch.cosine_similarity(logits[0], logits[1], dim=1)
    assert float(near.median()) > (0.99 if form == "int8" else 0.7)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [*tiny.CONFIGS, *tiny.HYBRID])
def test_a_range_takes_what_was_counted(name: str, dtype: str, form: str, tiny_model: Make) -> None:
    """PROTOCOL section 6: dealing counts the bytes that a device holds, in every form."""
    folder = tiny_model(name)
    known = facts(folder)  # of float32 files
    item = DTYPES[dtype].itemsize
    if not any(layer.numbers for layer in known.linears):
        with pytest.raises(ModelNotSupported, match=f"no linear layers that can be kept as {form}"):
            load(folder, 0, 6, quant=form)
        return
    plain = Engine().load(spec(folder, dtype=dtype), folder, lambda *_: None)
    loaded = Engine().load(spec(folder, dtype=dtype, quant=form), folder, lambda *_: None)
    saved = sum(saved_bytes(layer, form, item) for layer in known.linears)
    assert loaded.weights == plain.weights - saved
    assert saved > 0


@pytest.mark.parametrize("form", FORMS)
def test_a_byte_less_than_that_does_not_fit(form: str, tiny_model: Make) -> None:
    """PROTOCOL section 6: a device never holds more than it lends, in every form."""
    folder = tiny_model("llama")
    engine = Engine()
    took = engine.load(spec(folder, 2, 5, quant=form), folder, lambda *_: None)
    need = took.weights + took.cache
    load(folder, 2, 5, quant=form, max_gb=need / 1e9)
    with pytest.raises(ModelTooBig, match="with their caches"):
        load(folder, 2, 5, quant=form, max_gb=(need - 1) / 1e9)


def test_what_is_kept_in_fewer_bits(tiny_model: Make) -> None:
    """Attention and feed-forward are; routers, a mixture's experts, embedding, norms and head are not."""
    engine = load(tiny_model("deepseek_v3"), dtype="bfloat16", quant="int4")
    kinds = {name: type(part) for name, part in engine.base.named_modules() if not list(part.children())}
    assert not any(kind in (torch.nn.Linear, PackedLinear, Waiting) for kind in kinds.values())
    assert kinds["layers.0.mlp.down_proj"] is Int4Linear
    # Rows of 16 numbers, which no group divides.
    assert kinds["layers.0.self_attn.q_b_proj"] is Int8Linear
    held = {name for name, part in engine.base.named_modules() if isinstance(part, QuantLinear)}
    assert not any("gate" in name.split(".") or "experts" in name.split(".") for name in held)
    assert isinstance(engine.ends._model.lm_head, PackedLinear)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_damage_is_named_when_it_is_loaded(number: float, form: str, tmp_path: Path) -> None:
    """DESIGN section 5: NaN or infinity is caught where it arises, before rounding hides it."""
    folder = damaged(tmp_path, number)
    with pytest.raises(WrongNumbers, match=r"mlp.up_proj.weight of layer 4 holds NaN or infinity"):
        load(folder, 2, 6, quant=form)
    load(folder, 0, 3, quant=form)


def damaged(folder: Path, number: float) -> Path:
    tiny.make("llama", folder, max_shard_size="1GB")
    file = folder / "model.safetensors"
    weights = load_file(file)
    weights["model.layers.3.mlp.up_proj.weight"][5, 7] = number
    save_file(weights, file, {"format": "pt"})
    return folder


def test_a_missing_weight_is_named(tmp_path: Path) -> None:
    """DESIGN section 6: what no file holds is never filled with numbers of our own, in any form."""
    tiny.make("llama", tmp_path, max_shard_size="1GB")
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    del weights["model.layers.3.mlp.up_proj.weight"]
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(ModelNotFound, match=r"mlp\.up_proj\.weight is missing"):
        load(tmp_path, 2, 6, quant="int8")


def test_another_form_is_refused(tiny_model: Make) -> None:
    """PROTOCOL section 6: what decides bits is understood, or refused."""
    with pytest.raises(ModelNotSupported, match=r"'nf4', which is not done here. Use int8, int4"):
        load(tiny_model("llama"), quant="nf4")


def test_checkpoints_of_another_form_are_missing(tiny_model: Make) -> None:
    """PROTOCOL section 7: a copy for anything else reads as missing."""
    folder = tiny_model("llama")
    assert len({copy_key(spec(folder, quant=form, room="r"), "sig") for form in ("", *FORMS)}) == 3


@pytest.mark.parametrize("form", FORMS)
def test_memory_never_holds_the_range_in_16_bits(
    form: str, tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 6: weights are rounded one by one as they are read, and let go of."""
    given: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []
    plain = Waiting.__setattr__

    def spy(self: Waiting, name: str, value: Any) -> None:
        if name == "weight" and isinstance(value, torch.Tensor) and value.device.type != "meta":
            alive.append(sum(ref() is not None for ref in given))
            given.append(weakref.ref(value))
        plain(self, name, value)

    monkeypatch.setattr(Waiting, "__setattr__", spy)
    folder = tiny_model("llama")
    Engine().load(spec(folder, 1, 6, quant=form), folder, lambda *_: None)
    assert len(given) == 5 * 7
    assert max(alive) <= 2
    assert not any(ref() is not None for ref in given)


def test_a_stop_ends_a_load(tiny_model: Make) -> None:
    """A load of rounded weights is stopped like any other, and leaves nothing."""
    engine, calls = Engine(), 0

    def stop() -> None:
        nonlocal calls
        calls += 1
        if calls > 20:
            raise Stopped

    folder = tiny_model("llama")
    with pytest.raises(Stopped):
        engine.load(spec(folder, quant="int8"), folder, lambda *_: None, stop=stop)
    assert engine._stage is None
    shown: list[int] = []
    engine.load(spec(folder, quant="int8"), folder, lambda percent, words: shown.append(percent))
    assert shown == sorted(shown)
    assert shown[-1] == 100


def test_a_frame_of_a_worker(tiny_model: Make) -> None:
    """A worker's range alone computes, and answers in the room's dtype."""
    worker = load(tiny_model("llama"), 2, 6, ctx=256, quant="int4", dtype="bfloat16")
    given: Any = torch.sin(torch.arange(8 * 64.0)).bfloat16().view(torch.uint8).numpy().tobytes()
    columns = Columns(pos=0, n=8, wide=True)
    out = worker.forward(columns, Control(reset=True), tokens=None, data=given, last=False)
    assert len(out.data) == 8 * 64 * 2
