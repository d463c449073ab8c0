"""What the README tells people to type, typed: into a kernel over a scripted room, and as commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pooled_nb.demo.kernels import Kernel
from pooled_nb.terminal import arguments
from tests.front.notebook import outputs
from tests.notebooks.test_kernel import kernel

__all__ = ["kernel"]  # the fixture

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
CELLS = [text for kind, text in BLOCKS if kind == "python" or text.startswith("%")]
COMMANDS = [line[2:] for kind, text in BLOCKS for line in text.splitlines() if line.startswith("$ ")]


def test_there_is_something_to_try() -> None:
    assert len(CELLS) == 5
    assert sum(command.startswith("pooled-nb ") for command in COMMANDS) == 2


async def test_the_cells_work_as_pasted(kernel: Kernel) -> None:
    """DESIGN section 1: what a user does. Each block of the README is pasted into a cell."""
    for cell in CELLS:
        if "pooled.join" in cell or "%pooled join" in cell or "pooled.host" in cell:
            await kernel.run("if pooled_nb.current() is not None: pooled_nb.current().leave()")
        seen = await outputs(kernel, cell)
        assert not [message for message in seen if message["kind"] == "error"], cell
    calls = await kernel.value("[call[:2] for call in rooms.calls]")
    model = "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert calls == [["host", model], ["join", "4TK-G9P"], ["host", model], ["join", "4TK-G9P"]]


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("pooled-nb ")])
def test_the_commands_are_understood(command: str) -> None:
    """DESIGN section 1: the same from a terminal."""
    args = arguments.parse(shlex.split(command, comments=True)[1:])
    assert args.command in ("host", "join")


def test_make_knows_its_targets() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    asked = {shlex.split(c, comments=True)[1] for c in COMMANDS if c.startswith("make ")}
    assert {"demo", "test"} <= asked
    for target in asked:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
