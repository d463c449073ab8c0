"""A real kernel over a scripted room, seen as a notebook sees it: outputs, and the comms of widgets."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from pooled_nb.demo.kernels import Kernel, kernels

SCRIPTED = """
import pooled_nb, pooled_nb.room
from tests.front.scripted import Rooms, ScriptedCore
rooms = Rooms()
pooled_nb.room.host, pooled_nb.room.join = rooms.host, rooms.join
%load_ext pooled_nb
"""
OUTPUTS = ("display_data", "update_display_data", "execute_result", "stream", "error")
WIDGET = "application/vnd.jupyter.widget-view+json"


@contextlib.asynccontextmanager
async def scripted_kernel(folder: Path, **env: str) -> AsyncIterator[Kernel]:
    """A kernel with the extension loaded and a scripted room in place of the real one."""
    env = {"PYTHONPATH": os.getcwd(), "POOLED_RUNTIME_DIR": str(folder / "rooms"), **env}
    async with kernels(["one"], folder, env) as [one]:
        await one.run(SCRIPTED)
        yield one


class Page:
    """What a frontend keeps: every message of outputs; with ``widgets`` it draws panels and says so."""

    def __init__(self, kernel: Kernel, *, widgets: bool = False) -> None:
        self.kernel = kernel
        self.widgets = widgets
        self.panels: dict[str, dict[str, Any]] = {}
        self.closed: list[str] = []
        self.kept: dict[str, str] = {}
        self.on_kept: Callable[[str], object] = len

    async def run(
        self, code: str, *, stop_at: str | None = None, say_at: tuple[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """Every output message of a cell.

        Parameters
        ----------
        stop_at
            The kernel is interrupted once an output, or a panel, shows this.
        say_at
            Once one shows the first text, the newest panel's view says the second command.
        """
        seen: list[dict[str, Any]] = []
        shown = asyncio.Event()
        said = False

        def hook(message: dict[str, Any]) -> None:
            nonlocal said
            kind, content = message["msg_type"], message["content"]
            self._take(kind, content)
            if kind in OUTPUTS and not self._keeps(content):
                seen.append({"kind": kind, **content})
            drawn = kind in OUTPUTS or (self.widgets and kind == "comm_msg")
            if drawn and stop_at is not None and stop_at in str(content):
                shown.set()
            if drawn and say_at is not None and not said and say_at[0] in str(content):
                said = True
                self.say(list(self.panels)[-1], {"cmd": say_at[1]})

        async def stop() -> None:
            await shown.wait()
            await self.kernel.interrupt()

        stopping = asyncio.create_task(stop())
        try:
            client = self.kernel._client
            await client.execute_interactive(code, allow_stdin=False, output_hook=hook, timeout=60)
        finally:
            stopping.cancel()
        return seen

    async def later(self, until: str, seconds: float = 30) -> list[dict[str, Any]]:
        """Output messages that come while no cell runs, until one shows this."""
        seen: list[dict[str, Any]] = []
        async with asyncio.timeout(seconds):
            while True:
                message = await self.kernel._client.get_iopub_msg(timeout=seconds)
                kind, content = message["msg_type"], message["content"]
                self._take(kind, content)
                if kind in OUTPUTS and not self._keeps(content):
                    seen.append({"kind": kind, **content})
                    if until in str(content):
                        return seen

    async def until(self, holds: Callable[[], bool], seconds: float = 30) -> None:
        """Hear what comes while no cell runs, until this holds (`run` hears only what is of its cell)."""
        async with asyncio.timeout(seconds):
            while not holds():
                message = await self.kernel._client.get_iopub_msg(timeout=seconds)
                self._take(message["msg_type"], message["content"])

    def _keeps(self, content: dict[str, Any]) -> bool:
        """Whether it is an output that only a page without the kernel shows; what is in those now."""
        name = content.get("transient", {}).get("display_id")
        page = content.get("data", {}).get("text/html")
        if page is None or ("pnb-kept" not in page and page != ""):
            return False
        self.kept[name] = page
        self.on_kept(page)
        return True

    def _take(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "comm_open" and "_esm" in content["data"].get("state", {}):
            self.panels[content["comm_id"]] = dict(content["data"]["state"])
            if self.widgets:
                self.say(content["comm_id"], {"cmd": "here"})
        elif kind == "comm_msg" and content["comm_id"] in self.panels:
            self.panels[content["comm_id"]].update(content["data"].get("state", {}))
        elif kind == "comm_close":
            self.closed.append(content["comm_id"])

    def say(self, panel: str, words: dict[str, Any]) -> None:
        """A message of a view of this panel."""
        client = self.kernel._client
        data = {"method": "custom", "content": words}
        client.shell_channel.send(client.session.msg("comm_msg", {"comm_id": panel, "data": data}))


async def outputs(kernel: Kernel, code: str, *, stop_at: str | None = None) -> list[dict[str, Any]]:
    """Every output message of a cell, on a page without widgets."""
    return await Page(kernel).run(code, stop_at=stop_at)


def saved(seen: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a notebook keeps of them: updates take the place of the display they update."""
    kept: dict[str, dict[str, Any]] = {}
    for n, message in enumerate(seen):
        name = message.get("transient", {}).get("display_id") or str(n)
        if message["kind"] == "update_display_data":
            assert name in kept
        kept[name] = message
    return list(kept.values())
