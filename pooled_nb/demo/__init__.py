"""``pooled-nb demo``: real Jupyter kernels on this machine share one model, and answer like one device."""

from __future__ import annotations

import asyncio


def run(*, devices: int, model: str, question: str, max_tokens: int) -> int:
    """Run it; the exit status is 0 when the room's tokens are those of one device."""
    from pooled_nb.demo.story import tell

    return asyncio.run(tell(devices=devices, model=model, question=question, max_tokens=max_tokens))
