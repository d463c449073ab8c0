"""The demo's kernels, and the words it types into them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pooled_nb.demo.kernels import kernels
from pooled_nb.demo.story import Screen, shortened, typed
from pooled_nb.errors import RoomError


async def test_a_kernel_that_dies_ends_the_wait(tmp_path: Path) -> None:
    """CASES: a kernel that dies (out of memory): every wait ends in an answer or in words."""
    async with kernels(["one"], tmp_path, {}) as [one]:
        with pytest.raises(RoomError, match="one ended"):
            await asyncio.wait_for(one.run("import os; os._exit(1)"), 60)
        with pytest.raises(RoomError, match="one ended"):
            await asyncio.wait_for(one.value("1"), 60)


@pytest.mark.parametrize(
    "model",
    ["org/model", "/my models/a", "/it's/{here}", "/a$HOME/{x}", "a 'b' \"c\" $d #e", "C:\\models\\new"],
)
async def test_any_path_arrives_as_it_is(tmp_path: Path, model: str) -> None:
    """Blanks, quotes, braces and dollar signs of a path are the model's name and nothing else."""
    code = (
        "import pooled_nb.api\nx = d = HOME = here = 'WRONG'\nseen = []\n"
        "def host(model, **options):\n"
        "    seen.append([model, options['name']])\n"
        "    raise pooled_nb.PooledError('x')\n"
        "pooled_nb.api.host = host\n%load_ext pooled_nb"
    )
    async with kernels(["one"], tmp_path, {}) as [one]:
        await one.run(code)
        with pytest.raises(RoomError, match="x"):
            await one.run(typed("%pooled host MODEL --split memory --name 'kernel 1'", model))
        assert await one.value("seen") == [[model, "kernel 1"]]


def test_a_question_is_no_markup(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A question like ``what is [/b]?`` is shown as it stands, also on the line that moves."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen()
    assert screen._live
    with screen.step("kernel 1: %%ask what is [/b] and [red]?") as step:
        step.show("so [/i]\n")
    assert "what is [/b] and [red]?" in capsys.readouterr().out


def test_what_moves_is_not_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is longer than the terminal is wide goes on below."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    words = " ".join(f"word{n}" for n in range(30))
    with Screen().step("kernel 1: %pooled host org/model --split memory") as step:
        step.show(f"first\n{words}\n")
        step._status._live.refresh()
    shown = capsys.readouterr().out
    assert all(f"word{n}" in shown for n in range(30))


def test_lines_are_text_broken_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal would break them inside of words; a pipe gets them whole. No letters become pictures."""
    words = "[red] :smile: 20 " + " ".join(f"word{n}" for n in range(30))
    monkeypatch.setenv("COLUMNS", "40")
    Screen().line(words)
    assert capsys.readouterr().out == f"{words}\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    Screen().line(words)
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(line.strip() for line in lines) == words
    assert len(lines) > 4


def test_a_long_line_keeps_its_end() -> None:
    """An answer that grows: what is new is at its end."""
    assert shortened("short") == "short"
    assert shortened("x" * 500 + "end", most=10) == "…xxxxxxxend"
