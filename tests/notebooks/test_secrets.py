"""Planted secrets: after a session that hosts, joins, asks and fails, nothing that is kept holds one."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from pooled_nb.demo.kernels import this_python
from tests.kernels import INSTALLED, running

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
KEY = "PLANTEDkeyPLANTEDkeyPLANTED"
TYPED_KEY = "PLANTEDtypedPLANTEDtypedPL"
TURN = "PLANTEDturnPassword"
TOKEN = "hf_PLANTEDtokenPLANTEDtokenPLANTED"
SECRETS = (KEY, TYPED_KEY, TURN, TOKEN)
RELAY = f"turn:ana:{TURN}@127.0.0.1:9"
FACES = """
import json, logging, sys, traceback
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, force=True)
logging.getLogger("asyncio").setLevel(logging.WARNING)
def fails(do, *args, **options):
    try:
        do(*args, **options)
    except Exception as error:
        seen = error
        while seen is not None:
            print(str(seen), repr(seen), seen.args, vars(seen))
            seen = seen.__cause__ or seen.__context__
        print("".join(traceback.format_exception(error)))
    else:
        raise AssertionError("it did not fail")
import pooled_nb
%load_ext pooled_nb
"""
TRAITS = """
from ipywidgets.widgets import widget as _module
_all = list(_module._instances.values())
print("widgets", len(_all), sorted({type(w).__name__ for w in _all}))
for w in _all:
    print(json.dumps(w.get_state(), default=repr))
    print({name: repr(getattr(w, name, None)) for name in w.trait_names()})
"""


class Session:
    """A kernel whose every message is kept."""

    def __init__(self, manager: Any, client: Any, folder: Path) -> None:
        self.manager = manager
        self.client = client
        self.folder = folder
        self.messages: list[dict[str, Any]] = []

    async def run(self, code: str, *, answer: str = "", ok: bool = True) -> str:
        """Run a cell, typing ``answer`` where it asks for a line unseen; what it shows."""
        asked = self.client.execute(code, allow_stdin=True, stop_on_error=False)
        first = len(self.messages)
        while True:
            if await self.client.stdin_channel.msg_ready():
                request = await self.client.get_stdin_msg(timeout=1)
                self.messages.append(request)
                assert request["content"]["password"]
                self.client.input(answer)
            try:
                message = await self.client.get_iopub_msg(timeout=0.2)
            except queue.Empty:
                assert await self.manager.is_alive()
                continue
            self.messages.append(message)
            mine = message["parent_header"].get("msg_id") == asked
            if mine and message["content"].get("execution_state") == "idle":
                break
        reply = await self.client.get_shell_msg(timeout=30)
        self.messages.append(reply)
        assert (reply["content"]["status"] == "ok") is ok, reply["content"]
        return json.dumps([m["content"] for m in self.messages[first:]], default=str)

    def places(self) -> Iterator[tuple[str, str]]:
        """Everything that others may read of it."""
        for message in self.messages:
            yield f"message {message['msg_type']}", json.dumps(message, default=str)
        for process in self.processes():
            yield f"argv of {process.pid}", " ".join(process.cmdline())
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        for path in files:
            yield str(path.relative_to(self.folder)), path.read_bytes().decode(errors="replace")
        histories = [path for path in files if path.name == "history.sqlite"]
        assert histories
        for path in histories:
            with sqlite3.connect(path) as base:
                rows = base.execute("select source_raw, source from history").fetchall()
            assert rows
            yield "history", repr(rows)

    def processes(self) -> list[psutil.Process]:
        """The kernel and what it started."""
        kernel = psutil.Process(self.manager.provisioner.pid)
        return [kernel, *kernel.children(recursive=True)]


def planted(session: Session) -> list[tuple[str, str]]:
    """Where a secret is, with what stands around it."""
    return [
        (where, text[max(0, text.index(secret) - 100) :][:200])
        for where, text in session.places()
        for secret in SECRETS
        if secret in text
    ]


ENV = {"POOLED_TURN": RELAY, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "1"}


@pytest.fixture
async def sessions(tmp_path: Path) -> AsyncIterator[tuple[Session, Session]]:
    env = {**ENV, "POOLED_RUNTIME_DIR": str(tmp_path / "rooms")}
    folders = [tmp_path / "host", tmp_path / "guest"]
    async with (
        running(INSTALLED, folders[0], **env) as host,
        running(INSTALLED, folders[1], **env, POOLED_LINK="") as guest,
    ):
        yield Session(*host, folders[0]), Session(*guest, folders[1])


async def test_nothing_holds_a_planted_secret(sessions: tuple[Session, Session], tmp_path: Path) -> None:
    """DESIGN section 7: secrets reach no cell, history, trait, notebook, argv, log or exception."""
    host, guest = sessions
    await host.run(FACES)
    await guest.run(FACES)
    await host.run(f"%pooled host {MODEL} -o room")
    await host.run("%pooled start")
    code = json.loads(await host.run("print(room.code)"))[2]["text"].strip()
    # A link with a key comes from the environment, a typed one unseen; in a cell it is refused, unrepeated.
    link = f"https://example.invalid/r/{code}#k={KEY}"
    await guest.run("import os\nos.environ['POOLED_LINK'] = __import__('getpass').getpass('')", answer=link)
    await guest.run("%pooled join --role guest -o room")
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
    await guest.run("%pooled leave")
    # Failures: each error of ours, its causes and its traceback, in the manner of a cell too.
    nowhere = f"https://example.invalid/r/4TKG9P#k={TYPED_KEY}"
    unseen = "os.environ['POOLED_LINK'] = ''\nfails(pooled_nb.join)"
    await guest.run(unseen, answer=nowhere)
    await guest.run(unseen, answer=f"nonsense#k={TYPED_KEY}")
    await guest.run("pooled_nb.join()", answer=nowhere, ok=False)
    await guest.run("%pooled join", answer=f"{nowhere}/", ok=False)
    await guest.run("fails(pooled_nb.host, 'nobody/no-such-model')")
    elsewhere = "fails(pooled_nb.join, '4TK-G9P', role='guest', signal='ws://nowhere.invalid:9/')"
    await guest.run(elsewhere)
    assert "BadOption" in await guest.run(f"os.environ['POOLED_TURN'] += ' and more'\n{elsewhere}")
    await host.run("fails(pooled_nb.host, 'another/model')")
    await host.run("%pooled leave")
    for session in sessions:
        await session.run("get_ipython().history_manager.writeout_cache()")
        await asyncio.sleep(0.2)
    assert [one for session in sessions for one in planted(session)] == []
    held = "".join(
        path.read_text(encoding="utf-8") for path in (tmp_path / "rooms").rglob("*") if path.is_file()
    )
    assert not [secret for secret in SECRETS if secret in held]


async def test_a_saved_notebook_holds_none(tmp_path: Path) -> None:
    """DESIGN section 7: the file that is kept, the state of its widgets in it, has neither."""
    rooms = {**ENV, "POOLED_RUNTIME_DIR": str(tmp_path / "rooms")}
    async with running(INSTALLED, tmp_path / "host", **rooms) as (manager, client):
        host = Session(manager, client, tmp_path / "host")
        await host.run(f"%load_ext pooled_nb\n%pooled host {MODEL} -o room")
        await host.run("%pooled start")
        code = json.loads(await host.run("print(room.code)"))[2]["text"].strip()
        cells = [
            "%load_ext pooled_nb",
            "%pooled join --role guest -o room",
            "%%ask -o answer --max 8\nWhat is the capital of France?",
            "live = room.stream('Count to ten.', max_tokens=5); live.panel()",
            "live.result()",
        ]
        notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
        there = {"metadata": {"path": str(tmp_path)}}
        kernel = this_python()
        guest = NotebookClient(notebook, km=kernel, timeout=60, store_widget_state=True, resources=there)
        link = f"https://example.invalid/r/{code}#k={KEY}"
        try:
            await guest.async_execute(env={**os.environ, **rooms, "POOLED_LINK": link})
        finally:
            await kernel.shutdown_kernel()
        await host.run("%pooled leave")
    kept = nbformat.writes(notebook)
    state = json.dumps(notebook.metadata["widgets"])
    for panel in (code, "Count to ten."):  # both are there
        assert panel in state
    assert notebook.cells[2].outputs[-1]["data"]["text/markdown"]
    assert [secret for secret in SECRETS if secret in kept] == []


@pytest.mark.parametrize(
    "typed", [f"https://example.invalid/r/4TKG9P#k={TYPED_KEY}", f"no link#k={TYPED_KEY}"]
)
async def test_a_traceback_with_values_holds_none(tmp_path: Path, typed: str) -> None:
    """DESIGN section 7: nor does a traceback with what each variable held, as IPython's verbose one."""
    async with running(INSTALLED, tmp_path, POOLED_LINK="") as (manager, client):
        session = Session(manager, client, tmp_path)
        await session.run("%load_ext pooled_nb\nimport pooled_nb\n%xmode Verbose")
        await session.run("pooled_nb.join()", answer=typed, ok=False)
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
