"""The real PeerJS server and client (npm ``peer``, ``peerjs``), as processes that a test can talk to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent / "js"


def need_packages() -> None:
    """The pinned packages are there. ``make setup-test`` is the one place that installs them."""
    if shutil.which("node") is None or not (FOLDER / "node_modules" / "peer").is_dir():
        pytest.fail(
            "The real PeerJS is not installed. Run make setup-test (it needs Node.js).", pytrace=False
        )


class Node:
    """A script of ours: lines of JSON in and out."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 30)
        assert line, "the script ended"
        said: dict[str, Any] = json.loads(line)
        return said

    async def event(self, name: str) -> dict[str, Any]:
        while True:
            said = await self.read()
            assert said["event"] != "error" or name == "error", said
            if said["event"] == name:
                return said

    def tell(self, do: str, **more: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write((json.dumps({"do": do, **more}) + "\n").encode())

    def kill(self) -> None:
        self._process.kill()


@contextlib.asynccontextmanager
async def script(name: str, *args: str) -> AsyncIterator[Node]:
    process = await asyncio.create_subprocess_exec(
        "node", name, *args, cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield Node(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def peer_server(path: str = "/", port: int = 0) -> AsyncIterator[tuple[Node, str]]:
    """The real server, and its spec."""
    async with script("server.mjs", path, str(port)) as node:
        port = (await node.read())["port"]
        yield node, f"ws://127.0.0.1:{port}{path}"


@contextlib.asynccontextmanager
async def peer_client(url: str, id: str) -> AsyncIterator[Node]:
    """The real client, registered."""
    place, _, path = url.removeprefix("ws://").partition("/")
    host, _, port = place.partition(":")
    async with script("client.mjs", host, port, f"/{path}", id) as node:
        assert (await node.event("open"))["id"] == id
        yield node
