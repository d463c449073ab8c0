"""An answer printed as it comes: in a terminal, and in an IPython without a frontend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pooled_nb.plain import visible

if TYPE_CHECKING:
    from pooled_nb.answer import Answer
    from pooled_nb.progress import Waiting


def print_answer(answer: Answer, view: Waiting, say: Callable[[str], None] = print) -> None:
    """Print its text to stdout piece by piece, then ``[what it took]``.

    Parameters
    ----------
    view
        Shows the wait until the first piece.
    say
        Takes the last line.

    Raises
    ------
    AskError, RoomError, KeyboardInterrupt
        As `Answer.result` does; what had come stays on the screen, and the last line tells how it ended.
    """

    def out(piece: str) -> None:
        view.close()
        print(visible(piece), end="", flush=True)

    try:
        answer.result(on_text=out, view=view)
    finally:
        view.close()
        if answer.text:
            print(flush=True)
        if line := answer.summary():
            say(f"[{line}]")
