"""A host's process that is killed and started again, over real links (PROTOCOL sections 2 to 4, CASES)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from pooled_nb.left import its_turn
from pooled_nb.mesh import runtime
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.room import keeping, opening, resuming
from pooled_nb.room.core import AskOptions, Done, Piece
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.memory import SavedQuestion
from tests.e2e.needs import bound
from tests.mesh.rtctools import until
from tests.room.rooms import Heard, ask, open_rooms
from tests.room.toy import ToyShard
from tests.sim.clock import simulate

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
GOES_ON = f"""
import asyncio, sys
from pooled_nb.room import opening
from pooled_nb.room.core import AskOptions
from pooled_nb.room.doorfacts import GateChoices
from tests.room.toy import ToyShard

opening.open_shard = lambda **_: ToyShard(delay=0.01)

async def main():
    room = await opening.host(
        "toy/model", code="{CODE}", split="memory", name="ana", gate=GateChoices(ask=False)
    )
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await room.start()
    print("online", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    mine = room.ask("and mine?", AskOptions(max_tokens=12))
    await anext(mine)  # it waits behind the other's, which never ends here
    print("queued", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await room.abandon()

asyncio.run(main())
"""
QUESTIONS = ("why is the sky blue?", "and the sea?")


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


@pytest.fixture
def alone_on_one() -> list[str]:
    """What one device answers to the same conversation, the host's own question last."""

    async def scenario() -> list[str]:
        rooms = await open_rooms()
        await rooms.host.start()
        told = [(await ask(rooms.host, text)).text for text in QUESTIONS]
        told.append((await ask(rooms.host, "and mine?", max_tokens=12)).text)
        await rooms.close()
        return told

    return simulate(scenario)


@pytest.mark.parametrize("ends", ["it is killed", "its kernel starts again"])
async def test_a_room_goes_on_after_its_host_died(
    ends: str, alone_on_one: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROTOCOL section 8, host resume: its process ends amid an answer, with another in the queue, and the
    next one takes the room back. Devices that waited need no rerun, keep their layers, and see the texts of
    one device; what was answered is not asked again. Of a kill a guest hears by 30 s of silence alone.
    """
    shards: list[ToyShard] = []

    def open_shard(process: bool) -> ToyShard:
        shards.append(ToyShard(delay=0.01))
        return shards[-1]

    monkeypatch.setattr(opening, "open_shard", open_shard)
    child = await asyncio.create_subprocess_exec(
        *bound(sys.executable, "-c", GOES_ON), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdin
    assert child.stdout
    rooms: list[DeviceRoom | HostRoom] = []
    try:
        assert await child.stdout.readline() == b"open\n"
        worker = await opening.join(CODE, role="worker", name="bo")
        mira = await joined(CODE)
        assert isinstance(worker, DeviceRoom)
        rooms += [worker, mira]
        child.stdin.write(b"\n")
        assert await child.stdout.readline() == b"online\n"
        assert (await ask(mira, QUESTIONS[0])).text == alone_on_one[0]
        seen: list[str] = []
        ended: list[Done] = []

        async def watch() -> None:
            async for event in mira.ask(QUESTIONS[1], AskOptions()):
                if isinstance(event, Piece):
                    seen.append(event.text)
                if isinstance(event, Done):
                    ended.append(event)

        watching = asyncio.create_task(watch())
        await until(lambda: len(seen) > 3)
        child.stdin.write(b"\n")
        assert await child.stdout.readline() == b"queued\n"
        kept = keeping.folder("rooms") / f"{CODE}.room.json"
        await until(lambda: all(text in kept.read_text() for text in (QUESTIONS[0], "and mine?")))
        if ends == "its kernel starts again":
            child.stdin.write(b"\n")
            assert await child.wait() == 0
            await until(lambda: mira.status().state == "away", 3)
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()
    assert not ended
    before = "".join(seen)
    assert alone_on_one[1].startswith(before)
    held = worker.status()
    try:
        room = await resuming.resume()
        assert isinstance(room, HostRoom)
        rooms.append(room)
        notices: list[str] = []
        room.on_notice = notices.append
        assert room.code == CODE
        assert room.status().devices[0].name == "ana"
        [mine] = room.asked
        assert not mine.begun
        own = asyncio.create_task(_again(room, mine))
        await watching
        assert [(done.reason, done.why) for done in ended] == [("stop", "")]
        assert "".join(seen) == alone_on_one[1]
        assert (await own).text == alone_on_one[2]
        assert notices[0] == opening.RECLAIMED
        items = [
            (i.exchange.name, i.exchange.text, i.exchange.reply) for i in room.answering.conversation.items
        ]
        asked = [("mira", QUESTIONS[0]), ("mira", QUESTIONS[1]), ("ana", "and mine?")]
        assert items == [(*one, text) for one, text in zip(asked, alone_on_one, strict=True)]
        assert {d.name: d.layers for d in room.status().devices} == {d.name: d.layers for d in held.devices}
        assert next(shard.loads for shard in shards if shard.loads) == 1, "the worker holds what it held"
    finally:
        for one in reversed(rooms):
            await one.leave()
    assert not kept.exists()
    assert not kept.with_name(f"{CODE}.json").exists()


async def _again(room: HostRoom, question: SavedQuestion) -> Heard:
    """As the front door does it."""
    await its_turn(room, question)
    return await ask(room, question.text, **msgspec.structs.asdict(question.options))
