"""Hidden states become tokens, where it costs least: on the device, or on the CPU where penalties count.

Of logits nothing but the tokens leaves an accelerator: for a vocabulary of 128,000 a frame has 8 MB of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from pooled_nb.shard.door import Sampling
from pooled_nb.shard.drawing import drawn, draws_on, is_greedy, numbers_of
from pooled_nb.shard.ends import Ends, wrong_numbers
from pooled_nb.shard.handover import Handover, all_finite
from pooled_nb.shard.history import History
from pooled_nb.shard.penalties import changes
from pooled_nb.shard.sampling import draw_columns


class Drawer:
    """Draws the tokens of frames.

    Parameters
    ----------
    here
        Draw where the head is. None: where that is an accelerator that can.
    """

    def __init__(self, ends: Ends, handover: Handover, *, here: bool | None = None) -> None:
        self._ends, self._handover = ends, handover
        self._here = ends.device.type != "cpu" and draws_on(ends.device) if here is None else here

    def warm(self, hidden: torch.Tensor) -> None:
        """Run the head once, on a column ``[1, dim]`` of any numbers: what can be recorded is recorded."""
        if self._here:
            for _ in self._ends.scores(hidden):
                pass

    def draw(
        self,
        hidden: torch.Tensor,
        sampling: Sampling,
        pos: int,
        history: History,
        drafts: Sequence[int] | None = None,
        ends: Callable[[int], bool] = lambda token: False,
    ) -> list[int]:
        """One token per column, until the first that differs from its draft: see `draw_columns`.

        Parameters
        ----------
        hidden
            ``[n, dim]``, after the last layer, on any device.

        Raises
        ------
        WrongNumbers
            NaN or infinity came out of norm or head, in a column that is reached.
        """
        if not self._here:
            rows = (row.numpy() for row in self._ends.rows(hidden))
            return draw_columns(rows, sampling, pos, history, drafts, ends)
        if changes(sampling):
            return draw_columns(self._rows(hidden), sampling, pos, history, drafts, ends)
        return walk(self._tokens(hidden, sampling, pos), history, drafts, ends)

    @torch.inference_mode()
    def _tokens(self, hidden: torch.Tensor, sampling: Sampling, pos: int) -> Iterator[int]:
        """The token of each column, as if all before it were right."""
        for scores in self._ends.scores(hidden):
            n, facts = scores.n, scores.facts
            if not is_greedy(sampling):
                numbers = self._handover.numbers(numbers_of(sampling, pos, n), facts.device)
                facts = torch.stack((drawn(scores.logits[:n], sampling, numbers), facts[1, :n]))
            tokens, finite = self._handover.fetch(facts).tolist()
            for token, right in zip(tokens[:n], finite[:n], strict=True):
                if not right:
                    raise wrong_numbers()
                yield token
            pos += n

    @torch.inference_mode()
    def _rows(self, hidden: torch.Tensor) -> Iterator[npt.NDArray[np.float32]]:
        """Logits of each column that is asked for, good until the next one is."""
        for scores in self._ends.scores(hidden):
            for logits in scores.logits[: scores.n]:
                row = self._handover.fetch(logits)
                if not all_finite(row):
                    raise wrong_numbers()
                yield row.numpy()


def walk(
    tokens: Iterable[int],
    history: History,
    drafts: Sequence[int] | None = None,
    ends: Callable[[int], bool] = lambda token: False,
) -> list[int]:
    """Take tokens that are drawn already, as far as `draw_columns` goes; none is asked for past the last."""
    taken: list[int] = []
    for i, token in enumerate(tokens):
        taken.append(token)
        history.add(token)
        if ends(token) or (drafts is not None and (i >= len(drafts) or token != drafts[i])):
            break
    return taken
