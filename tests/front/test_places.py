"""DESIGN section 7: on Colab ``join`` is a guest and ``host`` one device, unless the person decides."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

import pooled_nb
from pooled_nb import places
from pooled_nb.cli import main
from pooled_nb.room.thisdevice import on_colab
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
    assert place.gives is not on_colab()


def test_join_and_ask_on_colab(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLAB_RELEASE_TAG", "x")
    assert main(["join", "4TK-G9P", "--ask", "why"]) == 0
    assert rooms.calls[-1][2]["role"] == "guest"
    assert "so this device joins as a guest" in capsys.readouterr().err
    assert main(["join", "4TK-G9P", "--ask", "why", "--role", "worker"]) == 0
    assert rooms.calls[-1][2]["role"] == "worker"
    said = capsys.readouterr().err
    assert "may not compute" not in said
    assert "weights come to this device from the hub alone" in " ".join(said.split())
    assert [call[2]["give"] for call in rooms.calls] == [False, False]


def test_a_link_from_a_colab_secret(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 7: a link to join is asked for unseen, or comes from POOLED_LINK or a Colab secret."""
    secrets = {"POOLED_LINK": "https://example.org/r/4TK-G9P"}
    colab = ModuleType("google.colab.userdata")
    colab.get = secrets.__getitem__  # type: ignore[attr-defined] # a module made here
    for name in ("google", "google.colab", colab.__name__):
        monkeypatch.setitem(sys.modules, name, colab)
    monkeypatch.delenv("POOLED_LINK", raising=False)
    monkeypatch.setattr("pooled_nb.api.getpass", lambda prompt: "ABC234")

    def joined() -> str:
        with pooled_nb.join(progress=False):
            return rooms.calls[-1][1]

    assert joined() == "ABC234"  # elsewhere nothing of that name is looked at
    monkeypatch.setenv("COLAB_RELEASE_TAG", "x")
    assert joined() == secrets["POOLED_LINK"]
    secrets.clear()  # there is none, or this notebook may not read it
    assert joined() == "ABC234"


def test_host_on_colab(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLAB_RELEASE_TAG", "x")
    assert main(["host", "m", "--ask", "why"]) == 0
    assert rooms.calls[-1][2]["split"] == "alone"
    assert "this device holds the whole model" in capsys.readouterr().err
    assert main(["host", "m", "--ask", "why", "--split", "memory"]) == 0
    assert rooms.calls[-1][2]["split"] == "memory"
    said = " ".join(capsys.readouterr().err.split())
    assert "may not compute" not in said
    assert "Colab forbids to share files from device to device" in said
    assert [call[2]["give"] for call in rooms.calls] == [False, False]


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
    assert capsys.readouterr().err.count("Colab forbids to share files") == 2
    with pooled_nb.host("m", progress=False, give=True):
        assert rooms.calls[-1][2]["split"] == "alone"
        assert rooms.calls[-1][2]["give"] is False, "no plan of Colab's allows it"
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
            said = str(await page.run(line))
            assert "may not compute" not in said
            assert "Colab forbids to share files" in said
            await page.run("%pooled leave")


def test_elsewhere_nothing_is_said(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["host", "m", "--ask", "why"]) == 0
    assert rooms.calls[-1][2]["split"] == "speed"
    assert "Colab" not in capsys.readouterr().err
