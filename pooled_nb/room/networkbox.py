"""The network box: by which ways this user's devices reach others, remembered (PROTOCOL section 2, ICE).

One file that only this user can read, since a relay's password stands in it (DESIGN section 7).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from platformdirs import user_config_path

from pooled_nb.errors import BadOption
from pooled_nb.mesh import ownfiles

MAX_BYTES = 16_384
NAME = "network.json"

_Text = Annotated[str, Meta(max_length=1_000)]


class NetworkBox(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is remembered; None: nothing is. As of `NetworkChoice`."""

    turn: _Text | None = None
    stun: Annotated[list[_Text], Meta(max_length=8)] | None = None
    relay_only: bool | None = None
    stripes: int | None = None
    twice: bool | None = None
    keepalive_ms: float | None = None
    transport: _Text | None = None

    def __repr__(self) -> str:
        turn = None if self.turn is None else "…"
        return f"NetworkBox(turn={turn!r}, stun={self.stun!r}, relay_only={self.relay_only!r})"


def path() -> Path:
    """Where the file lies; ``POOLED_CONFIG_DIR`` overrides its folder. Not made by this call."""
    override = os.environ.get("POOLED_CONFIG_DIR")
    return (Path(override) if override else user_config_path("pooled_nb", appauthor=False)) / NAME


def read() -> NetworkBox:
    """What is remembered; empty where there is no such file, or none that can be read. Never raises."""
    try:
        data = ownfiles.read(path(), MAX_BYTES)
        return NetworkBox() if data is None else msgspec.json.decode(data, type=NetworkBox)
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return NetworkBox()


def write(box: NetworkBox) -> None:
    """Remember it; an empty box removes the file.

    Raises
    ------
    BadOption
        It cannot be written: says why.
    """
    where = path()
    try:
        if box == NetworkBox():
            with contextlib.suppress(FileNotFoundError):
                where.unlink()
            return
        ownfiles.make_folder(where.parent)
        ownfiles.write(where, msgspec.json.encode(box, enc_hook=str))  # a relay may be an `Unseen`
    except OSError as error:
        raise BadOption(
            f"The network box cannot be saved: {error.strerror or 'its folder is not yours alone'}.",
            f"It counts for this room. For later ones make {where.parent} a folder of yours alone.",
        ) from None
