"""A llama model in a GGUF file, written as the folder that Hugging Face's libraries read.

Three things differ. Weights are quantized: they are widened, then rounded once to bf16. The rows of the
query and key projections lie in another order there (rotary pairs side by side): it is undone. And the
tokenizer is a list of tokens and merges: tokenizer.json is built of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_ENDS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_CONTROL = 3
"""Token type of control tokens in GGUF."""


def write_folder(source: Path, folder: Path, progress: Callable[[int], None]) -> None:
    """Write ``model.safetensors``, ``config.json`` (last) and the tokenizer's files.

    Parameters
    ----------
    source
        A GGUF file of architecture ``llama`` with a byte-level BPE vocabulary.
    progress
        Told the percent done.
    """
    import gguf

    reader = gguf.GGUFReader(source)
    field = _fields(reader)
    heads = {"attn_q": field("llama.attention.head_count"), "attn_k": field("llama.attention.head_count_kv")}
    tensors = {}
    for i, tensor in enumerate(reader.tensors):
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        part = tensor.name.split(".")[2] if tensor.name.startswith("blk.") else ""
        if part in heads:
            numbers = unpermute(numbers, heads[part])
        tensors[tensor_name(tensor.name)] = torch.from_numpy(np.array(numbers, np.float32)).to(torch.bfloat16)
        progress(90 * (i + 1) // len(reader.tensors))
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    _write_tokenizer(folder, field)
    _write_json(folder / "generation_config.json", _ids(field))
    _write_json(folder / "config.json", _config(field, tied="lm_head.weight" not in tensors))
    progress(100)


def tensor_name(name: str) -> str:
    """``blk.3.attn_q.weight`` as transformers calls it."""
    if name in _ENDS:
        return _ENDS[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{_NAMES[part]}.{kind}"


def unpermute(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Undo GGUF's row order of query and key projections: (pair, half) back to (half, pair) in each head."""
    dim = rows.shape[0] // heads
    return rows.reshape(heads, dim // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def _fields(reader: Any) -> Callable[[str], Any]:
    def field(name: str) -> Any:
        found = reader.fields.get(name)
        return None if found is None else found.contents()

    return field


def _ids(field: Callable[[str], Any]) -> dict[str, Any]:
    return {
        "bos_token_id": field("tokenizer.ggml.bos_token_id"),
        "eos_token_id": field("tokenizer.ggml.eos_token_id"),
        "pad_token_id": field("tokenizer.ggml.padding_token_id"),
    }


def _config(field: Callable[[str], Any], *, tied: bool) -> dict[str, Any]:
    heads = field("llama.attention.head_count")
    return _ids(field) | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "hidden_size": field("llama.embedding_length"),
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "head_dim": field("llama.embedding_length") // heads,
        "max_position_embeddings": field("llama.context_length"),
        # GGUF keeps it as a 32-bit number: 1e-05 comes back as 9.999999747378752e-06.
        "rms_norm_eps": float(f"{field('llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_parameters": {"rope_type": "default", "rope_theta": field("llama.rope.freq_base")},
        "tie_word_embeddings": tied,
        "vocab_size": field("llama.vocab_size"),
    }


def _write_tokenizer(folder: Path, field: Callable[[str], Any]) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    before: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if field("tokenizer.ggml.pre") == "smollm":
        before.insert(0, pre_tokenizers.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(before)
    tokenizer.decoder = decoders.ByteLevel()
    control = [
        t for t, kind in zip(tokens, field("tokenizer.ggml.token_type"), strict=True) if kind == _CONTROL
    ]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    special = {
        f"{name}_token": tokens[field(f"tokenizer.ggml.{ggml}_token_id")] for name, ggml in names.items()
    }
    _write_json(
        folder / "tokenizer_config.json",
        special
        | {
            "additional_special_tokens": [token for token in control if token not in special.values()],
            "chat_template": field("tokenizer.chat_template"),
            "clean_up_tokenization_spaces": False,
            "model_max_length": field("llama.context_length"),
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
