"""Who comes in, as two people see it: the lobby, the six digits, the invite link (PROTOCOL section 4)."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np
import zxingcpp

from tests.lab.cells import LOAD, toy
from tests.lab.conftest import Opens
from tests.lab.pages import Notebook
from tests.lab.test_room import code_of

HOST = [
    toy(),
    "%pooled host toy/model --name studio -o room",
    "import json, ipywidgets\nprint(json.dumps(ipywidgets.Widget.get_manager_state(), default=str))",
]
DIGITS = re.compile(r"\b\d{3} \d{3}\b")
GREY = """async (png) => {
  const image = new Image();
  image.src = png;
  await image.decode();
  const canvas = document.createElement("canvas"), at = canvas.getContext("2d");
  Object.assign(canvas, { width: image.width, height: image.height });
  at.drawImage(image, 0, 0);
  const { data } = at.getImageData(0, 0, image.width, image.height);
  return [image.width, image.height, Array.from({ length: data.length / 4 }, (_, i) => data[4 * i])];
}"""


def hosting(page: Notebook) -> Notebook:
    page.open(HOST)
    page.finish(0)
    page.finish(1)
    return page


def knocks(page: Notebook, host: Notebook, name: str) -> Notebook:
    """A second kernel knocks, with the code alone; its cell waits until the lobby has it."""
    page.open([LOAD, f"%pooled join {code_of(host)} --role guest --name {name}"])
    page.finish(0)
    page.run(1)
    knock = host.page.locator(".pnb-knock", has_text=name)
    page.until(lambda: knock.count() == 1 or page.prompt(1).strip("[]: ").isdigit(), 90)
    assert knock.count() == 1, page.text(1)
    return page


def same_digits(host: Notebook, joiner: Notebook) -> str:
    """The six digits, once both screens show the same ones.

    Each link has its own: on a busy machine a connection may fail and be made anew between two looks, so both
    screens are read each time.
    """
    found = ""

    def both() -> bool:
        nonlocal found
        found = "".join(host.page.locator(".pnb-knock .pnb-digits").all_inner_texts())
        return bool(DIGITS.fullmatch(found)) and (found in joiner.text(1) or found in joiner.seen(1))

    joiner.until(both)
    return found


def read(page: Notebook, selector: str) -> str:
    """What a phone reads from a picture on the page, as it is painted there."""
    png = base64.b64encode(page.page.locator(selector).screenshot(scale="device")).decode()
    width, height, grey = page.page.evaluate(GREY, f"data:image/png;base64,{png}")
    [found] = zxingcpp.read_barcodes(np.array(grey, np.uint8).reshape(height, width))
    return str(found.text)


def test_a_device_that_knocks_is_let_in_by_a_click(notebook: Opens) -> None:
    """PROTOCOL section 4: the same six digits stand on both ends; Allow lets it in, Deny sends it away."""
    host = hosting(notebook("host", size=(1300, 900)))
    leo = knocks(notebook("leo"), host, "leo")
    knock = host.page.locator(".pnb-knock")
    digits = same_digits(host, leo)
    assert leo.prompt(1) == "[*]:"
    before = host.page.locator(".pnb-room").bounding_box()
    host.page.get_by_role("button", name="Allow leo").click()
    leo.ended(1)
    knock.wait_for(state="detached")
    assert host.page.evaluate("document.activeElement.className") == "pnb-door"
    host.page.locator("[aria-label=Guests]", has_text="leo").wait_for()
    assert host.page.locator(".pnb-room").bounding_box() == before
    # It came with the code alone: its panel says so, and what to compare.
    leo.until(lambda: leo.page.locator(".pnb-door", has_text="Trust on first use").count() == 1)
    assert digits in leo.page.locator(".pnb-door").inner_text()
    mia = knocks(notebook("mia"), host, "mia")
    host.page.get_by_role("button", name="Deny mia").click()
    mia.ended(1)
    assert re.search(r"did not let|denied|not let", mia.text(1))
    assert host.page.locator("[aria-label=Guests]", has_text="mia").count() == 0


def test_the_invite_lets_in_and_leaves_no_trace(notebook: Opens, tmp_path: Path) -> None:
    """DESIGN section 7: the link comes by a click: as a picture, to the clipboard; to no notebook."""
    host = hosting(notebook("host", dark=True, size=(1300, 900)))
    host.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    host.page.locator(".pnb-invites").click()
    host.page.locator(".pnb-qr path").wait_for()
    link = read(host, ".pnb-qr")
    assert re.fullmatch(r"\w+://[^#\s]+/r/\w{6}\?signal=[^#\s]+#k=[\w-]{22,64}", link)
    key = link.partition("#k=")[2]
    host.page.get_by_role("button", name="Copy the link").click()
    host.until(lambda: host.page.evaluate("navigator.clipboard.readText()") == link)
    assert key not in host.page.content()
    assert key not in host.save()
    host.page.keyboard.press("Escape")
    assert host.page.locator(".pnb-sheet").count() == 0
    state = host.finish(2)
    assert code_of(host) in state  # it is the state of this panel
    assert key not in state
    assert key not in host.save()
    # A link goes from person to person; here by a file that the test writes.
    file = tmp_path / "link"
    file.write_text(link, encoding="utf-8")
    give = f"import os, pathlib\nos.environ['POOLED_LINK'] = pathlib.Path({str(file)!r}).read_text()"
    guest = notebook("guest").open([LOAD, give, "%pooled join --role guest --name ana -o room", "room"])
    for cell in (0, 1, 2):
        guest.finish(cell)
    host.page.locator("[aria-label=Guests]", has_text="ana").wait_for()
    guest.finish(3)
    guest.page.locator(".pnb-door", has_text="The host proved").first.wait_for()
    for page in (host, guest):
        assert key not in page.save()


def test_a_relay_goes_in_by_the_network_box_and_nowhere_else(notebook: Opens) -> None:
    """DESIGN section 7: a TURN server is typed or pasted, wrong or right; the notebook hears no key of it."""
    host = hosting(notebook("host", size=(1300, 900)))
    host.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    host.page.locator(".pnb-net").click()
    sheet, field = host.page.locator(".pnb-sheet"), host.page.locator(".pnb-input")
    assert "answers" in sheet.inner_text()
    cells = host.page.locator(".jp-Cell").count()
    field.click()
    host.page.keyboard.type("abdd")  # keys of the notebook: new cells, and one deleted
    host.page.keyboard.press("Enter")
    sheet.locator(".pnb-err[data-tone=bad]", has_text="relay").wait_for()
    assert "abdd" not in sheet.inner_text()
    assert host.page.locator(".jp-Cell").count() == cells
    relay = "turn:ana:p4ssw0rd-of-a-relay@127.0.0.1:3478"
    host.page.evaluate("(text) => navigator.clipboard.writeText(text)", relay)
    field.fill("")
    field.press("Control+V")
    assert field.input_value() == relay
    assert host.page.locator(".jp-Cell").count() == cells
    field.press("Enter")
    # A room on this machine takes it, and says that it does not need it.
    sheet.locator(".pnb-err[data-tone=good]", has_text="uses no relay").wait_for()
    assert field.input_value() == ""
    host.page.keyboard.press("Escape")
    for words in (host.finish(2), host.page.content(), host.save()):
        assert "p4ssw0rd" not in words
