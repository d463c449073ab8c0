"""What crosses the child's pipe: one typed msgpack message a frame, its length before it.

A call goes down, any number of `Progressed` and then one `Done` or `Failed` come back under its number. A
`Cancel` may follow it: where nothing would be left half done, the job ends early.
Nothing is pickled, and an error crosses as the name of its class and its two sentences.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec
from msgspec import Raw, Struct

from pooled_nb import errors
from pooled_nb.shard.door import (
    Columns,
    Control,
    DeviceFacts,
    Forwarded,
    Loaded,
    LoadSpec,
    ModelFacts,
    Prompt,
    Sampled,
    Sampling,
    Turn,
    Want,
)
from pooled_nb.shard.pieces import Missing

MAX_MESSAGE = 1 << 28
"""Bytes of one message: far above the widest frame (256 columns of 64 Ki numbers are 64 MiB)."""

_WORDS = 10_000
"""Letters of a sentence."""

_LENGTH = struct.Struct(">I")
HEAD = _LENGTH.size


class Job(Struct, frozen=True, kw_only=True, tag_field="job", tag=str.lower):
    """One thing a shard does; the fields are those of the door's method of that name."""


class Device(Job, frozen=True, kw_only=True):
    """See `Shard.device`."""


class Inspect(Job, frozen=True, kw_only=True):
    """See `Shard.inspect`."""

    model: str
    revision: str | None = None
    folder: str | None = None


class Lacks(Job, frozen=True, kw_only=True):
    """See `Shard.missing`."""

    spec: LoadSpec


class Load(Job, frozen=True, kw_only=True):
    """See `Shard.load`."""

    spec: LoadSpec


class Forward(Job, frozen=True, kw_only=True):
    """See `Shard.forward`."""

    columns: Columns
    control: Control
    tokens: list[int] | None = None
    data: bytes | None = None
    last: bool = False


class Sample(Job, frozen=True, kw_only=True):
    """See `Shard.sample`."""

    data: bytes
    pos: int
    n: int
    sampling: Sampling
    first: bool = False
    after: list[int] | None = None
    seen: list[int] | None = None
    drafts: list[int] | None = None
    want: Want | None = None


class Flush(Job, frozen=True, kw_only=True):
    """See `Shard.flush`."""


class Render(Job, frozen=True, kw_only=True):
    """See `Shard.render`."""

    turns: list[Turn]
    thinking: bool | None = None
    sampling: Sampling | None = None


class Unload(Job, frozen=True, kw_only=True):
    """See `Shard.unload`."""


AnyJob = Device | Inspect | Lacks | Load | Forward | Sample | Flush | Render | Unload

RESULTS: dict[type[Job], Any] = {
    Device: DeviceFacts,
    Inspect: ModelFacts,
    Lacks: Missing,
    Load: Loaded,
    Forward: Forwarded,
    Sample: Sampled,
    Flush: str,
    Render: Prompt,
    Unload: None,
}
"""What each job answers with."""


STOPPABLE = (Inspect, Lacks, Load)
"""Jobs that end early when nobody waits for them any more. All others take their place in the order: a frame
left out would leave the caches out of step."""


class Call(Struct, frozen=True, tag="call"):
    """A job, and the number its answer will carry: one more than that of the call before it, or more."""

    id: int
    job: AnyJob


class Cancel(Struct, frozen=True, tag="cancel"):
    """Nobody waits for a call any more: it ends as soon as it can. Its answer still comes."""

    id: int


Asked = Call | Cancel


class Progressed(Struct, frozen=True, tag="progress"):
    """How far the running job is: percent, and a few words."""

    id: int
    pct: int
    words: str


class Done(Struct, frozen=True, tag="done"):
    """The job's answer, typed by `RESULTS`."""

    id: int
    result: Raw


class Failed(Struct, frozen=True, tag="failed"):
    """The job's error: a class of `pooled_nb.errors` and its two sentences."""

    id: int
    cls: str
    what: str
    next_step: str


Reply = Progressed | Done | Failed

_encoder = msgspec.msgpack.Encoder()
_asked: msgspec.msgpack.Decoder[Asked] = msgspec.msgpack.Decoder(Asked)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def pack(message: Asked | Reply) -> bytes:
    """One message as it crosses the pipe, length first.

    Raises
    ------
    ShardError
        It cannot cross: too large, a number of more than 64 bits, or a text that is none.
    """
    body = _encoded(message)
    if len(body) > MAX_MESSAGE:
        raise errors.ShardError("A message to or from the shard is too large.", "Send a narrower frame.")
    return _LENGTH.pack(len(body)) + body


def _encoded(value: object) -> bytes:
    try:
        return _encoder.encode(value)
    except (OverflowError, UnicodeError, TypeError, ValueError, RecursionError) as error:
        words = " ".join(str(error).split())[:200].encode("utf-8", "replace").decode()
        raise errors.ShardError(
            f"A value cannot be sent to or from the shard: {words}.",
            "Use whole numbers of at most 64 bits and texts of whole characters.",
        ) from error


def body_length(head: bytes) -> int:
    """Length of the message that follows.

    Raises
    ------
    ValueError
        It cannot be one of ours: whoever wrote this does not speak the protocol.
    """
    (length,) = _LENGTH.unpack(head)
    if not 0 < length <= MAX_MESSAGE:
        raise ValueError(f"no message has {length} bytes")
    return int(length)


def unpack_asked(body: bytes) -> Asked:
    """Read what the kernel asks (in the child)."""
    return _asked.decode(body)


def unpack_reply(body: bytes) -> Reply:
    """Read a reply (in the kernel)."""
    return _replies.decode(body)


def done(number: int, result: object) -> Done:
    """Wrap a job's answer."""
    return Done(number, Raw(_encoded(result)))


def result_of(job: Job, reply: Done) -> Any:
    """Read the answer as the type that this job has."""
    return msgspec.msgpack.decode(reply.result, type=RESULTS[type(job)])


def failed(number: int, error: errors.PooledError) -> Failed:
    """Wrap an error; it always crosses, also with a file's name in it that is no text."""
    return Failed(number, type(error).__name__, _text(error.what), _text(error.next_step))


def progressed(number: int, pct: int, words: str) -> Progressed:
    """Wrap how far a job is."""
    return Progressed(number, pct, _text(words))


def _text(words: str) -> str:
    return words.encode("utf-8", "replace").decode()[:_WORDS]


def error_of(reply: Failed) -> errors.PooledError:
    """Make the error again, as the same class."""
    cls = getattr(errors, reply.cls, None)
    if not (isinstance(cls, type) and issubclass(cls, errors.PooledError)):
        cls = errors.ShardError
    return cls(reply.what, reply.next_step)
