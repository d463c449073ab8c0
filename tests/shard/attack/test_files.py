"""Files and folders that contradict each other, or change: refused by name, never loaded as another."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pooled_nb.errors import ModelNotFound, PooledError
from pooled_nb.shard import protocol
from pooled_nb.shard.headers import INDEX
from pooled_nb.shard.lazy import LazyTensor
from tests.shard.attack.rig import NAME, Rig
from tests.shard.rawfiles import entry, raw

UP = "model.layers.1.mlp.up_proj.weight"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def split(rig: Rig, change: Callable[[dict[str, str]], object] = lambda where: None) -> None:
    """The model in two files, layer 2 in the second, with an index that may be changed."""
    tensors = load_file(rig.folder / NAME)
    (rig.folder / NAME).unlink()
    where = {name: TWO if "layers.1." in name else ONE for name in tensors}
    for file in (ONE, TWO):
        own = {name: tensors[name] for name in tensors if where[name] == file}
        save_file(own, rig.folder / file, metadata={"format": "pt"})
    change(where)
    rig.write(json.dumps({"weight_map": where}).encode(), INDEX)


def test_an_honest_model_is_loaded(rig: Rig) -> None:
    """What is refused here is refused for its lie alone."""
    rig.inspect()
    rig.load()
    split(rig)
    rig.inspect()
    rig.load()
    assert rig.built == ["LlamaForCausalLM"] * 2


def test_two_files_that_hold_one_tensor(rig: Rig) -> None:
    """CASES: a stray file: both are named, with an index and without one."""
    tensors = load_file(rig.folder / NAME)
    os.rename(rig.folder / NAME, rig.folder / "a.safetensors")
    save_file({UP: tensors[UP] + 1}, rig.folder / "b.safetensors")
    rig.refused(rf"^a\.safetensors and b\.safetensors both hold {UP}\.")
    (rig.folder / "b.safetensors").unlink()
    os.rename(rig.folder / "a.safetensors", rig.folder / NAME)
    split(rig)
    own = load_file(rig.folder / ONE)
    save_file({**own, UP: tensors[UP] + 1}, rig.folder / ONE, metadata={"format": "pt"})
    rig.refused(rf"^{ONE} and {TWO} both hold {UP}\.")


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("model-00003-of-00003.safetensors", "is not in the folder"),
        (ONE, "does not hold it"),
        ("../out.safetensors", "is not in the folder"),
        ("pytorch_model.bin", "is not in the folder"),
        ("", "is not in the folder"),
        ("a\x00b.safetensors", "is not in the folder"),
    ],
)
def test_an_index_that_leads_elsewhere(file: str, words: str, rig: Rig) -> None:
    """CASES: an index that names a missing file, or a wrong one: the weight and the file are named."""
    (rig.folder.parent / "out.safetensors").write_bytes(rig.read())
    (rig.folder / "pytorch_model.bin").write_bytes(rig.read())
    split(rig, lambda where: where.update({UP: file}))
    with pytest.raises(ModelNotFound, match=rf"{UP} is missing: .*{words}"):
        rig.load()
    rig.load(lo=0, hi=1)  # the other layer is what it is


INDICES: dict[str, bytes] = {
    "no JSON": b"{",
    "no table": b"[]",
    "no map": b'{"metadata": {}}',
    "files that are none": b'{"weight_map": {"a": 5}}',
    "too deep": b'{"weight_map":' * 100_000,
    "a name twice": json.dumps({"weight_map": {UP: ONE}}).encode()[:-2] + f', "{UP}": "{TWO}"}}}}'.encode(),
    "no text": b'{"weight_map": {"a\xff": "b"}}',
}


@pytest.mark.parametrize("damage", INDICES)
def test_an_index_that_is_none(damage: str, rig: Rig) -> None:
    """CASES: refused by its name."""
    split(rig)
    rig.write(INDICES[damage], INDEX)
    rig.refused(rf"^{INDEX} (is damaged|names {UP} twice)\.")


CONFIGS: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"{", "config.json is damaged"),
    "too deep": (b'{"a":' * 100_000, "config.json is damaged"),
    "a list": (b"[]", "names no architecture"),
    "no text": (b'{"a": "\xff"}', "config.json is damaged"),
}


@pytest.mark.parametrize("damage", CONFIGS)
def test_a_config_that_is_none(damage: str, rig: Rig) -> None:
    """CASES: one clear error before the download."""
    text, words = CONFIGS[damage]
    rig.write(text, "config.json")
    rig.refused(words)


@pytest.mark.parametrize(
    "gone", ["head_dim", "rope_parameters", "num_key_value_heads", "dtype", "bos_token_id"]
)
def test_a_config_that_leaves_out_what_follows(gone: str, rig: Rig) -> None:
    """CASES: what the class derives is derived, or there is one clear error: no other numbers in silence."""
    config = json.loads(rig.read("config.json"))
    config.pop(gone, None)
    rig.write(json.dumps(config).encode(), "config.json")
    try:
        rig.inspect()
        rig.load()
    except PooledError as error:
        assert gone == "num_key_value_heads", error  # noqa: PT017  # its weights have another shape then
        assert "has the shape" in error.what  # noqa: PT017


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt", "tf_model.h5"])
def test_only_pickles(name: str, rig: Rig) -> None:
    """DESIGN section 6: only safetensors, never pickle: it is not opened."""
    os.rename(rig.folder / NAME, rig.folder / name)
    rig.refused(rf"{name}|no safetensors file")


def test_pickles_that_go_by_another_name(rig: Rig) -> None:
    """DESIGN section 6: a pickle is none, whatever it is called."""
    torch.save({UP: torch.zeros(2)}, rig.folder / NAME)
    rig.refused(rf"^{NAME} is not a whole safetensors file")


def test_a_dtype_that_is_not_read(rig: Rig) -> None:
    """DESIGN section 5: numbers of another kind are no numbers of this model: named, with the file."""
    tensors = load_file(rig.folder / NAME)
    tensors[UP] = tensors[UP].to(torch.float8_e4m3fn)
    save_file(tensors, rig.folder / NAME, metadata={"format": "pt"})
    with pytest.raises(
        ModelNotFound, match=rf"{UP} is missing: {NAME} holds it as F8_E4M3, which is not read"
    ):
        rig.load()


# -- files that change ------------------------------------------------------------------------------


def grow(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"more")


def shrink(path: Path) -> None:
    os.truncate(path, 2000)


def rewrite(path: Path) -> None:
    """The same size and time, another file."""
    state = path.stat()
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    other.replace(path)


def touch(path: Path) -> None:
    """The same size and file, other numbers."""
    with path.open("r+b") as stream:
        stream.seek(-8, os.SEEK_END)
        stream.write(b"\xff" * 8)
    os.utime(path, ns=(1, 1))


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [grow, shrink, rewrite, touch, remove])
@pytest.mark.parametrize("when", [1, 60])
def test_a_file_that_changes_while_it_is_read(
    change: Callable[[Path], None], when: int, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 6: half of one model and half of another is none: refused by name, and all is freed."""
    given: list[str] = []
    plain = LazyTensor.__getitem__

    def watched(self: LazyTensor, key: Any) -> torch.Tensor:
        tensor = plain(self, key)
        given.append(self.name)
        return tensor

    monkeypatch.setattr(LazyTensor, "__getitem__", watched)
    done = 0

    def progress(pct: int, words: str) -> None:
        nonlocal done
        if words.startswith("reading") and pct > 80 + when // 5 and not done:
            done = len(given) + 1
            change(rig.folder / NAME)

    with pytest.raises(ModelNotFound, match=rf"^{NAME} (changed while it was read|cannot be read)"):
        rig.load(progress)
    assert done > 0
    assert len(given) <= done, "nothing that is read after the change gets to torch"
    with pytest.raises(PooledError, match="No layers are loaded"):
        rig.desk._engine._need()


def test_a_file_that_shrinks_between_two_reads(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 6: where nobody looked at it before, its end is seen all the same."""
    from pooled_nb.shard.tensormap import Entry

    rig.write(raw({"a": entry("U8", [9], 0, 9)}, bytes(9)))
    lazy = LazyTensor("a", Entry(rig.folder / NAME, "U8", (99,), 60, 159), lambda size: None)
    with pytest.raises(ModelNotFound, match=rf"^{NAME} ended while a was read"):
        lazy[...]


def test_what_changed_since_it_was_chosen(rig: Rig) -> None:
    """DESIGN section 6: whoever says what is missing looks whether it is still the room's model."""
    spec = rig.spec()
    touch(rig.folder / NAME)
    for job in (protocol.Lacks(spec=spec), protocol.Load(spec=spec)):
        with pytest.raises(ModelNotFound, match=rf"not the room's model: {NAME} holds other weights"):
            rig.desk.run(job, lambda *_: None)
    assert rig.built == []
