"""Panels in a real kernel: a network thread feeds them while cells run, and all lands where it should."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.kernels import KERNELS, running

VIEW = "application/vnd.jupyter.widget-view+json"
SETUP = """
import json, threading, time
from comm import get_comm_manager
from pooled_nb import _notebook
from pooled_nb.widgets.answer_panel import AnswerPanel
from pooled_nb.widgets.room_panel import RoomPanel
from tests.widgets.fakes import STATIC, FakeAnswer, FakeRoom, status
_notebook.guard()
before = len(get_comm_manager().comms)
room, answer = FakeRoom(status("online", can=["stop"])), FakeAnswer()
def feed(seconds):
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        n += 1
        print("printed on the network thread", flush=True)
        room.become(status("answering", used=n, can=["stop"]))
        answer.say(f"w{n} ")
        time.sleep(0.01)
    answer.end(line=f"{n} tokens")
    room.become(status("online", used=n))
"""
FEED = "threading.Thread(target=feed, args=({},), name='pooled-mesh').start()"
ENDED = "[answer.ended, answer_panel.answer['state'], room_panel.room['state']]"


class Notebook:
    """A kernel, and every message of its iopub channel."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.seen: list[dict[str, Any]] = []

    async def _execute(self, code: str, **options: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        asked, before = self.client.execute(code, allow_stdin=False, **options), len(self.seen)
        while True:
            message = await self.client.get_iopub_msg(timeout=60)
            self.seen.append(message)
            mine = message["parent_header"].get("msg_id") == asked
            if mine and message["content"].get("execution_state") == "idle":
                break
        while True:
            reply = await self.client.get_shell_msg(timeout=60)
            if reply["parent_header"].get("msg_id") == asked:
                assert reply["content"]["status"] == "ok", reply["content"]
                return reply["content"], self.seen[before:]

    async def run(self, code: str) -> list[dict[str, Any]]:
        """Run a cell; the messages that came meanwhile, whosever they are."""
        return (await self._execute(code))[1]

    async def value(self, expression: str) -> Any:
        reply, _ = await self._execute("", user_expressions={"v": f"json.dumps({expression})"})
        found = reply["user_expressions"]["v"]
        assert found["status"] == "ok", found
        return json.loads(ast.literal_eval(found["data"]["text/plain"]))

    async def until(self, expression: str) -> None:
        for _ in range(200):
            if await self.value(expression):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"never true: {expression}")

    async def drain(self) -> None:
        """Messages that belong to no cell that waits: they come when they come."""
        while await self.client.iopub_channel.msg_ready():
            self.seen.append(await self.client.get_iopub_msg(timeout=10))

    def say(self, comm: str, **content: Any) -> None:
        data = {"method": "custom", "content": content}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", {"comm_id": comm, "data": data}))


@pytest.fixture(params=list(KERNELS))
async def notebook(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Notebook]:
    async with running(request.param, tmp_path) as (_, client):
        notebook = Notebook(client)
        await notebook.run(SETUP)
        yield notebook


def displays(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kinds = ("display_data", "execute_result")
    return [m["content"]["data"] for m in messages if m["msg_type"] in kinds]


def streams(messages: list[dict[str, Any]]) -> list[str]:
    return [m["content"]["text"] for m in messages if m["msg_type"] == "stream"]


def text_of(messages: list[dict[str, Any]], comm: str) -> str:
    """What a view of that comm shows that has missed nothing."""
    id, text, seq, state = None, "", 0, {}
    for m in messages:
        if m["msg_type"] not in ("comm_open", "comm_msg") or m["content"]["comm_id"] != comm:
            continue
        data = m["content"]["data"]
        if data.get("method") == "custom":
            content = data["content"]
            assert content["id"] == id
            assert content["seq"] <= seq + 1
            if content["seq"] > seq:  # else the trait went ahead with it
                text, seq = text + content["text"], seq + 1
        else:
            state |= data["state"]
            if state["answer"]["id"] != id or state["seq"] >= seq:
                id, text, seq = state["answer"]["id"], state["text"], state["seq"]
    return str(text)


async def test_two_cells_and_a_network_thread(notebook: Notebook) -> None:
    """CASES: traits set from a network thread, two cells: the right panel, no stray print in any cell."""
    first = await notebook.run("answer_panel = AnswerPanel(answer, fallback=lambda: STATIC)\nanswer_panel")
    second = await notebook.run("room_panel = RoomPanel(room, fallback=lambda: STATIC)\nroom_panel")
    ids = await notebook.value("[answer_panel.model_id, room_panel.model_id]")
    for messages, id in ((first, ids[0]), (second, ids[1])):
        [shown] = displays(messages)
        assert shown[VIEW]["model_id"] == id
        assert shown["text/plain"] == "plain"
        assert shown["text/html"] == "<p>plain</p>"
    own = await notebook.run(FEED.format(1.5) + "\ntime.sleep(0.5)\nprint('mine')")
    assert streams(own) == ["mine\n"]
    busy = await notebook.run("end = time.monotonic() + 0.7\nwhile time.monotonic() < end: pass")
    assert displays(busy) == []
    await notebook.until(ENDED + " == [True, 'done', 'online']")
    await notebook.drain()
    assert streams(notebook.seen) == ["mine\n"]
    spoken = [m for m in notebook.seen if m["msg_type"] == "comm_msg"]
    assert {m["content"]["comm_id"] for m in spoken} == set(ids)
    assert not any(m["buffers"] for m in spoken)
    whole = await notebook.value("''.join(answer.pieces)")
    assert len(whole) > 100
    assert text_of(notebook.seen, ids[0]) == whole
    assert len(spoken) < 20 * 2 * 4  # two panels, less than four seconds


async def test_close_gives_everything_back(notebook: Notebook) -> None:
    """The comm manager and the threads are at their baseline after twenty panels, shown and closed."""
    await notebook.run(
        "for n in range(20):\n"
        "    answer = FakeAnswer()\n"
        "    panel = AnswerPanel(answer, fallback=lambda: STATIC)\n"
        "    display(panel)\n"
        "    answer.say('a ' * n)\n"
        "    answer.end()\n"
        "    panel.close()\n"
        "from pooled_nb.widgets.painter import painter"
    )
    assert await notebook.value("painter.join(20)") is True
    assert await notebook.value("len(get_comm_manager().comms) - before") == 0
    assert await notebook.value("[t.name for t in threading.enumerate() if t.name == 'pooled-panels']") == []
    [shown] = displays(await notebook.run("panel"))
    assert VIEW not in shown
    assert shown["text/plain"] == "plain"
    await notebook.drain()
    opened = [m["content"]["comm_id"] for m in notebook.seen if m["msg_type"] == "comm_open"]
    closed = [m["content"]["comm_id"] for m in notebook.seen if m["msg_type"] == "comm_close"]
    assert sorted(opened) == sorted(closed)
    # Once closed nothing is said any more.
    for n, message in enumerate(notebook.seen):
        if message["msg_type"] == "comm_close":
            later = [m["content"].get("comm_id") for m in notebook.seen[n + 1 :]]
            assert message["content"]["comm_id"] not in later


async def test_a_page_is_heard_and_answered(notebook: Notebook) -> None:
    """A view says that it is here, asks for the whole, and presses a button; what is wrong is not heard."""
    await notebook.run("answer_panel = AnswerPanel(answer, fallback=lambda: STATIC)")
    await notebook.run("room_panel = RoomPanel(room, fallback=lambda: STATIC)\nroom_panel")
    ids = await notebook.value("[answer_panel.model_id, room_panel.model_id]")
    await notebook.run("answer.say('one '); room.become(status('answering', can=['stop']))")
    notebook.say(ids[0], cmd="here")
    notebook.say(ids[0], cmd="sync", id=1)
    notebook.say(ids[0], cmd=["not", "a", "verb"])
    notebook.say(ids[1], cmd="stop")
    await notebook.until("[answer_panel.viewed, room_panel.viewed] == [True, False]")
    await notebook.until("[c[:2] for c in room.commands] == [['stop', {}]] or len(room.commands) == 1")
    for _ in range(100):
        await notebook.drain()
        customs = [
            m["content"]["data"]["content"]
            for m in notebook.seen
            if m["msg_type"] == "comm_msg" and m["content"]["data"]["method"] == "custom"
        ]
        if any("whole" in content for content in customs):
            break
        await asyncio.sleep(0.05)
    assert customs[-1]["whole"] == "one "
    assert streams(notebook.seen) == []  # no traceback either


async def test_a_reloaded_page_reads_one_moment(notebook: Notebook) -> None:
    """A reload in the middle of an answer: the state that a page reads fits together, text and number."""
    await notebook.run("answer_panel = AnswerPanel(answer, fallback=lambda: STATIC)\nanswer_panel")
    await notebook.run(FEED.format(1.2))
    sizes = await notebook.value(
        "[[s['seq'], s['text']] for _ in range(60) for s in [time.sleep(0.02) or answer_panel.get_state()]]"
    )
    await notebook.until("answer_panel.answer['state'] == 'done'")
    await notebook.drain()
    whole = await notebook.value("''.join(answer.pieces)")
    by_seq, text = {0: ""}, ""
    for m in notebook.seen:
        if m["msg_type"] == "comm_msg" and m["content"]["data"]["method"] == "custom":
            content = m["content"]["data"]["content"]
            text += content["text"]
            by_seq[content["seq"]] = text
    assert text == whole
    assert len({seq for seq, _ in sizes}) > 1
    assert all(by_seq[seq] == read for seq, read in sizes)
