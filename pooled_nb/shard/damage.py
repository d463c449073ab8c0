"""Weights that are no numbers: told by their name when a model is loaded, not by what comes of them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from pooled_nb.errors import WrongNumbers
from pooled_nb.shard.packed import PackedLinear


def refuse_damage(base: nn.Module, layers: nn.ModuleList, lo: int, dtype: torch.dtype) -> None:
    """Look through the weights of a range whose layers give NaN or infinity.

    Parameters
    ----------
    base, layers
        The model's body, and its layers.
    lo
        Number of the first layer in the whole model.

    Raises
    ------
    WrongNumbers
        Names the first weight that holds NaN or infinity.
    """
    for where, weight in _named(base, layers, lo):
        if weight.device.type == "meta" or not weight.is_floating_point():
            continue
        if not bool(torch.isfinite(weight).all()):
            large = ", or a number above the 65,504 of float16" if dtype is torch.float16 else ""
            raise WrongNumbers(
                f"The weight {where} holds NaN or infinity{large}.",
                "Fetch the model again, or start the room in another dtype (bfloat16 or float32).",
            )


def _named(base: nn.Module, layers: nn.ModuleList, lo: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights by the names people know, those of the layers first."""
    for number, layer in enumerate(layers, lo + 1):
        for name, weight in _weights(layer):
            yield f"{name} of layer {number}", weight
    yield from _weights(base)


def _weights(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights of a module and of its parts; a packed one is made anew."""
    yield from module.named_parameters()
    for name, part in module.named_modules():
        if isinstance(part, PackedLinear):
            yield f"{name}.weight", part.weight
