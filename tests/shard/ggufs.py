"""GGUF files for tests: a transformers model written as llama.cpp's converter writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from pooled_nb.shard import compat
from tests.shard.tiny import grow
from tests.shard.tinychat import CHATML

DIM, LAYERS = 256, 3
"""As wide as one group of a K-quant."""
_BASE: dict[str, Any] = {
    "vocab_size": 288, "hidden_size": DIM, "intermediate_size": 512, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {
        **_BASE, "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    },
    "mistral": {**_BASE, "head_dim": 32, "sliding_window": None, "tie_word_embeddings": True},
    "qwen2": {**_BASE, "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6}},
    "qwen3": {**_BASE, "head_dim": 128, "rms_norm_eps": 1e-6},
    "gemma2": {
        **_BASE, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 24,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
    },
    "gemma3_text": {
        **_BASE, "num_hidden_layers": 7, "head_dim": 64, "query_pre_attn_scalar": 64, "sliding_window": 24,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    "phi3": {**_BASE, "sliding_window": 24, "original_max_position_embeddings": 512},
}  # fmt: skip
ARCHS = {"mistral": "llama", "gemma3_text": "gemma3"}


def model_of(kind: str, **changes: Any) -> Any:
    """A tiny model with random weights, in float32."""
    config = AutoConfig.for_model(kind, **{**CONFIGS[kind], **changes})
    with compat.quiet(), torch.random.fork_rng():
        torch.manual_seed(3)
        attn = "eager" if kind == "gemma2" else "sdpa"
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attn)
        grow(model)
    return model.eval()


def permuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """As ``convert_hf_to_gguf.py`` permutes the rows of llama's queries and keys."""
    return (
        rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
        .swapaxes(1, 2)
        .reshape(rows.shape)
    )


def quantized(values: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """Bytes of numbers in a type; of a K-quant, which the library only reads, random ones."""
    if kind == gguf.GGMLQuantizationType.F16:
        return values.astype(np.float16)
    if kind == gguf.GGMLQuantizationType.F32:
        return values
    try:
        return gguf.quants.quantize(values, kind)
    except NotImplementedError:
        group, size = gguf.GGML_QUANT_SIZES[kind]
        rng = np.random.default_rng(values.size)
        raw = rng.integers(0, 256, (values.size // group, size), dtype=np.uint8)
        _scale(raw, kind)
        return raw.reshape(*values.shape[:-1], values.shape[-1] // group * size)


def _scale(raw: np.ndarray, kind: gguf.GGMLQuantizationType) -> None:
    """Put small half-precision scales where a K-quant has them: random bytes may be infinities."""
    at = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}[kind.name]
    for offset in at:
        raw[:, offset : offset + 2] = np.array([2e-4], np.float16).view(np.uint8)


def write(
    model: Any,
    path: Path,
    kind: Callable[[str], str] | str = "F32",
    *,
    tokenizer: str = "gpt2",
    more: Callable[[Any], None] = lambda writer: None,
) -> dict[str, torch.Tensor]:
    """Write a model; return its weights as the file has them, by transformers' names, in float32."""
    config = model.config
    arch = ARCHS.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(path, arch)
    _facts(writer, config, arch)
    _tokenizer(writer, config.vocab_size, tokenizer)
    more(writer)
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, arch.upper()), config.num_hidden_layers)
    kept: dict[str, torch.Tensor] = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        base, _, end = name.rpartition(".")
        values = tensor.numpy().copy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(
            base.split(".")[-1]
        )
        turned = arch == "llama" and heads
        if turned:
            values = permuted(values, heads)
        if arch.startswith("gemma") and base.endswith("norm"):
            values = values + np.float32(1)
        wanted = kind if isinstance(kind, str) else kind(name)
        type = gguf.GGMLQuantizationType["F32" if values.ndim == 1 else wanted]
        if values.shape[-1] % gguf.GGML_QUANT_SIZES[type][0]:
            type = gguf.GGMLQuantizationType.Q8_0  # as llama-quantize falls back
        raw = quantized(values, type)
        writer.add_tensor(f"{names.get_name(base)}.{end}", raw, raw_dtype=type)
        read = gguf.quants.dequantize(raw, type).astype(np.float32).reshape(values.shape)
        if turned:
            half = values.shape[0] // heads // 2
            read = read.reshape(heads, half, 2, *read.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        if arch.startswith("gemma") and base.endswith("norm"):
            read = read - np.float32(1)
        kept[name] = torch.from_numpy(read.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return kept


def _facts(writer: Any, config: Any, arch: str) -> None:
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if arch not in ("qwen2", "phi3"):
        writer.add_key_length(head)
        writer.add_value_length(head)
    if arch in ("llama", "phi3"):
        writer.add_rope_dimension_count(head)
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if arch in ("gemma2", "gemma3", "phi3"):
        writer.add_sliding_window(config.sliding_window)
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_file_type(0)
    writer.add_name("tiny")


def _tokenizer(writer: Any, vocab: int, kind: str) -> None:
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<file_sep>"]
    if kind == "gpt2":
        alphabet = [*map(chr, range(33, 127)), *map(chr, range(161, 173)), *map(chr, range(174, 256))]
        alphabet += [chr(256 + n) for n in range(256 - len(alphabet))]
        words, merges = ["he", "12", "hell"], ["h e", "1 2", "l l"]
        words = ["he", "12", "ll", "hell"]
        merges.append("he ll")
        types = [3] * len(control) + [1] * (len(alphabet) + len(words))
        tokens = [*control, *alphabet, *words]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_merges(merges)
    else:
        bytes_ = [f"<0x{i:02X}>" for i in range(256)]
        words = ["\u2581", "h", "e", "l", "o", "he", "ll", "hell", "\u2581hell", "  "]
        tokens = ["<unk>", *control[1:], *bytes_, *words]
        types = [2, 3, 3, 3, *[6] * 256, *[1] * 9, 4]
        writer.add_tokenizer_model("llama")
        scores = [0.0] * 260 + [-float(i) for i in range(len(words))]
    rest = vocab - len(tokens)
    tokens += [f"[PAD{i}]" for i in range(rest)]
    writer.add_token_list(tokens)
    writer.add_token_types(types + [5] * rest)
    if kind != "gpt2":
        writer.add_token_scores(scores + [-1000.0] * rest)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    if kind == "llama":
        writer.add_unk_token_id(0)
    writer.add_chat_template(CHATML)
