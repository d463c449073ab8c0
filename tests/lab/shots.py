"""Pictures of the panels in JupyterLab, for the documentation: ``python -m tests.lab.shots``.

A real model over two kernels of this machine; run it when the panels' look has changed, and look at them.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.kernels import ROOT
from tests.lab.cells import LOAD, MODEL
from tests.lab.conftest import chromium
from tests.lab.jupyter import Server, serving
from tests.lab.pages import FLAGS, Notebook

PLACE = ROOT / "docs" / "images"
SIZE = (1180, 860)
ASK = "%%ask -o answer --max 150\nWhy is the sky blue? Answer in three short points."


def said(page: Notebook) -> str:
    """The sentence of the first room panel."""
    return page.page.locator(".pnb-room .pnb-say-text").first.text_content() or ""


def shoot(browser: Browser, server: Server, *, dark: bool) -> None:
    """All pictures in one theme."""
    theme = "dark" if dark else "light"

    def picture(page: Notebook, name: str, *, both: bool = False) -> None:
        if dark and not both:
            return
        area = page.page.locator(".jp-NotebookPanel .jp-WindowedPanel-outer").first.bounding_box()
        last = page.page.locator(".jp-Notebook > .jp-WindowedPanel-outer .jp-Cell").last.bounding_box()
        assert area is not None
        if last is not None:  # a short notebook: not the empty page below it
            area["height"] = min(area["height"], last["y"] + last["height"] + 12 - area["y"])
        page.page.screenshot(path=PLACE / f"lab-{name}-{theme}.png", clip=area)

    host = Notebook(browser, server, f"host-{theme}", dark=dark, size=SIZE)
    host.open(
        [LOAD, f"%pooled host {MODEL} --split memory --name ana -o room", "%pooled start --devices 2", ASK]
    )
    host.command("application:toggle-left-area")
    host.finish(0)
    host.finish(1)
    host.until(lambda: "Only you" in said(host))
    host.page.wait_for_timeout(500)
    picture(host, "open")
    code = host.page.locator(".pnb-room .pnb-code b").first.inner_text()
    worker = Notebook(browser, server, f"worker-{theme}", dark=dark, size=SIZE)
    worker.open([LOAD, f"%pooled join {code} --role worker --name office"])
    worker.command("application:toggle-left-area")
    worker.finish(0)
    worker.run(1)
    host.page.locator(".pnb-knock").first.wait_for()
    host.page.wait_for_timeout(300)
    host.page.locator(".pnb-room").first.scroll_into_view_if_needed()
    picture(host, "lobby", both=True)
    worker.until(lambda: bool(re.search(r"\d{3} \d{3}", worker.seen(1))))
    picture(worker, "knocking")
    host.page.get_by_role("button", name="Allow office").first.click()
    worker.ended(1)
    host.run(2)
    chain = host.page.locator(".pnb-room .pnb-chain").first
    host.until(lambda: bool(re.search(r"[1-9]\d? %", chain.inner_text())) or "Online" in said(host))
    host.page.locator(".pnb-room").first.scroll_into_view_if_needed()
    picture(host, "loading")
    host.ended(2, 120)
    host.until(lambda: "Online" in said(host))
    host.run(3)
    text = host.page.locator(".pnb-answer .pnb-a")
    text.wait_for()
    host.until(lambda: len(text.text_content() or "") > 120)
    picture(worker, "answering")
    text.scroll_into_view_if_needed()
    picture(host, "answer", both=True)
    host.ended(3, 120)
    host.until(lambda: "Online" in said(host))
    picture(host, "answered")
    host.page.locator(".pnb-room").first.scroll_into_view_if_needed()
    picture(worker, "online", both=True)
    host.page.locator(".pnb-gear").first.click()
    host.page.wait_for_timeout(300)
    picture(host, "settings")
    host.page.keyboard.press("Escape")  # a sheet lies over the button that opened it
    host.page.locator(".pnb-net").first.click()
    host.page.wait_for_timeout(300)
    picture(host, "network")
    for page in (worker, host):
        page.shutdown()
        for trouble in page.unexpected():
            print(theme, trouble)
        page.close()


def main() -> int:
    """Make them all."""
    path = chromium()
    if path is None:
        print("A Chromium is needed: POOLED_CHROMIUM may name one.")
        return 1
    PLACE.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,
        serving(Path(place)) as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        for dark in (False, True):
            shoot(browser, server, dark=dark)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
