"""A real Jupyter kernel, driven as a notebook would drive it."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from pooled_nb.errors import RoomError

WIDGET = "application/vnd.jupyter.widget-view+json"
READY_S = 120.0
"""A busy machine may take long to start several Pythons at once."""
LOOK_S = 0.5
"""How often a kernel that is waited for is looked up: a dead one answers nothing, ever."""


def this_python(**options: Any) -> AsyncKernelManager:
    """A manager of a kernel that runs this very Python, whatever kernels the user has installed."""
    # Without directories the name python3 can only mean ipykernel's own.
    nowhere = KernelSpecManager(kernel_dirs=[])
    return AsyncKernelManager(kernel_name="python3", kernel_spec_manager=nowhere, **options)


class Kernel:
    """One kernel with this very Python. Cells run one after the other."""

    def __init__(self, name: str, manager: AsyncKernelManager, client: AsyncKernelClient) -> None:
        self.name = name
        self._manager = manager
        self._client = client

    async def run(self, code: str, show: Callable[[str], None] | None = None) -> None:
        """Run one cell.

        Parameters
        ----------
        show
            Called with the text of each output, as it is printed or updated in place.

        Raises
        ------
        RoomError
            The cell failed: what it said.
        """
        await self._execute(code, show, {})

    async def interrupt(self) -> None:
        """What the stop button of a notebook does."""
        await self._manager.interrupt_kernel()

    async def value(self, expression: str) -> Any:
        """What an expression of JSON values gives in the kernel."""
        reply = await self._execute("import json as _json", None, {"v": f"_json.dumps({expression})"})
        answer = reply["content"]["user_expressions"]["v"]
        if answer["status"] != "ok":
            raise RoomError(f"{self.name}: {answer.get('evalue', 'no value')}")
        return json.loads(ast.literal_eval(answer["data"]["text/plain"]))

    async def _execute(
        self, code: str, show: Callable[[str], None] | None, expressions: dict[str, str]
    ) -> dict[str, Any]:
        def output(message: dict[str, Any]) -> None:
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                text = content["text"]
            elif kind in ("display_data", "update_display_data"):
                # Of a panel there is only the text that a saved notebook keeps: nothing of now.
                data = content["data"]
                text = "" if WIDGET in data else data.get("text/plain", "")
            else:
                return
            if show is not None and text:
                show(text)

        reply = await self._or_death(
            self._client.execute_interactive(
                code, allow_stdin=False, user_expressions=expressions, output_hook=output, timeout=None
            )
        )
        if reply["content"]["status"] != "ok":
            content = reply["content"]
            raise RoomError(f"{self.name}: {content.get('evalue') or content['status']}")
        return reply

    async def _or_death(self, reply: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        """The reply, or the error that none will ever come."""
        asking = asyncio.create_task(reply)
        try:
            while not (await asyncio.wait({asking}, timeout=LOOK_S))[0]:
                if not await self._manager.is_alive():
                    raise RoomError(
                        f"{self.name} ended.", "Out of memory is the usual cause: try fewer devices."
                    )
            return await asking
        finally:
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await asking


@contextlib.asynccontextmanager
async def kernels(names: list[str], folder: Path, env: dict[str, str]) -> AsyncIterator[list[Kernel]]:
    """Start kernels at once, and end every one of them at the end, also after an interrupt.

    Their configuration and connection files lie in ``folder``: the user's own are left alone.
    """
    env = {
        **os.environ,
        **env,
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
    }
    managers: list[AsyncKernelManager] = []
    clients: list[AsyncKernelClient] = []

    async def start(name: str) -> Kernel:
        manager = this_python(connection_file=str(folder / f"{name}.json"))
        managers.append(manager)
        # What the kernel's process prints by itself is no output of a cell.
        await manager.start_kernel(env=env, cwd=str(folder), stdout=DEVNULL, stderr=DEVNULL)
        client = manager.client()
        clients.append(client)
        client.start_channels()
        await client.wait_for_ready(timeout=READY_S)
        return Kernel(name, manager, client)

    try:
        yield list(await asyncio.gather(*map(start, names)))
    finally:
        for client in clients:
            client.stop_channels()
        await asyncio.gather(*map(_end, managers), return_exceptions=True)


async def _end(manager: AsyncKernelManager) -> None:
    """Ask it to shut down, so that it leaves its room; then make sure."""
    if not manager.has_kernel:
        return
    try:
        await asyncio.wait_for(manager.shutdown_kernel(now=False), 10)
    finally:
        if manager.has_kernel and await manager.is_alive():
            await manager.shutdown_kernel(now=True)
