"""What is printed in a terminal, and in an IPython without a frontend: an answer, an invite link."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pooled_nb.plain import visible
from pooled_nb.room.doorwords import HERE_ONLY

if TYPE_CHECKING:
    from pooled_nb.answer import Answer
    from pooled_nb.progress import Waiting
    from pooled_nb.room.doorfacts import Invite


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


def show_link(invite: Invite) -> bool:
    """Type an invite link on the terminal, whose lines are its person's own; False: there is none.

    Past ``sys.stdout``, which may be a log, and of which IPython keeps what is printed, for its exports.
    """
    terminal = sys.__stdout__
    if terminal is None or not terminal.isatty():
        return False
    terminal.write(f"{invite.link}\nIt lets its holder in without asking: treat it like a password.\n")
    if invite.here_only:
        terminal.write(f"{HERE_ONLY}\n")
    terminal.flush()
    return True
