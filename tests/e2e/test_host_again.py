"""A host's process that is killed and started again, over real links (PROTOCOL sections 2 to 4, CASES)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pooled_nb.mesh import runtime
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.room import opening
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.hostroom import HostRoom
from tests.e2e.needs import bound
from tests.mesh.rtctools import until
from tests.room.toy import ToyShard

CODE = "4TKG9P"
HOST = f"""
import asyncio, sys, time
from pathlib import Path
from pooled_nb.room import keeping, opening
from tests.room.toy import ToyShard

opening.open_shard = lambda **_: ToyShard()

async def main():
    room = await opening.host("toy/model", code="{CODE}", servers=sys.argv[1:])
    while not (keeping.folder("rooms") / "{CODE}.json").exists():
        await asyncio.sleep(0.02)
    print(room.invite().link, flush=True)
    await asyncio.to_thread(sys.stdin.readline)  # the passes are saved
    while b"mira" not in (keeping.folder("rooms") / "{CODE}.json").read_bytes():
        await asyncio.sleep(0.02)
    print("saved", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLED_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("POOLED_KEEP_SECRETS", raising=False)
    monkeypatch.setattr(opening, "open_shard", lambda process: ToyShard())


@asynccontextmanager
async def killed_host(*servers: str) -> AsyncIterator[str]:
    """The link of a host in a process of its own, which is killed at the end of the block."""
    child = await asyncio.create_subprocess_exec(
        *bound(sys.executable, "-c", HOST, *servers),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdin
    assert child.stdout
    try:
        link = (await child.stdout.readline()).decode().strip()
        assert link
        yield link
        child.stdin.write(b"\n")
        assert await child.stdout.readline() == b"saved\n"
    finally:
        child.kill()
        await child.communicate()


@asynccontextmanager
async def unaware(server: SignalServer) -> AsyncIterator[str]:
    """A way to a server on which it does not hear that a client died, as when a machine loses its power."""
    tasks: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            writer.write(data)

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(server.host, server.port)
        writers.extend((writer, to_server))
        tasks.extend(
            asyncio.ensure_future(pump(*ends)) for ends in ((reader, to_server), (from_server, writer))
        )

    way = await asyncio.start_server(accepted, "127.0.0.1", 0)
    try:
        yield f"ws://127.0.0.1:{way.sockets[0].getsockname()[1]}/"
    finally:
        way.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.close()


async def joined(text: str) -> DeviceRoom:
    room = await opening.join(text, role="guest", name="mira")
    assert isinstance(room, DeviceRoom)
    return room


async def test_with_its_own_server_it_has_all_back() -> None:
    """CASES: the embedded server died with its host; the new one takes its port, where links still lead."""
    await _starts_again("local")


async def test_at_a_server_that_knows_nothing_of_its_death(monkeypatch: pytest.MonkeyPatch) -> None:
    """CASES: it reclaims its code with its saved token at once, not when the server forgets who is gone."""
    server = await SignalServer.start()
    try:
        async with unaware(server) as url:
            monkeypatch.setenv("POOLED_SIGNAL", url)
            await _starts_again(url)
    finally:
        await server.close()


async def _starts_again(spec: str) -> None:
    async with killed_host(spec) as link:
        mira = await joined(link)
        assert mira.status().trust == "proved"
        await mira.leave()
    room = await opening.host("toy/model", code=CODE, servers=[spec])
    assert isinstance(room, HostRoom)
    notices: list[str] = []
    room.on_notice = notices.append
    try:
        await until(lambda: opening.RECLAIMED in notices)
        assert room.invite().link == link
        found = runtime.find(CODE)
        assert found
        assert (found.pid, found.server) == (os.getpid(), room.mesh.server)
        for text in (link, CODE):  # by the link's key, and without it by the pass alone
            mira = await joined(text)
            assert mira.status().trust == "proved"
            await mira.leave()
        assert not [text for text in notices if "asks to join" in text]
    finally:
        await room.leave()
