"""Messages of links, roster and proofs (PROTOCOL sections 3 and 4)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from pooled_nb.mesh.messages.base import (
    Count,
    Digest,
    Flag,
    Id,
    Message,
    Part,
    Real,
    Secret,
    Sentence,
    Text40,
    message,
)

Stamp = Annotated[float, Meta(ge=-1e300, le=1e300)]
"""A number of the pinging end's own. Not NaN, nor anything else that could not be echoed."""


class NbMeta(Part, frozen=True, kw_only=True):
    """What only our devices say of themselves (PROTOCOL section 3, *(nb)*)."""

    v: Count
    device: Annotated[str, Meta(max_length=20)] = "cpu"
    dtypes: Annotated[list[Annotated[str, Meta(max_length=20)]], Meta(max_length=16)] = field(
        default_factory=list
    )
    enc: Annotated[list[Annotated[str, Meta(max_length=8)]], Meta(max_length=8)] = field(default_factory=list)
    width: Annotated[int, Meta(ge=1, le=64)] = 1
    cols: Annotated[int, Meta(ge=1, le=256)] = 16
    lanes: Annotated[int, Meta(ge=1, le=64)] = 1
    sig: Annotated[str, Meta(max_length=64)] = ""
    probe: Flag = False


class DeviceMeta(Part, frozen=True, kw_only=True):
    """What a device says of itself: ``hello.meta`` and the roster."""

    webgpu: Flag = False
    contrib_gb: Real | None = field(default=None, name="contribGB")
    max_buf_gb: Real | None = field(default=None, name="maxBufGB")
    gbps: Real | None = None
    gpu: Annotated[str, Meta(max_length=120)] | None = None
    ua: Annotated[str, Meta(max_length=40)] | None = None
    phone: Flag = False
    pledge_max: Real | None = field(default=None, name="pledgeMax")
    wake: Flag = False
    api: Annotated[int, Meta(ge=0, le=9)] | None = None
    client: Annotated[str, Meta(max_length=80)] | None = None
    ctx: Count | None = None
    nb: NbMeta | None = None


@message("hello")
class Hello(Message, frozen=True, kw_only=True):
    """First on every link, by both, at ``open``. ``v`` absent is another version.

    ``key`` and ``pass_``: the raw secrets of a device from before the proofs. Ours never say them.
    """

    name: Text40 = ""
    meta: DeviceMeta = field(default_factory=DeviceMeta)
    v: Count | None = None
    gate: Flag = False
    ask: Flag = False
    auth: Flag = False
    join: Flag = False
    jc: Digest | None = None
    kc: Flag = False
    pid: Annotated[str, Meta(min_length=32, max_length=32, pattern=r"^[0-9a-f]+\Z")] | None = None
    key: Secret | None = None
    pass_: Secret | None = field(default=None, name="pass")
    back: Flag = False


@message("auth")
class Auth(Message, frozen=True, kw_only=True):
    """Creator's challenge."""

    v: Count
    hn: Secret


@message("auth-proof")
class AuthProof(Message, frozen=True, kw_only=True):
    """Device's opened commitment and what it can prove."""

    jn: Secret
    kp: Digest | None = None
    pp: Digest | None = None


@message("lobby")
class Lobby(Message, frozen=True, kw_only=True):
    """A person is being asked."""


@message("admit")
class Admit(Message, frozen=True, kw_only=True):
    """The device is in."""

    pass_: Secret | None = field(default=None, name="pass")
    via: Annotated[str, Meta(max_length=8)] | None = None
    hp: Digest | None = None
    mk: Secret | None = None


@message("mesh")
class MeshProof(Message, frozen=True, kw_only=True):
    """Proof of the mesh key over this very link."""

    v: Count | None = None
    p: Digest | None = None
    none: Flag = False


class Member(Part, frozen=True, kw_only=True):
    """One line of the roster."""

    id: Id
    name: Text40
    meta: DeviceMeta = field(default_factory=DeviceMeta)
    a: Flag = False


@message("roster")
class Roster(Message, frozen=True, kw_only=True):
    """Who is here: creator first, then in order of joining."""

    members: Annotated[list[Member], Meta(max_length=256)]


@message("pledge")
class Pledge(Message, frozen=True, kw_only=True):
    """A device changed the memory it lends."""

    gb: Real


@message("ping")
class Ping(Message, frozen=True, kw_only=True):
    """Alive? ``ts`` is opaque and echoed."""

    ts: Stamp | None = None


@message("pong")
class Pong(Message, frozen=True, kw_only=True):
    """Alive."""

    ts: Stamp | None = None


@message("leaving")
class Leaving(Message, frozen=True, kw_only=True):
    """Leaving on purpose."""


@message("bye")
class Bye(Message, frozen=True, kw_only=True):
    """Refused or thrown out; ``closed``: the room is over."""

    reason: Sentence = ""
    closed: Flag = False
