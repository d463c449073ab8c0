"""A tensor of a GGUF file, widened as it is read: some rows at a time, each number rounded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import FileIO
from math import prod
from typing import Any, cast

import numpy as np
import torch

from pooled_nb.shard.gguf.kinds import NUMBERS, TYPES, form_of
from pooled_nb.shard.gguf.names import ROPE_TABLE
from pooled_nb.shard.gguf.rotary import refuse_other
from pooled_nb.shard.lazy import PIECE, LazyTensor, opened
from pooled_nb.shard.tensormap import Entry, TensorMap

Numbers = np.ndarray[Any, Any]


class WidenedTensor(LazyTensor):
    """One tensor of a GGUF file, as float32 or in the dtype that is wanted.

    What comes out depends on the tensor's bytes and that dtype alone: never on who else holds what.
    """

    def __init__(
        self,
        name: str,
        entry: Entry,
        done: Callable[[int], None],
        into: Callable[[], torch.dtype | None] = lambda: None,
    ) -> None:
        form = form_of(entry.dtype)
        if form is None:
            raise ValueError(f"{entry.dtype} is no word of this format")
        self._form, self._type = form, TYPES[NUMBERS[form.type]]
        super().__init__(name, entry, done, into, dtype=torch.float32)

    def get_dtype(self) -> str:
        """As a safetensors slice says it."""
        return "F32"

    def __getitem__(self, key: Any) -> torch.Tensor:
        tensor = torch.empty(self.shape, dtype=self._into() or torch.float32)
        rows = tensor.view(-1, self.shape[-1])
        with opened(self.entry) as stream:
            for at, numbers in self._pieces(stream, len(rows)):
                piece = torch.from_numpy(numbers)
                where = self._rows(at, len(piece), len(rows))
                if where is None:
                    rows[at : at + len(piece)] = piece  # rounds to the nearest, ties to even
                else:
                    rows[where] = piece.to(rows.dtype)
        return tensor if key is Ellipsis else tensor[key]

    def _pieces(self, stream: FileIO, count: int) -> Iterator[tuple[int, Numbers]]:
        """Rows from one on, as float32."""
        width = self.shape[-1]
        size = width // self._type.group * self._type.size
        step = max(1, PIECE // (4 * width))
        for at in range(0, count, step):
            raw = np.empty((min(step, count - at), size), np.uint8)
            self._fill(stream, memoryview(cast(Any, raw)).cast("B"))
            yield at, self._widen(raw)
            self._done(raw.nbytes)

    def _widen(self, raw: Numbers) -> Numbers:
        import gguf

        kind = gguf.GGMLQuantizationType(NUMBERS[self._form.type])
        with np.errstate(all="ignore"):  # what is no number is seen where the model is tried
            if kind == gguf.GGMLQuantizationType.F32:
                numbers = raw.view("<f4")
            elif kind == gguf.GGMLQuantizationType.F16:
                numbers = raw.view("<f2").astype(np.float32)
            else:
                numbers = gguf.quants.dequantize(raw, kind)
            found: Numbers = np.ascontiguousarray(numbers, np.float32)
            return found - np.float32(self._form.less) if self._form.less else found

    def _rows(self, at: int, count: int, all_: int) -> torch.Tensor | None:
        """Where rows ``[at, at + count)`` of the file belong: in each head pairs are taken apart again."""
        if not self._form.heads:
            return None
        head = all_ // self._form.heads
        row = torch.arange(at, at + count)
        return row // head * head + row % head % 2 * (head // 2) + row % head // 2


def is_widened(entry: Entry) -> bool:
    """Whether a tensor lies in a GGUF file."""
    return form_of(entry.dtype) is not None


def widened_bytes(entry: Entry, dtype: torch.dtype) -> int:
    """Bytes of a tensor's numbers in a dtype."""
    return prod(entry.shape) * dtype.itemsize


def refuse_rotary(tensors: TensorMap, config: Any) -> None:
    """Refuse a model whose table of positions is another than its config says; where the table is here.

    Raises
    ------
    ModelNotSupported
    """
    entry = tensors.entries.get(ROPE_TABLE)
    if entry is not None and is_widened(entry):
        table = WidenedTensor(ROPE_TABLE, entry, lambda size: None)[...].numpy()
        refuse_other(table, config.rope_parameters, config.head_dim, entry.source)
