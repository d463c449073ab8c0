"""Real processes over real links, and what a system does to them: no memory, a kill, damaged files."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pooled_nb.errors import PooledError
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.opening import host, join
from pooled_nb.shard.process import ProcessShard
from tests.room.rooms import ask
from tests.shard.tinychat import write_model

QUESTION = "Why is the sky blue? Please say it in many words, and do not forget the evening."
GB = 0.2


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("POOLED_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prompt's frame takes 6 MB in a layer: memory that the allocator asks the system for anew."""
    return write_model(tmp_path_factory.mktemp("tiny") / "talker", layers=3, intermediate_size=49152)


@asynccontextmanager
async def two(model: Path, folder: Path | None = None) -> AsyncIterator[tuple[HostRoom, DeviceRoom]]:
    """A host and a worker, each with a process that computes. ``folder``: the worker's own files."""
    room = await host(str(model), split="memory", lend=GB, ctx=256, dtype="float32", draft="off")
    device = await join(room.invite().link, role="worker", lend=GB, name="mira", folder=str(folder or model))
    assert isinstance(room, HostRoom)
    assert isinstance(device, DeviceRoom)
    try:
        yield room, device
    finally:
        await device.leave()
        await room.leave()


def child_of(device: DeviceRoom) -> int:
    shard = device._lending._shard
    assert isinstance(shard, ProcessShard)
    assert shard.pid
    return shard.pid


def held(pid: int) -> int:
    """Bytes of a process's address space."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmSize:"))


async def test_memory_that_runs_out_on_a_worker_costs_no_answer(model: Path) -> None:
    """PROTOCOL section 6, ``ai-error {load, killed}``: its layer is dealt anew, and the answer goes on.

    Where it cannot even load it again, the room goes on without its memory (``ai-share {drop}``).
    """
    if sys.platform != "linux":
        pytest.skip("limits of another process are Linux's")
    import resource

    async with two(model) as (room, device):
        notices: list[str] = []
        room.on_notice = notices.append
        await room.start()
        assert device.role == "worker"
        whole = (await ask(device, QUESTION, max_tokens=6)).text
        await room.reset()
        pid = child_of(device)
        before = resource.prlimit(pid, resource.RLIMIT_AS)
        # Enough for all else: only what the layer needs is not there.
        resource.prlimit(pid, resource.RLIMIT_AS, (held(pid) + (4 << 20), before[1]))
        short = await ask(device, QUESTION, max_tokens=6)
        assert (short.text, short.done.reason) == (whole, "max")
        words = r"mira says: This device ran out of memory while it computed: [\d.]+ .B more were needed"
        assert any(re.search(words, notice) for notice in notices), notices
        assert room.status().state == "online"
        assert device.role == "guest"
        assert "it ran out of memory" in device.status().sentence
        assert "Close other programs" in device.status().sentence, "what its person can do"
        assert child_of(device) == pid, "the same process"


async def test_a_workers_process_that_is_killed_costs_no_answer(model: Path) -> None:
    """DESIGN section 3, PROTOCOL section 8: as the system does when memory is really gone; the same text."""
    async with two(model) as (room, device):
        notices: list[str] = []
        room.on_notice = notices.append
        await room.start()
        whole = (await ask(device, QUESTION, max_tokens=6)).text
        await room.reset()
        pid = child_of(device)
        os.kill(pid, signal.SIGKILL)
        killed = await ask(device, QUESTION, max_tokens=6)
        assert (killed.text, killed.done.reason) == (whole, "max")
        words = "mira says: The shard's process was killed, most likely because memory ran out"
        assert any(words in notice for notice in notices), notices
        assert device.role == "worker", "another process holds its layers"
        assert child_of(device) != pid


async def test_a_worker_whose_files_lack_a_tensor_is_left_out(model: Path, tmp_path: Path) -> None:
    """CASES, Devices: its card says why, and the room deals without it."""
    poor = Path(shutil.copytree(model, tmp_path / "poor"))
    weights = load_file(poor / "model.safetensors")
    del weights["model.layers.2.mlp.up_proj.weight"]
    save_file(weights, poor / "model.safetensors", metadata={"format": "pt"})
    async with two(model, poor) as (room, device):
        notices: list[str] = []
        room.on_notice = notices.append
        await room.start()
        assert any("mira cannot hold its layers" in notice for notice in notices), notices
        assert "This device holds no layers" in device.status().sentence
        assert (await ask(device, QUESTION, max_tokens=4)).done.reason in ("max", "stop")


async def test_a_model_that_is_damaged_starts_no_room(model: Path, tmp_path: Path) -> None:
    """DESIGN section 5: NaN is named where it arises, in a weight of the files: everybody hears of it."""
    poor = Path(shutil.copytree(model, tmp_path / "poor"))
    weights = load_file(poor / "model.safetensors")
    weights["model.layers.2.mlp.up_proj.weight"][7, 3] = torch.nan
    save_file(weights, poor / "model.safetensors", metadata={"format": "pt"})
    async with two(poor) as (room, device):
        with pytest.raises(PooledError, match=r"mlp.up_proj.weight of layer 3 holds NaN"):
            await room.start()
        assert "The weight mlp.up_proj.weight of layer 3 holds NaN" in room.status().sentence
        with pytest.raises(PooledError, match="holds NaN"):
            await ask(device, QUESTION)
