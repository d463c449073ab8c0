"""From logits to tokens on the device that has the logits: all columns at once, by the rules of `sampling`.

What a column gives must not depend on how many columns are drawn with it, or a verify frame would draw
another token than a plain one. Sums of floating numbers depend on their order, and on a GPU that order
follows the shape, and for one long row even the timing of its blocks (``torch.cumsum`` looks back at them).
So nothing that decides a token is summed in floating point: weights are counted in whole parts of 2**-bits,
and whole numbers give the same sums in every order. All else here is largest values, comparisons, stable
sorts, and arithmetic number by number.

Promised: greedy tokens, what top-k keeps and the rules for ties are those of `sampling` for all logits. A
drawn token is the same unless the random number, or top-p's bound, falls within the rounding of a sum:
weights are rounded to 2**-45 of the largest for 128,000 tokens (2**-56 for 50), so that happens less than
once in a hundred million draws. The exponentials of two libraries may differ in their last bit: that moves
min-p's bound as little.
"""

from __future__ import annotations

import functools

import torch

from pooled_nb.shard.door import Sampling
from pooled_nb.shard.sampling import draw, uniform

_BITS = 62
"""Bits of a sum of all weights, at most."""


def is_greedy(sampling: Sampling) -> bool:
    """Whether the largest logit decides alone."""
    return sampling.temperature <= 0.0 or sampling.top_k == 1


def facts_of(logits: torch.Tensor) -> torch.Tensor:
    """Greedy tokens, and which columns are finite. Waits for nothing, so it can be recorded.

    Parameters
    ----------
    logits
        ``[n, vocab]``, float32.

    Returns
    -------
    Tensor
        ``[2, n]`` int64: the largest logit's token, among equal ones the lowest id; 1 where all are finite.
        Where they are not, the token means nothing.
    """
    vocab = logits.shape[1]
    least, most = torch.aminmax(logits, dim=1)  # NaN wherever there is one
    ids = torch.arange(vocab, dtype=torch.int32, device=logits.device)
    best = torch.where(logits == most[:, None], ids, vocab).amin(1)
    finite = torch.isfinite(least) & torch.isfinite(most)
    return torch.stack((best.long(), finite.long()))


def numbers_of(sampling: Sampling, pos: int, n: int) -> list[float]:
    """What `drawn` needs on the device, for columns from ``pos`` on: their tokens sit one further."""
    uniforms = (uniform(sampling.seed, pos + i + 1) for i in range(n))
    return [sampling.temperature, sampling.top_p, sampling.min_p, *uniforms]


def drawn(logits: torch.Tensor, sampling: Sampling, numbers: torch.Tensor) -> torch.Tensor:
    """One token per column, as `sampling.draw` draws it. Waits for nothing.

    Parameters
    ----------
    logits
        ``[n, vocab]``, float32. A column that is not finite gives some token.
    sampling
        With a temperature.
    numbers
        ``[3 + n]`` float64, of `numbers_of`, where the logits are.

    Returns
    -------
    Tensor
        ``[n]`` int64.
    """
    # As tensors: a quotient by a plain number is a product with its inverse on a GPU, which rounds otherwise
    # and has no inverse for the smallest temperatures.
    temperature, top_p, min_p = numbers[:3].unbind()
    kept = _top_k(logits, sampling.top_k) if 0 < sampling.top_k < logits.shape[1] else None
    chosen = (logits if kept is None else logits.gather(1, kept)).double()
    weights = ((chosen - chosen.amax(1, keepdim=True)) / temperature).exp()
    # Exact: a power of two. The largest weighs 1, so all of them together stay below 2**62.
    parts = (weights * 2.0 ** (_BITS - weights.shape[1].bit_length())).round().long()
    if sampling.top_p < 1.0:
        parts = _top_p(weights, parts, top_p)
    if sampling.min_p > 0.0:
        parts = torch.where(weights >= min_p, parts, 0)  # the largest weighs 1
    sums = parts.cumsum(1)
    # Rounding of the product may reach the very end: then the last token that has any weight.
    at = torch.minimum((sums[:, -1:].double() * numbers[3:, None]).floor().long(), sums[:, -1:] - 1)
    found = torch.searchsorted(sums, at, right=True).clamp_(max=sums.shape[1] - 1)
    return (found if kept is None else kept.gather(1, found))[:, 0]


def _top_k(logits: torch.Tensor, k: int) -> torch.Tensor:
    """Ids ``[n, k]`` of the k largest of each column, rising; of equal ones those with the lowest ids."""
    bound = logits.topk(k, dim=1, sorted=False).values.amin(
        1, keepdim=True
    )  # which of equals it took, varies
    above, equal = logits > bound, logits == bound
    inside = above | (equal & (equal.cumsum(1) <= k - above.sum(1, keepdim=True)))
    # Each goes to its place; all others to one more place, which nobody reads.
    places = torch.where(inside, inside.cumsum(1) - 1, k)
    ids = torch.arange(logits.shape[1], device=logits.device).expand_as(places)
    kept = torch.zeros((logits.shape[0], k + 1), dtype=torch.int64, device=logits.device)
    return kept.scatter_(1, places, ids)[:, :k]


def _top_p(weights: torch.Tensor, parts: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """``parts`` of the fewest largest weights that reach the part ``p`` of their sum; 0 for all others."""
    order = weights.sort(stable=True, dim=1, descending=True).indices
    some = parts.gather(1, order)
    sums = some.cumsum(1)
    reach = (sums[:, -1:].double() * p).ceil().long()
    last = torch.searchsorted(sums, reach)
    some = torch.where(torch.arange(sums.shape[1], device=sums.device) <= last, some, 0)
    return torch.zeros_like(parts).scatter_(1, order, some)


@functools.cache
def draws_on(device: torch.device) -> bool:
    """Whether tokens can be drawn on a device: tried once, on a few logits. float64 is not everywhere."""
    sampling = Sampling(temperature=0.8, top_k=12, top_p=0.9, min_p=0.01, seed=3)
    rows = [[float((i * 37 + row) % 11) for i in range(50)] for row in range(2)]
    try:
        with torch.inference_mode():
            logits = torch.tensor(rows, dtype=torch.float32, device=device)
            best, finite = facts_of(logits).tolist()
            numbers = torch.tensor(numbers_of(sampling, 5, 2), dtype=torch.float64, device=device)
            tokens = drawn(logits, sampling, numbers).tolist()
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    wanted = [draw(torch.tensor(row).numpy(), sampling, 6 + i) for i, row in enumerate(rows)]
    return bool(tokens == wanted and best == [row.index(max(row)) for row in rows] and all(finite))
