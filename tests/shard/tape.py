"""A recorder for CPUs that behaves as CUDA graphs do: what was recorded is done again, and nothing else.

Every operation of a run is noted with the very tensors it read and wrote. A replay does the operations again
on those, so that numbers the host knew while recording are baked in, and a value that it asked for is an
error, as on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pooled_nb.shard.graphs import NoGraph

_WAITS = {"_local_scalar_dense", "equal", "nonzero", "item", "is_nonzero"}
"""They bring a value to the host, which no graph can do."""


class _Taping(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[torch.Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket.__name__ in _WAITS:
            raise RuntimeError(f"operation not permitted while recording: {func}")
        out = func(*args, **kwargs)
        outs = [t for t in (out if isinstance(out, tuple | list) else [out]) if isinstance(t, torch.Tensor)]
        if func._schema.is_mutable:
            self.steps.append((func, args, kwargs, []))
        else:
            read = {_place(t) for t in _tensors((args, kwargs))}
            fresh = [t for t in outs if _place(t) not in read]
            if fresh:  # a view stays where it is
                assert len(fresh) == len(outs)
                self.steps.append((func, args, kwargs, outs))
        return out


def _place(tensor: torch.Tensor) -> int:
    """Which memory it lies in; packed weights have none that can be asked for."""
    return id(tensor) if tensor.is_mkldnn else tensor.untyped_storage()._cdata


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [t for each in value for t in _tensors(each)]
    return []


class TapeRecorder:
    """Records on CPUs.

    Parameters
    ----------
    most
        Graphs that memory is said to have room for.
    """

    def __init__(self, most: int = 1 << 30) -> None:
        self.made = self.replayed = 0
        self._most = most

    def record(self, run: Callable[[], None]) -> Callable[[], None]:
        if self.made >= self._most:
            raise NoGraph("too little memory is left for CUDA graphs")
        run()
        tape = _Taping()
        try:
            with tape:
                run()
        except RuntimeError as error:
            raise NoGraph(f"its layers cannot be recorded as a CUDA graph ({error})") from None
        self.made += 1

        def replay() -> None:
            self.replayed += 1
            for func, args, kwargs, outs in tape.steps:
                again = func(*args, **kwargs)
                news = again if isinstance(again, tuple | list) else [again]
                for old, new in zip(outs, (t for t in news if isinstance(t, torch.Tensor)), strict=False):
                    old.copy_(new)

        return replay
