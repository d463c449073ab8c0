"""How panels look in JupyterLab's own themes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernels import ROOT
from tests.lab.cells import toy
from tests.lab.conftest import Opens
from tests.lab.pages import Notebook

AXE = ROOT / "tests" / "widgets" / "js" / "node_modules" / "axe-core" / "axe.min.js"
LIGHTNESS = """(selector) => {
  const c = getComputedStyle(document.querySelector(selector));
  const canvas = document.createElement("canvas").getContext("2d");
  return [c.backgroundColor, c.color].map((colour) => {
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
    return (0.299 * r + 0.587 * g + 0.114 * b) / 255;
  });
}"""


def lightness(page: Notebook, selector: str) -> tuple[float, float]:
    """Of an element's ground and its text, 0 to 1."""
    ground, text = page.page.evaluate(LIGHTNESS, selector)
    return ground, text


@pytest.mark.parametrize("dark", [False, True])
def test_panels_follow_the_theme(notebook: Opens, dark: bool) -> None:
    """DESIGN section 7: colours from JupyterLab's variables, in both themes; axe-core finds nothing."""
    page = notebook(dark=dark, size=(1300, 1000)).open(
        [
            toy(),
            "%pooled host toy/model -o room",
            "%pooled start",
            "answer = room.ask('Say **something**.', max_tokens=40)\nanswer.panel()",
        ]
    )
    for cell in range(4):
        page.finish(cell)
    page.page.locator(".pnb-answer .pnb-a").wait_for()
    for panel in (".pnb-room", ".pnb-answer"):
        ground, text = lightness(page, panel)
        assert (ground < 0.3) is dark
        assert (text > 0.6) is dark
    # The numbers of a room stand side by side; JupyterLab has rules of its own for such lists.
    boxes = page.page.locator(".pnb-stats > div:not(.pnb-strip)")
    tops = {round((boxes.nth(n).bounding_box() or {"y": -1})["y"]) for n in range(4)}
    assert len(tops) == 1
    if AXE.exists():
        assert findings(page) == []


def findings(page: Notebook) -> list[Any]:
    """What axe-core has to say about our panels."""
    page.page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[Any] = page.page.evaluate(
        "async () => (await axe.run({ include: [['.pnb']] })).violations"
        ".map((v) => [v.id, v.nodes.map((n) => [n.html.slice(0, 200), n.failureSummary])])"
    )
    return found
