"""A device that freezes, goes on, and dies in the middle of an answer, as the host's person sees it."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.lab.cells import toy
from tests.lab.conftest import Opens
from tests.lab.test_room import code_of, said

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a process is frozen by signals")

HOST = [
    toy(end_after=300, delay=0.05),
    "%pooled host toy/model --split memory --no-ask -o room",
    "%pooled start --devices 2",
    "%%ask -o answer --background --max 300\nGo on.",
    "again = room.regenerate()\nprint(answer.text == again.text)",
]


def test_a_worker_freezes_goes_on_and_dies(notebook: Opens) -> None:
    """PROTOCOL section 8: waited for, back, dropped, dealt anew by a button; the text is what it would be."""
    host = notebook("host", size=(1180, 900)).open(HOST)
    host.finish(0)
    host.finish(1)
    join = f"%pooled join {code_of(host)} --role worker --name office"
    worker = notebook("worker").open([toy(delay=0.05), join, "import os; print(os.getpid())"])
    worker.expected = host.expected = ("WebSocket", "Kernel", "kernel", "404", "500")
    for cell in (0, 1):
        worker.finish(cell)
    pid = int(worker.finish(2))
    host.finish(2, 90)
    host.finish(3)
    panel, text = host.page.locator(".pnb-room"), host.page.locator(".pnb-answer .pnb-a")
    host.until(lambda: len(text.text_content() or "") > 20)
    os.kill(pid, signal.SIGSTOP)
    try:
        host.until(lambda: said(host).startswith("Waiting for office"))
        stopped = panel.locator(".pnb-col, .pnb-row").filter(has_text="stopped responding")
        assert "office" in stopped.inner_text()
        assert "of 15 s" in stopped.inner_text()
        assert panel.locator(".pnb-dot").get_attribute("data-go") == "held"
        assert "stopped responding" in host.page.locator(".pnb-answer .pnb-words-of").inner_text()
        before = text.text_content() or ""
    finally:
        os.kill(pid, signal.SIGCONT)
    host.until(lambda: said(host).startswith("Answering you"))
    host.until(lambda: len(text.text_content() or "") > len(before))
    assert (text.text_content() or "").startswith(before)
    os.kill(pid, signal.SIGKILL)
    redeal = panel.get_by_role("button", name="Re-deal now")
    redeal.wait_for(timeout=60_000)
    assert "office" in said(host)
    assert "Deals again in" in said(host)
    assert panel.locator(".seg[data-state=dropped]").count() == 1
    redeal.click()
    host.until(lambda: said(host).startswith(("Answering you", "Online")), 60)
    assert host.finish(4, 120).endswith("True\n")
    host.until(lambda: said(host).startswith("Online"))
