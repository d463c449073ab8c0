"""Architectures of GGUF files that are read, and what transformers calls their tensors.

Each is here because its answers were proved to be those of the same model loaded by transformers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pooled_nb.errors import ModelError
from pooled_nb.shard.gguf.kinds import Form
from pooled_nb.shard.gguf.reader import RawTensor, damaged, unsupported

_ENDS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_ATTENTION = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
_MLP = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
_NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
_QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_FOUR_NORMS = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}

ROPE_TABLE = "rope_freqs.weight"
"""Llama 3.1's stretched positions as numbers: no weight of the model, but a check of its config."""


class Arch(NamedTuple):
    """One architecture.

    Attributes
    ----------
    model_type, cls
        transformers' names.
    parts
        Of a layer's tensors: GGUF's names, and transformers' ones.
    biased
        Which of them have biases.
    rotary
        Whether rows of queries and keys lie in GGUF's own order.
    less
        What was added to the norms.
    """

    model_type: str
    cls: str
    parts: dict[str, str]
    biased: tuple[str, ...] = ()
    rotary: bool = False
    less: int = 0


ARCHS = {
    "llama": Arch("llama", "LlamaForCausalLM", _ATTENTION | _MLP | _NORMS, rotary=True),
    "qwen2": Arch(
        "qwen2", "Qwen2ForCausalLM", _ATTENTION | _MLP | _NORMS, biased=("attn_q", "attn_k", "attn_v")
    ),
    "qwen3": Arch("qwen3", "Qwen3ForCausalLM", _ATTENTION | _MLP | _NORMS | _QK_NORMS),
    "gemma2": Arch("gemma2", "Gemma2ForCausalLM", _ATTENTION | _MLP | _FOUR_NORMS, less=1),
    "gemma3": Arch("gemma3_text", "Gemma3ForCausalLM", _ATTENTION | _MLP | _FOUR_NORMS | _QK_NORMS, less=1),
    "phi3": Arch(
        "phi3",
        "Phi3ForCausalLM",
        {
            "attn_qkv": "self_attn.qkv_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_up": "mlp.gate_up_proj",
            "ffn_down": "mlp.down_proj",
        }
        | _NORMS,
    ),
}
"""By GGUF's name. Mistral's models go by ``llama`` there."""


def arch_of(facts: dict[str, Any], name: str) -> Arch:
    """The architecture of a file.

    Raises
    ------
    ModelNotFound
        It names none.
    ModelNotSupported
        It is none that is read.
    """
    said = facts.get("general.architecture")
    if not isinstance(said, str) or not said:
        raise damaged(name, "it names no architecture")
    if said not in ARCHS:
        raise _no_arch(name, said)
    if facts.get(f"{said}.expert_count"):
        raise _no_arch(name, f"{said} with a mixture of experts")
    return ARCHS[said]


def _no_arch(name: str, said: str) -> ModelError:
    return unsupported(
        name,
        f"holds a model of the architecture {said[:60]}, and of GGUF files only {', '.join(ARCHS)} are read",
        "Use the model as it is published in safetensors.",
    )


def transformers_name(arch: Arch, name: str) -> str | None:
    """``blk.3.attn_q.weight`` as transformers calls it; None for what such a model does not have."""
    base, _, kind = name.rpartition(".")
    if base in _ENDS and kind == "weight":
        return f"{_ENDS[base]}.weight"
    block, _, rest = base.partition(".")
    layer, _, part = rest.partition(".")
    if block != "blk" or part not in arch.parts or not layer.isdecimal() or str(int(layer)) != layer:
        return None
    if kind == "weight" or (kind == "bias" and part in arch.biased):
        return f"model.layers.{layer}.{arch.parts[part]}.{kind}"
    return None


def form_of_tensor(arch: Arch, facts: dict[str, Any], tensor: RawTensor, file: str) -> Form:
    """How a tensor's numbers are read; its heads are known to divide its rows.

    Raises
    ------
    ModelNotFound
        They do not.
    """
    part = tensor.name.split(".")[-2]
    if part.endswith("norm"):
        return Form(tensor.type, less=arch.less)
    if not arch.rotary or part not in ("attn_q", "attn_k"):
        return Form(tensor.type)
    said = facts["general.architecture"]
    heads = facts.get(f"{said}.attention.head_count")
    if part == "attn_k":
        heads = facts.get(f"{said}.attention.head_count_kv", heads)
    if not isinstance(heads, int) or heads < 1 or tensor.shape[0] % (2 * heads):
        raise damaged(file, f"{tensor.name} has {tensor.shape[0]} rows for {heads!r:.40} heads")
    return Form(tensor.type, heads=heads)
