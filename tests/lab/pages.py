"""A notebook on a page: what a person does with it, and what they see."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page

from tests.kernels import INSTALLED
from tests.lab.jupyter import Server

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CONTEXT = "window.jupyterapp.shell.currentWidget.context"
NOTEBOOK = "window.jupyterapp.shell.currentWidget.content"


def write(path: Path, cells: list[str], kernel: str = INSTALLED) -> None:
    """A notebook that has not run."""
    made = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells],  # type: ignore[no-untyped-call]
        metadata={"kernelspec": {"name": kernel, "display_name": kernel, "language": "python"}},
    )
    nbformat.write(made, path)  # type: ignore[no-untyped-call]


def shown(outputs: list[dict[str, Any]]) -> str:
    """What outputs say, as plain text."""
    parts = []
    for output in outputs:
        if output["output_type"] == "stream":
            parts.append("".join(output["text"]))
        elif output["output_type"] == "error":
            parts.append(f"{output['ename']}: {output['evalue']}")
        else:
            parts.append("".join(output["data"].get("text/plain", "")))
    return "\n".join(parts)


class Notebook:
    """One notebook on one page. ``troubles``: what its console called an error."""

    def __init__(
        self, browser: Browser, server: Server, name: str, *, dark: bool, size: tuple[int, int]
    ) -> None:
        self.server = server
        self.name = f"{name}.ipynb"
        self.path = server.root / self.name
        self.troubles: list[str] = []
        self.expected: tuple[str, ...] = ()
        self._context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            extra_http_headers={"Authorization": f"token {server.token}"},
        )
        self._dark = dark
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(60_000)  # of a busy machine
        self.page.on("pageerror", lambda error: self.troubles.append(f"page error: {error}"))
        self.page.on("console", self._heard)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.troubles.append(f"console: {message.text} {message.location.get('url', '')}")

    def unexpected(self) -> list[str]:
        """Errors of the page that no test expects."""
        return [t for t in self.troubles if not any(word in t for word in self.expected)]

    # What a person does.

    def open(self, cells: list[str] | None = None, kernel: str = INSTALLED) -> Notebook:
        """Open it, first written where ``cells`` are given; its kernel starts."""
        if cells is not None:
            write(self.path, cells, kernel)
        self.page.goto(f"{self.server.url}/lab/tree/{self.name}?token={self.server.token}&reset")
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Notebook .jp-Cell", timeout=90_000)
        wanted = f"body[data-jp-theme-light={str(not self._dark).lower()}]"
        self.page.wait_for_selector("body[data-jp-theme-light]", state="attached")
        if self.page.locator(wanted).count() == 0:  # the server remembers what an earlier test chose
            self.command("apputils:change-theme", theme=f"JupyterLab {'Dark' if self._dark else 'Light'}")
            self.page.wait_for_selector(wanted, state="attached")
        self._kernel_ready()
        return self

    def _kernel_ready(self) -> None:
        self.page.evaluate(
            f"async () => {{ const s = {CONTEXT}.sessionContext; await s.ready;"
            " if (s.session) await s.session.kernel.info; }"
        )

    def command(self, name: str, **args: object) -> None:
        """Run a command of JupyterLab's; does not wait for its end."""
        self.page.evaluate(
            "([name, args]) => { window.jupyterapp.commands.execute(name, args); return null; }", [name, args]
        )

    def run(self, index: int) -> None:
        """Run a cell; returns at once."""
        self.page.evaluate(
            f"(i) => {{ const n = {NOTEBOOK}; n.activeCellIndex = i; n.deselectAll();"
            " window.jupyterapp.commands.execute('notebook:run-cell'); return null; }",
            index,
        )

    def finish(self, index: int, timeout: float = 60.0) -> str:
        """Run a cell to its end; what it shows then."""
        self.run(index)
        return self.ended(index, timeout)

    def ended(self, index: int, timeout: float = 60.0) -> str:
        """Wait until a cell has run; what it shows then."""
        self.until(lambda: self.prompt(index).strip("[]: ").isdigit(), timeout)
        return self.text(index)

    def interrupt(self) -> None:
        """Press the notebook's stop button."""
        self.command("notebook:interrupt-kernel")

    def reload(self) -> None:
        """Reload the page, and wait for the notebook (not for its kernel)."""
        self.page.goto(f"{self.server.url}/lab/tree/{self.name}")
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Notebook .jp-Cell", timeout=90_000)

    def save(self) -> str:
        """Save it; what the file then holds."""
        self.page.evaluate(f"async () => {{ await {CONTEXT}.save(); }}")
        return self.path.read_text(encoding="utf-8")

    def shutdown(self) -> None:
        """End its kernel."""
        self.page.evaluate(f"async () => {{ await {CONTEXT}.sessionContext.shutdown(); }}")

    def close(self) -> None:
        """Close the page."""
        self._context.close()

    # What they see.

    def cell(self, index: int) -> Locator:
        """A cell on the page."""
        return self.page.locator(".jp-Notebook > .jp-WindowedPanel-outer .jp-Cell").nth(index)

    def seen(self, index: int) -> str:
        """What a person reads in a cell (what is scrolled away is not laid out, and would have no text)."""
        self.cell(index).scroll_into_view_if_needed()
        self.page.wait_for_timeout(100)
        return self.cell(index).inner_text()

    def prompt(self, index: int) -> str:
        """``[3]:``, and ``[*]:`` while it runs."""
        return str(
            self.page.evaluate(
                f"(i) => {NOTEBOOK}.widgets[i].node.querySelector('.jp-InputPrompt')?.textContent ?? ''",
                index,
            )
        )

    def outputs(self, index: int) -> list[dict[str, Any]]:
        """A cell's outputs, as they would be saved."""
        found: list[dict[str, Any]] = self.page.evaluate(
            f"(i) => {NOTEBOOK}.widgets[i].model.outputs.toJSON()", index
        )
        return found

    def text(self, index: int) -> str:
        """A cell's outputs as plain text."""
        return shown(self.outputs(index))

    def until(self, holds: Callable[[], bool], timeout: float = 60.0) -> None:
        """Wait until something holds; fails with what the notebook shows."""
        end = time.monotonic() + timeout
        while not holds():
            if time.monotonic() > end:
                raise AssertionError("\n".join(self.page.locator(".jp-Cell").all_inner_texts()))
            self.page.wait_for_timeout(40)
