"""What a kernel hears while its cell blocks; `make test-kernels` runs this on each version of ipykernel."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import queue
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pooled_nb.widgets import kernel as under_test
from tests.kernels import KERNELS, running

SETUP = """
import json, threading, time
from ipywidgets import Widget
from pooled_nb.widgets.kernel import guard, pump
heard, threads, ran, done = [], set(), [], threading.Event()
def on_message(_, content, buffers):
    heard.append(content["n"])
    threads.add(threading.current_thread().name)
    if content.get("cmd") == "stop":
        done.set()
widget = Widget()
widget.on_msg(on_message)
guard(widget)
def wait(seconds=30):
    end = time.monotonic() + seconds
    while not done.wait(0.03) and time.monotonic() < end:
        pump()
"""
BLOCK = "done.clear()\nprint('waits', flush=True)\nwait()"
TALK = "threading.Thread(target=lambda: [widget.send({'n': n}) for n in range(20)]).start()\n"


class Driven:
    """A kernel, driven message by message."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager = manager
        self.client = client
        self.comm = ""
        self.subshell: str | None = None
        self.major = 0

    async def begin(self) -> None:
        await self.run(SETUP)
        self.comm = await self.value("widget.comm.comm_id")
        self.major = await self.value("__import__('ipykernel').version_info[0]")

    async def run(self, code: str) -> None:
        reply = await self.client.execute_interactive(
            code, allow_stdin=False, output_hook=lambda _: None, timeout=60
        )
        assert reply["content"]["status"] == "ok", reply["content"]

    async def value(self, expression: str) -> Any:
        expressions = {"v": f"json.dumps({expression})"}
        reply = await self.client.execute_interactive(
            "", user_expressions=expressions, allow_stdin=False, output_hook=lambda _: None, timeout=60
        )
        return json.loads(ast.literal_eval(reply["content"]["user_expressions"]["v"]["data"]["text/plain"]))

    def send(self, kind: str, content: dict[str, Any]) -> str:
        message = self.client.session.msg(kind, content)
        if self.subshell is not None and kind.startswith("comm_"):
            message["header"]["subshell_id"] = self.subshell
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def execute(self, code: str) -> str:
        return str(self.client.execute(code, stop_on_error=False, allow_stdin=False))

    def tell(self, n: int, **more: object) -> str:
        data = {"method": "custom", "content": {"n": n, **more}}
        return self.send("comm_msg", {"comm_id": self.comm, "data": data})

    async def block(self, code: str = BLOCK) -> str:
        """Run a cell that says ``waits`` and then does; its message."""
        asked = self.execute(code)
        assert await self.said("waits")
        return asked

    async def said(self, word: str, seconds: float = 30) -> bool:
        """Wait until a cell prints this; whether it did."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) > 0:
            with contextlib.suppress(queue.Empty):
                message = await self.client.get_iopub_msg(timeout=left)
                if message["msg_type"] == "stream" and word in message["content"]["text"]:
                    return True
        return False

    async def replies(self, asked: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
        """The replies to these messages, in the order in which they came; each comes once."""
        came: list[tuple[str, dict[str, Any]]] = []
        while {which for which, _ in came} != set(asked):
            message = await self.client.get_shell_msg(timeout=30)
            came.append((message["parent_header"]["msg_id"], message))
        await asyncio.sleep(0.2)
        assert not await self.client.shell_channel.msg_ready()
        assert len(came) == len(asked)
        return came

    async def open_subshell(self) -> None:
        self.client.control_channel.send(self.client.session.msg("create_subshell_request", {}))
        reply = await self.client.get_control_msg(timeout=30)
        self.subshell = reply["content"]["subshell_id"]


@pytest.fixture(params=list(KERNELS))
async def driven(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Driven]:
    async with running(request.param, tmp_path) as (manager, client):
        driven = Driven(manager, client)
        await driven.begin()
        yield driven


@pytest.mark.parametrize("where", ["shell", "subshell"])
@pytest.mark.parametrize("talks", [False, True])
async def test_a_click_is_heard_while_the_cell_blocks(driven: Driven, where: str, talks: bool) -> None:
    """DESIGN section 7: Stop works while a cell blocks, whoever of the kernel's threads published last."""
    if where == "subshell":
        if driven.major < 7:
            pytest.skip("ipykernel 6 has no subshells")
        await driven.open_subshell()
    await driven.run("widget.send({'n': 0})")  # from the main thread: 7.4 would now send replies there
    asked = await driven.block(TALK + BLOCK if talks else BLOCK)
    driven.tell(1)
    driven.tell(2, cmd="stop")
    [(_, reply)] = await driven.replies([asked])
    assert reply["content"]["status"] == "ok"
    assert await driven.value("[heard, done.is_set()]") == [[1, 2], True]
    main = where == "shell"
    assert (await driven.value("list(threads)") == ["MainThread"]) is main


async def test_others_keep_their_order_and_each_is_answered_once(driven: Driven) -> None:
    """DESIGN section 7: only a widget's messages pass the others by; none is lost, none comes twice."""
    block = await driven.block()
    first = driven.execute("ran.append(1)")
    driven.tell(1)
    complete = driven.send("complete_request", {"code": "threadi", "cursor_pos": 7})
    info = driven.send("comm_info_request", {})
    driven.tell(2)
    second = driven.execute("ran.append(list(heard))")
    kernel = driven.send("kernel_info_request", {})
    [(early, message), (late, _)] = await driven.replies([info, kernel])  # while it blocks
    assert (early, late) == (info, kernel)
    assert driven.comm in message["content"]["comms"]
    driven.tell(3, cmd="stop")
    came = await driven.replies([block, first, complete, second])
    assert [which for which, _ in came] == [block, first, complete, second]
    assert "threading" in came[2][1]["content"]["matches"]
    assert await driven.value("[ran, heard]") == [[1, [1, 2, 3]], [1, 2, 3]]


async def test_each_message_gets_its_busy_and_idle(driven: Driven) -> None:
    """A frontend counts a message as handled by its idle; the cell that waits is busy until its own end."""
    block = await driven.block()
    told = driven.tell(1)
    states: list[tuple[str, str]] = []
    stop = ""
    while not states or states[-1] != (block, "idle"):
        message = await driven.client.get_iopub_msg(timeout=30)
        if message["msg_type"] == "status":
            states.append((message["parent_header"]["msg_id"], message["content"]["execution_state"]))
        if (told, "idle") in states and not stop:
            stop = driven.tell(2, cmd="stop")
    assert states.index((told, "busy")) < states.index((told, "idle")) < states.index((block, "idle"))
    await driven.replies([block])


async def test_an_interrupt_ends_only_the_wait(driven: Driven) -> None:
    """DESIGN section 7: KeyboardInterrupt ends the cell; kernel, widget and what is queued stay whole."""
    asked = await driven.block()
    driven.tell(1)
    after = driven.execute("ran.append(1)")
    await asyncio.sleep(0.2)
    await driven.manager.interrupt_kernel()
    (which, reply), (then, _) = await driven.replies([asked, after])
    assert (which, reply["content"]["ename"], then) == (asked, "KeyboardInterrupt", after)
    again = await driven.block()
    driven.tell(2, cmd="stop")
    [(_, reply)] = await driven.replies([again])
    assert reply["content"]["status"] == "ok"
    assert await driven.value("[ran, heard]") == [[1], [1, 2]]
    # An interrupt of a kernel at rest ends nothing: the signal's handler is the kernel's own again.
    await driven.manager.interrupt_kernel()
    await asyncio.sleep(0.2)
    assert await driven.value("1 + 1") == 2


async def test_interrupts_amid_traffic_lose_nothing(driven: Driven) -> None:
    """An interrupt may fall between any two bytecodes of the reader; each message comes once, in order."""
    # The cell's own handler raises only within its `try`, wherever else an interrupt falls.
    cell = (
        "import signal\nhits, inside = 0, False\ndef pressed(*_):\n    global inside\n"
        "    if inside:\n        inside = False\n        raise KeyboardInterrupt\n"
        "before = signal.signal(signal.SIGINT, pressed)\nprint('waits', flush=True)\n"
        "while not done.is_set():\n    try:\n        inside = True\n        wait()\n        inside = False\n"
        "    except KeyboardInterrupt:\n        hits += 1\n        print('hit', flush=True)\n"
        "signal.signal(signal.SIGINT, before)"
    )
    asked = [await driven.block(cell)]
    for n in range(150):
        driven.tell(n)
        if n % 5 == 0:
            asked.append(driven.execute(f"ran.append({n})"))
        if n % 10 == 0:
            await driven.manager.interrupt_kernel()
        if n % 10 == 9:
            # A second one too soon would cut off a handler, as it should; one outside the `try` says nothing.
            await driven.said("hit", 1)
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.3)
    driven.tell(150, cmd="stop")
    came = await driven.replies(asked)
    assert [which for which, _ in came] == asked
    assert {reply["content"]["status"] for _, reply in came} == {"ok"}
    assert await driven.value("hits") >= 1
    assert await driven.value("ran") == list(range(0, 150, 5))
    assert await driven.value("heard") == list(range(151))


def spoilt(driven: Driven) -> list[list[bytes]]:
    """Messages that no frontend of this kernel would send."""
    session = driven.client.session
    data = {"method": "custom", "content": {"n": 666, "cmd": "stop"}}
    message = session.msg("comm_msg", {"comm_id": driven.comm, "data": data})
    good = session.serialize(message)
    sep, signature, header, *rest = good
    other = session.msg("comm_msg", {"comm_id": "nobody's", "data": data})
    shape = session.msg("comm_msg", {"comm_id": driven.comm, "data": {"method": "custom"}})
    untyped = session.msg("comm_msg", {})
    return [
        [sep, b"0" * len(signature), header, *rest],
        [sep, b"", header, *rest],
        [sep, signature, b"{}", *rest],
        [sep, signature, b"\xff\x00 no JSON", *rest],
        [sep, signature, b'{"msg_type": ["comm_msg"]}', *rest],
        [sep, signature, header],
        [sep],
        [b"no delimiter"],
        session.serialize(other),
        session.serialize(shape),
        session.serialize(untyped),
    ]


async def test_a_spoilt_message_ends_nothing(driven: Driven) -> None:
    """Untrusted bytes on the channel: dropped with a line of log, and the next message is heard."""
    asked = await driven.block()
    for frames in spoilt(driven):
        driven.client.shell_channel.socket.send_multipart(frames)
    await asyncio.sleep(0.3)
    driven.tell(1)
    driven.tell(2, cmd="stop")
    [(_, reply)] = await driven.replies([asked])
    assert reply["content"]["status"] == "ok"
    assert await driven.value("heard") == [1, 2]
    again = await driven.block()
    driven.tell(3, cmd="stop")
    await driven.replies([again])


async def test_a_handler_that_fails_or_waits_itself_ends_nothing(driven: Driven) -> None:
    """A message of another widget is handled too: what its owner's code does is no concern of the wait."""
    await driven.run(
        "def unruly(_, content, buffers):\n"
        "    if content['n'] == 1: raise ValueError('mine')\n"
        "    if content['n'] == 2:\n        inner = threading.Event()\n"
        "        widget.on_msg(lambda *_: inner.set())\n"
        "        while not inner.wait(0.03): pump()\n"
        "widget.on_msg(unruly)"
    )
    asked = await driven.block()
    driven.tell(1)
    driven.tell(2)
    driven.tell(3)
    driven.tell(4, cmd="stop")
    [(_, reply)] = await driven.replies([asked])
    assert reply["content"]["status"] == "ok"
    assert await driven.value("sorted(heard)") == [1, 2, 3, 4]


async def test_only_the_main_thread_reads(driven: Driven) -> None:
    """A wait in another thread leaves the sockets alone: they are the main thread's."""
    await driven.run("thread = threading.Thread(target=wait); thread.start()")
    asked = driven.execute("time.sleep(0.5)\nearly = list(heard)")
    driven.tell(1)
    driven.tell(2, cmd="stop")
    await driven.replies([asked])
    await driven.run("thread.join(30)")
    assert await driven.value("[early, heard]") == [[], [1, 2]]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system cannot fork")
async def test_a_fork_reads_nothing(driven: Driven) -> None:
    """A child made by fork shares its parent's sockets and must not touch them."""
    code = (
        "import os, warnings\nwarnings.simplefilter('ignore')\ndone.clear()\n"
        "print('waits', flush=True)\npid = os.fork()\n"
        "if pid == 0:\n    time.sleep(0.3); pump(); os._exit(len(heard))\n"
        "status = os.waitpid(pid, 0)[1]\nwait()"
    )
    asked = await driven.block(code)
    driven.tell(1)
    driven.tell(2, cmd="stop")
    await driven.replies([asked])
    assert await driven.value("[status, heard]") == [0, [1, 2]]


def test_where_no_kernel_is_nothing_happens() -> None:
    """DESIGN section 7: a script or a terminal has no kernel; nothing of it is even imported."""
    code = (
        "import sys\nfrom pooled_nb.widgets.kernel import guard, pump\npump()\nguard(object())\nguard(None)\n"
        "assert not {'ipykernel', 'zmq', 'ipywidgets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_guard_holds_one_widget_only() -> None:
    """DESIGN section 7: ipykernel 7.4's hook is set on our own comms; where there is none, nothing is."""

    class Comm:
        def _reply_subshell_for(self, data: object, default: str | None) -> str | None:
            return "the one that published last"

    ours, other = SimpleNamespace(comm=Comm()), SimpleNamespace(comm=Comm())
    under_test.guard(ours)
    assert ours.comm._reply_subshell_for({}, "mine") == "mine"
    assert other.comm._reply_subshell_for({}, "mine") == "the one that published last"
    plain = SimpleNamespace(comm=SimpleNamespace())
    under_test.guard(plain)
    assert vars(plain.comm) == {}


def pressed(steps: list[str], times: int, *, second: bool) -> None:
    """Interrupt this thread so often where interrupts are held back."""
    with under_test._uninterrupted(second=second):
        for n in range(times):
            signal.raise_signal(signal.SIGINT)
            steps.append(f"after {n + 1}")


def test_an_interrupt_is_held_back_and_then_raised() -> None:
    """Between two places a message is in none: an interrupt waits until it has arrived."""
    steps: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        pressed(steps, 2, second=False)
    assert steps == ["after 1", "after 2"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_interrupt_cuts_off_what_hangs() -> None:
    """What a widget's owner does in a handler may hang: whoever presses twice gets out of it."""
    steps: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        pressed(steps, 2, second=True)
    assert steps == ["after 1"]
    assert signal.getsignal(signal.SIGINT) is before
