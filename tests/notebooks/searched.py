"""Where secrets may be found after a session with kernels: everything that others may read of it."""

from __future__ import annotations

import asyncio
import json
import queue
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from pooled_nb.mesh import codes

KEY = "PLANTEDkeyPLANTEDkeyPLANTED"
TYPED_KEY = "PLANTEDtypedPLANTEDtypedPL"
TURN = "PLANTEDturnPassword"
TYPED_TURN = "PLANTEDtypedTurnPassword"
TOKEN = "hf_PLANTEDtokenPLANTEDtokenPLANTED"
SECRETS = frozenset({KEY, TYPED_KEY, TURN, TYPED_TURN, TOKEN})
RELAY = f"turn:ana:{TURN}@127.0.0.1:9"
TYPED_RELAY = f"turn:ana:{TYPED_TURN}@127.0.0.1:9"
FACES = """
import json, logging, os, sys, traceback
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, force=True)
logging.getLogger("asyncio").setLevel(logging.WARNING)
# What the network thread logs is kept out of cells: a file shows it.
logging.getLogger().addHandler(logging.FileHandler(os.environ["DEBUG_LOG"]))
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
HELD = """
import json, os
from rich.pretty import pretty_repr
_core = room._core
_parts = [getattr(_core, name) for name in ("keeper", "newcomer") if hasattr(_core, name)]
_held = [str(getattr(_core.mesh, "token", ""))]
for _part in _parts:
    _held += [getattr(_part, "key", ""), getattr(_part, "mesh_key", ""), getattr(_part, "mesh_key", "")]
    if hasattr(_part, "credentials"):
        _held += [_part.credentials.key, _part.credentials.pass_]
        print(_part.credentials, pretty_repr(_part.credentials))
    if hasattr(_part, "secrets"):
        _held += [_secret for _pass in _part.secrets.passes for _secret in _pass[1:2]]
        print(_part.secrets, pretty_repr(_part.secrets))
with open(os.environ["HELD"], "a") as _file:
    _file.write(json.dumps([_secret for _secret in _held if _secret]) + "\\n")
for _object in (room, _core, _core.mesh, _core.status(), room.status(), *_parts):
    print(_object, repr(_object), pretty_repr(_object))
del _held, _parts
"""
"""A cell that writes what the objects hold into a file of the test's, and shows the objects."""


class Session:
    """A kernel whose every message is kept."""

    def __init__(self, manager: Any, client: Any, folder: Path) -> None:
        self.manager = manager
        self.client = client
        self.folder = folder
        self.messages: list[dict[str, Any]] = []
        self.panels: list[str] = []

    async def run(self, code: str, *, answer: str = "", ok: bool = True, until: str = "") -> str:
        """Run a cell; what it shows.

        Parameters
        ----------
        answer
            Typed where it asks for a line.
        until
            Hear on until this comes, which it may do after the cell.
        """
        asked = self.client.execute(code, allow_stdin=True, stop_on_error=False)
        first = len(self.messages)
        idle = False
        while not idle or (until and until not in self.shown(first)):
            if await self.client.stdin_channel.msg_ready():
                request = await self.client.get_stdin_msg(timeout=1)
                self.messages.append(request)
                assert request["content"]["password"] or "[y/N]" in request["content"]["prompt"]
                self.client.input(answer)
            try:
                message = await self.client.get_iopub_msg(timeout=0.2)
            except queue.Empty:
                assert await self.manager.is_alive()
                continue
            self.messages.append(message)
            opened = message["content"] if message["msg_type"] == "comm_open" else {"data": {}}
            if "room" in opened["data"].get("state", {}):
                self.panels.append(opened["comm_id"])
            mine = message["parent_header"].get("msg_id") == asked
            idle |= mine and message["content"].get("execution_state") == "idle"
        # A slow kernel was asked more than once whether it is there: answers to that come first.
        reply = await self.client.get_shell_msg(timeout=30)
        while reply["parent_header"].get("msg_id") != asked:
            reply = await self.client.get_shell_msg(timeout=30)
        self.messages.append(reply)
        assert (reply["content"]["status"] == "ok") is ok, reply["content"]
        return self.shown(first)

    def shown(self, first: int) -> str:
        """What was heard from a message on."""
        return json.dumps([m["content"] for m in self.messages[first:]], default=str)

    async def press(self, **words: Any) -> None:
        """Press a button of the room's panel, as its page does."""
        data = {"method": "custom", "content": words}
        content = {"comm_id": self.panels[-1], "data": data}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", content))

    def invitations(self) -> list[dict[str, Any]]:
        """Messages that give the invite link to a page, each after a click: the only place of it."""
        return [message for message in self.messages if is_invitation(message)]

    def places(self) -> Iterator[tuple[str, str]]:
        """Everything that others may read of it."""
        for message in self.messages:
            if not is_invitation(message):
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


def is_invitation(message: dict[str, Any]) -> bool:
    """Whether it is the one message of a panel that may hold the link."""
    content = message["content"]
    said = content.get("data", {}).get("content", {}) if message["msg_type"] == "comm_msg" else {}
    return isinstance(said, dict) and said.get("t") == "invite"


def planted(session: Session, secrets: frozenset[str] = SECRETS) -> list[tuple[str, str]]:
    """Where a secret is, with what stands around it."""
    return [
        (where, text[max(0, text.index(secret) - 100) :][:200])
        for where, text in session.places()
        for secret in secrets
        if secret in text
    ]


class Place:
    """Folders of one test: what the kernels keep for themselves is apart from what is searched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.held = folder / "held.jsonl"
        self.secrets: set[str] = set()

    def env(self, name: str) -> dict[str, str]:
        """The environment of the kernel that keeps its own files in a folder of this name."""
        (self.folder / name).mkdir(exist_ok=True)
        return {
            "POOLED_TURN": RELAY,
            "HF_TOKEN": TOKEN,
            "HF_HUB_OFFLINE": "1",
            "POOLED_LINK": "",
            "POOLED_RUNTIME_DIR": str(self.folder / "rooms"),
            "POOLED_DATA_DIR": str(self.folder / "data"),
            "POOLED_CONFIG_DIR": str(self.folder / "config"),
            "DEBUG_LOG": str(self.folder / name / "debug.log"),
            "HELD": str(self.held),
        }

    def gate(self, code: str) -> dict[str, Any]:
        """What the host keeps of its gate."""
        path = self.folder / "data" / "rooms" / f"{code.replace('-', '')}.json"
        return dict(json.loads(path.read_text(encoding="utf-8")))

    def remembered(self, code: str) -> str:
        """What the host keeps of its room for a restart (it is saved in a thread, soon after an answer)."""
        path = self.folder / "data" / "rooms" / f"{code.replace('-', '')}.room.json"
        return path.read_text(encoding="utf-8")

    def look(self) -> None:
        """Learn every secret that is kept now, or that an object holds."""
        for path in (self.folder / "data").rglob("*.json"):
            kept = json.loads(path.read_text(encoding="utf-8"))
            found = [kept.get(name) for name in ("key", "mesh_key", "token", "pass")]
            found += [one[1] for one in kept.get("passes", [])]
            self.secrets |= {one for one in found if one}
        if self.held.exists():
            for line in self.held.read_text(encoding="utf-8").splitlines():
                self.secrets |= set(json.loads(line))

    async def link(self, code: str) -> str:
        """The invite link, once its key is kept (it is saved in a thread, soon after it was made)."""
        await asyncio.sleep(0.5)
        gate = self.gate(code)
        return codes.link(gate["code"], gate["key"], gate["server"])

    @property
    def all(self) -> frozenset[str]:
        """Real ones and planted ones."""
        assert min(map(len, self.secrets)) >= 10, "shorter ones would be found by chance"
        return SECRETS | self.secrets
