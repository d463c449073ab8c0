"""Recording work as a CUDA graph: one call then starts all of its kernels.

A graph starts the kernels that the plain run starts, in the same order with the same arguments, so it gives
the same bits (measured: DESIGN section 5). What is recorded must take its shapes and addresses from
nothing that changes, and must not wait for the device.
"""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable
from typing import Protocol

import torch

from pooled_nb.shard.faults import no_memory

_WARM = 2
"""Runs before recording: kernels are compiled and chosen, and workspaces allocated, by then."""


class NoGraph(Exception):
    """Something cannot be recorded; its words say why, for people."""


class Recorder(Protocol):
    """Makes graphs of one device."""

    def record(self, run: Callable[[], None]) -> Callable[[], None]:
        """Run it a few times, record it, and return what replays it.

        Parameters
        ----------
        run
            Reads and writes tensors that stay where they are. May be called again and again.

        Raises
        ------
        NoGraph
            It cannot be recorded, or memory ran out; nothing is kept of it.
        """


class CudaRecorder:
    """Graphs that share one pool of memory: what one leaves in it lasts only until the next runs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, run: Callable[[], None]) -> Callable[[], None]:
        """See `Recorder.record`."""
        try:
            with torch.cuda.device(self._device):
                return self._record(run)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            words = (
                "too little memory is left for CUDA graphs"
                if no_memory(error)
                else f"its layers cannot be recorded as a CUDA graph ({_first_line(error)})"
            )
        # Outside the handler, so that the trace holds nothing of it.
        gc.collect()
        torch.cuda.empty_cache()
        raise NoGraph(words)

    def _record(self, run: Callable[[], None]) -> Callable[[], None]:
        now, side = torch.cuda.current_stream(), _side(torch.cuda.current_device())
        side.wait_stream(now)
        try:
            with torch.cuda.stream(side):
                for _ in range(_WARM):
                    run()
        finally:
            # Also where it fails: what was begun still reads the buffers that the next frame fills.
            now.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Threads of this process that read and watch pipes do nothing on the device.
        with torch.cuda.graph(graph, pool=self._pool, stream=side, capture_error_mode="thread_local"):
            run()
        return graph.replay


@functools.cache
def _side(device: int) -> torch.cuda.Stream:
    """The stream that all recording happens on: cuBLAS keeps a workspace (32 MiB) for each it has seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def recorder_for(device: torch.device) -> Recorder | None:
    """What records on this device; None where nothing does, or ``POOLED_GRAPHS=0`` says so."""
    if device.type != "cuda" or os.environ.get("POOLED_GRAPHS", "").strip() == "0":
        return None
    return CudaRecorder(device)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:160].rstrip(".")
