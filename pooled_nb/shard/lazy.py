"""Tensors that are read when asked for, by pieces: ``from_pretrained`` takes them for safetensors slices.

Reading (not mapping) keeps the file's pages out of this process, and the copy is aligned however the file is
laid out, so that bits never depend on a file's header.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from typing import Any, cast

import torch

from pooled_nb.errors import ModelNotFound, ModelNotSupported
from pooled_nb.shard.arch import OTHER_MODEL
from pooled_nb.shard.faults import no_memory
from pooled_nb.shard.headers import unread
from pooled_nb.shard.tensormap import Entry, Seen

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
DTYPES |= {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8}
DTYPES |= {"U8": torch.uint8, "BOOL": torch.bool}
PIECE = 16 << 20
"""Bytes read at once: more would be held twice where the dtype changes, and be long before a stop is seen."""
AGAIN = "Fetch the model again, or choose another."


class LazyTensor:
    """One tensor of a file.

    Parameters
    ----------
    name
        The tensor's, for sentences.
    done
        Called with the bytes of each piece once it is read; what it raises ends the reading.
    into
        The dtype that is wanted: a large tensor of another one is turned into it piece by piece, so that it
        is never held in both. None: it is handed over in its own.
    dtype
        Its own, where the entry's word is none of `DTYPES`.
    """

    def __init__(
        self,
        name: str,
        entry: Entry,
        done: Callable[[int], None],
        into: Callable[[], torch.dtype | None] = lambda: None,
        *,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.name = name
        self.entry = entry
        self.dtype = DTYPES[entry.dtype] if dtype is None else dtype
        self.shape = torch.Size(entry.shape)
        self._done = done
        self._into = into

    def get_shape(self) -> list[int]:
        """As a safetensors slice says it."""
        return list(self.shape)

    def get_dtype(self) -> str:
        """As a safetensors slice says it."""
        return self.entry.dtype

    def __getitem__(self, key: Any) -> torch.Tensor:
        if sys.byteorder == "big" and self.dtype.itemsize > 1:
            raise ModelNotSupported("Weights are little-endian, and this machine is not.", OTHER_MODEL)
        into = self._into() if self.entry.end - self.entry.start > PIECE else None
        if into is None or into == self.dtype or not self.dtype.is_floating_point:
            tensor = torch.empty(self.shape, dtype=self.dtype)
            self._read(tensor.view(-1))
        else:
            tensor = torch.empty(self.shape, dtype=into)
            self._read(tensor.view(-1), torch.empty(PIECE // self.dtype.itemsize, dtype=self.dtype))
        return tensor if key is Ellipsis else tensor[key]

    def _read(self, numbers: torch.Tensor, through: torch.Tensor | None = None) -> None:
        """Fill it with the file's numbers, through another tensor where they are of its dtype."""
        size = self.dtype.itemsize
        with opened(self.entry) as stream:
            for at in range(0, len(numbers), PIECE // size):
                piece = numbers[at : at + PIECE // size]
                raw = piece if through is None else through[: len(piece)]
                self._fill(stream, memoryview(cast(Any, raw.view(torch.uint8).numpy())))
                if through is not None:
                    piece.copy_(raw)
                self._done(len(piece) * size)

    def _fill(self, stream: FileIO, raw: memoryview) -> None:
        read = 0
        while read < len(raw):
            got = stream.readinto(raw[read:])
            if not got:
                raise ModelNotFound(f"{self.entry.source} ended while {self.name} was read.", AGAIN)
            read += got


@contextmanager
def opened(entry: Entry) -> Iterator[FileIO]:
    """Open a tensor's file at its first byte. Before and after, it is as it was when its header was read.

    Raises
    ------
    ModelNotFound
        It changed, or cannot be read.
    """
    try:
        with entry.file.open("rb", buffering=0) as stream:
            _refuse_changed(entry, stream)
            stream.seek(entry.start)
            yield stream
            _refuse_changed(entry, stream)
    except OSError as error:
        if no_memory(error):
            raise
        raise unread(entry.source, error) from error


def _refuse_changed(entry: Entry, stream: FileIO) -> None:
    state = os.fstat(stream.fileno())
    if entry.seen not in (None, Seen(state.st_size, state.st_mtime_ns, state.st_ino)):
        raise ModelNotFound(
            f"{entry.source} changed while it was read.", "Start again once nothing writes to it any more."
        )
