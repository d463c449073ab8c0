"""A device of its own for a test: an empty cache, no hub, or one on loopback; and models to put there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from pooled_nb.shard import LoadSpec
from pooled_nb.shard.found import Found
from pooled_nb.shard.prints import file_sha256
from pooled_nb.shard.sources import find
from tests.shard import fakehub

HUB_ID = "lab/tiny-chat"


def quiet(pct: int, words: str) -> None:
    """Progress that nobody watches."""


def alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Give a test a cache of its own, and no hub."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("POOLED_CACHE", str(folder / "cache"))
    monkeypatch.delenv("POOLED_MODELS", raising=False)


@contextmanager
def with_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[fakehub.Hub]:
    """Let a test's device reach a hub on loopback."""
    with fakehub.serving() as hub:
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub


def environment(hub: fakehub.Hub, folder: Path) -> dict[str, str]:
    """What a process of its own is told, so that it uses that hub and a cache in this folder."""
    return os.environ | {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_CACHE": str(folder / "hub"),
        "HF_HUB_OFFLINE": "0",
        "POOLED_CACHE": str(folder / "cache"),
    }


def look(model: str, revision: str | None = None, folder: str | None = None) -> Found:
    return find(model, revision=revision, folder=folder, progress=quiet)


def spec_of(found: Found, **changes: Any) -> LoadSpec:
    given = {
        "repo": found.repo, "revision": found.revision, "folder": None, "files": found.files,
        "config_sha256": file_sha256(found.folder / "config.json"), "lo": 0, "hi": 1, "ends": True,
        "ctx": 256, "dtype": "float32",
    }  # fmt: skip
    return LoadSpec(**(given | changes))


def in_three_files(model: Path, folder: Path) -> Path:
    """Split a model's only weights file: one per layer, the ends in the third."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(model, folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    where = {
        name: f"model-0000{int(name.split('.')[2]) + 1 if '.layers.' in name else 3}.safetensors"
        for name in tensors
    }
    for file in set(where.values()):
        save_file(
            {n: t for n, t in tensors.items() if where[n] == file}, folder / file, metadata={"format": "pt"}
        )
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder


def write_file(path: Path, tensors: Mapping[str, int]) -> None:
    """Write a safetensors file of tensors of so many bytes: no two bytes near each other are the same."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for number, size in enumerate(tensors.values()):
            stream.write((bytes((i * 7 + number) % 251 for i in range(251)) * (size // 251 + 1))[:size])


def write_layers(
    folder: Path, *, layers: int = 12, size: int = 1 << 20, files: int = 2, ends: int = 3 << 20
) -> Path:
    """Write a model of layers of two tensors each, in some files with an index; nobody could compute it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": layers}))
    (folder / "tokenizer.json").write_text("{}")
    where: dict[str, str] = {}
    for number in range(files):
        name = f"model-{number + 1:05}-of-{files:05}.safetensors" if files > 1 else "model.safetensors"
        tensors = {"model.embed_tokens.weight": ends} if number == 0 else {}
        for layer in range(number * layers // files, (number + 1) * layers // files):
            tensors |= {
                f"model.layers.{layer}.a.weight": size // 2,
                f"model.layers.{layer}.b.weight": size // 2,
            }
        if number == files - 1:
            tensors["model.norm.weight"] = 1000
        write_file(folder / name, tensors)
        where |= dict.fromkeys(tensors, name)
    if files > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return folder
