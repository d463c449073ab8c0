"""What crosses the bus between main memory and an accelerator: through pinned memory that is used again.

From pageable memory the driver copies twice, and the caller waits. Pinned memory takes long to get and
little to use, so each kind of thing that crosses keeps one piece of it. On a CPU nothing crosses, and
nothing is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

_PINNED = ("cuda", "xpu")
"""Kinds of devices that copy from pinned memory while the host goes on."""
_LEAST = 4096
"""Bytes of the smallest piece: a token is no reason to ask again for the second one."""


class Handover:
    """Staging memory of one engine. For one thread.

    Parameters
    ----------
    kind
        Of the device that the engine computes on: ``cuda``, ``cpu`` …
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._pieces: dict[str, torch.Tensor] = {}
        self._pins = kind in _PINNED
        self._sent: set[str] = set()
        """Pieces that the device may not have read yet."""

    def states(self, data: bytes | memoryview, dtype: torch.dtype) -> torch.Tensor:
        """Hidden states that arrived, ``[numbers]`` on the CPU; where they are pinned, until the next call.

        Parameters
        ----------
        data
            Little-endian numbers of this dtype.
        """
        if not self._pins:
            return torch.frombuffer(bytearray(data), dtype=dtype)
        return self._stage("states", np.frombuffer(data, dtype=np.uint8)).view(dtype)

    def tokens(self, tokens: Sequence[int]) -> torch.Tensor:
        """Tokens, ``[n]`` int64 on the CPU; where they are pinned, until the next call."""
        if not self._pins:
            return torch.tensor(tokens, dtype=torch.int64)
        return self._stage("tokens", np.array(tokens, dtype=np.int64).view(np.uint8)).view(torch.int64)

    def numbers(self, values: Sequence[float], device: torch.device) -> torch.Tensor:
        """A few numbers, ``[n]`` float64 on a device."""
        if not self._pins:
            return torch.tensor(values, dtype=torch.float64, device=device)
        there = self._stage("numbers", np.array(values, dtype=np.float64).view(np.uint8))
        return there.view(torch.float64).to(device, non_blocking=True)

    def fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor on the CPU, good until the next call. Waits once, for all that the device was given.

        Parameters
        ----------
        tensor
            On any device; one that is on the CPU is returned itself.
        """
        if tensor.device.type == "cpu":
            return tensor
        piece = self._piece("down", tensor.nbytes) if self._pins else None
        if piece is None or not piece.is_pinned():
            self._sent.clear()
            return tensor.cpu()
        there = piece[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        there.copy_(tensor, non_blocking=True)
        torch.accelerator.current_stream(tensor.device).synchronize()
        self._sent.clear()
        return there

    def down(self, tensor: torch.Tensor) -> bytes:
        """All numbers of a tensor, as they travel: little-endian, in its own dtype."""
        return self.fetch(tensor.contiguous()).view(-1).view(torch.uint8).numpy().tobytes()

    def _stage(self, name: str, data: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> torch.Tensor:
        if name in self._sent:
            # A job that failed on the way: what it sent may still wait to be read.
            _wait_for_all()
        there = self._piece(name, data.nbytes)[: data.nbytes]
        np.copyto(there.numpy(), data)
        self._sent.add(name)
        return there

    def _piece(self, name: str, nbytes: int) -> torch.Tensor:
        piece = self._pieces.get(name)
        if piece is None or piece.nbytes < nbytes:
            self._pieces.pop(name, None)  # freed before a larger one is asked for
            piece = self._pieces[name] = self._memory(1 << max(_LEAST, nbytes).bit_length())
        return piece

    def _memory(self, nbytes: int) -> torch.Tensor:
        # What is made in inference mode could only be written to in it.
        with torch.inference_mode(False):
            try:
                return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
            except RuntimeError:
                # Systems limit how much may be pinned; a copy from other memory takes longer, that is all.
                return torch.empty(nbytes, dtype=torch.uint8)


def _wait_for_all() -> None:
    """Until every accelerator has done all that it was given."""
    for i in range(torch.accelerator.device_count()):
        torch.accelerator.synchronize(i)


def all_finite(numbers: torch.Tensor) -> bool:
    """Whether no number is NaN or infinite, for numbers on the CPU: a twentieth of what `isfinite` takes.

    Parameters
    ----------
    numbers
        At least one, of any floating dtype. The smallest and the largest of numbers with a NaN are NaN.
    """
    least, most = torch.aminmax(numbers)
    return math.isfinite(float(least)) and math.isfinite(float(most))
