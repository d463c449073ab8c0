"""DESIGN section 7: on Colab ``join`` is a guest and ``host`` one device, unless the person decides."""

from __future__ import annotations

from pathlib import Path

import pytest

import pooled_nb
from pooled_nb import places
from pooled_nb.cli import main
from pooled_nb.room.opening import on_colab
from tests.front.notebook import Page, scripted_kernel
from tests.front.scripted import Rooms


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({}, ""),
        ({"COLAB_RELEASE_TAG": "release"}, "Google Colab"),
        ({"COLAB_GPU": ""}, "Google Colab"),
        ({"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}, "Kaggle"),
        ({"KAGGLE_KERNEL_RUN_TYPE": "Batch", "COLAB_RELEASE_TAG": "release"}, "Google Colab"),
        ({"PATH": "/colab"}, ""),
    ],
)
def test_where_this_is(env: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The room's own default of a role agrees with it."""
    for known in ("COLAB_RELEASE_TAG", "COLAB_GPU"):
        monkeypatch.delenv(known, raising=False)
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    place = places.here(env)
    assert place.name == name
    assert (place.role == "guest") is on_colab()


def test_join_and_ask_on_colab(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLAB_RELEASE_TAG", "x")
    assert main(["join", "4TK-G9P", "--ask", "why"]) == 0
    assert rooms.calls[-1][2]["role"] == "guest"
    assert "so this device joins as a guest" in capsys.readouterr().err
    assert main(["join", "4TK-G9P", "--ask", "why", "--role", "worker"]) == 0
    assert rooms.calls[-1][2]["role"] == "worker"
    assert "Colab" not in capsys.readouterr().err


def test_host_on_colab(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLAB_RELEASE_TAG", "x")
    assert main(["host", "m", "--ask", "why"]) == 0
    assert rooms.calls[-1][2]["split"] == "alone"
    assert "this device holds the whole model" in capsys.readouterr().err
    assert main(["host", "m", "--ask", "why", "--split", "memory"]) == 0
    assert rooms.calls[-1][2]["split"] == "memory"
    assert "Colab" not in capsys.readouterr().err


def test_python_on_colab(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same from Python; it is said once, and not where the person has decided."""
    monkeypatch.setenv("COLAB_RELEASE_TAG", "x")
    with pooled_nb.host("m"):
        assert rooms.calls[-1][2]["split"] == "alone"
    assert capsys.readouterr().err.count("this device holds the whole model") == 1
    with pooled_nb.join("4TK-G9P"):
        assert rooms.calls[-1][2]["role"] == "guest"
    assert capsys.readouterr().err.count("joins as a guest") == 1
    with pooled_nb.host("m", split="speed"):
        assert rooms.calls[-1][2]["split"] == "speed"
    with pooled_nb.join("4TK-G9P", role="auto"):
        assert rooms.calls[-1][2]["role"] == "auto"
    with pooled_nb.host("m", progress=False):
        assert rooms.calls[-1][2]["split"] == "alone"
    assert "Colab" not in capsys.readouterr().err


async def test_a_cell_on_colab(tmp_path: Path) -> None:
    """In a notebook it is said in the cell, above the room."""
    async with scripted_kernel(tmp_path, COLAB_RELEASE_TAG="x") as kernel:
        page = Page(kernel)
        said, *_ = await page.run("%pooled join 4TK-G9P")
        assert (said["name"], said["text"].count("joins as a guest")) == ("stdout", 1)
        assert await kernel.value("pooled_nb.current().role") == "guest"
        await page.run("%pooled leave")
        said, *_ = await page.run("%pooled host m")
        assert "holds the whole model" in said["text"]
        await page.run("%pooled leave")
        for line in ("%pooled host m --split memory", "%pooled join 4TK-G9P --role worker"):
            assert "Colab" not in str(await page.run(line))
            await page.run("%pooled leave")


def test_elsewhere_nothing_is_said(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["host", "m", "--ask", "why"]) == 0
    assert rooms.calls[-1][2]["split"] == "speed"
    assert "Colab" not in capsys.readouterr().err
