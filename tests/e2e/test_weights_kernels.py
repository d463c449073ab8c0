"""Two notebooks, of which one alone has the model's folder (DESIGN section 6)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pooled_nb.demo.kernels import Kernel, kernels
from tests.e2e.chaos import FULL, ROOT
from tests.e2e.weightsroom import layout_of, needs, segments_of

PLACE = """
import os
for name in ("RUNTIME_DIR", "DATA_DIR", "CONFIG_DIR", "CACHE"):
    os.environ["POOLED_" + name] = os.path.join({folder!r}, name)
import pooled_nb as pooled
"""
HOST = "room = pooled.host({model!r}, split='memory', lend='1GB', ctx=256, progress=False)"
JOIN = "room = pooled.join({link!r}, role='worker', lend='1GB', progress=False)"
ASK = "room.ask('Why is the sky blue?', max_tokens=12).text"


@FULL
@pytest.mark.timeout(240)
async def test_a_notebook_without_the_model(tmp_path: Path, tiny: tuple[Path, list[int]]) -> None:
    """PROTOCOL section 6, ``ai-wget``: a cell that joins is enough; the text is that of one device."""
    model, _ = tiny
    env = {"PYTHONPATH": str(ROOT), "POOLED_THREADS": "1", "POOLED_MODELS": "", "HF_HUB_OFFLINE": "1"}
    async with kernels(["host", "worker"], tmp_path, env) as [host, worker]:

        async def placed(kernel: Kernel, name: str) -> None:
            await kernel.run(PLACE.format(folder=str(tmp_path / name)))

        await asyncio.gather(placed(host, "host"), placed(worker, "worker"))
        await host.run(HOST.format(model=str(model)))
        alone = await host.value(ASK)
        link = await host.value("room.invite().link")
        await worker.run(JOIN.format(link=link))
        await host.run("room.start()")
        await host.run("room.reset()")
        layers = await host.value("[d.layers for d in room.status().devices]")
        assert await host.value(ASK) == alone
        assert await worker.value("len(room.status().devices)") == 2
    held = sorted((segment.lo, segment.hi) for segment in segments_of(tmp_path / "worker" / "CACHE"))
    assert held == needs(layout_of(model), layers[1])
