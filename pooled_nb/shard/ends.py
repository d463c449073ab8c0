"""The host's ends: the final norm and the head, run by the model's own code.

Scaling of logits, soft caps and the like differ between architectures, so nothing is copied here: the model's
own ``forward`` runs over a stand-in for its body that hands on the hidden states it is given.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pooled_nb.errors import ModelNotSupported, WrongNumbers
from pooled_nb.shard.arch import OTHER_MODEL, Parts, where
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

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
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
    """

    def __init__(self, model: Any, parts: Parts, width: int) -> None:
        head = model.get_output_embeddings()  # asked first: it looks through the body
        norm = getattr(parts.base, parts.norm)
        setattr(parts.base, parts.norm, nn.Identity())
        names = [name for name, child in model.named_children() if child is parts.base]
        if len(names) != 1 or head is None:
            raise ModelNotSupported(f"{type(model).__name__} is not a body with a head.", OTHER_MODEL)
        setattr(model, names[0], _Body(norm))
        self._model = model
        self.device = where(head)
        self._rows = min(width, ROWS) if self.device.type == "cpu" else width
        # A tied head is the embedding, which is looked up in plain order: packing it would hold it twice.
        if not any(p is head.weight for p in parts.base.parameters()):
            pack_all(model)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of each column.

        Parameters
        ----------
        hidden
            ``[n, dim]``, after the last layer.

        Returns
        -------
        Tensor
            ``[n, vocab]``, float32, on the CPU.

        Raises
        ------
        WrongNumbers
            NaN or infinity came out of norm or head.
        """
        step = self._rows or hidden.shape[0]
        rows = [self._head(hidden[i : i + step], step) for i in range(0, hidden.shape[0], step)]
        logits = rows[0] if len(rows) == 1 else torch.cat(rows)
        if not bool(torch.isfinite(logits).all()):
            raise WrongNumbers(
                "NaN or infinity was produced here, by the final norm or the head.",
                "Host the model in another dtype (float32 or bfloat16).",
            )
        return logits

    def _head(self, hidden: torch.Tensor, rows: int) -> torch.Tensor:
        n = hidden.shape[0]
        if n < rows:
            hidden = torch.cat((hidden, hidden[-1:].expand(rows - n, -1)))
        out = self._model(inputs_embeds=hidden[None].to(self.device), use_cache=False)
        logits: torch.Tensor = out.logits[0, :n]
        return logits.float().cpu()
