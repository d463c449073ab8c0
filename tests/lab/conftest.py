from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Error, sync_playwright

from tests.e2e.needs import lacks
from tests.lab.jupyter import Server, serving
from tests.lab.pages import FLAGS, Notebook

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")


def chromium() -> str | None:
    """A Chromium of this machine."""
    named = os.environ.get("POOLED_CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    # Package scope: Playwright's own event loop must not outlive these tests, or no other could have one.
    if (path := chromium()) is None:
        lacks("There is no Chromium here; POOLED_CHROMIUM may name one.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield browser
        browser.close()


Opens = Callable[..., Notebook]


@pytest.fixture
def notebook(server: Server, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Opens]:
    """Make notebooks; an error on a page's console fails the test."""
    made: list[Notebook] = []

    def new(name: str = "one", *, dark: bool = False, size: tuple[int, int] = (1000, 900)) -> Notebook:
        stem = "".join(c if c.isalnum() else "-" for c in f"{request.node.name}-{name}")
        made.append(Notebook(browser, server, stem, dark=dark, size=size))
        return made[-1]

    yield new
    troubles = []
    for one in made:
        with contextlib.suppress(Error):  # a page that never came to a notebook; the server ends its kernel
            one.shutdown()
        troubles += one.unexpected()
        one.close()
    assert troubles == []
