"""Rooms in notebooks, as people see and use them."""

from __future__ import annotations

import json
import re

from playwright.sync_api import Locator

from tests.lab.cells import LOAD, MODEL, toy
from tests.lab.conftest import Opens
from tests.lab.pages import CONTEXT, Notebook

HOST = [toy(), "%pooled host toy/model -o room", "%pooled start", "%pooled"]


def said(page: Notebook, at: int = 0) -> str:
    """The sentence of a room panel."""
    return page.page.locator(".pnb-room .pnb-say-text").nth(at).inner_text()


def code_of(page: Notebook) -> str:
    """The code that a room panel shows."""
    code = page.page.locator(".pnb-room .pnb-code b").first
    page.until(lambda: code.count() == 1 and bool(re.fullmatch(r"\w{3}-\w{3}", code.inner_text())))
    return code.inner_text()


def test_host_in_one_notebook_join_in_another_and_ask(notebook: Opens) -> None:
    """DESIGN section 1: what a user does, with a real model over two kernels."""
    host = notebook("host").open(
        [
            LOAD,
            f"%pooled host {MODEL} --split memory -o room",
            "%pooled start --devices 2",
            "%%ask -o answer --max 24\nWhat is the capital of France? Say it in **bold**.",
            "print(answer.text)",
        ]
    )
    host.finish(0)
    host.finish(1)
    join = f"%pooled join {code_of(host)} --role worker --name office"
    worker = notebook("worker").open([LOAD, join, "6 * 7"])
    worker.finish(0)
    worker.run(1)
    host.page.get_by_role("button", name="Allow office").click(timeout=90_000)  # the code alone asks
    worker.ended(1)
    host.finish(2, 90)
    host.run(3)
    grown = host.page.locator(".pnb-answer .pnb-a")
    grown.wait_for()
    host.until(lambda: len(grown.inner_text()) > 3)
    assert worker.finish(2) == "42"  # its own cells run meanwhile
    host.ended(3)
    whole = host.finish(4).strip()
    assert "Paris" in whole
    # The panel is gone; Markdown stands in its place, and no trace of a widget.
    assert host.page.locator(".pnb-answer").count() == 0
    [output] = host.outputs(3)
    assert "text/markdown" in output["data"]
    assert "Paris" in "".join(output["data"]["text/markdown"])
    assert not [kind for kind in output["data"] if "widget" in kind]
    # Both people see the same room.
    for page in (host, worker):
        page.page.locator(".pnb-room .pnb-say-text", has_text="Online").wait_for()
        assert page.page.locator(".pnb-room .pnb-chain").inner_text().count("layers") == 2


def test_views_of_one_room_stay_in_step(notebook: Opens) -> None:
    """DESIGN section 7: several views of one room show the same; what is pressed in one holds in all."""
    page = notebook(size=(1300, 900)).open(
        [*HOST, "%%ask --background\nGo on.", "print(room.settings.style, room.last.reason)"]
    )
    for cell in (0, 1, 2, 3):
        page.finish(cell)
    page.page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 3; }")
    page.command("notebook:create-output-view")
    views = page.page.locator(".pnb-room")
    page.until(lambda: views.count() == 3)

    def all_say(word: str) -> None:
        page.until(lambda: all(word in said(page, at) for at in range(3)))

    all_say("Online")
    # The first cell's panel is asked to change a setting; all show it.
    views.nth(0).locator(".pnb-gear").click()
    views.nth(0).get_by_label("Creative").check()
    page.page.keyboard.press("Escape")
    notebook_page = page.page.locator(".jp-NotebookPanel")
    notebook_page.locator(".jp-Cell").nth(4).scroll_into_view_if_needed()
    page.page.evaluate("() => window.jupyterapp.shell.activateById(window.jupyterapp.shell.currentWidget.id)")
    page.run(4)
    all_say("Answering you")
    views.nth(1).get_by_role("button", name="Stop").click()
    all_say("Online")
    page.until(lambda: page.finish(5) == "creative abort\n")


BACKGROUND = [
    toy(end_after=400, delay=0.02),
    "%pooled host toy/model -o room",
    "%%ask -o answer --background\nGo on.",
    "print(answer.text)",
]


def streaming(page: Notebook) -> Locator:
    """Ask in the background; the text on the page, once it grows."""
    page.open(BACKGROUND)
    for cell in (0, 1, 2):
        page.finish(cell)
    text = page.page.locator(".pnb-answer .pnb-a")
    text.wait_for()
    page.until(lambda: len(text.text_content() or "") > 20)
    return text


def test_a_reload_mid_answer(notebook: Opens) -> None:
    """CASES: a panel closed and shown again in the middle of an answer: full text, live tail, then end."""
    page = notebook()
    text = streaming(page)
    page.save()
    page.reload()
    text.wait_for()
    before = len(text.text_content() or "")
    assert before > 20
    page.until(lambda: len(text.text_content() or "") > before)
    page.until(lambda: "400 tokens" in page.seen(2) and not page.page.locator("[data-busy]").count())
    whole = page.finish(3)
    assert len(letters(whole)) > 200
    assert letters(whole) in letters(page.seen(2))


def test_a_browser_that_reconnects_mid_answer(notebook: Opens) -> None:
    """Bad input: the page's connection is cut and made anew: nothing of the text is missing or doubled."""
    page = notebook()
    text = streaming(page)
    seen = [text.text_content() or ""]
    for _ in range(3):
        page.page.evaluate(f"async () => {{ await {CONTEXT}.sessionContext.session.kernel.reconnect(); }}")
        page.until(lambda: len(text.text_content() or "") > len(seen[-1]))
        seen.append(text.text_content() or "")
    page.until(lambda: "400 tokens" in page.text(2))
    whole = page.finish(3)
    assert all(letters(whole).startswith(letters(part)) for part in seen)
    assert page.text(2).startswith(whole.rstrip("\n"))


def test_a_kernel_that_begins_anew_mid_answer(notebook: Opens) -> None:
    """Bad input: what the panels showed stays and says so; nothing moves, and nothing is left to press."""
    page = notebook()
    text = streaming(page)
    page.page.evaluate(f"async () => {{ await {CONTEXT}.sessionContext.session.kernel.restart(); }}")
    page.until(lambda: "The kernel has ended" in said(page))
    page.until(lambda: "The kernel has ended" in page.page.locator(".pnb-answer").inner_text())
    assert len(text.text_content() or "") > 20
    assert page.page.locator("[data-busy], [data-go]").count() == 0
    assert page.page.locator(".pnb button", has_text=re.compile("Stop|Start|Continue")).count() == 0
    assert page.finish(3).startswith("NameError")
    page.expected = ("Comm not found",)  # JupyterLab's own word for what the old kernel still had to say


def letters(text: str) -> str:
    """Letters and digits alone: the toy's text has marks that Markdown takes away."""
    return re.sub(r"[\W_]", "", text)


def test_after_the_room_has_closed(notebook: Opens) -> None:
    """A panel of a room that is over says so, has no button left to press, and needs no kernel."""
    page = notebook().open(
        [*HOST, "panel = room.panel()", "%pooled close", "panel", "%pooled", "%pooled start"]
    )
    for cell in range(5):
        page.finish(cell)
    page.until(lambda: page.page.locator(".pnb-room").count() > 0)
    page.finish(5)
    page.until(lambda: page.page.locator(".pnb-room").count() == 0)
    for cell in (1, 3):
        assert "The room is closed." in page.text(cell) or "Closed" in page.text(cell)
        assert not [kind for output in page.outputs(cell) for kind in output["data"] if "widget" in kind]
    page.finish(6)
    page.until(lambda: "closed" in page.seen(6).lower())
    assert page.cell(6).get_by_role("button", name=re.compile("Start|Stop|New chat")).count() == 0
    assert "in no room" in page.finish(7)
    assert "in no room" in page.finish(8)


def test_reopened_without_its_kernel(notebook: Opens) -> None:
    """CASES: a notebook reopened without its kernel: the text is there, no "model not found" in its place."""
    page = notebook().open([*HOST, "%%ask --max 20\nGo on.", "room.last.panel()"])
    for cell in range(6):
        page.finish(cell)
    page.until(lambda: page.page.locator(".pnb-room").count() > 0)
    code = code_of(page)
    page.save()
    page.shutdown()
    page.reload()
    page.page.wait_for_timeout(3000)
    for cell in (1, 3):
        text = page.seen(cell)
        assert code in text
        assert "not found" not in text
    assert "stopped at its length" in page.seen(4)
    assert "stopped at its length" in page.seen(5)
    assert "not found" not in page.seen(5)
    page.expected = ("widget model not found",)  # JupyterLab's own word on the console, which nobody reads
    saved = json.loads(page.path.read_text(encoding="utf-8"))
    for cell in saved["cells"][1:]:
        for output in cell["outputs"]:
            if "data" in output:
                assert {"text/plain", "text/html"} <= set(output["data"]), output["data"].keys()


FLOOD = """
import pooled_nb, pooled_nb.room
from tests.front.scripted import Rooms
rooms = Rooms()
pooled_nb.room.host = rooms.host
%load_ext pooled_nb
%pooled host org/model -o room
rooms.core.gap_s = 0.001
words = " ".join(str(n) for n in range(1500))
"""


def test_a_thousand_tokens_a_second_lose_nothing(notebook: Opens) -> None:
    """CASES: 1,000 tokens a second: no output of any cell is lost, the server's limit is never reached."""
    page = notebook().open(
        [
            FLOOD,
            "answer = room.stream(words)\nanswer.panel()",
            "import time\nfor n in range(200):\n    print('line', n)\n    time.sleep(0.01)",
            "answer.result()\nprint(answer.stats.tokens)",
        ]
    )
    page.finish(0)
    assert "Error" not in page.finish(1)
    lines = page.finish(2)
    assert lines.split("\n")[:-1] == [f"line {n}" for n in range(200)]
    assert "1500" in page.finish(3)
    text = page.page.locator(".pnb-answer .pnb-a")
    page.until(lambda: (text.text_content() or "").split() == [str(n) for n in range(1500)])
    log = (page.server.place / "server.log").read_text(encoding="utf-8", errors="replace")
    assert "rate exceeded" not in log
