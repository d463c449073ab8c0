"""The model's own draft layers (multi-token prediction) as a drafter, over transformers' ``MtpModel``.

A draft layer reads the hidden state after the model's final norm and the embedding of the token drawn from
it, and guesses the token after that one. So it can read whatever hidden states reach the host: in a chain of
several devices all columns but those of prompts, and alone those of prompts, too.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Sequence, Set
from typing import Any, Literal

import torch
from torch import nn

from pooled_nb.shard import compat
from pooled_nb.shard.attend import grouped_attention
from pooled_nb.shard.door import Sampling
from pooled_nb.shard.drafter import Pace, common
from pooled_nb.shard.history import History
from pooled_nb.shard.penalties import processed
from pooled_nb.shard.sampling import draw

KEPT = 1024
"""Columns a draft layer attends over, the newest: more of them hardly change a guess, and cost time."""
LEAST, CHUNK = 16, 256
"""Columns it reads before a guess; a long prompt takes several, and there is no guess until all is read."""


class DraftLayers:
    """Draft layers over a cache of their own.

    Parameters
    ----------
    model
        A loaded ``MtpModel`` with the main model's embedding, head and positions.
    norm
        The main model's final norm.
    dtype
        Of the room's hidden states.
    weights
        Their bytes.
    clock
        Seconds, for how much is read at once.
    """

    kind: Literal["model", "layers"] = "layers"

    def __init__(
        self,
        model: Any,
        norm: nn.Module,
        dtype: torch.dtype,
        weights: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.weights, self.cache = weights, 0
        self._model, self._norm, self._dtype = model, norm, dtype
        self._depth = len(model.layers)
        self._device = next(model.layers.parameters()).device
        self._history, self._ends = History(), frozenset[int]()
        self._clock, self._pace = clock, Pace(LEAST, CHUNK)
        self._cache = compat.draft_cache()
        # Positions of the columns in the cache, of all depths; they rise, and prompts of chains leave gaps.
        self._cached: list[int] = []
        # Columns that are not in it yet, or were read together with a guess; and those of a prompt to come.
        self._waiting: list[tuple[int, torch.Tensor]] = []
        self._prompt: list[tuple[int, torch.Tensor]] = []

    def begin(self, history: History, ends: Set[int]) -> None:
        """Go on with another answer: columns whose tokens it does not share are forgotten."""
        same = common(self._history.tokens, history.tokens) - 1  # a column also read the token after it
        self._history, self._ends = history, frozenset(ends)
        if self._prompt:
            same = min(same, self._prompt[0][0])
        self._keep(bisect.bisect_left(self._cached, same))
        self._waiting = [*(column for column in self._waiting if column[0] < same), *self._prompt]
        self._prompt = []

    def saw(self, pos: int, hidden: torch.Tensor) -> None:
        """Take columns of a prompt, ``[n, dim]`` from ``pos`` on, as the model's last layer gave them."""
        self._prompt = _with(self._prompt, pos, hidden.clone().to(self._device))

    def accept(self, pos: int, n: int, data: bytes | memoryview) -> None:
        """Take columns from which tokens were drawn: ``n`` hidden states, in the room's dtype."""
        dim = self._model.config.hidden_size
        kept = bytearray(memoryview(data).cast("B")[: n * dim * self._dtype.itemsize])
        hidden = torch.frombuffer(kept, dtype=self._dtype).view(n, dim)
        self._waiting = _with(self._waiting, pos, hidden.to(self._device))

    @torch.inference_mode()
    def guess(self, most: int, sampling: Sampling) -> list[int]:
        """Guess the tokens after the newest one.

        Of several layers each guesses the token of its own depth; a single one goes on from its own output.
        """
        tokens, guessed = self._history.tokens, list[int]()
        newest = len(tokens) - 1
        columns = [column for column in self._waiting if column[0] < newest]
        if behind := len(columns) > self._pace.columns + self._depth:
            columns = columns[: self._pace.columns]
        if not columns or (not behind and columns[-1][0] != newest - 1):
            return []
        began, places = self._clock(), [pos + 1 for pos, _ in columns]
        hidden = self._norm(torch.stack([state for _, state in columns]))
        for depth in range(self._depth):
            ids = [tokens[p] if p <= newest else guessed[p - newest - 1] for p in places]
            hidden = self._read(depth, hidden, places, ids)
            places = [p + 1 for p in places]
            if not behind:
                guessed.append(self._drawn(hidden, places[-1], sampling))
        if behind:
            self._pace.took(len(columns), self._clock() - began)
        # What was read together with a guess is read again, with the token that was drawn there.
        sure = [pos for pos, _ in columns if pos + self._depth <= newest]
        self._cached += sure
        self._waiting = self._waiting[len(sure) :]
        while self._depth == 1 and not behind and len(guessed) < most and guessed[-1] not in self._ends:
            hidden = self._read(0, hidden[-1:], places[-1:], guessed[-1:])
            places = [places[-1] + 1]
            guessed.append(self._drawn(hidden, places[-1], sampling))
        self._keep(len(self._cached))
        if len(self._cached) > KEPT:
            self._forget(len(self._cached) - KEPT + CHUNK)
        return guessed[:most]

    def try_out(self) -> None:
        """Guess once, about nothing; raises whatever the layers raise."""
        dim = self._model.config.hidden_size
        self.saw(0, torch.zeros(3, dim, dtype=self._dtype))
        self.begin(History([0] * 4), frozenset())
        self.guess(2, Sampling())
        held = [tensor for layer in self._cache.layers for tensor in (layer.keys, layer.values)]
        self.cache = KEPT * sum(tensor.nbytes for tensor in held) // max(1, len(self._cached))
        self.begin(History(), frozenset())

    def close(self) -> None:
        """Nothing outlives the object."""

    def _read(self, depth: int, hidden: torch.Tensor, places: list[int], ids: Sequence[int]) -> torch.Tensor:
        positions = torch.tensor([places], device=self._device)
        tokens = torch.tensor([ids], device=self._device)
        with grouped_attention(self._device):
            out: torch.Tensor = compat.draft_step(
                self._model, depth, hidden[None], positions, self._cache, tokens
            )
        return out[0]

    def _drawn(self, hidden: torch.Tensor, position: int, sampling: Sampling) -> int:
        """The token of a position, by the room's own draw: with the same seed more guesses are right."""
        logits = compat.draft_logits(self._model, hidden[None, -1:])[0, 0]
        return draw(processed(logits.float().cpu().numpy(), sampling, self._history), sampling, position)

    def _keep(self, count: int) -> None:
        """Cut the caches to this many columns."""
        del self._cached[count:]
        for layer in self._cache.layers:
            if (extra := layer.get_seq_length() - count) > 0:
                layer.crop(-extra)

    def _forget(self, count: int) -> None:
        """Forget the oldest columns: places are in the keys, and masks only compare."""
        del self._cached[:count]
        for layer in self._cache.layers:
            layer.keys, layer.values = layer.keys[..., count:, :], layer.values[..., count:, :]


def _with(
    columns: list[tuple[int, torch.Tensor]], pos: int, hidden: torch.Tensor
) -> list[tuple[int, torch.Tensor]]:
    """The columns before ``pos``, then these; of all the newest `KEPT`."""
    before = columns[: bisect.bisect_left(columns, pos, key=lambda column: column[0])]
    return [*before, *((pos + i, state) for i, state in enumerate(hidden))][-KEPT:]
