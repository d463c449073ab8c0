"""Models of known shapes with random weights, written as Hugging Face folders: they need no hub."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STD = 0.02
_PIECE = 1 << 30
"""Bytes of a file, about."""
_SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
_TEMPLATE = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "tie_word_embeddings": False,
}  # fmt: skip
_QWEN: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 2048,
    "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 128, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
}  # fmt: skip
_SMALL = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
SHAPES: dict[str, dict[str, Any]] = {
    "8B": _LLAMA,
    "1.7B": _QWEN,
    "tiny": {
        **_QWEN, **_SMALL, "num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 4096,
    },
}  # fmt: skip
"""Llama-3.1-8B, Qwen3-1.7B, and one to try this out with."""


@dataclass(frozen=True)
class Made:
    """A folder, and what its weights are.

    Attributes
    ----------
    nbytes
        Of all weights.
    read
        Bytes of weights that one token reads: all but an embedding that is not the head, of which it reads
        a row.
    """

    folder: Path
    nbytes: int
    read: int


def place(need: int) -> Path:
    """A new folder where so many bytes fit, in memory if they do."""
    for base in (Path("/dev/shm"), Path(tempfile.gettempdir())):
        if base.is_dir() and os.access(base, os.W_OK) and shutil.disk_usage(base).free > need * 1.05:
            return Path(tempfile.mkdtemp(prefix="pooled-bench-", dir=base))
    raise OSError(f"no folder here has {need / 1e9:.0f} GB free")


def shapes_of(name: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a shape's tensors."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    make: Any = AutoModelForCausalLM
    config = AutoConfig.for_model(**{k: v for k, v in SHAPES[name].items() if k != "architectures"})
    with torch.device("meta"):
        model: Any = make.from_config(config, dtype=torch.bfloat16)
    tied = "lm_head.weight" if SHAPES[name]["tie_word_embeddings"] else ""
    return {key: tuple(value.shape) for key, value in model.state_dict().items() if key != tied}


def nbytes_of(name: str) -> int:
    """Bytes of all weights, as bfloat16."""
    return sum(2 * math.prod(shape) for shape in shapes_of(name).values())


def write(name: str, folder: Path, device: str) -> Made:
    """Write the folder, with a tokenizer; numbers are drawn on the device, always the same."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    shapes = shapes_of(name)
    draw = torch.Generator(device).manual_seed(1)
    held: dict[str, torch.Tensor] = {}
    where: dict[str, str] = {}
    size = total = number = 0

    def out() -> None:
        nonlocal size, number
        file = f"model-{number:05d}.safetensors"
        save_file(held, folder / file, metadata={"format": "pt"})
        where.update(dict.fromkeys(held, file))
        held.clear()
        size, number = 0, number + 1

    for key, shape in shapes.items():
        tensor = torch.empty(shape, dtype=torch.bfloat16, device=device)
        if len(shape) > 1:
            tensor.normal_(0, _STD, generator=draw)
        else:
            tensor.fill_(0.0 if key.endswith("bias") else 1.0)
        held[key] = tensor.cpu()
        size, total = size + tensor.nbytes, total + tensor.nbytes
        if size >= _PIECE:
            out()
    if held:
        out()
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    _write_tokenizer(folder, int(SHAPES[name]["vocab_size"]))
    # No token ends an answer early.
    config = {**SHAPES[name], "dtype": "bfloat16", "bos_token_id": None, "eos_token_id": None}
    (folder / "config.json").write_text(json.dumps(config))
    whole = next(math.prod(shape) * 2 for key, shape in shapes.items() if "embed_tokens" in key)
    return Made(folder, total, total if SHAPES[name]["tie_word_embeddings"] else total - whole)


def _write_tokenizer(folder: Path, vocab: int) -> None:
    """Bytes as tokens, and words without a meaning for all other numbers."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [f"w{number}" for number in range(vocab - len(alphabet) - len(_SPECIAL))]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate([*alphabet, *words])}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _SPECIAL])
    wrap: Any = PreTrainedTokenizerFast
    made = wrap(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    made.chat_template = _TEMPLATE
    made.save_pretrained(folder)
