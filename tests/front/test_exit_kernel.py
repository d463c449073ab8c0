"""How a real kernel ends, and what its room hears of that (PROTOCOL sections 3 and 8, DESIGN section 3)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.kernels import KERNELS, running

ROOM = """
import os, pooled_nb, pooled_nb.room
from pooled_nb.room.core import AskOptions
from pooled_nb.room.memory import SavedQuestion
from tests.front.scripted import LeftCore, Rooms, ScriptedCore

def tell(what):
    with open(os.environ["TOLD"], "a") as file:
        file.write(what + "\\n")

class Hosts(LeftCore):
    async def leave(self, **options):
        tell("leave")
        await super().leave(**options)
    async def abandon(self):
        tell("abandon")
        await super().abandon()

class Works(ScriptedCore):
    async def leave(self, **options):
        tell("leave")
        await super().leave(**options)

async def host(model, **options):
    return Hosts("4TKG9P")
async def join(code, **options):
    return Works("worker")
pooled_nb.room.host, pooled_nb.room.join = host, join
room = pooled_nb.{verb}
"""
BUSY = """
import time
print("busy", flush=True)
for _ in range(600):
    time.sleep(0.1)
"""


def words(path: Path) -> list[str]:
    """What the room heard so far."""
    return path.read_text(encoding="utf-8").split() if path.exists() else []


async def told(path: Path) -> list[str]:
    """What the room heard, once it did."""
    async with asyncio.timeout(20):
        while not words(path):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return words(path)


async def gone(manager: Any) -> None:
    async with asyncio.timeout(30):
        while await manager.is_alive():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def busy(client: Any) -> None:
    """A cell runs, and goes on until somebody ends it."""
    client.execute(BUSY)
    async with asyncio.timeout(20):
        while True:
            message = await client.get_iopub_msg(timeout=20)
            if message["content"].get("text") == "busy\n":
                return


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("runs", ["nothing", "a cell"])
@pytest.mark.parametrize(
    ("verb", "restart", "hears"),
    [
        ('host("m", progress=False)', False, "leave"),
        ('host("m", progress=False)', True, "abandon"),
        ('join("4TK-G9P", progress=False)', False, "leave"),
        ('join("4TK-G9P", progress=False)', True, "leave"),
    ],
)
async def test_a_kernel_is_told_to_end(
    kernel: str, runs: str, verb: str, restart: bool, hears: str, tmp_path: Path
) -> None:
    """PROTOCOL section 3, leaving: said when a kernel ends, while a cell runs, too; section 8, host resume: a
    host whose kernel starts again closes nothing.
    """
    heard = tmp_path / "told"
    async with running(kernel, tmp_path, TOLD=str(heard)) as (manager, client):
        reply = await client.execute_interactive(ROOM.replace("{verb}", verb), timeout=60)
        assert reply["content"]["status"] == "ok"
        if runs == "a cell":
            await busy(client)
        # As Jupyter says it, without the interrupt that its manager sends before: a cell may ignore that.
        content = {"restart": restart}
        client.control_channel.send(client.session.msg("shutdown_request", content))
        assert await told(heard) == [hears]
        answer = await client.get_control_msg(timeout=20)
        assert answer["msg_type"] == "shutdown_reply"
        assert answer["content"]["status"] == "ok"
        assert answer["content"]["restart"] is restart
        if runs == "nothing":
            await gone(manager)
        assert await told(heard) == [hears], "once"


@pytest.mark.parametrize("kernel", KERNELS)
async def test_a_manager_starts_it_again(kernel: str, tmp_path: Path) -> None:
    """PROTOCOL section 8, host resume: Restart in a notebook's menu, as jupyter-server does it."""
    heard = tmp_path / "told"
    async with running(kernel, tmp_path, TOLD=str(heard)) as (manager, client):
        await client.execute_interactive(ROOM.replace("{verb}", 'host("m", progress=False)'), timeout=60)
        await busy(client)
        await manager.restart_kernel()
        assert await told(heard) == ["abandon"]
        await client.wait_for_ready(timeout=60)
        reply = await client.execute_interactive("import pooled_nb; assert not pooled_nb.current()")
        assert reply["content"]["status"] == "ok"


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("ends", ["exit", "import sys; sys.exit()"])
async def test_a_person_ends_it(kernel: str, ends: str, tmp_path: Path) -> None:
    """DESIGN section 3: ``exit`` in a cell ends the kernel, and closes its room; sys.exit() does neither."""
    heard = tmp_path / "told"
    async with running(kernel, tmp_path, TOLD=str(heard)) as (manager, client):
        await client.execute_interactive(ROOM.replace("{verb}", 'host("m", progress=False)'), timeout=60)
        client.execute(ends, stop_on_error=False)
        if ends == "exit":
            await gone(manager)
            assert await told(heard) == ["leave"]
        else:
            reply = await client.get_shell_msg(timeout=20)
            assert reply["content"]["ename"] == "SystemExit"
            reply = await client.execute_interactive("assert not room.left", timeout=20)
            assert reply["content"]["status"] == "ok"
            assert words(heard) == []
