"""A small model with the same tokenizer that drafts, whole on the host, over the room's own engine.

It keeps the conversation in caches of its own and reads on where it stopped. What it guessed is taken back by
the same control as the room's frames are (PROTOCOL section 5): the tokens that were drawn run as one ``spec``
frame, the guesses after it one by one, and the next frame rolls back to the end of that ``spec`` frame. Where
no layer keeps a running state, the caches' length is all there is to take back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, Literal

import torch
from msgspec import structs

from pooled_nb.errors import ModelNotSupported
from pooled_nb.shard.chat import load_tokenizer
from pooled_nb.shard.door import Columns, Control, LoadSpec, Progress, Sampling
from pooled_nb.shard.drafter import BEHIND_S, Pace, common
from pooled_nb.shard.engine import Engine
from pooled_nb.shard.history import History
from pooled_nb.shard.penalties import changes
from pooled_nb.shard.stopping import Stop, never
from pooled_nb.shard.tensormap import TensorMap

SPEC = 16
"""Columns of the frame that is rolled back to: a running state keeps a snapshot of each."""
CHUNK = 64
"""Columns of a frame that catches up, at most."""
BEHIND = 256
"""Columns that one call may catch up, and no further frame after `BEHIND_S`."""


class DraftModel:
    """A loaded draft model.

    Parameters
    ----------
    engine
        Holds all its layers, and its ends.
    ctx
        Tokens its caches hold; beyond them it guesses nothing.
    weights, cache
        Their bytes.
    clock
        Seconds, for `BEHIND_S`.
    """

    kind: Literal["model", "layers"] = "model"

    def __init__(
        self,
        engine: Engine,
        ctx: int,
        *,
        weights: int = 0,
        cache: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.weights, self.cache = weights, cache
        self._engine, self._ctx, self._clock = engine, ctx, clock
        self._history, self._ends = History(), frozenset[int]()
        # What the caches hold: of it so much as is the conversation for sure, and then guesses.
        self._ids: list[int] = []
        self._sure = 0
        # First column and end of the last spec frame, and what is to ride on the next frame.
        self._spec = (0, 0)
        self._control = Control()
        self._pace = Pace(SPEC, CHUNK)

    def begin(self, history: History, ends: Set[int]) -> None:
        """Guess for another answer; what both conversations share is not read again."""
        self._sure = common(self._ids, history.tokens)
        self._history, self._ends = history, frozenset(ends)

    def saw(self, pos: int, hidden: Any) -> None:
        """It reads tokens, not hidden states."""

    def accept(self, pos: int, n: int, data: bytes | memoryview) -> None:
        """It reads tokens, not hidden states."""

    def guess(self, most: int, sampling: Sampling) -> list[int]:
        """Guess the tokens after the newest one; none while it still reads the conversation."""
        tokens = self._history.tokens
        most = min(most, self._ctx - len(tokens) + 1)  # the last guess is not read
        # Models of one family may have more rows than their tokenizer has tokens, and not equally many.
        if most < 1 or max((*tokens[self._sure :], *sampling.logit_bias), default=0) >= self._engine.vocab:
            return []
        self._settle()
        if not self._catch_up():
            return []
        hidden = self._run(tokens[len(self._ids) :], spec=True)
        self._sure = len(self._ids)
        # What is guessed counts for the penalties of what is guessed after it.
        history = self._history.copy() if changes(sampling) else None
        guessed: list[int] = []
        while True:
            pos = len(self._ids) - 1
            guessed += self._engine.draw(hidden, pos=pos, sampling=sampling, history=history)
            if len(guessed) == most or guessed[-1] in self._ends:
                return guessed
            hidden = self._run(guessed[-1:])

    def close(self) -> None:
        """Free weights and caches."""
        self._engine.unload()

    def _settle(self) -> None:
        """Take back what the conversation did not become; its newest token is always read again."""
        tokens, ids, keep = self._history.tokens, self._ids, self._sure
        most = min(len(ids), len(tokens) - 1)
        while keep < most and ids[keep] == tokens[keep]:
            keep += 1
        keep = min(keep, most)
        start, end = self._spec
        if keep < len(ids) and not self._engine.cut(keep):
            if start < min(keep, end):
                keep = min(keep, end)
                self._control = Control(rb=keep - start - 1)
            else:
                keep, self._control = 0, Control(reset=True)
        del ids[keep:]
        self._sure = keep
        self._spec = (start, min(end, keep))

    def _catch_up(self) -> bool:
        """Read the conversation up to its last few tokens, as far as one call may; whether it got there."""
        tokens, began, read = self._history.tokens, self._clock(), 0
        while (behind := len(tokens) - len(self._ids)) > SPEC:
            if read >= BEHIND or (read and self._clock() - began > BEHIND_S):
                return False
            n, start = min(self._pace.columns, behind - 1), self._clock()
            self._run(tokens[len(self._ids) : len(self._ids) + n])
            self._sure, read = len(self._ids), read + n
            self._pace.took(n, self._clock() - start)
        return True

    def _run(self, tokens: list[int], *, spec: bool = False) -> torch.Tensor:
        """Read tokens: the hidden state of the last one, ``[1, dim]``, which never leaves the device."""
        pos, n = len(self._ids), len(tokens)
        control, self._control = structs.replace(self._control, spec=spec), Control()
        columns = Columns(pos=pos, n=n, wide=not spec)
        hidden = self._engine.run(columns, control, tokens=tokens)
        if spec:
            self._spec = (pos, pos + n)
        self._ids += tokens
        return hidden


def load_model(
    spec: LoadSpec,
    folder: Path,
    tokenizer: Any,
    progress: Progress,
    *,
    tensors: TensorMap | None = None,
    stop: Stop = never,
) -> DraftModel:
    """Load a draft model.

    Parameters
    ----------
    folder
        Its files.
    tokenizer
        The room's, which must be its own.
    tensors, stop
        See `Engine.load`.

    Raises
    ------
    ModelNotFound, ModelNotSupported, ModelTooBig
    """
    own = load_tokenizer(folder)
    if own.get_vocab() != tokenizer.get_vocab():  # added tokens are among them
        raise ModelNotSupported(
            f"{spec.repo} has another tokenizer than the room's model.",
            "Choose a smaller model of the same family to draft.",
        )
    engine = Engine()
    # Nothing that it computes is ever seen: the fast mode will do.
    own_spec = structs.replace(spec, exact=False, lo=0, ends=True, kv="f16", room="")
    loaded = engine.load(own_spec, folder, progress, tensors=tensors, stop=stop)
    return DraftModel(engine, spec.ctx, weights=loaded.weights, cache=loaded.cache)
