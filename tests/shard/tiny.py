"""Tiny models with random weights, one per architecture, made on the fly."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from pooled_nb.shard import compat

LAYERS = 6
VOCAB = 256
_BASE = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_HEADS = {**_BASE, "head_dim": 16}
_MIXTURE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_WINDOW = {"sliding_window": 40}
_ALTERNATE = ["sliding_attention", "full_attention"] * 3

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**_BASE, "tie_word_embeddings": False},
    "llama_tied": {**_BASE, "tie_word_embeddings": True},
    "mistral": {**_HEADS, **_WINDOW},
    "qwen2": _BASE,
    "qwen3": _HEADS,
    "qwen3_tied": {**_HEADS, "tie_word_embeddings": True},
    "qwen3_moe": {**_HEADS, **_MIXTURE, "decoder_sparse_step": 1, "mlp_only_layers": [1]},
    "gemma2": {**_HEADS, **_WINDOW, "query_pre_attn_scalar": 16},
    "gemma3_text": {
        **_HEADS, **_WINDOW, "query_pre_attn_scalar": 16,
        "layer_types": ["sliding_attention"] * 2 + ["full_attention"] + ["sliding_attention"] * 3,
    },
    "phi": {**_BASE, "num_key_value_heads": 4},
    "phi3": {**_BASE, **_WINDOW},
    "gpt2": {
        "vocab_size": VOCAB, "n_embd": 64, "n_layer": LAYERS, "n_head": 4, "n_positions": 1024,
        "bos_token_id": 1, "eos_token_id": 2,
    },
    "gpt_neox": {
        "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": LAYERS,
        "num_attention_heads": 4, "max_position_embeddings": 1024, "bos_token_id": 1, "eos_token_id": 2,
    },
    "olmo": _BASE,
    "olmo2": _BASE,
    "olmo3": {**_BASE, **_WINDOW},
    "smollm3": _BASE,
    "granite": {**_BASE, "embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.5},
    "deepseek_v3": {
        **_BASE, "num_key_value_heads": 4, "moe_intermediate_size": 32, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "kv_lora_rank": 16, "q_lora_rank": 16,
        "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16, "first_k_dense_replace": 2,
        "n_shared_experts": 1,
    },
    "gpt_oss": {
        **_HEADS, **_WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2, "layer_types": _ALTERNATE,
    },
    "mixtral": {**_BASE, **_WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2},
    "cohere": _BASE,
    "glm4": _HEADS,
    "stablelm": _BASE,
    "starcoder2": {**_BASE, **_WINDOW},
}  # fmt: skip
"""By name; what follows ``_tied`` is a variant of the architecture before it."""

EAGER = {"gpt_oss", "gemma2", "mamba", "falcon_mamba", "mamba2"}
"""Their attention (sinks, soft caps, none at all) is not computed by SDPA."""

OTHER: dict[str, dict[str, Any]] = {
    "bloom": {"vocab_size": VOCAB, "hidden_size": 64, "n_layer": LAYERS, "n_head": 4},
    "mpt": {"vocab_size": VOCAB, "d_model": 64, "n_layers": LAYERS, "n_heads": 4, "max_seq_len": 1024},
    "gpt_neo": {
        "vocab_size": VOCAB, "hidden_size": 64, "num_layers": LAYERS, "num_heads": 4, "window_size": 40,
        "attention_types": [[["global", "local"], 3]], "max_position_embeddings": 1024, "bos_token_id": 1,
        "eos_token_id": 2,
    },
}  # fmt: skip
"""Architectures that cannot be cut into frames: masks of their own, or more after the layers than a norm."""

_DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
}  # fmt: skip
_LINEAR = ["linear_attention"] * 3 + ["full_attention"] + ["linear_attention"] * 2
_CONV = ["conv", "conv", "full_attention", "conv", "full_attention", "conv"]
_SPACE = {
    "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_d_conv": 4,
    "mamba_expand": 2, "mamba_chunk_size": 16,
}  # fmt: skip
_MAMBA = {
    "vocab_size": VOCAB, "hidden_size": 64, "num_hidden_layers": LAYERS, "state_size": 16, "conv_kernel": 4,
    "expand": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

HYBRID: dict[str, dict[str, Any]] = {
    "lfm2": {**_BASE, "layer_types": _CONV, "block_ff_dim": 128, "block_multiple_of": 16},
    "lfm2_moe": {**_BASE, **_MIXTURE, "layer_types": _CONV, "num_dense_layers": 2},
    "qwen3_next": {
        **_HEADS, **_MIXTURE, **_DELTA, "shared_expert_intermediate_size": 32, "layer_types": _LINEAR,
    },
    "qwen3_5_text": {**_HEADS, **_DELTA, "layer_types": _LINEAR},
    "qwen3_5_moe_text": {
        **_HEADS, **_MIXTURE, **_DELTA, "shared_expert_intermediate_size": 32, "layer_types": _LINEAR,
    },
    "olmo_hybrid": {**_BASE, **_DELTA, "linear_num_key_heads": 4, "layer_types": _LINEAR},
    "kimi_linear": {
        **_BASE, "num_key_value_heads": 4, "layer_types": _LINEAR, "linear_head_dim": 16,
        "linear_num_heads": 4, "linear_conv_kernel_dim": 4, "kv_lora_rank": 16, "q_lora_rank": None,
        "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16, "num_experts": 4,
        "num_experts_per_token": 2, "moe_intermediate_size": 32, "model_max_length": 1024,
        "mlp_layer_types": ["dense"] + ["sparse"] * 5,
    },
    "falcon_h1": {**_BASE, **_SPACE, "mamba_d_ssm": 128},
    "bamba": {**_BASE, **_SPACE, "attn_layer_indices": [2, 4]},
    "granitemoehybrid": {
        **_BASE, **_SPACE, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 32,
        "layer_types": _LINEAR,
    },
    "nemotron_h": {
        **_HEADS,
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "linear_attention", "moe"],
        "ssm_state_size": 16, "mamba_num_heads": 4, "mamba_head_dim": 32, "n_groups": 2, "chunk_size": 16,
        "n_routed_experts": 4, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 32,
        "num_experts_per_tok": 2,
    },
    "jamba": {
        **_BASE, "num_experts": 4, "num_experts_per_tok": 2, "attn_layer_period": 3, "attn_layer_offset": 1,
        "mamba_d_state": 16, "mamba_dt_rank": 8, "use_mamba_kernels": False,
    },
    "mamba": {**_MAMBA, "time_step_rank": 8},
    "falcon_mamba": {**_MAMBA, "time_step_rank": 8},
    "mamba2": {**_MAMBA, "num_heads": 4, "head_dim": 32, "n_groups": 2, "chunk_size": 16},
}  # fmt: skip
"""Architectures with layers that keep a running state."""

NOT_CUT: dict[str, dict[str, Any]] = {
    "zamba2": {
        **_BASE, "num_key_value_heads": 4, "mamba_d_state": 16, "n_mamba_heads": 4, "mamba_ngroups": 2,
        "chunk_size": 16, "layers_block_type": ["linear_attention", "hybrid"] * 3, "num_mem_blocks": 1,
        "kv_channels": 16,
    },
    "recurrent_gemma": {
        **_HEADS, "lru_width": 64, "attention_window_size": 40, "block_types": ["recurrent", "attention"],
    },
    "minimax": {**_HEADS, "num_local_experts": 4, "num_experts_per_tok": 2, "block_size": 16},
    "zaya": {**_HEADS, "num_experts": 4, "moe_intermediate_size": 32, "router_hidden_size": 16},
}  # fmt: skip
"""Such layers that cannot be run: a state outside the cache, or more than one state handed on."""


def config_of(name: str) -> Any:
    kind = name.removesuffix("_tied")
    return AutoConfig.for_model(kind, **{**CONFIGS, **HYBRID, **OTHER, **NOT_CUT}[name])


def grow(model: torch.nn.Module) -> None:
    """Make random weights so large that layers, heads and positions all matter."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(4)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.05)


def make(
    name: str, folder: Path, *, dtype: torch.dtype = torch.float32, max_shard_size: str = "100KB"
) -> Path:
    """Write a tiny model with random weights."""
    config = config_of(name)
    with warnings.catch_warnings(), compat.quiet(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        grow(model)
        model.to(dtype).save_pretrained(folder, max_shard_size=max_shard_size)
    return folder


def reference(folder: Path, name: str, dtype: torch.dtype = torch.float32) -> Any:
    """The same model as transformers loads it."""
    with compat.quiet():
        attn = "eager" if name in EAGER else "sdpa"
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attn).eval()
