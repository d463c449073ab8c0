"""``pooled-nb demo``: real Jupyter kernels on this machine share one model, and answer like one device."""

from __future__ import annotations

import asyncio
import sys


def run(*, devices: int, model: str, question: str, max_tokens: int) -> int:
    """Run it; the exit status is 0 when the room's tokens are those of one device."""
    from pooled_nb.demo.story import tell

    with asyncio.Runner(loop_factory=_loop) as runner:
        return runner.run(tell(devices=devices, model=model, question=question, max_tokens=max_tokens))


def _loop() -> asyncio.AbstractEventLoop:
    # Kernels speak zmq, which on Windows needs the other kind of loop than it gives.
    return asyncio.SelectorEventLoop() if sys.platform == "win32" else asyncio.new_event_loop()
