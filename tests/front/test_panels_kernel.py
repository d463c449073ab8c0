"""Panels in a real kernel, over a scripted room: live while they run, words when they have ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pooled_nb.demo.kernels import Kernel
from tests.front.notebook import WIDGET, Page, saved, scripted_kernel

ENDLESS = "rooms.core.endless, rooms.core.gap_s = True, 0.01"
FINITE = "rooms.core.endless, rooms.core.gap_s = False, 0.001"


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    async with scripted_kernel(tmp_path) as one:
        yield one


@pytest.fixture
def page(kernel: Kernel) -> Page:
    return Page(kernel, widgets=True)


def static(output: dict[str, Any]) -> str:
    """Its plain text; it holds no widget any more."""
    assert WIDGET not in output["data"]
    assert output["data"]["text/html"]
    return str(output["data"]["text/plain"])


def is_wiped(page: Page, bar: dict[str, Any]) -> bool:
    """Whether an output that told of a wait shows nothing any more."""
    return page.kept.get(bar["transient"]["display_id"]) == ""


async def test_a_room_is_a_panel_until_it_is_over(kernel: Kernel, page: Page) -> None:
    """DESIGN section 7: `%pooled host` ends with the panel; a room that is over is words."""
    opened = await page.run("%pooled host org/model -o room")
    [panel] = saved(opened)
    assert panel["data"][WIDGET]["model_id"] in page.panels
    assert "Room 4TK-G9P" in panel["data"]["text/plain"]
    assert "the room may be closed by now" in panel["data"]["text/html"]
    assert len(opened) > 1  # a line told how far it was
    again = await page.run("%pooled")
    also = await page.run("room")
    for shown in (again, also):
        assert saved(shown)[0]["data"][WIDGET] == panel["data"][WIDGET]  # one panel, several views
    left = await page.run("%pooled leave")
    first, second, third, words = saved(opened + again + also + left)
    for output in (first, second, third):
        assert "The room is closed." in static(output)
        assert "may be closed" not in static(output)
    assert words["text"] == "Closed room 4TK-G9P.\n"
    await page.run("import time; time.sleep(0.5)")  # the painter's thread has told the views
    state = page.panels[panel["data"][WIDGET]["model_id"]]["room"]
    assert (state["state"], state["actions"]) == ("closed", [])
    [after] = await page.run("room")  # a panel after its room closed: words
    assert "The room is closed." in static(after)


async def test_a_cell_that_runs_again_is_not_kept_twice(kernel: Kernel, page: Page) -> None:
    """CASES, notebook: a panel shown again and again: what is gone from the page is forgotten."""
    opened = await page.run("%pooled host org/model -o room")
    session, channel = kernel._client.session, kernel._client.shell_channel
    for cell in ("a", "a", "b", "a"):
        content = {"code": "%pooled\nroom", "silent": False, "store_history": True, "user_expressions": {}}
        channel.send(session.msg("execute_request", content, metadata={"cellId": cell}))
    await page.run("import pooled_nb.room_output as o")
    counts = "[(len(each._outputs), len(each.room._watchers)) for each in o._all]"
    assert await kernel.value(counts) == [[5, 2]]  # a and b twice each, and one that no frontend named
    left = await page.run("room.leave();")
    assert len([m for m in left if "The room is closed." in str(m)]) == 5
    assert len(saved(opened + [m for m in left if m["transient"]["display_id"] in str(opened)])) == 1
    assert await kernel.value("o._all") == []


async def test_an_output_hears_of_the_end_without_a_cell(kernel: Kernel, page: Page) -> None:
    """DESIGN section 7: also when the host closes it while no cell runs here."""
    opened = await page.run("%pooled join 4TK-G9P -o room")
    await page.run("import threading; t = threading.Timer(0.5, lambda: room.leave()); t.start()")
    closed = await page.later("The room is closed.")
    [output] = saved(opened + [m for m in closed if m["kind"] == "update_display_data"])
    static(output)


async def test_ask_is_a_panel_then_markdown(kernel: Kernel, page: Page) -> None:
    """DESIGN section 7: a finished %%ask replaces its panel by static Markdown."""
    await page.run("%pooled host org/model\nrooms.core.gap_s = 0.02")
    seen = await page.run("%%ask -o answer\n" + "word " * 30 + "**end**")
    assert WIDGET in seen[0]["data"]
    assert len(seen) == 2  # the panel, then its end: nothing is sent twice while somebody sees the panel
    [kept] = saved(seen)
    assert static(kept).startswith("word word")
    assert "<strong>end</strong>" in kept["data"]["text/html"]
    assert kept["data"]["text/markdown"]
    assert seen[0]["data"][WIDGET]["model_id"] in page.closed


async def test_stop_in_the_panel_while_the_cell_blocks(kernel: Kernel, page: Page) -> None:
    """DESIGN section 7: Stop works while a cell blocks; the cell ends in order, with what had come."""
    await page.run(f"%pooled host org/model\n{ENDLESS}")
    for code in ("%%ask -o answer\non and on", "room = pooled_nb.current(); answer = room.ask('on and on')"):
        seen = await page.run(code, say_at=("on and on", "stop"))
        [kept] = saved(seen)
        assert static(kept).endswith("stopped")
        assert await kernel.value("answer.reason") == "abort"
    await page.run(FINITE)
    assert await kernel.value("room.ask('still here').text") == "still here "


@pytest.mark.parametrize("code", ["%%ask\non and on", "%pooled regenerate"])
async def test_an_interrupt_keeps_what_had_come(kernel: Kernel, page: Page, code: str) -> None:
    """DESIGN section 7: an interrupt ends only that answer; the output says so once, and holds no widget."""
    await page.run("%pooled host org/model\n_ = pooled_nb.current().ask('on and on', on_text=len)")
    await page.run(ENDLESS)
    kept, error = saved(await page.run(code, stop_at="on and on"))
    assert static(kept).endswith("stopped")
    assert error["traceback"] == ["Stopped."]  # a page frames it in red: empty it would look broken
    await page.run(FINITE)
    assert await kernel.value("pooled_nb.current().ask('still here').text") == "still here "


async def test_an_interrupted_start_keeps_the_room(kernel: Kernel, page: Page) -> None:
    """DESIGN section 7: KeyboardInterrupt leaves the room, also while it loads."""
    await page.run("%pooled host org/model\nrooms.core.gap_s = 20")
    seen = await page.run("%pooled start", stop_at="reading layers")
    assert seen[-1]["traceback"] == ["Stopped."]
    assert is_wiped(page, seen[0])
    assert await kernel.value("pooled_nb.current().left") is False


@pytest.mark.parametrize("cell", ["%pooled host org/model", "pooled_nb.join('4TK-G9P')"])
async def test_what_does_not_open_leaves_no_bar(kernel: Kernel, page: Page, cell: str) -> None:
    """DESIGN section 7: a saved notebook reads well: no wait that seems to go on above the error."""
    await page.run("rooms.fail = pooled_nb.errors.RoomNotFound('Nobody is there.', 'Check it.')")
    seen = await page.run(cell)
    assert "finding the model" in str(seen)
    assert is_wiped(page, seen[0])
    assert seen[-1]["evalue"] == "Nobody is there. Check it."


async def test_a_failed_answer_says_why_once(kernel: Kernel, page: Page) -> None:
    """Errors: one sentence what happened, one what to do next; in the output, under what had come."""
    await page.run("%pooled host org/model\nfrom pooled_nb.room.core import Done, Stats")
    await page.run("rooms.core.done = Done(reason='error', stats=Stats(tokens=2), why='A device left.')")
    kept, error = saved(await page.run("%%ask -o answer\ncame so far"))
    assert static(kept).startswith("came so far")
    assert static(kept).count("A device left.") == 1
    assert "failed" not in static(kept)
    assert error["ename"] == "AnswerFailed"
    assert error["traceback"] == ["The answer failed: see above."]
    [later] = await page.run("answer.result()")  # of another cell, so with all that Python says
    assert "A device left." in later["traceback"][-1]
    assert len(later["traceback"]) > 1


async def test_in_the_background_the_output_lives_on(kernel: Kernel, page: Page) -> None:
    """DESIGN section 7: the cell ends at once, its output grows, and becomes Markdown at the end."""
    await page.run("%pooled host org/model\nrooms.core.gap_s = 0.03")
    asked = await page.run("%%ask --background -o answer\n" + "word " * 40)
    assert [m["kind"] for m in asked] == ["display_data"]
    assert WIDGET in asked[0]["data"]
    assert await kernel.value("answer.done()") is False
    [own] = [m for m in await page.run("print('mine')") if m["kind"] == "stream"]
    assert own["text"] == "mine\n"
    later = await page.later("40 tokens")
    [kept] = saved(asked + [m for m in later if m["kind"] == "update_display_data"])
    assert static(kept).startswith("word word")
    assert [m for m in later if m["kind"] != "update_display_data"] == []


async def test_in_the_background_what_is_refused_stays_in_its_cell(kernel: Kernel, page: Page) -> None:
    """DESIGN section 7: also an answer that has ended before its cell is shown in that cell."""
    await page.run("%pooled host org/model -o room\nfrom pooled_nb.errors import QueueFull")
    await page.run("rooms.core.refuse = QueueFull('Too many questions wait.', 'Ask again in a moment.')")
    await page.run(
        "import pooled_nb.magics.commands as c, time\nfollow = c.follow\n"
        "c.follow = lambda answer: (time.sleep(0.5), follow(answer))"
    )
    [kept] = await page.run("%%ask --background\nwhy?")
    assert static(kept) == "Too many questions wait. Ask again in a moment."
    assert await page.run("time.sleep(0.3)") == []


async def test_a_call_as_a_value_draws_no_second_panel(kernel: Kernel, page: Page) -> None:
    """DESIGN section 7: the panel that is there shows the room; a call that changed it says one line."""
    [panel] = saved(await page.run("%pooled host org/model -o room"))
    for code in ("room.start()", "room.set(style='focused')", "room.stop()", "room.reset()", "room.redeal()"):
        [line] = saved(await page.run(code))
        assert static(line) == "The room is online."
    for code in ("room", "room.panel()", "%pooled"):
        [shown] = saved(await page.run(code))
        assert shown["data"][WIDGET] == panel["data"][WIDGET]
    # What was shown before tells it too, at some moment.
    [line] = [m for m in await page.run("room.close()") if m["kind"] != "update_display_data"]
    assert static(line) == "The room is closed."


async def test_a_call_shows_the_first_panel(kernel: Kernel, page: Page) -> None:
    """DESIGN section 7: where none is in the notebook yet, the room is shown as a room is."""
    await page.run("room = pooled_nb.host('m')")
    line, panel = saved(await page.run("room.start()"))
    assert static(line) == "The room is online."
    assert WIDGET in panel["data"]
    [line] = saved(await page.run("room.start()"))
    assert static(line) == "The room is online."


async def test_a_live_answer_as_a_value_is_its_panel(kernel: Kernel, page: Page) -> None:
    """DESIGN section 7: a live Answer shows its panel; a whole one its Markdown."""
    await page.run("%pooled host org/model -o room\nrooms.core.gap_s = 0.03")
    live = await page.run("answer = room.stream('word ' * 40); answer")
    assert WIDGET in live[0]["data"]
    await page.later("40 tokens")
    [whole] = await page.run("answer")
    assert static(whole).startswith("word word")


async def test_a_page_that_was_reloaded_keeps_its_panel(kernel: Kernel, page: Page) -> None:
    """CASES: a browser that reconnects mid-answer hears of no update: the text stays on its panel."""
    await page.run("%pooled host org/model\nrooms.core.gap_s = 0.03")
    asked = await page.run("%%ask --background -o answer\n" + "word " * 40)
    panel = asked[0]["data"][WIDGET]["model_id"]
    await page.run("import time; time.sleep(0.3)")
    page.say(panel, {"cmd": "here"})
    await page.later("40 tokens")
    state = page.panels[panel]
    await page.until(lambda: (state["text"], state["answer"]["state"]) == ("word " * 40, "done"))
    assert panel not in page.closed


async def test_the_background_ends_with_its_room(kernel: Kernel, page: Page) -> None:
    """CASES: a notebook reopened without its kernel: no output of a room that is over holds a widget."""
    opened = await page.run(f"%pooled host org/model -o room\n{ENDLESS}")
    asked = await page.run("%%ask --background\non and on")
    left = await page.run("import time; time.sleep(1)\n%pooled leave")
    left += [] if "on and on" in str(left) else await page.later("on and on")
    for output in saved(opened + asked + left):
        assert output["kind"] == "stream" or static(output)


async def test_without_widgets_it_is_a_line_of_text(kernel: Kernel) -> None:
    """DESIGN section 7: no view has said that it is there: after a grace the output is text, as it grows."""
    page = Page(kernel)
    await page.run("%pooled host org/model\nimport pooled_nb.answer_output as o; o.GRACE_S = 0.3")
    await page.run("rooms.core.gap_s = 0.02")
    seen = await page.run("%%ask\n" + "word " * 60)
    assert WIDGET in seen[0]["data"]  # somebody might draw it
    growing = [m for m in seen[1:] if "word" in m["data"]["text/plain"]]
    assert len(growing) > 3
    for message in growing:
        static(message)


async def test_a_page_that_comes_late_gets_its_panel_back(kernel: Kernel) -> None:
    """DESIGN section 7: a view that appears after the grace: the panel comes back."""
    page = Page(kernel)
    await page.run(f"%pooled host org/model\n{ENDLESS}\nimport pooled_nb.answer_output as o; o.GRACE_S = 0.3")
    page.widgets = False
    running = asyncio.create_task(page.run("%%ask\non and on", say_at=("on and on", "here")))
    await asyncio.sleep(3)
    await kernel.interrupt()
    seen = await running
    panels = [n for n, m in enumerate(seen) if WIDGET in m.get("data", {})]
    assert len(panels) == 2
    texts = [n for n, m in enumerate(seen) if "on and on" in str(m.get("data")) and n not in panels]
    assert panels[0] < texts[0] < panels[1]
    assert seen[-2]["data"]["text/plain"].endswith("stopped")
    assert len([n for n in texts if n > panels[1]]) == 1


async def test_what_is_kept_for_a_page_without_the_kernel(kernel: Kernel, page: Page) -> None:
    """CASES: a notebook reopened without its kernel: the room as it was last and the text are there."""
    await page.run("%pooled host org/model -o room")
    [(name, html)] = page.kept.items()
    assert "Room 4TK-G9P" in html
    assert "layers 1–10" in html
    await page.run("rooms.core.gap_s = 0.02\nroom.start();")
    await page.run(
        "import time; rooms.core.cut = 20; room.command('set', {'style': 'focused'}); time.sleep(3)"
    )
    assert "layers 1–20" in page.kept[name]  # dealt anew, without a blink of the panel
    assert list(page.kept) == [name]
    await page.run(f"import pooled_nb.answer_output as o; o.KEEP_S = 0.1\n{ENDLESS}")
    texts: list[str] = []
    page.on_kept = texts.append
    await page.run("%%ask\nover and on", say_at=("over and on over and on over and on over", "stop"))
    assert any("over and on over" in text for text in texts)
    assert texts[-1] == ""  # the answer is words by now
    await page.run("room.leave();")
    assert set(page.kept.values()) == {""}


async def test_nothing_secret_is_kept(kernel: Kernel, page: Page) -> None:
    """DESIGN section 7: what a notebook keeps holds only this person's own exchanges, and no key."""
    seen = await page.run("%pooled host org/model -o room")
    await page.run("rooms.core.question = 'asked by another'")
    seen += await page.run("%pooled") + await page.run("%%ask\nmine") + await page.run("%pooled status")
    kept = json.dumps([saved(seen), page.panels])
    assert "mine" in kept
    assert "asked by another" not in kept
    assert "#k=" not in kept
