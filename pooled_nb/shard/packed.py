"""Weights of linear layers in the CPU's own order, so that a product does not reorder them for each frame.

oneDNN computes a product of few rows from blocked weights. Given plain ones it blocks them again in every
call: for SmolLM2-135M at 16 rows that is 41 ms a frame instead of 26 (bf16, one thread), at 1 row 27 instead
of 16. In bf16 the bits are those of the plain product. torch's compiler does the same on freezing a model.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

ROWS = 16
"""Rows that the order is chosen for; it serves every other number of rows too."""


@functools.cache
def available(dtype: torch.dtype) -> bool:
    """Whether this CPU and this torch can pack weights of this dtype; tried once, on a small product."""
    try:
        ops = torch.ops.mkldnn
        cpu: Any = torch.backends.mkldnn
        if not cpu.is_available() or dtype not in (
            torch.float32,
            torch.bfloat16,
            torch.float16,
        ):
            return False
        if dtype is torch.bfloat16 and not ops._is_mkldnn_bf16_supported():
            return False
        if dtype is torch.float16 and not ops._is_mkldnn_fp16_supported():
            return False
        weight = torch.linspace(-1, 1, 64 * 96).reshape(64, 96).to(dtype)
        rows = torch.linspace(-1, 1, ROWS * 96).reshape(1, ROWS, 96).to(dtype)
        mine, plain = product(rows, pack(weight), None), nn.functional.linear(rows, weight)
        return bool(torch.allclose(mine.float(), plain.float(), rtol=0.05, atol=0.05))
    except (AttributeError, RuntimeError, NotImplementedError):
        return False


def pack(weight: torch.Tensor) -> torch.Tensor:
    """A weight ``[out, in]`` in oneDNN's order."""
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
    return packed


def product(rows: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """``rows @ weight.T + bias``."""
    out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, bias, "none", [], "")
    return out


class PackedLinear(nn.Module):
    """Stands in for an `nn.Linear`; its weight is no parameter any more."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.packed = pack(plain.weight)
        self.bias = plain.bias
        self.nbytes = plain.weight.nbytes

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """As `nn.Linear` does."""
        return product(rows, self.packed, self.bias)

    @property
    def weight(self) -> torch.Tensor:
        """The plain weight, made anew: for a model that looks into its weights itself.

        So whether a layer is packed never depends on what else lies in the range (DESIGN section 5, rule 1).
        """
        return self.packed.to_dense()


def pack_all(root: nn.Module) -> None:
    """Pack every linear layer below ``root`` that lies on the CPU, one by one: memory holds one extra."""
    # Only the plain class: a subclass may do more than a product. Only places are listed, not the modules, so
    # that each one's weight is freed before the next is made.
    places = [
        (parent, name)
        for parent in root.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear
    ]
    for parent, name in places:
        setattr(parent, name, _packed(getattr(parent, name)))


def _packed(linear: nn.Linear) -> nn.Module:
    weight = linear.weight
    hooked = hasattr(linear, "_hf_hook")  # accelerate moves this one between devices
    if weight.device.type != "cpu" or hooked or weight.ndim != 2 or not available(weight.dtype):
        return linear
    return PackedLinear(linear)
