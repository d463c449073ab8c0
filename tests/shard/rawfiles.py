"""Safetensors files made byte by byte: right ones without their numbers, and wrong ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from pooled_nb.shard.arch import read_config, skeleton
from pooled_nb.shard.headers import BITS
from tests.shard.tiny import CONFIGS
from tests.shard.tinychat import write_model


def raw(header: object, data: bytes = b"") -> bytes:
    """A file with this header: JSON of it, or its bytes as they are."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: str, shape: list[Any], lo: Any, hi: Any) -> dict[str, Any]:
    """What a header says of one tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [lo, hi]}


def write_sparse(path: Path, tensors: Mapping[str, tuple[str, list[int]]]) -> None:
    """A right file whose numbers are all zero, and take no room on the disk."""
    header, at = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = prod(shape) * BITS[dtype] // 8
        header[name] = entry(dtype, shape, at, at + size)
        at += size
    head = raw(header)
    with path.open("wb") as stream:
        stream.write(head)
        stream.truncate(len(head) + at)


def large_mixture(folder: Path, *, layers: int, dim: int, experts: int, dtype: str = "BF16") -> Path:
    """A mixture of zeros, each expert by itself, as mixtures are published."""
    config = AutoConfig.for_model(
        "qwen3_moe", **(CONFIGS["qwen3_moe"] | {
            "num_hidden_layers": layers, "mlp_only_layers": [], "num_experts": experts,
            "hidden_size": dim, "moe_intermediate_size": 2 * dim,
        }),
    )  # fmt: skip
    config.save_pretrained(folder)
    names: dict[str, tuple[str, list[int]]] = {}
    for name, tensor in skeleton(config).state_dict().items():
        part, _, kind = name.rpartition(".experts.")
        _, *shape = tensor.shape
        for i in range(experts if part else 0):
            at = f"{part}.experts.{i}"
            if kind == "gate_up_proj":
                half = (dtype, [shape[0] // 2, shape[1]])
                names |= {f"{at}.gate_proj.weight": half, f"{at}.up_proj.weight": half}
            else:
                names[f"{at}.{kind}.weight"] = (dtype, shape)
        if not part:
            names[name] = (dtype, list(tensor.shape))
    write_sparse(folder / "model.safetensors", names)
    return folder


def large_model(folder: Path, *, layers: int, dim: int, dtype: str = "BF16", **extra: Any) -> Path:
    """A model of zeros with a tokenizer: as large as is asked, in no time."""
    write_model(folder, layers=1, **extra)
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "num_hidden_layers": layers,
        "hidden_size": dim,
        "intermediate_size": 4 * dim,
        "head_dim": dim // 4,
    }
    (folder / "config.json").write_text(json.dumps(config))
    names = {name: (dtype, list(t.shape)) for name, t in skeleton(read_config(folder)).state_dict().items()}
    if config.get("tie_word_embeddings"):
        names.pop("lm_head.weight", None)
    write_sparse(folder / "model.safetensors", names)
    return folder
