"""From logits to a token, the same for the same seed and position, however the token came to be computed.

The random number of a token is keyed by (seed, position of the token) and nothing else, so a draft that is
checked and a token that is decoded plainly agree: speculation is exact for any sampler (DESIGN section 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pooled_nb.shard.door import Sampling
from pooled_nb.shard.history import History
from pooled_nb.shard.penalties import processed

_WORD = (1 << 64) - 1
_FEW = 1024
"""Largest tokens that nearly always reach ``top_p``: to sort a whole vocabulary takes 12 ms and more."""


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) keyed by seed and position (Philox, Salmon et al. 2011).

    Parameters
    ----------
    seed
        Any integer; its lowest 64 bits count.
    position
        Of the token that is drawn.
    """
    philox = np.random.Philox(key=np.array([seed & _WORD, position & _WORD], dtype=np.uint64))
    return (int(philox.random_raw()) >> 11) * 2.0**-53


def draw_columns(
    rows: Iterable[npt.NDArray[np.float32]],
    sampling: Sampling,
    pos: int,
    history: History,
    drafts: Sequence[int] | None = None,
    ends: Callable[[int], bool] = lambda token: False,
) -> list[int]:
    """One token per column, until the first that differs from its draft, or that ends the answer.

    Parameters
    ----------
    rows
        Logits ``[vocab]`` of each column; none is asked for past the last token that is drawn.
    pos
        Of the first column: its token sits one further.
    history
        What stands before the first token; every token that is drawn is added to it. So a column's penalties
        count the drafts before it, which are right, or the column would not be reached.
    drafts
        Tokens of the second column and those after it; None: there are no drafts, all columns are drawn.
    ends
        Called with every token; true ends the answer there.
    """
    tokens: list[int] = []
    for i, logits in enumerate(rows):
        token = draw(processed(logits, sampling, history), sampling, pos + i + 1)
        tokens.append(token)
        history.add(token)
        if ends(token) or (drafts is not None and (i >= len(drafts) or token != drafts[i])):
            break
    return tokens


def greedy(logits: npt.NDArray[np.float32]) -> int:
    """The largest logit's token; among equal ones the lowest id."""
    return int(np.argmax(logits))


def draw(logits: npt.NDArray[np.float32], sampling: Sampling, position: int) -> int:
    """One token.

    In the order of Hugging Face's warpers: temperature, top-k, top-p, min-p; then the draw. Biases and
    penalties come before (`pooled_nb.shard.penalties`). Among equal logits the lower id comes first, in
    top-k and in top-p alike, so exactly ``top_k`` tokens remain. top-p keeps the fewest tokens, largest
    first, whose probabilities reach ``top_p``: the one that reaches it is kept, so at least one always is.
    min-p keeps those whose probability is at least ``min_p`` times the largest. The draw walks the kept
    tokens by rising id.

    Parameters
    ----------
    logits
        ``[vocab]``, finite.
    position
        Of the token that is drawn, for the random number.
    """
    if sampling.temperature <= 0.0 or sampling.top_k == 1:
        return greedy(logits)
    kept = _top_k(logits, sampling.top_k)
    chosen = logits if kept is None else logits[kept]
    # float64 and shifted by the largest: no temperature overflows, and sums do not lose small tokens.
    with np.errstate(over="ignore"):  # the smallest temperatures there are: −inf, which weighs 0
        scaled = (chosen.astype(np.float64) - float(chosen.max())) / sampling.temperature
    weights = np.exp(scaled)
    if sampling.top_p < 1.0:
        inside = _top_p(weights, sampling.top_p)
        weights = weights[inside]
        kept = inside if kept is None else kept[inside]
    if sampling.min_p > 0.0:
        inside = np.flatnonzero(weights >= sampling.min_p)  # the largest weighs 1
        weights = weights[inside]
        kept = inside if kept is None else kept[inside]
    sums = np.cumsum(weights)
    found = int(np.searchsorted(sums, uniform(sampling.seed, position) * sums[-1], side="right"))
    # Rounding of the product may reach the very end: then the last token that has any weight.
    found = min(found, int(np.searchsorted(sums, sums[-1], side="left")))
    return found if kept is None else int(kept[found])


def _top_k(logits: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.intp] | None:
    """Ids of the k largest, rising; None when all are kept."""
    if k <= 0 or k >= logits.size:
        return None
    bound = _kth(logits, k)
    above = np.flatnonzero(logits > bound)
    equal = np.flatnonzero(logits == bound)[: k - above.size]
    return np.sort(np.concatenate((above, equal)))


def _top_p(weights: npt.NDArray[np.float64], p: float) -> npt.NDArray[np.intp]:
    """Places of the fewest largest weights that reach the part ``p`` of their sum, rising."""
    reach = p * float(weights.sum())
    for count in (_FEW, weights.size):
        some = np.flatnonzero(weights >= _kth(weights, count))
        some = some[np.argsort(-weights[some], kind="stable")]
        sums = np.cumsum(weights[some])
        if sums[-1] >= reach:
            break
    return np.sort(some[: int(np.searchsorted(sums, reach, side="left")) + 1])


def _kth(values: npt.NDArray[Any], k: int) -> float:
    """The k-th largest, or the smallest where there are fewer."""
    place = max(0, values.size - k)
    return float(np.partition(values, place)[place])
