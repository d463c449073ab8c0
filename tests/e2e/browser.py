"""A page in a real headless Chromium that speaks the gate of PROTOCOL section 4 by itself.

``js/gate.js`` is its own code, after the text of the protocol, over npm's PeerJS client and WebCrypto.

Measured (Chromium 156, Linux): the page gathers its interface's addresses, as ``….local`` names unless
mDNS is switched off, and never loopback, also with ``--allow-loopback-in-peer-connection``. Our end offers
127.0.0.2 alone: the page's checks reach it from the interface's address, which our end learns from them.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, Page, async_playwright
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler, StaticFileHandler

from tests.e2e.needs import lacks
from tests.e2e.node import FOLDER, need_packages
from tests.lab.pages import FLAGS
from tools import chromium

PAGE = """<!doctype html><meta charset="utf-8"><title>gate</title><link rel="icon" href="data:,">
<script src="/peerjs/peerjs.min.js"></script><script src="/js/gate.js"></script>"""
STEP_S = 30.0
"""Seconds for one step of a page; only ends a test that hangs."""


class Tab:
    """One page: does what `page` in ``gate.js`` can, and tells what happened there."""

    def __init__(self, page: Page, origin: str) -> None:
        self._page, self._origin = page, origin
        self._said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._jobs: list[asyncio.Future[Any]] = []
        self.kept: list[dict[str, Any]] = []
        """What was told and not waited for yet."""

    @classmethod
    async def open(cls, browser: Browser, origin: str) -> Tab:
        context = await browser.new_context()
        tab = cls(await context.new_page(), origin)
        await tab._page.expose_function("say", tab._said.put_nowait)
        await tab.reload()
        return tab

    async def reload(self) -> None:
        """As a person does; what the page stored stays."""
        await self._page.goto(self._origin)

    async def register(self, url: str, id: str | None = None) -> str:
        """At a signaling server; gives the page's id."""
        place = urlsplit(url)
        where = {"host": place.hostname, "port": place.port, "path": place.path, "id": id}
        return str(await self.run("open", where))

    async def run(self, what: str, *args: Any) -> Any:
        """Call a function of the page and wait for it."""
        call = self._page.evaluate("([what, args]) => page[what](...args)", [what, list(args)])
        return await asyncio.wait_for(call, STEP_S)

    def begin(self, what: str, *args: Any) -> None:
        """The same, without waiting: the page tells how it goes."""
        call = self._page.evaluate("([what, args]) => { page[what](...args); }", [what, list(args)])
        self._jobs.append(asyncio.ensure_future(call))

    async def value(self, expression: str) -> Any:
        return await self._page.evaluate(expression)

    async def event(self, name: str, **more: Any) -> dict[str, Any]:
        """The next thing of this name that it tells, also one that came before; others are kept."""
        async with asyncio.timeout(STEP_S):
            while True:
                for said in self.kept:
                    if said["event"] == name and more.items() <= said.items():
                        self.kept.remove(said)
                        return said
                self.kept.append(await self._said.get())

    async def heard(self, t: str) -> dict[str, Any]:
        """The next message of this type over an admitted link."""
        async with asyncio.timeout(STEP_S):
            while True:
                for said in self.kept:
                    if said["event"] == "message" and said["message"].get("t") == t:
                        self.kept.remove(said)
                        return dict(said["message"])
                self.kept.append(await self._said.get())

    async def ended(self) -> None:
        """Its browser is closed, and so ends what the page was still at."""
        await asyncio.gather(*self._jobs, return_exceptions=True)


class _Page(RequestHandler):
    def get(self) -> None:
        self.write(PAGE)


@contextlib.asynccontextmanager
async def served_page() -> AsyncIterator[str]:
    """Its origin; loopback is a place where a browser allows WebCrypto."""
    app = Application(
        [
            ("/", _Page),
            ("/peerjs/(.*)", StaticFileHandler, {"path": FOLDER / "node_modules" / "peerjs" / "dist"}),
            ("/js/(gate.js)", StaticFileHandler, {"path": FOLDER}),
        ]
    )
    server = HTTPServer(app)
    sockets = bind_sockets(0, "127.0.0.1", reuse_port=False)
    server.add_sockets(sockets)
    try:
        yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}/"
    finally:
        server.stop()
        await server.close_all_connections()


@contextlib.asynccontextmanager
async def tabs(n: int = 1, *, names: bool = False) -> AsyncIterator[list[Tab]]:
    """That many pages, each as of a person of its own. ``names``: they offer ``….local`` names alone."""
    need_packages()
    path = await asyncio.to_thread(chromium.find)
    if path is None:
        lacks(chromium.MISSING)
    flags = [*FLAGS, *([] if names else ["--disable-features=WebRtcHideLocalIpsWithMdns"])]
    if sys.platform == "linux":
        flags.append("--allow-loopback-in-peer-connection")
    async with served_page() as origin, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, headless=True, args=flags)
        made: list[Tab] = []
        try:
            for _ in range(n):
                made.append(await Tab.open(browser, origin))
            yield made
        finally:
            await browser.close()
            await asyncio.gather(*(tab.ended() for tab in made))
