"""How weights are kept: an option everywhere, and words about it."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from pooled_nb import show
from pooled_nb.cli import main
from tests.front.scripted import Rooms
from tests.front.test_magics import works
from tests.front.test_show import room


def test_the_class_is_shown() -> None:
    """DESIGN section 5: weights in fewer bits are a class of exactness of their own."""
    text = show.status_text(room(model="m", label="m", quant="int8-row"))
    assert text.splitlines()[1] == "m · 30 layers · int8 weights (int8-row), other text than with 16-bit ones"
    assert "weights" not in show.status_text(room(model="m", label="m", quant="<b>"))


def test_a_notebook_chooses_it(shell: InteractiveShell, rooms: Rooms) -> None:
    """``%pooled host --quant``: the host's choice when the room opens."""
    works(shell, "%pooled host m --quant int8")
    works(shell, "%pooled leave")
    works(shell, "%pooled host m")
    assert [options["quant"] for _, _, options in rooms.calls] == ["int8", None]


def test_a_terminal_chooses_it(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    """``pooled-nb host --quant``."""
    assert main(["host", "m", "--ask", "why", "--quant", "int4"]) == 0
    assert rooms.calls[0][2]["quant"] == "int4"
    with pytest.raises(SystemExit):
        main(["host", "m", "--quant", "int2"])
    assert "invalid choice: 'int2'" in capsys.readouterr().err
