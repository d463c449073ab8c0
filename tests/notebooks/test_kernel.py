"""A real Jupyter kernel and a scripted room: what a cell shows, what stops it, how a kernel leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pooled_nb.demo.kernels import Kernel
from pooled_nb.errors import RoomError
from tests.front.notebook import SCRIPTED, outputs, saved, scripted_kernel

NOISY = """
import logging, sys
ask, stop = ScriptedCore.ask, ScriptedCore.stop
def noise():
    print("printed on the network thread", flush=True)
    sys.stderr.write("written there\\n")
    logging.getLogger("pooled_nb.room").warning("logged there")
    logging.getLogger("aiortc").warning("logged there by a library")
async def noisy_ask(self, *args):
    async for event in ask(self, *args):
        noise()
        yield event
async def noisy_stop(self):
    noise()
    await stop(self)
ScriptedCore.ask, ScriptedCore.stop = noisy_ask, noisy_stop
"""


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    async with scripted_kernel(tmp_path) as one:
        yield one


async def test_an_answer_grows_in_one_output_and_stays(kernel: Kernel) -> None:
    """DESIGN section 7: one display updated in place; a saved notebook reads well without a kernel."""
    [panel] = saved(await outputs(kernel, "%pooled host org/model"))
    assert "Room 4TK-G9P" in panel["data"]["text/plain"]
    assert "<table>" in panel["data"]["text/html"]
    # Nobody draws a panel here; the grace that a page has for it is cut short.
    await kernel.run("rooms.core.gap_s = 0.02\nimport pooled_nb.answer_output as o; o.GRACE_S = 0.05")
    seen = await outputs(kernel, "%%ask -o answer\n" + "word " * 30 + "**end**")
    updates = [m for m in seen if m["kind"] == "update_display_data"]
    assert 2 < len(updates) < 40  # it streams, and not one message a piece
    [kept] = saved(seen)
    assert kept["data"]["text/plain"].startswith("word word")
    assert "<strong>end</strong>" in kept["data"]["text/html"]
    assert await kernel.value("answer.reason") == "stop"
    [status] = saved(await outputs(kernel, "%pooled status"))
    assert "text/html" in status["data"]
    assert await kernel.value("pooled_nb.current().code") == "4TK-G9P"


async def test_an_error_is_one_sentence_without_a_traceback(kernel: Kernel) -> None:
    """Errors: one sentence what happened and one what to do next; the cell has failed, so Run All stops."""
    [error] = await outputs(kernel, "%pooled status")
    assert error["kind"] == "error"
    want = "This kernel is in no room. Open one with %pooled host MODEL, or join with %pooled join CODE."
    assert error["traceback"] == [want]
    with pytest.raises(RoomError, match="in no room"):
        await kernel.run("%%ask\nanyone?")


async def test_the_stop_button_stops_the_answer_only(kernel: Kernel) -> None:
    """CASES: interrupt while ask waits. DESIGN section 7: it stops that answer and leaves the room."""
    await kernel.run("%pooled host org/model\nrooms.core.endless = True")
    kept, error = saved(await outputs(kernel, "%%ask -o answer\non and on", stop_at="on and on"))
    assert kept["kind"] == "update_display_data"  # what was there stays
    assert kept["data"]["text/plain"].startswith("on and on")
    assert kept["data"]["text/plain"].endswith("stopped")
    assert error["ename"] == "KeyboardInterrupt"
    assert error["traceback"] == ["Stopped."]
    code = "room = pooled_nb.current(); room.ask('more and more')"
    assert (await outputs(kernel, code, stop_at="more and more"))[-1]["ename"] == "KeyboardInterrupt"
    await kernel.run("rooms.core.endless = False")
    assert await kernel.value("room.ask('still here').text") == "still here "


async def test_run_all_stops_with_the_answer(kernel: Kernel) -> None:
    """DESIGN section 7: cells that Run All has queued behind a stopped %%ask do not run."""
    await kernel.run("%pooled host org/model\nrooms.core.endless = True\nran = []")
    asking = asyncio.create_task(outputs(kernel, "%%ask\non and on", stop_at="on and on"))
    await asyncio.sleep(0)
    queued = kernel._client.execute("ran.append(1)", stop_on_error=True)
    await asking
    while (reply := await kernel._client.get_shell_msg(timeout=60))["parent_header"].get("msg_id") != queued:
        pass
    assert reply["content"]["status"] in ("aborted", "error")
    assert await kernel.value("ran") == []


async def test_a_room_that_is_over_invites_nobody(kernel: Kernel) -> None:
    """DESIGN section 7: a saved notebook reads well: what `%pooled host` shows ends with the room."""
    opened = await outputs(kernel, "%pooled host org/model")
    assert "pooled-nb join" in saved(opened)[0]["data"]["text/plain"]
    left = await outputs(kernel, "%pooled leave")
    [panel, closed] = saved(opened + left)
    assert "The room is closed." in panel["data"]["text/plain"]
    assert "pooled-nb join" not in str(panel["data"])
    assert closed["text"] == "Closed room 4TK-G9P.\n"
    # Whoever ends it, and however: the next cell to end sees it.
    joined = await outputs(kernel, "%pooled join 4TK-G9P -o room")
    [panel] = saved(joined + await outputs(kernel, "room.leave();"))
    assert "The room is closed." in panel["data"]["text/plain"]
    assert await outputs(kernel, "None") == []


async def test_sync_and_awaited_in_a_cell(kernel: Kernel) -> None:
    """CASES: every synchronous call from a cell and from await works, without patching the loop."""
    await kernel.run("room = await pooled_nb.host('m', progress=False)\na = await room.ask('one two')")
    await kernel.run("text = ''\nasync for piece in room.stream('three four'): text += piece")
    await kernel.run(
        "import threading\nt = threading.Thread(target=lambda: room.ask('five')); t.start(); t.join()"
    )
    assert await kernel.value("[a.text, text, room.last.text]") == ["one two ", "three four ", "five "]


async def test_nothing_is_printed_into_another_cell(kernel: Kernel) -> None:
    """DESIGN section 7: print from our threads never lands in a user's cell."""
    await kernel.run(NOISY)
    await kernel.run("room = pooled_nb.host('m', wait=False).result()\nroom.start()")
    assert await outputs(kernel, "live = room.ask('a b c d', wait=False)\nlive.result()\nNone") == []
    await kernel.run("live = room.ask('a b c d', wait=False)\nrooms.core.on_notice('A device left.')")
    assert await outputs(kernel, "live.result()\nroom.stop()\nNone") == []
    assert await kernel.value("room.notices") == ["A device left."]
    assert await kernel.value("rooms.core.log.count('stop')") == 1
    [own] = await outputs(kernel, "print('mine')")
    assert own["text"] == "mine\n"


async def test_a_kernel_that_shuts_down_leaves_its_room(kernel: Kernel, tmp_path: Path) -> None:
    """DESIGN section 3: a dying kernel closes its own room; restarted, it starts with none."""
    mark = tmp_path / "left"
    await kernel.run(
        "leave = ScriptedCore.leave\n"
        "async def marked(self):\n"
        "    await leave(self)\n"
        f"    open({str(mark)!r}, 'w').write(self.code)\n"
        "ScriptedCore.leave = marked\n"
        "%pooled host org/model"
    )
    assert not mark.exists()
    await kernel._manager.restart_kernel()
    await kernel._client.wait_for_ready(timeout=60)
    assert mark.read_text() == "4TKG9P"
    await kernel.run(SCRIPTED)
    assert await kernel.value("pooled_nb.current() is None") is True
