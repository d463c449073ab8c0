"""What dealing counts by, and what one device must hold whole: as the engine allocates it."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoConfig

from pooled_nb.errors import ModelNotSupported, ModelTooBig
from pooled_nb.room.sizing import Form, size_of
from pooled_nb.shard import Candidate, ModelFacts, loader, plan_memory, protocol
from pooled_nb.shard.arch import own, skeleton, slice_config
from pooled_nb.shard.desk import Desk
from pooled_nb.shard.engine import Engine
from pooled_nb.shard.headers import read_layout
from pooled_nb.shard.loader import Nothing
from pooled_nb.shard.sizes import facts, float32_patterns, kept
from pooled_nb.shard.sources.needs import layer_sizes
from pooled_nb.shard.tensormap import read_map
from pooled_nb.shard.trial import try_model
from tests.shard import derived, tiny
from tests.shard.conftest import Make
from tests.shard.rawfiles import large_model
from tests.shard.runs import Chain, first_difference, load, roles, some_tokens, spec

ROLES = roles(45, 15, 10)
TOKENS = some_tokens(len(ROLES))
SHARING = "gemma4_unified_text"


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose last two layers attend over the caches of layers 3 and 4."""
    folder = tmp_path_factory.mktemp("sharing")
    derived.make(SHARING, folder)
    return folder


needs_sharing = pytest.mark.skipif(SHARING not in CONFIG_MAPPING, reason="newer transformers")


@needs_sharing
def test_layers_that_share_a_cache_are_found(sharing: Path) -> None:
    """DESIGN section 5: layers without keys of their own take none, and go with those they attend over."""
    known = facts(sharing)
    assert known.glued == [(2, 6)]
    assert known.kv_bytes[4:] == [0, 0]
    assert all(known.kv_bytes[:4])
    for lo, hi in ((0, 3), (3, 6), (5, 6)):
        with pytest.raises(ModelNotSupported, match=r"Layers 3 to 6 attend over each other's caches"):
            load(sharing, lo, hi, ctx=256)


@needs_sharing
@pytest.mark.parametrize("kv", ["f16", "q8"])
def test_a_shared_cache_gives_the_same_bits_on_several_devices(kv: str, sharing: Path) -> None:
    """DESIGN section 5: bit-equal at every split that leaves the layers that share together."""
    runs = []
    for ranges in ([(0, 6)], [(0, 2), (2, 6)], [(0, 1), (1, 2), (2, 6)]):
        chain = Chain(
            [load(sharing, lo, hi, ctx=256, kv=kv, dtype="bfloat16") for lo, hi in ranges], "bfloat16"
        )
        runs.append(chain.run(TOKENS, ROLES))
    assert first_difference(runs[0], runs[1]) is None
    assert first_difference(runs[0], runs[2]) is None


@pytest.mark.skipif("glm_moe_dsa" not in CONFIG_MAPPING, reason="newer transformers")
def test_layers_that_take_over_a_choice_go_with_the_layer_that_chose() -> None:
    """DESIGN section 5: whatever else goes from layer to layer than states, one device holds those layers."""
    types = ["full", "shared", "full", "shared", "shared", "full"]
    config = derived.config_of("glm_moe_dsa", indexer_types=types)
    assert kept(config).glued == [(0, 2), (2, 5)]
    assert kept(derived.config_of("glm_moe_dsa")).glued == []


@pytest.mark.skipif("deepseek_v32" not in CONFIG_MAPPING, reason="newer transformers")
def test_what_a_layer_chooses_by_is_saved_and_put_back(tmp_path: Path) -> None:
    """PROTOCOL section 7: a checkpoint holds all that later columns need, index keys too."""
    derived.make("deepseek_v32", tmp_path, index_topk=8)
    chain = Chain([load(tmp_path, 0, 3, ctx=256)])
    whole = chain.run(TOKENS, ROLES)
    slab = chain.engines[0]._need().slab
    saved = slab.copies(60)
    chain.run(some_tokens(60, 3), ROLES[:60])
    slab.paste(saved, 60)
    again = chain.states(chain.lap(TOKENS[60:64], 60, wide=True))
    assert first_difference(again, whole[60:64]) is None


@pytest.mark.parametrize("name", [*tiny.HYBRID])
def test_states_are_counted_as_they_are_kept(name: str, tiny_model: Make) -> None:
    """PROTOCOL section 6: running states take what the facts say, and layers without attention no keys."""
    folder = tiny_model(name)
    known = facts(folder)
    slab = load(folder, ctx=256)._need().slab
    for layer, state, numbers in zip(slab.slabs, known.state_bytes, known.kv_bytes, strict=True):
        assert layer.nbytes == state + 2 * 256 * numbers


def test_what_has_one_entry_a_layer_is_cut() -> None:
    """DESIGN section 5: a range is a short model: lists by layer are cut whatever they are called."""
    config: Any = AutoConfig.for_model(
        "llama", **{**tiny.CONFIGS["llama"], "eos_token_id": [1, 2, 3, 4, 5, 6]}
    )
    config.some_pattern = [10, 11, 12, 13, 14, 15]
    config.num_kv_shared_layers = 3
    short = slice_config(config, 2, 4)
    assert (short.num_hidden_layers, short.some_pattern) == (2, [12, 13])
    assert short.eos_token_id == [1, 2, 3, 4, 5, 6]
    assert [slice_config(config, lo, hi).num_kv_shared_layers for lo, hi in ((0, 3), (2, 5), (4, 6))] == [
        0,
        2,
        2,
    ]


def test_what_differs_by_layer_is_cut_and_never_read_as_one_value() -> None:
    """CASES: a config whose attribute raises per layer."""
    config: Any = AutoConfig.for_model("llama", **tiny.CONFIGS["llama"])
    config.per_layer_config = {1: {"head_dim": 32}, 3: {"head_dim": 32}}
    assert own(config, "head_dim") is None
    assert own(config, "hidden_size") == 64
    short = slice_config(config, 1, 3)
    assert [layer.head_dim for layer in short.per_layer_config] == [32, 16]


@pytest.mark.parametrize("gone", ["head_dim", "rope_parameters", "num_key_value_heads", "dtype"])
def test_a_config_without_a_field_that_follows_from_others(
    gone: str, tiny_model: Make, tmp_path: Path
) -> None:
    """CASES: a config without ``head_dim`` or ``rope_parameters`` is derived."""
    config = json.loads((tiny_model("llama") / "config.json").read_text())
    plain = facts(tiny_model("llama"))
    config.pop(gone, None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    known = facts(tmp_path)
    assert known.kv_bytes == ([256] * 6 if gone == "num_key_value_heads" else plain.kv_bytes)


def test_a_layer_that_goes_by_its_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5: layers that give other numbers as a part of the model cannot be split."""
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    plain = LlamaDecoderLayer.forward

    def forward(self: Any, hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        scale: float = 1 + self.self_attn.layer_idx / 8
        states: torch.Tensor = plain(self, hidden_states, **kwargs)
        return scale * states

    config = tiny.config_of("llama")
    try_model(config)
    monkeypatch.setattr(LlamaDecoderLayer, "forward", forward)
    with pytest.raises(ModelNotSupported, match="other numbers as a part of the model"):
        try_model(config)


def test_an_embedding_that_is_elsewhere_is_no_number() -> None:
    """DESIGN section 5: a model that uses it between its layers is seen, not run wrongly."""
    states = torch.ones(1, 2, 8)
    assert Nothing()(states).shape == states.shape
    assert Nothing()(states).isnan().all()
    assert Nothing()(torch.zeros(1, 2, dtype=torch.int64)).isnan()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["deepseek_v3", "gpt_oss", "kimi_linear", "nemotron_h"])
def test_weights_that_stay_float32_are_counted_as_such(name: str, dtype: str, tmp_path: Path) -> None:
    """PROTOCOL section 6: routers, norms and biases that a model keeps wide take what they take."""
    kind = getattr(torch, dtype)
    folder = tiny.make(name, tmp_path, dtype=kind)
    known = facts(folder)
    wide = float32_patterns(skeleton(tiny.config_of(name), dtype=kind), kind)
    assert known.dtype == dtype
    assert wide or (name, dtype) == ("gpt_oss", "bfloat16")
    for lo, hi in ((0, 2), (2, 5)):
        loaded = Engine().load(spec(folder, lo, hi, ctx=256, dtype=dtype), folder, lambda *told: None)
        assert loaded.weights == sum(known.layer_bytes[lo:hi]) + (known.ends_bytes if lo == 0 else 0)


def mixed(folder: Path, source: Path, **extra: Any) -> dict[str, torch.Tensor]:
    """Write a checkpoint of several dtypes: most bytes are bfloat16, norms float32, one matrix float16."""
    shutil.copytree(source, folder, ignore=lambda *found: [n for n in found[1] if "safetensors" in n])
    tensors: dict[str, torch.Tensor] = {}
    for file in source.glob("*.safetensors"):
        tensors |= load_file(file)
    for name, tensor in tensors.items():
        kind = torch.float32 if "norm" in name else torch.float16 if ".3.mlp.up" in name else torch.bfloat16
        tensors[name] = tensor.to(kind)
    save_file({**tensors, **extra}, folder / "model.safetensors", metadata={"format": "pt"})
    return tensors


def test_a_checkpoint_of_several_dtypes(tiny_model: Make, tmp_path: Path) -> None:
    """PROTOCOL section 6: memory counts numbers in the room's dtype, a download the files' bytes."""
    tower = torch.zeros(300_000, dtype=torch.float64)
    folder = tmp_path / "mixed"
    tensors = mixed(folder, tiny_model("llama"), **{"vision_tower.layers.0.w": tower})
    known = facts(folder)
    assert known.dtype == "bfloat16", "what of it is no text counts for nothing"
    for lo, hi in ((0, 2), (2, 5)):
        loaded = Engine().load(spec(folder, lo, hi, ctx=256, dtype="bfloat16"), folder, lambda *told: None)
        assert loaded.weights == sum(known.layer_bytes[lo:hi]) + (known.ends_bytes if lo == 0 else 0)
        held, dtype = read_map(folder), torch.bfloat16
        assert loader._size(held, lo, hi, lo == 0, dtype) == loaded.weights, "what is held against the loan"
    layouts = [read_layout(folder / "model.safetensors")]
    assert facts(folder, layouts) == known
    sizes, ends = layer_sizes(layouts, 6)
    own = [t.nbytes for name, t in tensors.items() if ".layers." not in name]
    assert ends == sum(own)
    assert sum(sizes) + ends == sum(t.nbytes for t in tensors.values())
    assert sizes[2] == sum(t.nbytes for name, t in tensors.items() if ".layers.2." in name)
    assert sizes[2] > known.layer_bytes[2], "norms are wider in the files than in memory"


def test_who_could_give_more_is_told_from_a_real_model(tmp_path: Path) -> None:
    """PROTOCOL section 6: by a model's own sizes: how many GB are short, and who could give them."""
    folder = large_model(tmp_path, layers=8, dim=1024)
    known = Desk().run(protocol.Inspect(model=str(folder)), lambda *told: None)
    assert isinstance(known, ModelFacts)
    size = size_of(known, Form("bfloat16"), 512)
    one = size.held[0]
    devices = [
        Candidate(id="h", name="HOST", host=True, lends=size.ends_bytes + 2.5 * one),
        Candidate(id="l", name="LAB", lends=2.5 * one, pledge_max=1e9),
        Candidate(id="o", name="OLD", lends=1.5 * one, pledge_max=2 * one),
    ]
    with pytest.raises(ModelTooBig) as caught:
        plan_memory(devices, size)
    short = 3 * one  # of 8 layers they hold 2, 2 and 1
    assert (
        caught.value.what
        == f"The memory lent is short by {math.ceil(short / 1e7) / 100:g} GB for {known.label}."
    )
    assert caught.value.next_step == f"LAB could give {math.floor((1e9 - 2.5 * one) / 1e7) / 100:g} GB more."
    devices[1] = msgspec.structs.replace(devices[1], lends=2.5 * one + short)
    plan = plan_memory(devices, size)
    assert sum(share.hi - share.lo for share in plan.shares) == 8
