"""An answer that waits for a device, and a polite leaving, in cells of a real kernel (DESIGN section 7)."""

from __future__ import annotations

from pathlib import Path

from tests.front.notebook import Page, saved, scripted_kernel

STALLS = """
import asyncio, threading, time
from pooled_nb.room.core import Notice
from pooled_nb.threads import mesh
go = asyncio.Event()
words = "basement stopped responding; waiting for it, {} of 15 s (Stop gives up)."
rooms.core.amid = {2: [Notice(text=words.format(4)), go, Notice(text="The answer goes on.")]}

async def become(state, n=0):
    if state == "online":
        go.set()
    rooms.core.become(state, **({"sentence": words.format(n), "waits_for": ["basement"]} if n else {}))

def counts():
    while not pooled_nb.current().last or not pooled_nb.current().last.notice:
        time.sleep(0.01)
    for n in range(5, 15):
        mesh.run(become("waiting", n))
        time.sleep(0.5)  # a page without widgets is told as text after a while
    mesh.run(become("online"))

threading.Thread(target=counts, name="pooled-test").start()
"""


async def test_a_cell_shows_why_it_waits_and_keeps_no_word_of_it(tmp_path: Path) -> None:
    """PROTOCOL section 8: nothing shown changes; saved is the answer alone."""
    async with scripted_kernel(tmp_path) as kernel:
        page = Page(kernel)
        await page.run("%pooled host m\n%pooled start")
        await page.run(STALLS)
        seen = await page.run("%%ask\none two three four")
        drawn = [str(message.get("data", {}).get("text/plain", "")) for message in seen]
        waits = "one two \n\nbasement stopped responding; waiting for it, {} of 15 s"
        counted = [n for n in range(4, 15) if any(waits.format(n) in text for text in drawn)]
        assert len(counted) > 1  # it counts on where it is shown
        kept = [message for message in saved(seen) if message["kind"] != "stream"]
        texts = [text for message in kept for text in message["data"].values() if text]
        assert any("one two three four" in str(text) for text in texts)
        assert "stopped responding" not in str(texts)
        assert "goes on" not in str(texts)


async def test_a_polite_leaving_says_what_it_waits_for(tmp_path: Path) -> None:
    """An interrupt leaves at once: the cell fails, and the room is over."""
    async with scripted_kernel(tmp_path) as kernel:
        page = Page(kernel)
        await page.run("%pooled join 4TK-G9P --role worker")
        seen = await page.run("%pooled leave --after-answer", stop_at="hands its layers over")
        assert "Left room 4TK-G9P." in str(seen)
        assert any(message["kind"] == "error" for message in seen)
        [said] = await page.run("print(pooled_nb.current())")
        assert said["text"] == "None\n"
