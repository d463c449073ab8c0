"""The JSON of PeerJS signaling, typed and bounded (DESIGN section 4).

Whatever a server says is read into one of these or ignored; nothing here raises on it.
"""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

MAX_TEXT = 256 * 1024
"""Characters of one signaling message; a description with many candidates has some ten thousand."""

MAX_SAID = 120
"""Characters of a server's own words that are shown."""

Id = Annotated[str, Meta(min_length=1, max_length=100)]
ConnectionId = Annotated[str, Meta(min_length=1, max_length=100)]
Sentence = Annotated[str, Meta(max_length=1_000)]

_ID = re.compile(r"[A-Za-z0-9]+(?:[ _-][A-Za-z0-9]+)*")


def id_allowed(id: str) -> bool:
    """Whether PeerJS takes the id: ASCII letters and digits with single ``-``, ``_``, blank inside."""
    return len(id) <= 100 and _ID.fullmatch(id) is not None


def random_id() -> str:
    """Draw an id for a device that is not the creator (PROTOCOL section 2)."""
    return secrets.token_hex(16)


def random_token() -> str:
    """Draw the token that lets its holder take an id over."""
    return secrets.token_urlsafe(16).replace("-", "a").replace("_", "b")


def random_connection_id() -> str:
    """Draw a PeerJS ``connectionId`` for a data connection."""
    return "dc_" + secrets.token_hex(8)


class Description(Struct, frozen=True):
    """``RTCSessionDescription`` as JSON."""

    type: Literal["offer", "answer"]
    sdp: Annotated[str, Meta(max_length=64 * 1024)]


class OfferPayload(Struct, frozen=True, kw_only=True):
    """What an OFFER carries."""

    sdp: Description
    connection_id: ConnectionId = field(name="connectionId")
    type: Literal["data"] = "data"
    label: Annotated[str, Meta(max_length=100)] = ""
    reliable: bool = False
    serialization: Annotated[str, Meta(max_length=40)] = ""


class AnswerPayload(Struct, frozen=True, kw_only=True):
    """What an ANSWER carries."""

    sdp: Description
    connection_id: ConnectionId = field(name="connectionId")
    type: Literal["data"] = "data"


class IceCandidate(Struct, frozen=True, kw_only=True):
    """``RTCIceCandidate.toJSON()``."""

    candidate: Annotated[str, Meta(max_length=2_000)] = ""
    sdp_mid: Annotated[str, Meta(max_length=100)] | None = field(default=None, name="sdpMid")
    sdp_mline_index: Annotated[int, Meta(ge=0, le=100)] | None = field(default=None, name="sdpMLineIndex")
    username_fragment: Annotated[str, Meta(max_length=256)] | None = field(
        default=None, name="usernameFragment"
    )


class CandidatePayload(Struct, frozen=True, kw_only=True):
    """What a CANDIDATE carries."""

    candidate: IceCandidate
    connection_id: ConnectionId = field(name="connectionId")
    type: Literal["data"] = "data"


class Msg(Struct, frozen=True, kw_only=True):
    """What a server may attach to a refusal."""

    msg: Sentence = ""


class Open(Struct, frozen=True, tag_field="type", tag="OPEN"):
    """Registered."""


class IdTaken(Struct, frozen=True, kw_only=True, tag_field="type", tag="ID-TAKEN"):
    """Another device holds the id."""

    payload: Msg | None = None


class InvalidKey(Struct, frozen=True, kw_only=True, tag_field="type", tag="INVALID-KEY"):
    """The server does not serve our API key."""

    payload: Msg | None = None


class Error(Struct, frozen=True, kw_only=True, tag_field="type", tag="ERROR"):
    """The server cannot serve us."""

    payload: Msg | None = None


class Expire(Struct, frozen=True, kw_only=True, tag_field="type", tag="EXPIRE"):
    """A message to ``src`` found nobody for 5 s."""

    src: Id


class Leave(Struct, frozen=True, kw_only=True, tag_field="type", tag="LEAVE"):
    """``src`` is gone."""

    src: Id


class Offer(Struct, frozen=True, kw_only=True, tag_field="type", tag="OFFER"):
    """``src`` dials us."""

    src: Id
    payload: OfferPayload


class Answer(Struct, frozen=True, kw_only=True, tag_field="type", tag="ANSWER"):
    """``src`` answers our OFFER."""

    src: Id
    payload: AnswerPayload


class Candidate(Struct, frozen=True, kw_only=True, tag_field="type", tag="CANDIDATE"):
    """One more way to reach ``src``."""

    src: Id
    payload: CandidatePayload


ServerMessage = Open | IdTaken | InvalidKey | Error | Expire | Leave | Offer | Answer | Candidate
PeerMessage = Expire | Leave | Offer | Answer | Candidate
"""Those about another device."""

_decoder = msgspec.json.Decoder(ServerMessage)


def read(text: str | bytes) -> ServerMessage | None:
    """What a server said, or None where it must be ignored (unknown, malformed, too long)."""
    if len(text) > MAX_TEXT:
        return None
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def said(msg: Msg | None) -> str:
    """What a server says about a refusal, as people may read it: one short line of printable text."""
    text = " ".join("".join(c if c.isprintable() else " " for c in msg.msg).split()) if msg else ""
    return text if len(text) <= MAX_SAID else f"{text[:MAX_SAID]}…"


HEARTBEAT = '{"type":"HEARTBEAT"}'
"""Only this keeps a client alive at the server."""


def to_self(id: str) -> str:
    """A message that a server passes back to its sender: any passes a candidate on, to whatever id."""
    return write("CANDIDATE", id, CandidatePayload(candidate=IceCandidate(), connection_id="dc_self"))


def write(type: str, dst: str, payload: Struct | None = None) -> str:
    """One message to the device ``dst``; the server fills in ``src``."""
    body: dict[str, object] = {"type": type, "dst": dst}
    if payload is not None:
        body["payload"] = payload
    return msgspec.json.encode(body).decode()
