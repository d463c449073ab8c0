"""Only this range, the right tensors, or words that name the file: never random weights in silence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pooled_nb.errors import ModelNotFound, ModelNotSupported, ModelTooBig, OutOfMemory
from pooled_nb.shard import compat, loader
from pooled_nb.shard.arch import read_config
from pooled_nb.shard.cache import Slab
from pooled_nb.shard.engine import Engine
from pooled_nb.shard.found import needed_files
from pooled_nb.shard.headers import INDEX
from pooled_nb.shard.loader import load_range
from pooled_nb.shard.sizes import facts
from pooled_nb.shard.tensormap import Entry, TensorMap, look, read_map
from pooled_nb.shard.tensors import layer_of, other_tower
from tests.shard import tiny
from tests.shard.conftest import Make
from tests.shard.runs import Chain, load, some_tokens, spec

TOKENS = some_tokens(12)
UP = "model.layers.3.mlp.up_proj.weight"


def logits(folder: Path) -> torch.Tensor:
    chain = Chain([load(folder, ctx=256)])
    return chain.logits(chain.run(TOKENS, [False] * len(TOKENS)))


@pytest.fixture
def copy(tmp_path: Path, tiny_model: Make) -> Callable[[str], Path]:
    def made(name: str = "llama") -> Path:
        return Path(shutil.copytree(tiny_model(name), tmp_path / name))

    return made


def index(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / INDEX).read_text())
    return found


def rewrite(folder: Path, file: str, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / file)
    change(tensors)
    save_file(tensors, folder / file, metadata={"format": "pt"})


def single(folder: Path) -> dict[str, torch.Tensor]:
    """The same model in one file without an index."""
    tensors: dict[str, torch.Tensor] = {}
    for file in folder.glob("*.safetensors"):
        tensors |= load_file(file)
        file.unlink()
    (folder / INDEX).unlink()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return tensors


def test_only_the_range_is_read(copy: Callable[[str], Path]) -> None:
    """DESIGN section 6: only what a device computes; files of other layers need not even be there."""
    folder = copy("llama")
    where = index(folder)["weight_map"]
    mine = {file for name, file in where.items() if any(f"layers.{i}." in name for i in (2, 3))}
    for file in set(where.values()) - mine:
        (folder / file).unlink()
    engine = load(folder, 2, 4)
    assert len(engine._need().layers) == 2
    with pytest.raises(ModelNotFound, match=r"model\.layers\.\d.*not in the folder"):
        load(folder, 4, 6)


@pytest.mark.parametrize("name", ["llama_tied", "qwen3_tied"])
def test_tied_embeddings_are_right_and_counted_once(name: str, tiny_model: Make) -> None:
    """DESIGN section 5: tied embeddings give the reference's logits, and memory counts them once."""
    folder = tiny_model(name)
    with torch.inference_mode():
        theirs = tiny.reference(folder, name)(input_ids=torch.tensor([TOKENS])).logits[0]
    torch.testing.assert_close(logits(folder), theirs, rtol=1e-4, atol=2e-5)
    known = facts(folder)
    assert known.ends_bytes == (tiny.VOCAB * 64 + 64) * 4
    total = sum(known.layer_bytes) + known.ends_bytes
    assert total == sum(entry.end - entry.start for entry in read_map(folder).entries.values())
    assert Engine().load(spec(folder), folder, lambda percent, words: None).weights == total


def test_an_index_whose_first_file_holds_no_layer(copy: Callable[[str], Path], tiny_model: Make) -> None:
    """DESIGN section 6: whichever file holds what, the index leads to it."""
    folder = copy("llama")
    found = index(folder)
    name = "model.norm.weight"
    file = found["weight_map"][name]
    tensors = load_file(folder / file)
    save_file({name: tensors.pop(name)}, folder / "a-first.safetensors", metadata={"format": "pt"})
    save_file(tensors, folder / file, metadata={"format": "pt"})
    found["weight_map"] = {**found["weight_map"], name: "a-first.safetensors"}
    (folder / INDEX).write_text(json.dumps(found))
    assert torch.equal(logits(folder), logits(tiny_model("llama")))


def test_an_index_that_names_the_wrong_file(copy: Callable[[str], Path]) -> None:
    """DESIGN section 6: refused, naming tensor and file."""
    folder = copy("llama")
    found = index(folder)
    wrong = next(f for f in found["weight_map"].values() if f != found["weight_map"][UP])
    found["weight_map"][UP] = wrong
    (folder / INDEX).write_text(json.dumps(found))
    with pytest.raises(ModelNotFound, match=f"{UP}.*{wrong}.*does not hold it"):
        load(folder, 3, 4)
    load(folder, 0, 2)


@pytest.mark.parametrize("bad", ["../out.safetensors", "/etc/passwd", "weights.bin"])
def test_an_index_never_leads_out_of_the_folder(bad: str, copy: Callable[[str], Path]) -> None:
    """DESIGN section 6: only safetensors, and only those of the model's folder."""
    folder = copy("llama")
    found = index(folder)
    real = folder / found["weight_map"][UP]
    if bad.startswith(".."):
        shutil.copy(real, folder / bad)
    found["weight_map"][UP] = bad
    (folder / INDEX).write_text(json.dumps(found))
    with pytest.raises(ModelNotFound, match=UP):
        load(folder, 3, 4)


def test_a_stray_file_beside_an_index_changes_nothing(copy: Callable[[str], Path], tiny_model: Make) -> None:
    """DESIGN section 6: what the index does not name is not looked at."""
    folder = copy("llama")
    save_file({UP: torch.zeros(128, 64)}, folder / "adapter.safetensors")
    assert torch.equal(logits(folder), logits(tiny_model("llama")))


def test_no_index_at_all(copy: Callable[[str], Path], tiny_model: Make) -> None:
    """DESIGN section 6: one file, or several without an index, as long as none contradicts another."""
    folder = copy("llama")
    tensors = single(folder)
    assert torch.equal(logits(folder), logits(tiny_model("llama")))
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    save_file({n: tensors[n] for n in names[:20]}, folder / "one.safetensors", metadata={"format": "pt"})
    save_file({n: tensors[n] for n in names[20:]}, folder / "two.safetensors", metadata={"format": "pt"})
    assert torch.equal(logits(folder), logits(tiny_model("llama")))
    save_file({names[0]: tensors[names[0]]}, folder / "stray.safetensors")
    with pytest.raises(ModelNotFound, match=r"one\.safetensors and stray\.safetensors both hold"):
        load(folder)


def test_a_missing_tensor_is_named(copy: Callable[[str], Path]) -> None:
    """DESIGN section 5: never random weights in silence."""
    folder = copy("llama")
    tensors = single(folder)
    del tensors[UP]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelNotFound, match=f"The weight {UP} is missing: no file in llama holds it"):
        load(folder, 2, 4)
    load(folder, 0, 3)


def test_a_missing_head_is_named(copy: Callable[[str], Path]) -> None:
    """DESIGN section 5: a head that is not tied and not there is an error on the host only."""
    folder = copy("llama")
    tensors = single(folder)
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelNotFound, match=r"lm_head\.weight"):
        load(folder, 0, 6)
    load(folder, 3, 6)


def test_a_missing_expert_is_named(copy: Callable[[str], Path]) -> None:
    """DESIGN section 5: fused experts never stay without memory."""
    folder = copy("qwen3_moe")
    tensors = single(folder)
    gone = [name for name in tensors if "layers.2.mlp.experts" in name]
    for name in gone:
        del tensors[name]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelNotFound, match=r"layers\.2\.mlp\.experts"):
        load(folder, 1, 3)


def test_one_expert_of_several_missing_is_refused(copy: Callable[[str], Path]) -> None:
    """DESIGN section 5: experts that do not add up are an error, whatever form they have."""
    folder = copy("qwen3_moe")
    tensors = single(folder)
    gone = next((n for n in tensors if "layers.2.mlp.experts.1." in n), None)
    if gone is None:
        pytest.skip("this transformers saves experts fused")
    del tensors[gone]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises((ModelNotFound, ModelNotSupported), match=r"layers\.2|convert|load"):
        load(folder, 1, 3)


@pytest.mark.parametrize("name", tiny.CONFIGS)
def test_any_tensor_that_is_missing_is_refused(name: str, tmp_path: Path, tiny_model: Make) -> None:
    """DESIGN section 5: each tensor in turn, weight or buffer: never random numbers in silence."""
    folder = tiny_model(name)
    held = read_map(folder).entries
    shutil.copy(folder / "config.json", tmp_path)
    tensors: dict[str, torch.Tensor] = {}
    for file in {entry.file for entry in held.values()}:
        tensors |= load_file(file)
    # One layer of each kind is enough: those of a kind hold tensors of the same names.
    kinds = {name.replace(f".{layer_of(name)}.", ".N.", 1): name for name in sorted(tensors)}
    for gone in kinds.values():
        rest = {key: value for key, value in tensors.items() if key != gone}
        save_file(rest, tmp_path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(
            (ModelNotFound, ModelNotSupported), match=r"is missing|has the shape|automatic conversion"
        ):
            load(tmp_path, ctx=256)


@pytest.mark.parametrize("stray", ["self_attn.q_proj.bias", "mlp.visual_gate.weight", "extra_norm.weight"])
def test_a_tensor_without_a_place_is_named(stray: str, copy: Callable[[str], Path]) -> None:
    """DESIGN section 5: a tensor that this class has no place for means that the model is another one."""
    folder = copy("llama")
    tensors = single(folder)
    key = f"model.layers.3.{stray}"
    save_file({**tensors, key: torch.ones(64)}, folder / "model.safetensors", metadata={"format": "pt"})
    for lo, hi in ((0, 6), (3, 4)):
        with pytest.raises(ModelNotSupported, match=f"The files hold {key}, .*has no place"):
            load(folder, lo, hi)
    load(folder, 4, 6)  # another device's layer


def test_what_old_files_hold_besides_is_no_error(copy: Callable[[str], Path]) -> None:
    """DESIGN section 5: saved positions, layers that guess ahead and other towers are none of this model."""
    folder = copy("llama")
    tensors = single(folder)
    for key in ("model.layers.3.self_attn.rotary_emb.inv_freq", "mtp.layers.0.w", "vision_tower.layers.3.w"):
        tensors[key] = torch.ones(8)
    tensors["model.layers.6.eh_proj.weight"] = torch.ones(8)  # DeepSeek's layer after the last
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    load(folder)


def test_a_tensor_of_another_shape_is_named(copy: Callable[[str], Path]) -> None:
    """DESIGN section 5: a shape the config does not explain is refused with both shapes."""
    folder = copy("llama")

    def shrink(tensors: dict[str, torch.Tensor]) -> None:
        tensors[UP] = torch.zeros(100, 64)

    rewrite(folder, index(folder)["weight_map"][UP], shrink)
    with pytest.raises(ModelNotSupported, match=rf"{UP} has the shape \[100, 64\].*\[128, 64\]"):
        load(folder, 3, 4)


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "short tensor"])
def test_a_damaged_file_is_named(damage: str, copy: Callable[[str], Path]) -> None:
    """DESIGN section 6: a file that is not whole is refused before anything is computed."""
    folder = copy("llama")
    single(folder)
    file = folder / "model.safetensors"
    raw = file.read_bytes()
    changed = {
        "cut": raw[:-10],
        "garbage": b"\x10" + bytes(7) + b"not json at all!" + raw,
        "empty": b"",
        "short tensor": raw.replace(b'"shape":[256,64]', b'"shape":[256,65]'),
    }
    file.write_bytes(changed[damage])
    with pytest.raises(ModelNotFound, match=r"model\.safetensors is not a whole safetensors file"):
        load(folder)


def test_headers_tell_where_tensors_lie(tiny_model: Make) -> None:
    """DESIGN section 6: tensors are found by their byte ranges."""
    folder = tiny_model("llama")
    for name, entry in read_map(folder).entries.items():
        with entry.file.open("rb") as stream:
            stream.seek(entry.start)
            raw = stream.read(entry.end - entry.start)
        wanted = load_file(entry.file)[name]
        assert torch.frombuffer(bytearray(raw), dtype=torch.float32).view(entry.shape).equal(wanted)
        assert (entry.source, entry.seen) == (entry.file.name, look(entry.file))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "no_such_thing"}, "architecture 'no_such_thing'"),
        ({"model_type": "t5"}, "not one chain of layers|writes text|architecture"),
        ({"model_type": "vit"}, "writes text"),
        ({"model_type": "qwen2_5_vl", "text_config": {}}, "no text model of it by itself"),
        ({"is_encoder_decoder": True}, "an encoder and a decoder"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "quantized"),
        ({"num_hidden_layers": 10**9}, "1000000000 layers"),
        ({"num_attention_heads": 5}, "config"),
        ({"model_type": None}, "names no architecture"),
    ],
)
def test_a_model_that_cannot_run_is_refused_before_any_weight(
    change: dict[str, Any], words: str, copy: Callable[[str], Path]
) -> None:
    """DESIGN section 6: one clear sentence before the download; code that comes with a model is never run."""
    folder = copy("llama")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises((ModelNotSupported, ModelNotFound), match=words):
        facts(folder)


def test_code_that_comes_with_a_model_is_never_run(copy: Callable[[str], Path]) -> None:
    """DESIGN section 6: never ``trust_remote_code``."""
    folder = copy("llama")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('ran')\n")
    assert facts(folder).arch == "LlamaForCausalLM"
    assert load(folder, 0, 2)._need().base.__class__.__name__ == "LlamaModel"


def test_a_folder_of_other_formats(tmp_path: Path, tiny_model: Make) -> None:
    """DESIGN section 6: only safetensors, never pickle."""
    shutil.copy(tiny_model("llama") / "config.json", tmp_path / "config.json")
    assert facts(tmp_path).dtype == "float32"
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelNotFound, match=r"no safetensors file, only pytorch_model\.bin"):
        facts(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelNotFound, match=r"config\.json is damaged"):
        facts(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ModelNotFound, match=r"holds no config\.json"):
        facts(tmp_path)


def test_a_range_that_is_not_lent_is_refused_with_what_is_short(tiny_model: Make) -> None:
    """PROTOCOL section 6: a device never holds more than it lends; refused with how many GB are short."""
    with pytest.raises(
        ModelTooBig, match=r"Layers 1 to 6 need 0\.00 GB with their caches, and this device lends 0\.00 GB"
    ) as caught:
        load(tiny_model("llama"), max_gb=0.0001)
    assert not isinstance(caught.value, OutOfMemory), "nothing ran out: half of it would be refused as well"


def test_caches_count_against_what_is_lent(tiny_model: Make) -> None:
    """PROTOCOL section 6: a device never holds more than it lends, its caches counted."""
    folder = tiny_model("llama")
    done = Engine().load(spec(folder, ctx=1024), folder, lambda percent, words: None)
    need = (done.weights + done.cache) / 1e9
    assert done.cache > done.weights
    Engine().load(spec(folder, ctx=1024, max_gb=need * 1.001), folder, lambda percent, words: None)
    with pytest.raises(ModelTooBig, match=r"with their caches.*a shorter context"):
        load(folder, ctx=1024, max_gb=need * 0.999)
    load(folder, ctx=256, max_gb=need * 0.999)


def test_accelerators_leave_room_for_the_caches() -> None:
    """PROTOCOL section 6: what accelerate may fill with weights is what is lent less the caches."""
    assert loader._without({0: 6000, "cpu": 2000}, 4000) == {0: 3000, "cpu": 1000}
    assert loader._without({0: 6000, "cpu": 0}, 9000) == {0: 0, "cpu": 0}


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes."),
        torch.OutOfMemoryError("HIP"),
        MemoryError(),
    ],
)
@pytest.mark.parametrize("name", ["llama", "qwen3_moe"])
def test_memory_that_runs_out_is_said_to_run_out(
    name: str, error: Exception, tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 1: reading or warming up, on any device: too big, not an unknown model."""

    def fail(*args: object, **kwargs: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(loader.LazyTensor, "__getitem__", fail)
        with pytest.raises(OutOfMemory, match="ran out of memory while loading layers 1 to 6"):
            load(tiny_model(name))
    tries = []
    plain = Slab.update

    def update(self: Slab, keys: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if keys.device.type == "meta":  # sizes are found without memory
            return plain(self, keys, *args, **kwargs)
        tries.append(1)
        return fail()

    monkeypatch.setattr(Slab, "update", update)
    with pytest.raises(OutOfMemory, match="ran out of memory"):
        load(tiny_model(name))
    assert tries == [1]


NAMES = {
    "model.embed_tokens.weight": (None, False),
    "lm_head.weight": (None, False),
    "model.layers.3.mlp.experts.7.up_proj.weight": (3, False),
    "h.11.attn.c_attn.weight": (11, False),
    "model.layers.3.visual_gate.weight": (3, False),
    "model.vision_tower.layers.3.w": (3, True),
    "vision_tower.vision_model.embeddings.weight": (None, True),
    "model.visual.blocks.0.w": (0, True),
    "model.embed_vision.weight": (None, True),
    "model.speech_encoder.layers.3.w": (3, True),
    "model.image_newline": (None, True),
    "multi_modal_projector.linear_1.weight": (None, True),
    "mtp.layers.0.q.weight": (0, True),
    "model.mtp.norm.weight": (None, True),
}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_fetched_is_what_is_counted(name: str) -> None:
    """DESIGN section 6: one rule says what a range needs, to the download and to the memory."""
    layer, other = NAMES[name]
    assert (layer_of(name), other_tower(name)) == (layer, other)
    held = TensorMap({name: Entry(Path("a.safetensors"), "F32", (25,), 0, 100)})
    for lo, hi, ends in ((0, 4, True), (4, 12, False), (0, 4, False)):
        fetched = needed_files({name: "a.safetensors"}, lo, hi, ends)
        wanted = not other and (ends if layer is None else lo <= layer < hi)
        assert fetched == (["a.safetensors"] if wanted else [])
        assert loader._size(held, lo, hi, ends) == (100 if wanted else 1)


@pytest.mark.parametrize("name", tiny.CONFIGS)
def test_facts_agree_with_what_is_loaded(name: str, tiny_model: Make) -> None:
    """PROTOCOL section 6: dealing counts by these numbers, so they are those of the engine."""
    folder = tiny_model(name)
    known = facts(folder)
    assert (known.layers, known.dim, known.vocab, known.dtype) == (6, 64, tiny.VOCAB, "float32")
    worker = Engine().load(spec(folder, 2, 5, ctx=256), folder, lambda percent, words: None)
    host = Engine().load(spec(folder, 0, 2, ctx=256), folder, lambda percent, words: None)
    assert worker.weights == sum(known.layer_bytes[2:5])
    assert host.weights == sum(known.layer_bytes[:2]) + known.ends_bytes
    # Caches here are float32, twice 16 bits.
    assert worker.cache == 2 * 256 * sum(known.kv_bytes[2:5])


def test_progress_is_told_and_ends(tiny_model: Make) -> None:
    """PROTOCOL section 6: percent, whole numbers, rising to 100."""
    told: list[tuple[int, str]] = []
    folder = tiny_model("llama")
    Engine().load(spec(folder, 2, 5), folder, lambda percent, words: told.append((percent, words)))
    percents = [percent for percent, _ in told]
    assert percents == sorted(percents)
    assert percents[0] == 0
    assert percents[-1] == 100
    assert told[0][1] == "reading layers 3–5"
    assert len(percents) > 5


def test_the_model_class_keeps_its_module(tiny_model: Make) -> None:
    """DESIGN section 5: without its module's name, weights would silently not be renamed."""
    config = read_config(tiny_model("mixtral"))
    model, parts = load_range(
        tiny_model("mixtral"), config, 1, 3, ends=False, dtype=torch.float32, attn="sdpa",
        experts="batched_mm", device="cpu", max_gb=None, progress=lambda read, total: None,
    )  # fmt: skip
    assert type(model).__module__.endswith("modeling_mixtral")
    assert [layer.self_attn.layer_idx for layer in parts.list()] == [0, 1]
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in parts.list().parameters())


def test_the_text_model_inside_a_multimodal_one(tmp_path: Path) -> None:
    """DESIGN section 5: its text layers are run like any other model's; its towers are never read."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 6, "num_attention_heads": 2}
    config = Gemma3Config(
        text_config=tiny.CONFIGS["gemma3_text"], vision_config={**tower, "image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4, image_token_index=253, boi_token_index=254, eoi_token_index=255,
    )  # fmt: skip
    with compat.quiet():
        theirs = Gemma3ForConditionalGeneration(config).eval()
        theirs.save_pretrained(tmp_path)
    with torch.inference_mode():
        wanted = theirs(input_ids=torch.tensor([TOKENS])).logits[0]
    chain = Chain([load(tmp_path, 0, 3, ctx=256), load(tmp_path, 3, 6, ctx=256)])
    mine = chain.logits(chain.run(TOKENS, [False] * len(TOKENS)))
    torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=2e-5)
    known = facts(tmp_path)
    assert known.arch == "Gemma3ForCausalLM"
    assert known.ends_bytes == (tiny.VOCAB * 64 + 64) * 4
