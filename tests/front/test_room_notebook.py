"""A room's own display in a real kernel: what is read stays, once; nothing of our threads lands in a cell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pooled_nb.demo.kernels import Kernel
from tests.front.notebook import Page, saved, scripted_kernel

NOISY = """
import asyncio, logging, sys, threading, warnings
from pooled_nb.threads import mesh
logging.basicConfig(level=logging.INFO)  # the ordinary way: onto the stderr of the cell
class Kept(logging.Handler):
    lines = []
    def emit(self, record):
        self.lines.append(record.getMessage())
logging.getLogger().addHandler(Kept())
logging.getLogger().addHandler(logging.StreamHandler(sys.stdout))
logging.getLogger("asyncio").setLevel(logging.INFO)
went_on = threading.Event()
def in_pool():
    print("pool print")
async def noisy():
    for n in range(3):
        print("mesh print", n, flush=True)
        print("mesh print to stderr", file=sys.stderr)
        sys.stdout.writelines(["mesh line\\n"])
        logging.getLogger("aiortc").warning("mesh log %d", n)
        warnings.warn(f"mesh warning {n}")
        await asyncio.to_thread(in_pool)
        await asyncio.sleep(0.05)
    went_on.set()
"""


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    async with scripted_kernel(tmp_path) as one:
        yield one


async def outputs(kernel: Kernel, code: str) -> list[dict[str, Any]]:
    """What a notebook keeps of a cell."""
    return saved(await Page(kernel).run(code))


async def test_an_answer_that_was_read_stays_and_is_shown_once(kernel: Kernel) -> None:
    """DESIGN section 7: what is read stays; a saved notebook reads well without a kernel."""
    await kernel.run("room = pooled_nb.host('m', progress=True)\nroom.start()")
    for last in ("room.ask('some **bold** words')", "answer = room.ask('some **bold** words')"):
        [kept] = await outputs(kernel, last)
        assert kept["data"]["text/plain"].startswith("some **bold** words")
        assert "3 tokens" in kept["data"]["text/plain"]
        assert "<strong>bold</strong>" in kept["data"]["text/html"]
    [once, again] = await outputs(kernel, "display(room.ask('a b')); room.last")
    assert once["data"]["text/plain"] == again["data"]["text/plain"]
    for later in ("answer", "room.last", "room.ask('quietly', on_text=lambda text: None)"):
        [shown] = await outputs(kernel, later)
        assert shown["kind"] == "execute_result"
        assert "text/html" in shown["data"]
    [kept, error] = await outputs(
        kernel,
        "from pooled_nb.room.core import Done, Stats\n"
        "rooms.core.done = Done(reason='error', stats=Stats(), why='A device left.')\n"
        "room.ask('came so far')",
    )
    assert kept["data"]["text/plain"].startswith("came so far")
    assert error["ename"] == "AnswerFailed"


async def test_our_threads_write_into_no_cell(kernel: Kernel) -> None:
    """DESIGN section 7: print from our threads never lands in a user's cell; nor do logging and warnings."""
    await kernel.run("room = pooled_nb.host('m', progress=False)")
    await kernel.run(NOISY)
    await kernel.run("job = mesh.submit(noisy())")
    assert await outputs(kernel, "went_on.wait(30); import time; time.sleep(0.5)") == []
    assert await kernel.value("went_on.is_set()") is True
    lines = await kernel.value("Kept.lines")
    for n in range(3):
        assert f"mesh print {n}" in lines  # into the log, whole lines
        assert lines.count(f"mesh log {n}") == 1  # where it is in the log already, not again
    for words in ("mesh print to stderr", "mesh line", "pool print"):
        assert words in lines
    [own] = await outputs(kernel, "print('mine', flush=True)")
    assert own["text"] == "mine\n"
    [mine] = await outputs(
        kernel, "t = threading.Thread(target=print, args=('my thread',)); t.start(); t.join()"
    )
    assert mine["text"] == "my thread\n"
