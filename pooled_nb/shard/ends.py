"""The host's ends: the final norm and the head, run by the model's own code.

Scaling of logits, soft caps and the like differ between architectures, so nothing is copied here: the model's
own ``forward`` runs over a stand-in for its body that hands on the hidden states it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from pooled_nb.errors import ModelNotSupported, WrongNumbers
from pooled_nb.shard.arch import OTHER_MODEL, Parts, where
from pooled_nb.shard.graphs.recorder import Recorder, recorder_for
from pooled_nb.shard.handover import all_finite
from pooled_nb.shard.headpass import HeadPass, Scores
from pooled_nb.shard.packed import pack_all

ROWS = 4
"""Rows of a head product on a CPU; see `Ends`."""


class _Output:
    """What a body returns, for any architecture: hidden states, and nothing under every other name."""

    def __init__(self, hidden: torch.Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, index: int) -> torch.Tensor:
        return (self.last_hidden_state,)[index]

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _Body(nn.Module):
    """In place of the model's body: norm only."""

    def __init__(self, norm: nn.Module, base: nn.Module) -> None:
        super().__init__()
        for name, value in vars(base).items():
            if isinstance(value, int | float) and name != "training":
                setattr(self, name, value)  # a scale of the logits, say, that the body keeps
        self.norm = norm

    def forward(self, *args: Any, inputs_embeds: torch.Tensor, **kwargs: Any) -> _Output:
        return _Output(self.norm(inputs_embeds))


class Ends:
    """Final norm and head of a loaded model. Takes both out of ``parts.base``.

    The head runs over a fixed number of rows, because the kernel for 1 row gives other bits than that for 8
    (DESIGN section 5, rule 1). On CPUs that is `ROWS`, on accelerators the width of a frame. SmolLM2-135M,
    bf16, one thread: a product of 1 row takes 6.3 ms, of 4 7.0, of 8 8.0, of 16 10.3. So with 4 rows a plain
    token costs a tenth more than with 1, and a draft of 16 columns a fourth.

    Parameters
    ----------
    width
        Columns of a narrow frame in exact mode; 0: as many rows as there are columns (fast mode).
    recorder
        Finds what records the head on its device.
    """

    def __init__(
        self,
        model: Any,
        parts: Parts,
        width: int,
        *,
        recorder: Callable[[torch.device], Recorder | None] = recorder_for,
    ) -> None:
        head = model.get_output_embeddings()  # asked first: it looks through the body
        norm = getattr(parts.base, parts.norm)
        setattr(parts.base, parts.norm, nn.Identity())
        places = [
            (part, name)
            for part in model.modules()
            for name, child in part.named_children()
            if child is parts.base
        ]
        if len(places) != 1 or head is None:
            raise ModelNotSupported(f"{type(model).__name__} is not a body with a head.", OTHER_MODEL)
        setattr(*places[0], _Body(norm, parts.base))
        self._model = model
        self.norm = norm
        self._head_name = next(name for name, module in model.named_modules() if module is head)
        self.device = where(head)
        self._rows = min(width, ROWS) if self.device.type == "cpu" else width
        # A tied head is the embedding, which is looked up in plain order: packing it would hold it twice.
        if not any(p is head.weight for p in parts.base.parameters()):
            pack_all(model)
        self._recorder = recorder(self.device) if _lies_on(model, self.device) else None
        self._passes: dict[int, HeadPass] = {}

    @property
    def head(self) -> nn.Module:
        """The head alone, without the norm before it."""
        head: nn.Module = self._model.get_submodule(self._head_name)
        return head

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of all columns: ``[n, vocab]``; see `rows`."""
        return torch.stack(list(self.rows(hidden)))

    @torch.inference_mode()
    def scores(self, hidden: torch.Tensor) -> Iterator[Scores]:
        """Logits that stay on the device, pass by pass of the head; nothing waits for it.

        Parameters
        ----------
        hidden
            ``[n, dim]``, after the last layer, on any device.

        Yields
        ------
        Scores
            Of the next columns; good until the next pass.
        """
        step = self._rows or hidden.shape[0]
        for i in range(0, hidden.shape[0], step):
            # In fast mode one column is what nearly every frame has; others are rare, and of all numbers.
            recorder = self._recorder if self._rows or step == 1 else None
            if step not in self._passes:
                head = HeadPass(self._scored, step, self.device, recorder)
                if recorder is None:
                    yield head(hidden[i : i + step])
                    continue
                self._passes[step] = head
            yield self._passes[step](hidden[i : i + step])

    @torch.inference_mode()
    def rows(self, hidden: torch.Tensor) -> Iterator[torch.Tensor]:
        """Logits, column by column; who stops early does not pay for the columns after it.

        Parameters
        ----------
        hidden
            ``[n, dim]``, after the last layer.

        Yields
        ------
        Tensor
            ``[vocab]``, float32, on the CPU.

        Raises
        ------
        WrongNumbers
            NaN or infinity came out of norm or head.
        """
        step = self._rows or hidden.shape[0]
        for i in range(0, hidden.shape[0], step):
            for logits in self._head(hidden[i : i + step], step):
                # One by one: what a wrong draft gives does not fail the token before it.
                if not all_finite(logits):
                    raise wrong_numbers()
                yield logits

    def _head(self, hidden: torch.Tensor, rows: int) -> torch.Tensor:
        n = hidden.shape[0]
        if n < rows:
            hidden = torch.cat((hidden, hidden[-1:].expand(rows - n, -1)))
        return self._scored(hidden.to(self.device))[:n].float().cpu()

    def _scored(self, hidden: torch.Tensor) -> torch.Tensor:
        """Norm and head over rows on their device: ``[rows, vocab]``, in the model's dtype."""
        logits: torch.Tensor = self._model(inputs_embeds=hidden[None], use_cache=False).logits[0]
        return logits


def wrong_numbers() -> WrongNumbers:
    """What is said of a column whose logits are not finite."""
    return WrongNumbers(
        "NaN or infinity was produced here, by the final norm or the head.",
        "Start the room in another dtype (bfloat16 or float32), or check the model's files.",
    )


def _lies_on(model: nn.Module, device: torch.device) -> bool:
    """Whether all weights stay on a device: what accelerate fetches has another address each time."""
    return all(p.device == device for p in model.parameters()) and not any(
        hasattr(module, "_hf_hook") for module in model.modules()
    )
