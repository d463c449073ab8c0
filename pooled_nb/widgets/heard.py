"""What a browser may say to a panel. Anything else is ignored; nothing of it is ever run or stored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

Short = Annotated[str, Meta(max_length=40)]


class Custom(Struct, frozen=True):
    """A message of our own JavaScript."""

    cmd: Annotated[str, Meta(min_length=1, max_length=20)]
    key: Short = ""
    value: Short = ""
    id: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None


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
        return msgspec.convert(envelope.content, Custom)
    except (msgspec.ValidationError, UnicodeError, KeyError, TypeError):
        return None
