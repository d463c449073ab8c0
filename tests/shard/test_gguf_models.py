"""Models in GGUF files compute what the same weights compute in transformers, whole and in parts."""

from __future__ import annotations

import itertools
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pooled_nb.errors import ModelNotSupported
from pooled_nb.shard.arch import read_config
from pooled_nb.shard.chat import Chat
from pooled_nb.shard.door import Turn
from pooled_nb.shard.gguf import numbers, rotary
from pooled_nb.shard.gguf.kinds import NUMBERS, TYPES, Form, word_of
from pooled_nb.shard.gguf.names import ARCHS, transformers_name
from pooled_nb.shard.loader import load_range
from pooled_nb.shard.sources import fetch
from pooled_nb.shard.tensormap import Entry
from tests.shard import ggufs, runs
from tests.shard.hubbed import alone, look, quiet, spec_of


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    torch.set_num_threads(1)
    alone(monkeypatch, tmp_path)
    with np.errstate():
        yield


def spoken(kind: str) -> str:
    return "llama" if kind in ("gemma2", "gemma3_text", "phi3") else "gpt2"


def chain(path: Path, *cuts: int) -> runs.Chain:
    """Engines of the ranges between cuts, loaded as a room's devices load them."""
    found = look(str(path))
    engines = []
    for lo, hi in itertools.pairwise(cuts):
        spec = spec_of(found, folder=str(path), lo=lo, hi=hi, ends=lo == 0, width=16, cols=32)
        located = fetch(spec, progress=quiet)
        engine = runs.Engine()
        engine.load(spec, located.folder, quiet, tensors=located.tensors)
        engines.append(engine)
    return runs.Chain(engines)


@pytest.mark.parametrize("type", ["F32", "F16", "Q8_0", "Q4_0", "Q4_1", "Q4_K"])
@pytest.mark.parametrize("kind", list(ggufs.CONFIGS))
def test_a_model_computes_what_its_widened_weights_compute(kind, type, tmp_path):
    """DESIGN section 6: GGUF, by architecture and type, against the model that it was written from."""
    path = tmp_path / "tiny.gguf"
    weights = ggufs.write(ggufs.model_of(kind), path, type, tokenizer=spoken(kind))
    reference = ggufs.model_of(kind)
    assert not reference.load_state_dict(weights, strict=False).unexpected_keys
    reference.tie_weights()
    layers = reference.config.num_hidden_layers
    tokens = [5, 9, 60, 7, 30] * 8
    whole = chain(path, 0, layers)
    with torch.no_grad():
        theirs = reference(torch.tensor([tokens])).logits[0]
    mine = whole.logits(whole.run(tokens, [False] * len(tokens)))
    # The engine's caches are longer than the reference's: the sums are the same, in another order.
    torch.testing.assert_close(mine, theirs, rtol=2e-4, atol=2e-4)
    assert theirs.std() > 0.3
    halves = chain(path, 0, 1, layers)
    assert torch.equal(mine, halves.logits(halves.run(tokens, [False] * len(tokens))))


@pytest.mark.parametrize("kind", ["llama", "gemma2", "phi3"])
def test_a_room_of_bfloat16_rounds_each_number_once(kind, tmp_path):
    """DESIGN section 6: dequantized per tensor, rounded once; whatever the split."""
    path = tmp_path / "tiny.gguf"
    weights = ggufs.write(ggufs.model_of(kind), path, "Q4_1", tokenizer=spoken(kind))
    found, layers = look(str(path)), ggufs.CONFIGS[kind]["num_hidden_layers"]
    seen = set()
    for lo, hi in ((0, layers), (0, 2), (2, layers)):
        located = fetch(spec_of(found, folder=str(path), lo=lo, hi=hi, ends=lo == 0), progress=quiet)
        read: list[int] = []
        model, _ = load_range(
            located.folder, read_config(located.folder), lo, hi, ends=lo == 0, dtype=torch.bfloat16,
            attn="eager", experts=None, device="cpu", max_gb=None, tensors=located.tensors,
            progress=lambda done, total, read=read: read.append(total - done),
        )  # fmt: skip
        assert read[-1] == 0
        for name, tensor in model.state_dict().items():
            there = name.split(".")
            if "layers" in there:
                there[2] = str(int(there[2]) + lo)
            if (full := weights.get(".".join(there))) is not None:
                assert torch.equal(tensor, full.to(torch.bfloat16)), name
                seen.add(".".join(there))
    assert seen == set(weights)


@pytest.mark.parametrize("type", TYPES.values(), ids=lambda type: type.name)
def test_every_type_is_read_by_pieces_as_the_library_reads_it_whole(type, tmp_path, monkeypatch):
    """DESIGN section 6: the numbers are those of gguf.quants, whatever pieces they are read in."""
    kind = gguf.GGMLQuantizationType(NUMBERS[type.name])
    assert (type.group, type.size) == gguf.GGML_QUANT_SIZES[kind]
    assert kind.name == type.name
    rng = np.random.default_rng(NUMBERS[type.name])
    raw = rng.integers(0, 256, (24, 512 // type.group * type.size), dtype=np.uint8)
    (tmp_path / "x").write_bytes(b"head!" + raw.tobytes() + b"tail")
    np.seterr(all="ignore")  # of random bytes some are no numbers
    if kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
        whole = raw.view(np.float32 if type.size == 4 else np.float16).astype(np.float32)
    else:
        whole = gguf.quants.dequantize(raw, kind)
    for rows in (1, 5, 1000):
        monkeypatch.setattr(numbers, "PIECE", rows * 4 * 512)
        for form in (Form(type.name), Form(type.name, heads=3), Form(type.name, less=1)):
            entry = Entry(tmp_path / "x", word_of(form), (24, 512), 5, 5 + raw.nbytes)
            wanted = whole - np.float32(form.less)
            if form.heads:
                wanted = wanted.reshape(3, 4, 2, 512).swapaxes(1, 2).reshape(24, 512)
            done: list[int] = []
            plain = numbers.WidenedTensor("x", entry, done.append)
            assert np.array_equal(plain[...].numpy(), wanted, equal_nan=True)
            assert sum(done) == raw.nbytes
            rounded = numbers.WidenedTensor("x", entry, done.append, lambda: torch.bfloat16)[...]
            assert torch.equal(
                rounded.nan_to_num(0.5), torch.from_numpy(wanted).to(torch.bfloat16).nan_to_num(0.5)
            )


@pytest.mark.parametrize("arch", ARCHS)
def test_tensors_are_named_as_the_library_names_them(arch):
    """DESIGN section 6: the names of each architecture, against gguf's own table."""
    table = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, arch.upper()), 4)
    for part, own in ARCHS[arch].parts.items():
        assert table.get_name(f"model.layers.3.{own}") == f"blk.3.{part}"
        assert transformers_name(ARCHS[arch], f"blk.3.{part}.weight") == f"model.layers.3.{own}.weight"
    for name in ("blk.x.attn_q.weight", "blk.03.attn_q.weight", "blk.1.attn_q.scale", "blk.1.nothing.weight",
                 "attn_q.weight", "blk.1.attn_output.bias", "output.bias", ""):  # fmt: skip
        assert transformers_name(ARCHS[arch], name) is None


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma2", "phi3"])
def test_a_file_is_read_as_transformers_reads_it(kind, tmp_path):
    """DESIGN section 6: another reader of the file has the same weights."""
    path = tmp_path / "tiny.gguf"
    ggufs.write(ggufs.model_of(kind, rope_parameters=None), path, "Q8_0", tokenizer=spoken(kind))
    found = look(str(path))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32)
    located = fetch(spec_of(found, folder=str(path), hi=3), progress=quiet)
    config = read_config(located.folder)
    mine, _ = load_range(
        located.folder, config, 0, 3, ends=True, dtype=torch.float32, attn="eager", experts=None,
        device="cpu", max_gb=None, tensors=located.tensors, progress=lambda *_: None,
    )  # fmt: skip
    there = theirs.state_dict()
    for name, tensor in mine.state_dict().items():
        assert torch.equal(tensor, there[name]), name
    for key in ("hidden_size", "intermediate_size", "num_key_value_heads", "vocab_size", "rms_norm_eps",
                "max_position_embeddings", "num_hidden_layers", "model_type", "eos_token_id"):  # fmt: skip
        said, wanted = getattr(config, key), getattr(theirs.config, key)
        assert said == pytest.approx(wanted) if isinstance(said, float) else said == wanted, key


TEXTS = ["hello", " hell  12", "a  b\n\n12345 he'll\tÄ\U0001f600", "<|im_start|>user\nhell<|im_end|>", "   "]


@pytest.mark.parametrize(("kind", "spoken"), [("qwen2", "gpt2"), ("phi3", "llama"), ("gemma2", "llama")])
def test_a_tokenizer_cuts_text_as_transformers_cuts_it(kind, spoken, tmp_path):
    """DESIGN section 6: the tokenizer out of the file, against transformers' own reader."""
    path = tmp_path / "tiny.gguf"
    ggufs.write(ggufs.model_of(kind), path, tokenizer=spoken)
    mine = Chat.load(look(str(path)).folder)
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    for text in TEXTS:
        ids = mine.tokenizer(text, add_special_tokens=False).input_ids
        assert ids == theirs(text, add_special_tokens=False).input_ids, text
        assert mine.tokenizer.decode(ids) == theirs.decode(ids)
    assert mine.tokenizer.chat_template == theirs.chat_template
    assert mine.eos == {2}
    prompt = mine.render([Turn(role="user", text="hell")])
    said = mine.tokenizer.decode(prompt.ids).replace("> ", ">")
    assert said == "<|im_start|>user\nhell<|im_end|>\n<|im_start|>assistant\n"
    bos = mine.tokenizer("hell").input_ids[0]
    assert (bos == 1) == (spoken == "llama")


def test_stretched_positions_are_read_and_checked(tmp_path):
    """DESIGN section 6: Llama 3.1's table of factors is its config's, or the model is refused."""
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_theta": 500000.0}  # fmt: skip
    model = ggufs.model_of("llama", rope_parameters=rope, max_position_embeddings=131072)
    table = rotary.table_of(rope, 64)
    theirs = 1 / 500000.0 ** (np.arange(0, 64, 2) / 64) / model.model.rotary_emb.inv_freq.numpy()
    np.testing.assert_allclose(table, theirs, rtol=1e-5)
    path = tmp_path / "tiny.gguf"
    weights = ggufs.write(model, path, "Q8_0", more=lambda w: w.add_tensor("rope_freqs.weight", table))
    model.load_state_dict(weights)
    tokens = [5, 9, 60, 7, 30] * 8
    whole = chain(path, 0, 3)
    with torch.no_grad():
        wanted = model(torch.tensor([tokens])).logits[0]
    torch.testing.assert_close(
        whole.logits(whole.run(tokens, [False] * len(tokens))), wanted, rtol=2e-4, atol=2e-4
    )
    table[20] *= 1.01
    ggufs.write(model, path, "Q8_0", more=lambda w: w.add_tensor("rope_freqs.weight", table))
    with pytest.raises(ModelNotSupported, match="stretches its positions in another way"):
        chain(path, 0, 3)
