"""The door in a real kernel, over a scripted room: what a blocked cell shows, what its person is asked."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pooled_nb.demo.kernels import Kernel
from tests.front.notebook import Page, scripted_kernel

DOUBT = """
from pooled_nb.room.doorfacts import Doubt
rooms.doubt = Doubt(digits="482 019", text="The host did not recognise your link.")
"""


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    async with scripted_kernel(tmp_path) as one:
        yield one


async def answered(kernel: Kernel, code: str, answer: str) -> tuple[dict[str, Any], str]:
    """Run a cell whose question gets this answer: its reply, and the question."""
    client = kernel._client
    asked = client.execute(code, allow_stdin=True)
    prompt = ""
    async with asyncio.timeout(60):
        while True:
            if await client.stdin_channel.msg_ready():
                request = await client.get_stdin_msg(timeout=1)
                prompt = request["content"]["prompt"]
                client.input(answer)
            try:
                reply: dict[str, Any] = await client.get_shell_msg(timeout=0.1)
            except queue.Empty:
                continue
            if reply["parent_header"]["msg_id"] == asked:
                return reply["content"], prompt


async def test_a_cell_that_waits_for_devices_says_who_waits_for_it(kernel: Kernel) -> None:
    """DESIGN section 1: every wait says what to do next; the panel's Allow works while the cell blocks."""
    page = Page(kernel, widgets=True)
    await page.run("%pooled host org/model -o room")
    await kernel.run(
        "rooms.core.others = False\n"
        "allow = rooms.core.allow\n"
        "async def entered(number):\n"
        "    name = await allow(number)\n"
        "    rooms.core.others = True\n"
        "    return name\n"
        "rooms.core.allow = entered\n"
        "can = rooms.core._can\n"
        "rooms.core._can = lambda: ['allow', 'deny', *can()]\n"
        "from pooled_nb.threads import mesh\n"
        "async def knock(): rooms.core.ask_to_join('leo')\n"
        "mesh.run(knock())"
    )
    waits: list[str] = []

    async def press() -> None:
        while not any("leo asks to join" in text for text in waits):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        page.say(list(page.panels)[-1], {"cmd": "allow", "id": 1})

    pressing = asyncio.create_task(press())
    client = kernel._client

    def heard(message: dict[str, Any]) -> None:
        data = message["content"].get("data", {})
        waits.append(str(data.get("text/plain", "")) if isinstance(data, dict) else "")

    reply = await client.execute_interactive("%pooled start --devices 2", output_hook=heard, timeout=60)
    await pressing
    assert reply["content"]["status"] == "ok"
    said = [text for text in waits if "asks to join" in text]
    assert "1 of 2 devices are here; leo asks to join, with 482 020 on its screen." in said[0]
    assert "Allow or Deny it in the panel." in said[0]
    assert await kernel.value("[e for e in rooms.core.log if e[0] == 'allow']") == [["allow", 1]]


@pytest.mark.parametrize("join", ["%pooled join 4TK-G9P", "pooled_nb.join('4TK-G9P')"])
async def test_the_person_of_a_cell_is_asked(kernel: Kernel, join: str) -> None:
    """PROTOCOL section 4, Device: it waits for its person to confirm; in a notebook by a question there."""
    await kernel.run(DOUBT)
    reply, prompt = await answered(kernel, join, "n")
    assert prompt == "The host did not recognise your link. Does the host's screen show 482 019? [y/N] "
    assert (reply["status"], reply["ename"]) == ("error", "RoomRefused")
    reply, _ = await answered(kernel, join, "y")
    assert reply["status"] == "ok"
    assert await kernel.value("pooled_nb.current().status().trust") == "confirmed"


async def test_a_run_that_nobody_watches_is_refused_in_words(kernel: Kernel) -> None:
    """DESIGN section 1: nbclient and nbconvert give no input: no wait without end, and no yes by default."""
    await kernel.run(DOUBT)
    page = Page(kernel)
    [*_, error] = await page.run("%pooled join 4TK-G9P")
    assert error["kind"] == "error"
    [said] = error["traceback"]
    assert "nobody is here to compare the six digits" in said
    assert "confirm=" in said
    assert await kernel.value("pooled_nb.current() is None") is True


async def test_the_link_is_in_no_output(kernel: Kernel) -> None:
    """DESIGN section 7: `%pooled invite` shows the panel; the link is in none of its outputs."""
    page = Page(kernel, widgets=True)
    await page.run("%pooled host org/model -o room")
    seen = await page.run("%pooled invite")
    assert "Invite in the panel copies the link" in str(seen)
    assert "widget-view" in str(seen)
    seen += await page.run("%pooled invite --new\nroom.invite()")
    seen += await page.run("room.network(turn='turn:ana:PLANTEDpassword@relay.example:1')")
    assert "SCRIPTEDkey" not in str(seen) + str(page.panels)
    assert "PLANTED" not in str(seen) + str(page.panels)
