"""A small config of any architecture that transformers knows, derived from the names of its fields."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING

from pooled_nb.shard import compat
from pooled_nb.shard.arch import model_class
from tests.shard.tiny import LAYERS, VOCAB, grow

_SIZES: list[tuple[str, int]] = [
    (r"vocab_size", VOCAB),
    (r"hidden_size|n_embd|d_model|word_embed_proj_dim|lru_width|dim", 64),
    (r"moe_intermediate_size|shared_(expert_)?intermediate_size|expert_ffn_hidden_size", 32),
    (r"(intermediate|ffn_hidden|mlp_hidden|block_ff)_(size|dim)(_mlp)?|n_inner|ffn_dim|\w+_ffn_dim", 128),
    (r"num_hidden_layers|n_layers?|num_layers|(de|en)coder_layers", LAYERS),
    (r"(swa_)?num_attention_heads|n_heads?|num_heads|(de|en)coder_attention_heads", 4),
    (r"num_(global_)?key_value_heads|swa_num_key_value_heads|num_kv_heads|multi_query_group_num", 2),
    (r"(swa_|global_|attention_)?(v_)?head_dim|kv_channels", 16),
    (r"max_position_embeddings|n_positions|n_ctx|max_seq(uence)?_len(gth)?", 1024),
    (r"num_(local_)?experts|n_routed_experts|moe_num_experts", 4),
    (r"num_experts_per_(tok|token)|moe_topk|moe_k|top_k_experts", 2),
    (r"sliding_window(_size)?|attention_chunk_size|local_attention", 40),
    (r"(kv|q)_lora_rank|index_head_dim|ssm_state_size|state_size|mamba_d_state|linear_\w+_head_dim", 16),
    (r"qk_(rope|nope)_head_dim|rotary_dim", 8),
    (r"index_n_heads", 32),  # few of their scores are equal: among equal ones any may be chosen
    (r"(n|moe_n)_group", 2),
    (r"topk_group|n_shared_experts|num_shared_experts|first_k_dense_replace|mamba_n_groups|n_groups", 1),
    (r"linear_num_key_heads", 2),
    (r"linear_num_value_heads", 4),
    (r"mamba_(n|num)_heads", 8),
    (r"mamba_(d|head)_(head|dim)", 16),
    (r"chunk_size|mamba_chunk_size", 32),
]
_TYPES = ["sliding_attention", "full_attention"] * 3

OWN: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"n_group": None, "topk_group": None, "n_routed_experts": 4, "num_experts_per_tok": 2},
    "dots1": {
        "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "n_group": 1, "topk_group": 1,
    },
    "gemma3n_text": {
        "num_kv_shared_layers": 2, "layer_types": _TYPES, "activation_sparsity_pattern": [0.0] * LAYERS,
        "intermediate_size": [128] * LAYERS,
    },
    "gemma4_text": {"hidden_size_per_layer_input": 0, "layer_types": _TYPES, "global_head_dim": 16},
    "gemma4_unified_text": {"num_kv_shared_layers": 2, "layer_types": _TYPES, "global_head_dim": 16},
    "gpt_neo": {"attention_types": [[["global", "local"], 3]]},
    "granite_swa": {"layer_rope_theta": [1e4, 0.0, 1e4, 0.0, 1e4, 5e4]},
    "granitemoe_swa": {"layer_rope_theta": [1e4, 0.0, 1e4, 0.0, 1e4, 5e4]},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16, "num_experts": 4, "moe_topk": 2, "num_key_value_heads": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 3, "num_dense_layers": 2},
    "mamba2": {"num_heads": 8},
    "ministral": {"head_dim": 16},
    "mistral4": {"head_dim": 16},  # half of it turns with the position
    "nemotron": {"head_dim": 16, "num_key_value_heads": 2},
    "qwen4_exp_text": {
        "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 64,
        "indexer_compress_ratio": 4, "ngram_vocab_size_base": 64, "hc_lowrank": 8,
    },
    "zaya": {"num_experts_per_tok": 1},
}  # fmt: skip
"""Fields whose small values do not follow from their names."""


def config_of(kind: str, **changes: Any) -> Any:
    """The text config of an architecture by its ``model_type``, small."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = CONFIG_MAPPING[kind]().get_text_config()
        fields = plain.to_dict()
        small: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        for name, value in fields.items():
            sizes = [size for pattern, size in _SIZES if re.fullmatch(pattern, name)]
            if sizes and isinstance(value, int) and not isinstance(value, bool):
                small[name] = sizes[0]
            elif isinstance(value, list | tuple) and name.endswith("types") and len(value) >= LAYERS:
                kinds = list(dict.fromkeys(value))
                first = list(value[:LAYERS])
                small[name] = first if set(first) == set(kinds) else (kinds * LAYERS)[:LAYERS]
        heads = fields.get("num_attention_heads")
        if heads is not None and fields.get("num_key_value_heads") == heads:
            small["num_key_value_heads"] = 4
        if "qk_rope_head_dim" in small and "head_dim" in small:
            small["head_dim"] = 8  # of what turns with the position
        small = {name: value for name, value in small.items() if name in fields}
        return type(plain)(**{**small, **OWN.get(plain.model_type, {}), **changes})


def make(kind: str, folder: Path, **changes: Any) -> Any:
    """Write a small model with random weights; returns its config."""
    config = config_of(kind, **changes)
    with warnings.catch_warnings(), compat.quiet(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        model = model_class(config)._from_config(config, dtype=torch.float32).eval()
        grow(model)
        model.save_pretrained(folder)
    return config
