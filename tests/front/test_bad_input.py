"""What people get wrong, against the real room: one clear sentence, and everything as it was."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

import pooled_nb
from pooled_nb.cli import main
from pooled_nb.threads import mesh


def nothing_is_left() -> None:
    assert pooled_nb.current() is None
    assert not mesh.running
    assert psutil.Process().children(recursive=True) == []


def said(capsys: pytest.CaptureFixture[str], argv: list[str]) -> str:
    """Run a command that fails; its sentence."""
    assert main(argv) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("pooled-nb: ")
    nothing_is_left()
    return line


@pytest.mark.parametrize("code", ["12345", "ABC23O", "", "ABC2345", "http://example.org/nothing"])
def test_a_wrong_code(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """PROTOCOL section 2: six characters without I, L, O, U, 0 and 1; five never."""
    assert "4TK-G9P" in said(capsys, ["join", code])


def test_no_such_room(capsys: pytest.CaptureFixture[str]) -> None:
    """PROTOCOL section 2: rooms of this machine are found by their runtime file."""
    assert "No room ABC-234" in said(capsys, ["join", "ABC234"])


def test_signaling_is_down(capsys: pytest.CaptureFixture[str]) -> None:
    """PROTOCOL section 2: no answer from any server of the list is an outage, and says which were tried."""
    line = said(capsys, ["join", "ABC234", "--signal", "127.0.0.1:9"])
    assert "127.0.0.1:9" in line
    assert "No signaling server answers" in line


def test_a_folder_without_safetensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """DESIGN section 6: only safetensors; a folder without them is refused by its name."""
    folder = tmp_path / "empty-folder"
    folder.mkdir()
    (folder / "pytorch_model.bin").write_bytes(b"never read")
    assert "empty-folder" in said(capsys, ["host", str(folder)])


def test_memory_that_makes_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'much'" in said(capsys, ["host", "SmolLM2-135M-Instruct", "--lend", "much"])


def test_a_model_that_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    """CASES: short by X GB for MODEL; NAME could give Y. The room itself stays as it was."""
    room = pooled_nb.host("SmolLM2-135M-Instruct", lend=0.01, name="tiny", progress=False)
    with pytest.raises(pooled_nb.errors.ModelTooBig, match=r"short by \d.*GB for SmolLM2.*tiny could give"):
        room.ask("hello?")
    assert room.status().state == "open"
    assert room.last is not None
    assert room.last.text == ""
    with pytest.raises(pooled_nb.errors.AlreadyInRoom):
        pooled_nb.host("SmolLM2-135M-Instruct")
    room.leave()
    nothing_is_left()
