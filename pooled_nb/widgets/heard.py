"""What a browser may say to a panel. Anything else is ignored; nothing of it is ever run or stored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

Short = Annotated[str, Meta(max_length=80)]


class Custom(Struct, frozen=True):
    """A message of our own JavaScript.

    ``turn`` is a secret (`pooled_nb.mesh.turn.parse` reads it): in no repr, and of the command ``network``
    alone.
    """

    cmd: Annotated[str, Meta(min_length=1, max_length=20)]
    key: Short = ""
    value: Short = ""
    id: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    turn: Annotated[str, Meta(max_length=1_000)] | None = None
    relay_only: bool | None = None
    remember: bool = False

    def __repr__(self) -> str:
        return f"Custom(cmd={self.cmd!r}, key={self.key!r}, value={self.value!r}, id={self.id!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("cmd", self.cmd), ("key", self.key), ("value", self.value), ("id", self.id)]


class _Envelope(Struct, frozen=True):
    method: Literal["custom", "request_state"]
    content: Any = None


Heard = Custom | Literal["request_state"]


def heard(message: Any) -> Heard | None:
    """Read a comm message.

    Traits go one way: what a browser wants to set (``update``) is not heard.
    """
    try:
        envelope = msgspec.convert(message["content"]["data"], _Envelope)
        if envelope.method == "request_state":
            return "request_state"
        said = msgspec.convert(envelope.content, Custom)
    except (msgspec.ValidationError, UnicodeError, KeyError, TypeError):
        return None
    return said if said.cmd == "network" or said.turn is None else None
