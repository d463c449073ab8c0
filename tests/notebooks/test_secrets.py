"""Secrets, planted and real: after rooms that were hosted, joined, asked and failed, nothing kept holds one.

The real ones (invite key, mesh key, passes, signaling token) are read from the files that host and device
keep for themselves, and from the objects in the kernels.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from pooled_nb.demo.kernels import this_python
from tests.kernels import INSTALLED, running
from tests.notebooks.searched import (
    FACES,
    HELD,
    KEY,
    TRAITS,
    TYPED_KEY,
    TYPED_RELAY,
    TYPED_TURN,
    Place,
    Session,
    planted,
)

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
async def sessions(place: Place) -> AsyncIterator[tuple[Session, Session]]:
    folders = [place.folder / "host", place.folder / "guest"]
    async with (
        running(INSTALLED, folders[0], **place.env("host")) as host,
        running(INSTALLED, folders[1], **place.env("guest")) as guest,
    ):
        yield Session(*host, folders[0]), Session(*guest, folders[1])


TAKE_LINK = "os.environ['POOLED_LINK'] = __import__('getpass').getpass('')"
SOMEBODY_WAITS = "import time\nwhile not room.lobby: time.sleep(0.05)"


async def let_in(host: Session, guest: Session, join: str) -> str:
    """The guest joins and waits, the host's person looks and allows, the guest's confirms; what it saw."""
    joining = asyncio.create_task(guest.run(join, answer="y"))
    await host.run(SOMEBODY_WAITS)
    await host.run("%pooled lobby")
    await host.run("%pooled status")
    await host.run("%pooled allow")
    return await joining


async def test_nothing_holds_a_secret(sessions: tuple[Session, Session], place: Place) -> None:
    """DESIGN section 7: secrets reach no cell, history, trait, notebook, argv, log or exception."""
    host, guest = sessions
    await host.run(FACES)
    await guest.run(FACES)
    await host.run(f"%pooled host {MODEL} -o room")
    await host.run("%pooled start")
    code = json.loads(await host.run("print(room.code)"))[2]["text"].strip()
    # A link with a key comes from the environment, a typed one unseen; in a cell it is refused, unrepeated.
    # This one's key is wrong: its device waits, is let in, and its person compares the digits.
    await guest.run(TAKE_LINK, answer=f"https://example.invalid/r/{code}#k={KEY}")
    seen = await let_in(host, guest, "%pooled join --role guest --name visitor -o room")
    assert "[y/N]" in seen
    await guest.run("%%ask --max 8\nWhat is the capital of France?")
    shown = await guest.run("%pooled")
    assert "widget-view" in shown
    await guest.run("live = room.stream('Count to ten.', max_tokens=5); live.panel()")
    await guest.run("live.result().panel()")
    assert "RoomPanel" in await guest.run(TRAITS)
    assert "AnswerPanel" in await host.run(
        "answer = room.ask('Hello.', max_tokens=3)\nanswer.panel()\n" + TRAITS
    )
    await guest.run("%pooled status\nroom.status()\nvars(room).keys()")
    for session in sessions:
        await session.run(HELD)
    place.look()
    # What the room remembers for a restart is a chat that everyone may see, and no secret, nor a relay's.
    kept = place.remembered(code)
    assert "What is the capital of France?" in kept
    assert [secret for secret in place.all if secret in kept] == []
    # The invite: by a click, as one message; from Python as an object that shows nothing of it.
    await host.run("%pooled invite\nroom.invite()")
    await host.press(cmd="invite", id=7)
    await host.run("invite = room.invite()\nprint(invite, [invite])\ninvite", until='"t": "invite"')
    [invitation] = host.invitations()
    assert place.gate(code)["key"] in json.dumps(invitation, default=str)
    # The network box: a relay, typed unseen, remembered.
    await host.run("%pooled network --turn --remember", answer=TYPED_RELAY)
    assert TYPED_TURN in (place.folder / "config" / "network.json").read_text(encoding="utf-8")
    await host.run("%pooled network\n%pooled gate\nroom.network()\nroom.gate()")
    await host.run("room.ask('And now?', max_tokens=3)")
    await asyncio.sleep(0.5)
    kept = place.remembered(code)
    assert "And now?" in kept
    assert [secret for secret in place.all if secret in kept] == []
    # Thrown out, and back with the new link, which is proved.
    await host.run("%pooled kick visitor")
    await guest.run("import time\nwhile pooled_nb.current(): time.sleep(0.05)")
    await guest.run(TAKE_LINK, answer=await place.link(code))
    await guest.run("%pooled join --role guest --name visitor -o room")
    assert "proved" in await guest.run("print(room.status().trust)")
    for session in sessions:
        await session.run(HELD)
    place.look()
    await host.run("%pooled invite --new\n" + TRAITS)
    await guest.run(TRAITS + "%pooled leave")
    # Failures: each error of ours, its causes and its traceback, in the manner of a cell too.
    nowhere = f"https://example.invalid/r/4TKG9P#k={TYPED_KEY}"
    unseen = "os.environ['POOLED_LINK'] = ''\nfails(pooled_nb.join, role='guest')"
    await guest.run(unseen, answer=nowhere)
    await guest.run(unseen, answer=f"nonsense#k={TYPED_KEY}")
    await guest.run("pooled_nb.join(role='guest')", answer=nowhere, ok=False)
    await guest.run("%pooled join --role guest", answer=f"{nowhere}/", ok=False)
    await guest.run("fails(pooled_nb.host, 'nobody/no-such-model')")
    elsewhere = "fails(pooled_nb.join, '4TK-G9P', role='guest', signal='ws://nowhere.invalid:9/'"
    await guest.run(f"{elsewhere})")
    take = "relay = __import__('getpass').getpass('')"
    await guest.run(f"{take}\n{elsewhere}, turn=relay)\ndel relay", answer=TYPED_RELAY)
    await guest.run(f"{take}\n{elsewhere}, turn=relay)\ndel relay", answer=f"{TYPED_RELAY} and more")
    await host.run("fails(pooled_nb.host, 'another/model')")
    place.look()
    await host.run("%pooled leave")
    for session in sessions:
        await session.run("get_ipython().history_manager.writeout_cache()")
        await asyncio.sleep(0.2)
    assert len(place.secrets) > 6
    assert [one for session in sessions for one in planted(session, place.all)] == []
    held = "".join(
        path.read_text(encoding="utf-8") for path in (place.folder / "rooms").rglob("*") if path.is_file()
    )
    assert not [secret for secret in place.all if secret in held]
    # What was kept for this user alone is gone with the room, but for what was to be remembered.
    assert not list((place.folder / "data" / "rooms").glob("*.json"))


async def test_a_relay_that_fails_is_not_named(sessions: tuple[Session, Session], place: Place) -> None:
    """DESIGN section 7: nor where a relay is asked in vain, on both ends, with every log on."""
    host, guest = sessions
    await host.run(FACES)
    await guest.run(FACES)
    await host.run(f"room = pooled_nb.host({MODEL!r}, lan=True, ask=False, progress=False)")
    code = json.loads(await host.run("print(room.code)"))[2]["text"].strip()
    if "ws://127." in await host.run("print(room.status().signaling)"):
        pytest.skip("this machine is on no network")
    place.look()
    said = await guest.run(f"fails(pooled_nb.join, {code!r}, role='guest', relay_only=True)")
    assert "LinkFailed" in said
    await guest.run("os.environ['POOLED_TURN'] += ' and more'")
    assert "BadOption" in await guest.run(f"fails(pooled_nb.join, {code!r}, role='guest')")
    await host.run("%pooled network")
    for session in sessions:
        await session.run("get_ipython().history_manager.writeout_cache()")
    assert [one for session in sessions for one in planted(session, place.all)] == []


async def test_a_saved_notebook_holds_none(place: Place) -> None:
    """DESIGN section 7: the file that is kept, the state of its widgets in it, has none; nor the host's."""
    env = place.env("host")
    async with running(INSTALLED, place.folder / "host", **env) as (manager, client):
        host = Session(manager, client, place.folder / "host")
        await host.run(f"%load_ext pooled_nb\n%pooled host {MODEL} -o room")
        await host.run("%pooled start")
        code = json.loads(await host.run("print(room.code)"))[2]["text"].strip()
        place.look()
        cells = [
            "%load_ext pooled_nb",
            "%pooled join --role guest -o room",
            "%%ask -o answer --max 8\nWhat is the capital of France?",
            "live = room.stream('Count to ten.', max_tokens=5); live.panel()",
            "live.result()",
            "%pooled status",
            "%pooled network",
        ]
        notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
        there = {"metadata": {"path": str(place.folder)}}
        kernel = this_python()
        guest = NotebookClient(notebook, km=kernel, timeout=60, store_widget_state=True, resources=there)
        try:
            link = await place.link(code)
            await guest.async_execute(env={**os.environ, **env, "POOLED_LINK": link})
            place.look()
        finally:
            await kernel.shutdown_kernel()
        await host.run("%pooled leave")
    kept = nbformat.writes(notebook)
    state = json.dumps(notebook.metadata["widgets"])
    for panel in (code, "Count to ten."):  # both are there
        assert panel in state
    assert notebook.cells[2].outputs[-1]["data"]["text/markdown"]
    assert [secret for secret in place.all if secret in kept] == []


async def test_a_notebook_that_nobody_can_answer_in(place: Place) -> None:
    """PROTOCOL section 4: a link that its host does not recognise needs a person; a run without one ends in
    words, and the link is not in them.
    """
    env = place.env("host")
    async with running(INSTALLED, place.folder / "host", **env) as (manager, client):
        host = Session(manager, client, place.folder / "host")
        await host.run(f"%load_ext pooled_nb\n%pooled host {MODEL} -o room")
        code = json.loads(await host.run("print(room.code)"))[2]["text"].strip()
        notebook = new_notebook(
            cells=[new_code_cell("%load_ext pooled_nb\n%pooled join --role guest --name visitor")]
        )
        kernel = this_python()
        guest = NotebookClient(notebook, km=kernel, timeout=60, allow_errors=True)
        link = f"https://example.invalid/r/{code}#k={KEY}"
        run = asyncio.create_task(guest.async_execute(env={**os.environ, **env, "POOLED_LINK": link}))
        try:
            await host.run(SOMEBODY_WAITS + "\nroom.allow()")
            await run
        finally:
            await kernel.shutdown_kernel()
    kept = nbformat.writes(notebook)
    assert "nobody is here to compare the six digits" in kept
    assert "confirm=" in kept
    assert KEY not in kept


@pytest.mark.parametrize(
    "typed", [f"https://example.invalid/r/4TKG9P#k={TYPED_KEY}", f"no link#k={TYPED_KEY}"]
)
async def test_a_traceback_with_values_holds_none(tmp_path: Path, typed: str) -> None:
    """DESIGN section 7: nor does a traceback with what each variable held, as IPython's verbose one."""
    async with running(INSTALLED, tmp_path, POOLED_LINK="") as (manager, client):
        session = Session(manager, client, tmp_path)
        await session.run("%load_ext pooled_nb\nimport pooled_nb\n%xmode Verbose")
        await session.run("pooled_nb.join(role='guest')", answer=typed, ok=False)
        env = "os.environ['POOLED_TURN'] = __import__('getpass').getpass('') + ' and more'"
        await session.run(f"import os\n{env}", answer=TYPED_RELAY)
        far = "pooled_nb.room.ways.Ways(None).policy('ws://192.168.1.9:9/')"
        await session.run(f"import pooled_nb.room.ways\n{far}", ok=False)
        relay = (
            "pooled_nb.join('4TK-G9P', role='guest', turn=__import__('getpass').getpass('') + ' and more')"
        )
        await session.run(relay, answer=TYPED_RELAY, ok=False)
        await session.run("get_ipython().history_manager.writeout_cache()")
        assert planted(session) == []


@pytest.mark.parametrize("magic", ["%pooled join {}", "!true {}"])
async def test_the_search_finds_what_is_there(tmp_path: Path, magic: str) -> None:
    """The search itself: a link typed into a cell is found where Jupyter keeps it, so nothing else hid it."""
    async with running(INSTALLED, tmp_path) as (manager, client):
        session = Session(manager, client, tmp_path)
        await session.run("%load_ext pooled_nb")
        refused = await session.run(magic.format(f"4TK-G9P#k={KEY}"), ok="true" in magic)
        await session.run("get_ipython().history_manager.writeout_cache()")
        where = {where for where, text in session.places() if KEY in text}
        assert "history" in where
        assert "message execute_input" in where
        assert ("This link holds a secret." in refused) is ("pooled" in magic)
        assert not where & {"message error", "message stream", "message execute_reply", "kernel.log"}


LEAKS = """
import logging, subprocess, sys, threading, ipywidgets
key = open(os.environ["HELD"]).read()
threading.Thread(target=lambda: logging.debug("%s", key), name="pooled-mesh").start()
box = ipywidgets.HTML(value=key)
box.send({"t": "hello", "link": key})
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", key])
print(key)
print(key, file=sys.__stderr__, flush=True)
raise ValueError(key)
"""


async def test_the_search_finds_a_leak_wherever_it_is(place: Place) -> None:
    """The search itself: a secret that is planted in each place is found in each."""
    place.held.write_text(KEY)
    async with running(INSTALLED, place.folder / "host", **place.env("host")) as (manager, client):
        session = Session(manager, client, place.folder / "host")
        await session.run(FACES)
        await session.run(LEAKS, ok=False)
        await asyncio.sleep(0.3)
        where = {where for where, _ in planted(session)}
        await session.run("child.kill()")
    argv = {name for name in where if name.startswith("argv of")}
    assert argv
    assert where - argv == {
        "message comm_open",
        "message comm_msg",
        "message stream",
        "message error",
        "message execute_reply",
        "debug.log",
        "kernel.log",
    }
