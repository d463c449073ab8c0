"""``--invite-file``: the invite link in a file that only its user can read, for scripts to hand on."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pooled_nb.errors import BadOption, PooledError
from pooled_nb.mesh import ownfiles
from pooled_nb.terminal.screen import aside

if TYPE_CHECKING:
    from pooled_nb.room_view import Room


@contextlib.contextmanager
def kept_link(room: Room, path: str | None) -> Iterator[Callable[[], None]]:
    """Keep the link there while the room is open; what comes back renews it where it has changed.

    Parameters
    ----------
    path
        None: nowhere.

    Raises
    ------
    BadOption
        The file cannot be written.
    """
    if path is None:
        yield lambda: None
        return
    place, written, failed = Path(path), "", False

    def look() -> None:
        nonlocal written
        link = room.invite().link
        if link != written:
            ownfiles.write(place, f"{link}\n".encode())
            written = link

    def look_again() -> None:
        nonlocal failed
        try:
            look()
            failed = False
        except OSError as error:  # once: it is tried again a moment later
            if not failed:
                aside(str(_unwritten(path, error)))
            failed = True
        except PooledError:
            pass  # the room is over

    try:
        look()
    except OSError as error:
        raise _unwritten(path, error) from error
    try:
        yield look_again
    finally:
        # The room is over, and the link with it; a file of another room's since then stays.
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if place.read_text(encoding="utf-8").strip() == written:
                place.unlink()


def _unwritten(path: str, error: OSError) -> BadOption:
    return BadOption(
        f"The invite link cannot be written to {path} ({error.strerror or error}).", "Name another file."
    )


def told(path: str) -> str:
    """How it is used."""
    name = shlex.quote(path)
    return f'With the invite link: POOLED_LINK="$(cat {name})" pooled-nb join, where {name} can be read.'
