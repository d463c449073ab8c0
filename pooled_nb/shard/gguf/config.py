"""The config of a GGUF file's model, as transformers reads it: the same bytes on every device.

Written here, not by transformers' own reader of GGUF: that maps whole files, knows little of scaled
positions, and changes between versions, where all devices of a room must agree on the config's hash.
"""

from __future__ import annotations

import math
from typing import Any

from pooled_nb.shard.gguf.names import ROPE_TABLE, arch_of
from pooled_nb.shard.gguf.reader import Header, damaged, unsupported
from pooled_nb.shard.gguf.rotary import llama3

_MOST = 1 << 31
_SAFETENSORS = "Use the model as it is published in safetensors."
_GEMMA_LARGE = {"gemma2": 46, "gemma3": 62}
"""Layers of the 27B models: their queries are scaled by the width of a head as the model's width has it."""


class Facts:
    """Typed looks at what a header says of its own architecture."""

    def __init__(self, header: Header, name: str) -> None:
        self.all, self.name = header.facts, name
        self.arch = str(header.facts["general.architecture"])

    def whole(self, key: str, default: int | None = None) -> int:
        """Return a number from 1 on."""
        value = self.all.get(f"{self.arch}.{key}", default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < _MOST:
            raise damaged(self.name, f"its {self.arch}.{key} is {_brief(value)}")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """Return a finite number above 0, as it was written: GGUF keeps 1e-05 as 9.999999747378752e-06."""
        value = self.all.get(f"{self.arch}.{key}", default)
        known = float(value) if isinstance(value, float | int) and not isinstance(value, bool) else 0.0
        if not math.isfinite(known) or known <= 0:
            raise damaged(self.name, f"its {self.arch}.{key} is {_brief(value)}")
        return float(f"{known:.6g}")

    def says(self, key: str) -> bool:
        """Whether it has anything there but 0."""
        return bool(self.all.get(f"{self.arch}.{key}"))

    def token(self, key: str, vocab: int) -> int | None:
        """Return a token's number, where it names one."""
        value = self.all.get(f"tokenizer.ggml.{key}_token_id")
        if value is None or value == 0xFFFFFFFF:
            return None
        if not isinstance(value, int) or not 0 <= value < vocab:
            raise damaged(self.name, f"its {key} token is {_brief(value)} of {vocab}")
        return value


def config_of(header: Header, name: str) -> dict[str, Any]:
    """``config.json`` of a file.

    Raises
    ------
    ModelNotFound
        It lacks a fact, or has an impossible one.
    ModelNotSupported
        It is a model that is not read; says why.
    """
    arch, facts = arch_of(header.facts, name), Facts(header, name)
    tensors = {tensor.name: tensor for tensor in header.tensors}
    if "token_embd.weight" not in tensors or len(tensors["token_embd.weight"].shape) != 2:
        raise damaged(name, "it holds no embedding")
    vocab = tensors["token_embd.weight"].shape[0]
    tokens = header.facts.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) > vocab:
        raise damaged(name, f"it holds {len(tokens)} tokens, and an embedding of {vocab}")
    heads, width = facts.whole("attention.head_count"), facts.whole("embedding_length")
    head = facts.whole("attention.key_length", max(1, width // heads))
    _refuse(facts, header, head)
    tied = "output.weight" not in tensors
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": facts.real("rope.freq_base", 10000.0)}
    if facts.all.get(f"{facts.arch}.rope.scaling.type") == "linear":
        rope |= {"rope_type": "linear", "factor": facts.real("rope.scaling.factor")}
    if ROPE_TABLE in tensors:
        rope |= llama3(tied=tied)
    config: dict[str, Any] = {
        "architectures": [arch.cls],
        "model_type": arch.model_type,
        "dtype": _dtype(header),
        "attention_bias": False,
        "bos_token_id": facts.token("bos", vocab),
        "eos_token_id": facts.token("eos", vocab),
        "pad_token_id": facts.token("padding", vocab),
        "hidden_size": width,
        "intermediate_size": facts.whole("feed_forward_length"),
        "num_hidden_layers": facts.whole("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": facts.whole("attention.head_count_kv", heads),
        "head_dim": head,
        "max_position_embeddings": facts.whole("context_length"),
        "rms_norm_eps": facts.real("attention.layer_norm_rms_epsilon"),
        "rope_parameters": rope,
        "tie_word_embeddings": tied,
        "vocab_size": vocab,
    }
    if facts.arch.startswith("gemma"):
        return config | _gemma(facts, config)
    return config | _own(facts, config)


def generation_of(header: Header, name: str) -> dict[str, Any]:
    """``generation_config.json`` of a file: every token that ends a turn or an answer."""
    facts = Facts(header, name)
    vocab = next(tensor.shape[0] for tensor in header.tensors if tensor.name == "token_embd.weight")
    ends = [facts.token(key, vocab) for key in ("eos", "eot", "eom")]
    return {
        "bos_token_id": facts.token("bos", vocab),
        "eos_token_id": sorted({token for token in ends if token is not None}),
        "pad_token_id": facts.token("padding", vocab),
    }


def _dtype(header: Header) -> str:
    """float32 where most numbers are; else bfloat16, which nearly all models were trained in."""
    sizes = {True: 0, False: 0}
    for tensor in header.tensors:
        sizes[tensor.type == "F32"] += tensor.hi - tensor.lo
    return "float32" if sizes[True] > sizes[False] else "bfloat16"


def _own(facts: Facts, config: dict[str, Any]) -> dict[str, Any]:
    """What one architecture has besides, Gemma apart."""
    if facts.arch == "llama":
        return {"hidden_act": "silu", "mlp_bias": False}
    if facts.arch == "phi3":
        span = facts.whole("rope.scaling.original_context_length", config["max_position_embeddings"])
        window = facts.whole("attention.sliding_window") if facts.says("attention.sliding_window") else None
        return {
            "hidden_act": "silu",
            "original_max_position_embeddings": span,
            "sliding_window": window,
            "rope_parameters": config["rope_parameters"] | {"partial_rotary_factor": 1.0},
        }
    return {"hidden_act": "silu", "use_sliding_window": False, "sliding_window": None}


def _gemma(facts: Facts, config: dict[str, Any]) -> dict[str, Any]:
    layers, rope = config["num_hidden_layers"], config["rope_parameters"]
    large = layers == _GEMMA_LARGE[facts.arch]
    width = config["hidden_size"] // config["num_attention_heads"] if large else config["head_dim"]
    every = 2 if facts.arch == "gemma2" else 6
    caps = {
        f"{part}_logit_softcapping": facts.real(key) if facts.says(key) else None
        for part, key in (("attn", "attn_logit_softcapping"), ("final", "final_logit_softcapping"))
    }
    more: dict[str, Any] = {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": width,
        "sliding_window": facts.whole("attention.sliding_window"),
        "layer_types": [
            "full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(layers)
        ],
    }
    if facts.arch == "gemma3":
        local = {"rope_type": "default", "rope_theta": facts.real("rope.freq_base_swa", 10000.0)}
        more["rope_parameters"] = {"full_attention": rope, "sliding_attention": local}
    return caps | more


def _refuse(facts: Facts, header: Header, head: int) -> None:
    """Refuse what transformers would compute otherwise than it was meant."""
    if facts.whole("attention.value_length", head) != head:
        raise unsupported(facts.name, "has values of another width than its keys", _SAFETENSORS)
    if facts.whole("rope.dimension_count", head) != head:
        raise unsupported(facts.name, "turns only a part of each head by its position", _SAFETENSORS)
    scaling = facts.all.get(f"{facts.arch}.rope.scaling.type", "none")
    if scaling not in ("none", "linear") or (scaling == "linear" and facts.arch == "phi3"):
        raise unsupported(facts.name, f"stretches its positions by {_brief(scaling)}", _SAFETENSORS)
    if facts.says("rope.scale_linear") and facts.all[f"{facts.arch}.rope.scale_linear"] != 1.0:
        raise unsupported(facts.name, "stretches its positions in a way of old files", _SAFETENSORS)
    if facts.arch in ("llama", "qwen2", "qwen3") and facts.says("attention.sliding_window"):
        raise unsupported(facts.name, "looks back only so far, which its architecture does not", _SAFETENSORS)


def _brief(value: object) -> str:
    return "missing" if value is None else f"{value!r:.40}"
