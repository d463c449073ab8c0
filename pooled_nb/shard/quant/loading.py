"""Weights are rounded as they are read, one by one: memory never holds a range in the room's dtype.

Before its weights are read, the model's linear layers give way to stand-ins. Each takes its weight like any
module does, and keeps the rounded one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from pooled_nb.errors import ModelNotSupported, WrongNumbers
from pooled_nb.shard.quant.forms import Linears, linear_sizes
from pooled_nb.shard.quant.linear import QuantLinear, quantized

LEFT = re.compile(r"(?:^|\.)(?:\w*gate|router)(?:\.|$)")
"""Routers of mixtures, by their name: which expert a token goes to is worth more than their few bytes."""


class Waiting(nn.Module):
    """In place of a linear layer until its weight is read.

    Parameters
    ----------
    name
        The layer's, for sentences.
    form, device
        See `quant.linear.quantized`.
    """

    def __init__(self, plain: nn.Linear, name: str, form: str, device: str) -> None:
        super().__init__()
        self.name, self.form, self.device = name, form, device
        self.made: list[QuantLinear] = []  # a list hides it from the model until it is complete
        self.damaged = False
        self.weight = plain.weight
        self.bias = plain.bias

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight" and isinstance(value, torch.Tensor) and value.device.type != "meta":
            self.damaged = not bool(torch.isfinite(value).all())
            if not self.damaged:
                self.made = [quantized(value.detach(), None, self.form, self.device)]
            # Read, and of no size: what is still on the meta device is missing.
            value = nn.Parameter(value.new_empty(0), requires_grad=False)
            value._is_hf_initialized = True  # or a model that fills its own weights would fill it
        super().__setattr__(name, value)


def choose(model: Any, layers: nn.ModuleList) -> Iterator[tuple[int, nn.Module, str, str]]:
    """The linear layers whose weights are kept in fewer bits.

    Yields
    ------
    number, parent, name, path
        Number of the layer in the list, and where in it the linear layer is found.
    """
    # Only the plain class: a subclass may do more than a product. What a model keeps in float32, it needs so.
    patterns = {
        str(name).replace("*", ".*")
        for names in (model._keep_in_fp32_modules, model._keep_in_fp32_modules_strict)
        for name in names or ()
    }
    for number, layer in enumerate(layers):
        for above, parent in layer.named_modules():
            for name, child in parent.named_children():
                path = f"{above}.{name}".lstrip(".")
                if type(child) is not nn.Linear or LEFT.search(path):
                    continue
                if not any(re.search(pattern, f"layers.{number}.{path}.weight") for pattern in patterns):
                    yield number, parent, name, path


def layer_linears(model: Any, layers: nn.ModuleList) -> list[Linears]:
    """What decides how much each layer takes in another form."""
    shapes: list[list[tuple[int, int]]] = [[] for _ in layers]
    for number, parent, name, _ in choose(model, layers):
        rows, row = getattr(parent, name).weight.shape
        shapes[number].append((rows, row))
    return [linear_sizes(found) for found in shapes]


def await_weights(model: Any, layers: nn.ModuleList, form: str, device: str) -> None:
    """Put stand-ins in place of linear layers. Before the model has weights.

    Raises
    ------
    ModelNotSupported
        There is no such layer.
    """
    places = list(choose(model, layers))
    if not places:
        raise ModelNotSupported(
            f"{type(model).__name__} has no linear layers that can be kept as {form}.",
            "Leave quant out, or choose another model.",
        )
    for number, parent, name, path in places:
        where = f"{path}.weight of layer {number + 1}"
        setattr(parent, name, Waiting(getattr(parent, name), where, form, device))


def finish(layers: nn.ModuleList) -> None:
    """Put what was made of the weights in its place. After all of them were read.

    Raises
    ------
    WrongNumbers
        A weight holds NaN or infinity; it is named.
    """
    for parent in list(layers.modules()):
        for name, child in list(parent.named_children()):
            if not isinstance(child, Waiting):
                continue
            if child.damaged:
                raise WrongNumbers(
                    f"The weight {child.name} holds NaN or infinity.",
                    "Fetch the model again, or start the room in another dtype (bfloat16 or float32).",
                )
            made = child.made.pop()
            made.bias = child.bias
            setattr(parent, name, made)
