"""Which decoder layers are of the Llama kind, so that `body` knows what they compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")
"""Classes of transformers whose layers differ in biases and in norms of heads only."""
_ROPES = ("default", "linear", "llama3", "yarn")
"""Rotations that depend on a position alone; others look at how long the conversation is."""
_HALF = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")


def why_not(base: Any, layers: Sequence[nn.Module], windows: Sequence[int | None]) -> str:
    """Why these layers are not fused, in words; empty where they are.

    Parameters
    ----------
    base
        The model's body, with its rotary module.
    windows
        As in `masks.Plan`.
    """
    config, kind = base.config, type(layers[0]).__name__
    family = kind.removesuffix("DecoderLayer")
    own = type(layers[0]).__module__ == f"transformers.models.{family.lower()}.modeling_{family.lower()}"
    if family not in FAMILIES or not own or any(type(layer) is not type(layers[0]) for layer in layers):
        return f"there are no fused layers for {kind}"
    # By the config, too: a range may have no layer of those that have one, and must decide as all do.
    if getattr(config, "sliding_window", None) or any(window is not None for window in windows):
        return "their attention has a window"
    if getattr(config, "hidden_act", None) != "silu":
        return f"their activation is {getattr(config, 'hidden_act', None)}"
    rope = getattr(getattr(base, "rotary_emb", None), "rope_type", None)
    if rope not in _ROPES:
        return f"their positions are of the kind {rope}"
    turned = 2 * base.rotary_emb.inv_freq.numel()
    for layer in layers:
        parts: Any = layer
        linears = [getattr(parts.self_attn, n) for n in _HALF] + [getattr(parts.mlp, n) for n in _MLP]
        if any(type(linear) is not nn.Linear for linear in linears):
            return "their weights are not plain ones"
        for together in (linears[:3], linears[4:6]):
            if len({linear.bias is None for linear in together}) > 1:
                return "some of their biases are missing"
        if parts.self_attn.head_dim != turned:
            return "they turn a part of each head only"
    return ""


def together(linears: Sequence[nn.Linear]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One weight and bias for several products of the same rows.

    The modules' own weights become views of it, so that nothing is held twice and they compute as before.
    """
    with torch.no_grad():
        weight = torch.cat(tuple(linear.weight for linear in linears))
        biases = tuple(linear.bias for linear in linears if linear.bias is not None)
        bias = torch.cat(biases) if biases else None
        start = 0
        for linear in linears:
            end = start + linear.out_features
            linear.weight.data = weight[start:end]
            if bias is not None:
                linear.bias.data = bias[start:end]
            start = end
    return weight, bias
