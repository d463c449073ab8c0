"""Weights rounded to 8 or 4 bits a number, and back: of a row, what comes of it depends on nothing else.

Numbers are rounded in float32, to the scales as they are kept: a scale that was rounded itself costs nothing
then. Only correctly rounded operations are used, so every device gets the same integers.
"""

from __future__ import annotations

import torch

MIDDLE = 8
"""The 4-bit number that stands for a group's zero."""


def to_rows(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric, one scale a row.

    Parameters
    ----------
    weight
        ``[out, in]``, in the room's dtype, finite.

    Returns
    -------
    numbers
        int8 ``[out, in]``, −127 to 127.
    scales
        ``[out]``, in the weight's dtype; a number is worth its row's scale.
    """
    wide = weight.float()
    scales = _some((wide.abs().amax(1) / 127).to(weight.dtype))
    numbers = (wide / scales.float()[:, None]).round_().clamp_(-127, 127).to(torch.int8)
    return numbers, scales


def to_groups(weight: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """16 steps from the smallest number of each group to its largest.

    Of normally distributed weights in groups of 128 that is off by 0.85 of what a symmetric scale of 15 steps
    is, and by 0.95 of one of 16 (root of the mean square). It costs a zero for each group, and no time: a
    multiplication and an addition are one step.

    Parameters
    ----------
    group
        Numbers of a group; it divides ``in``.

    Returns
    -------
    numbers
        uint8 ``[out, in]``, 0 to 15.
    scales, zeros
        ``[out, in // group]``, in the weight's dtype: a number n is worth ``(n − 8) · scale + zero``.
    """
    out, row = weight.shape
    wide = weight.float().view(out, row // group, group)
    low, high = wide.amin(2), wide.amax(2)
    kept = ((high - low) / 15).to(weight.dtype)
    zeros = (low + MIDDLE * kept.float()).to(weight.dtype)
    scales = _some(kept)
    steps = (wide - zeros.float()[..., None]).div_(scales.float()[..., None]).round_().add_(MIDDLE)
    return steps.clamp_(0, 15).to(torch.uint8).view(out, row), scales, zeros


def _some(scales: torch.Tensor) -> torch.Tensor:
    """1 in place of 0, where all numbers are the same: what is divided by it stays finite."""
    return torch.where(scales == 0, torch.ones_like(scales), scales)


def pack_halves(numbers: torch.Tensor, group: int) -> torch.Tensor:
    """Two 4-bit numbers a byte: a group's first half in the low bits, its second half in the high ones."""
    out, row = numbers.shape
    halves = numbers.view(out, row // group, 2, group // 2)
    return (halves[:, :, 0] | (halves[:, :, 1] << 4)).reshape(out, row // 2)


def from_halves(packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, group: int) -> torch.Tensor:
    """The weight ``[out, in]`` that `pack_halves` keeps, in the dtype of its scales."""
    out, size = packed.shape
    halves = packed.view(out, 2 * size // group, group // 2)
    weight = torch.empty((out, 2 * size // group, 2, group // 2), dtype=scales.dtype, device=packed.device)
    weight[:, :, 0] = halves & 15
    weight[:, :, 1] = halves >> 4
    weight = weight.sub_(MIDDLE).view(out, -1, group)
    return torch.addcmul(zeros[..., None], weight, scales[..., None]).view(out, 2 * size)
