"""A cell that blocks, and a panel pressed meanwhile; `make test-kernels` runs this on each ipykernel."""

from __future__ import annotations

import re

import pytest

from tests.kernels import KERNELS
from tests.lab.cells import toy
from tests.lab.conftest import Opens
from tests.lab.pages import Notebook

SLOW = toy(end_after=900, delay=0.02)
CELLS = [
    SLOW,
    "%pooled host toy/model -o room",
    "%%ask -o answer\nGo on and on.",
    "print(answer.reason, len(answer.text) > 0, room.status().state)",
    "%%ask --max 5\nAnd now?",
]


def begun(notebook: Notebook, kernel: str, cells: list[str] = CELLS) -> Notebook:
    """Open it up to the answer that runs on."""
    notebook.open(cells, kernel)
    notebook.finish(0)
    notebook.finish(1)
    notebook.run(2)
    streams(notebook)
    return notebook


def streams(notebook: Notebook) -> None:
    """Wait until an answer grows on the page."""
    text = notebook.page.locator(".pnb-answer .pnb-a")
    text.wait_for()
    long = len(text.inner_text())
    notebook.until(lambda: len(text.inner_text()) > long + 5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_stop_in_the_panel_while_the_cell_blocks(notebook: Opens, kernel: str) -> None:
    """DESIGN section 7: Stop works while a cell blocks; what came stays, and so does the room."""
    page = begun(notebook(), kernel)
    assert page.prompt(2) == "[*]:"
    page.page.locator(".pnb-answer button", has_text="Stop").click()
    assert "stopped" in page.ended(2)
    assert page.page.locator(".pnb-answer").count() == 0  # it has become text
    assert page.finish(3) == "abort True online\n"
    assert "stopped at its length" in page.finish(4)


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_interrupt_stops_the_answer_and_keeps_the_room(notebook: Opens, kernel: str) -> None:
    """DESIGN section 7: KeyboardInterrupt stops that answer and leaves the room."""
    page = begun(notebook(), kernel)
    page.interrupt()
    assert "stopped" in page.ended(2)
    assert page.page.locator(".pnb-answer").count() == 0
    assert page.finish(3) == "abort True online\n"
    assert "stopped at its length" in page.finish(4)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_reload_while_the_cell_blocks(notebook: Opens, kernel: str) -> None:
    """CASES: a panel shown again in the middle of an answer has the whole text, its tail, and Stop."""
    page = begun(notebook(), kernel)
    page.save()
    before = page.page.locator(".pnb-answer .pnb-a").inner_text()
    page.reload()
    streams(page)
    assert plain(page.page.locator(".pnb-answer .pnb-a").inner_text()).startswith(plain(before)[:10])
    page.page.locator(".pnb-answer button", has_text="Stop").click()
    assert page.finish(3) == "abort True online\n"


def plain(text: str) -> str:
    """Letters alone: the toy's text has marks that Markdown takes away."""
    return re.sub(r"[\W_]", "", text)
