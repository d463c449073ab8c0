"""Where a model was found, and how far that is from being loaded."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path, PurePosixPath

from msgspec import Struct, field

from pooled_nb.shard.door import FileFact
from pooled_nb.shard.draft_names import MOST, draft_name, layers_before
from pooled_nb.shard.eos import read_json
from pooled_nb.shard.headers import INDEX, SINGLE, read_layout
from pooled_nb.shard.layout import Layout
from pooled_nb.shard.prints import file_sha256, weights_sample
from pooled_nb.shard.tensors import in_range

SMALL = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    INDEX,
)
"""The small files of a model: everything but its weights that is ever read."""

_HASHED = 64 << 20
"""Small files up to this size are hashed whole; weights are told apart by pieces of them."""

_ALL = 1 << 30
"""More layers than a model has."""
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt", ".h5", ".msgpack")


class Found(Struct, frozen=True, kw_only=True):
    """A model whose small files lie in ``folder``; ``local``: that folder holds the weights, too.

    ``layouts``: of its weights files, where their headers were read. ``open``: everybody may read it; None
    where nobody said so. ``home``: the GGUF file on this device that it is; its small files were made of it.
    """

    repo: str
    revision: str
    folder: Path
    label: str
    files: dict[str, FileFact] = field(default_factory=dict)
    layouts: dict[str, Layout] = field(default_factory=dict)
    local: bool = False
    home: Path | None = None
    open: bool | None = None
    note: str = ""


def plain_name(name: str) -> bool:
    """Whether a name that may come from outside is that of a file in one folder, and of nothing else."""
    return 0 < len(name) <= 200 and name not in (".", "..") and not re.search(r"[/\\:\x00-\x1f]", name)


def is_weights(name: str) -> bool:
    """Whether it is the name of a file of weights that is read, in the model's own folder."""
    return plain_name(name) and name.endswith((".safetensors", ".gguf"))


def is_safetensors(name: str) -> bool:
    """Whether it is the name of a safetensors file in the model's own folder."""
    return plain_name(name) and name.endswith(".safetensors")


def pickled(names: list[str]) -> str:
    """Return the first file that holds weights in a format which is never read; empty when there is none."""
    return next((n for n in sorted(names) if PurePosixPath(n).suffix in (*_PICKLES, ".onnx")), "")


def needed_files(weight_map: dict[str, str], lo: int, hi: int, ends: bool, drafts: int = 0) -> list[str]:
    """Return the files that hold layers ``[lo, hi)`` (and the ends, and so many draft layers), and no other.

    They are fetched whole: a file that also holds other layers brings these along, to the disk, not into
    memory. Names from an index come from outside: one that leads out of the folder is dropped here, and its
    tensors are then missed by name when the range is loaded.
    """
    layers = layers_before(weight_map, drafts)

    def needed(tensor: str) -> bool:
        return in_range(tensor, lo, hi, ends) or bool(drafts and draft_name(tensor, layers))

    return sorted({name for tensor, name in weight_map.items() if needed(tensor) and is_safetensors(name)})


def read_files(folder: Path, lo: int, hi: int, ends: bool, drafts: int = 0) -> list[str]:
    """Return the weights files of a folder that `headers.read_map` reads for layers ``[lo, hi)``.

    See `needed_files`.
    """
    if (folder / INDEX).is_file():
        index = read_json(folder / INDEX).get("weight_map")
        where = index if isinstance(index, dict) else {}
        return needed_files({str(k): str(v) for k, v in where.items()}, lo, hi, ends, drafts)
    if (folder / SINGLE).is_file():
        return [SINGLE]
    return sorted(path.name for path in folder.glob("*.safetensors"))


def folder_files(folder: Path) -> dict[str, FileFact]:
    """Size of each file of a folder that counts; of small ones the hash, of weights sample and header."""
    facts = {}
    for name in SMALL:
        path = folder / name
        if path.is_file():
            size = path.stat().st_size
            facts[name] = FileFact(size=size, sha256=file_sha256(path) if size <= _HASHED else None)
    for path in sorted(folder.glob("*.safetensors")):
        if path.is_file():
            sample = weights_sample(path)
            header = read_layout(path).header if sample else 0
            facts[path.name] = FileFact(size=path.stat().st_size, sample=sample or None, header=header)
    return facts


def folder_layouts(folder: Path) -> dict[str, Layout]:
    """Headers of the weights files that a whole model of a folder is read from.

    Raises
    ------
    ModelNotFound
        One is damaged.
    """
    names = [name for name in read_files(folder, 0, _ALL, True, MOST) if (folder / name).is_file()]
    return {name: read_layout(folder / name) for name in names}


def folder_revision(files: dict[str, FileFact], config_sha256: str) -> str:
    """Name the state of a folder: a hash over names, sizes, samples of weights and config, 16 hex digits."""
    lines = [f"{name} {fact.size} {fact.sample or ''}" for name, fact in sorted(files.items())]
    return hashlib.sha256("\n".join([*lines, config_sha256]).encode()).hexdigest()[:16]


def state_of(folder: Path) -> str:
    """Return the revision of what lies in a folder now."""
    files = folder_files(folder)
    config = files.get("config.json")
    return folder_revision(files, (config.sha256 if config else None) or "")
