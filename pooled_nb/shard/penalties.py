"""Logits before a token is drawn from them: biases, then penalties for tokens that were there already.

The order is that of Hugging Face's processors: bias, repetition, presence. Sums and quotients are those of
float32, as theirs are, so the processed logits have the same bits (DESIGN section 5: the same token for the
same seed, position and history).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pooled_nb.errors import BadQuestion
from pooled_nb.shard.door import Sampling
from pooled_nb.shard.history import History, Ids

_MOST = float(np.finfo(np.float32).max)
_LEAST = float(np.finfo(np.float32).smallest_subnormal)


def changes(sampling: Sampling) -> bool:
    """Whether logits are processed at all."""
    return bool(sampling.logit_bias or sampling.repetition_penalty != 1.0 or sampling.presence_penalty)


def processed(
    logits: npt.NDArray[np.float32], sampling: Sampling, history: History
) -> npt.NDArray[np.float32]:
    """Logits with biases and penalties; the same array where there are none.

    ``logit_bias`` is added; then the logit of every token of ``history`` is divided by
    ``repetition_penalty`` where it is positive and multiplied by it where it is not; then
    ``presence_penalty`` is subtracted once from every token of the answer. Only tokens that were there cost
    time.

    Parameters
    ----------
    logits
        ``[vocab]``, finite; not written to.
    history
        All that stands before the token.

    Returns
    -------
    ndarray
        ``[vocab]``, finite: what no float32 holds is the largest one.

    Raises
    ------
    BadQuestion
        See `check_bias`.
    """
    if not changes(sampling):
        return logits
    check_bias(sampling, logits.size)
    logits = logits.copy()
    with np.errstate(over="ignore"):
        if sampling.logit_bias:
            ids = np.fromiter(sampling.logit_bias, dtype=np.int64)
            biases = np.fromiter(sampling.logit_bias.values(), dtype=np.float64)
            logits[ids] = _finite(logits[ids] + _finite(biases))
        if sampling.repetition_penalty != 1.0:
            ids = _within(history.seen, logits.size)
            penalty = np.float32(min(max(sampling.repetition_penalty, _LEAST), _MOST))
            known = logits[ids]
            logits[ids] = _finite(np.where(known < 0, known * penalty, known / penalty))
        if sampling.presence_penalty:
            ids = _within(history.said, logits.size)
            penalty = np.float32(min(max(sampling.presence_penalty, -_MOST), _MOST))
            logits[ids] = _finite(logits[ids] - penalty)
    return logits


def check_bias(sampling: Sampling, vocab: int) -> None:
    """Refuse a bias for a token that the model does not have.

    Raises
    ------
    BadQuestion
    """
    if (largest := max(sampling.logit_bias, default=0)) >= vocab:
        raise BadQuestion(
            f"logit_bias names token {largest}, and this model has tokens 0 to {vocab - 1}.",
            "Use ids of this model's tokenizer.",
        )


def _within(ids: Ids, vocab: int) -> npt.NDArray[np.int64]:
    """Those that have a logit: an embedding may have more rows than the head."""
    all_ids = ids.array()
    return all_ids[all_ids < vocab]


def _finite(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """As float32; what is beyond becomes its largest number."""
    kept: npt.NDArray[np.float32] = np.clip(values, -_MOST, _MOST).astype(np.float32)
    return kept
