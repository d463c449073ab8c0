"""Messages of dealing and loading (PROTOCOL section 6)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from pooled_nb.mesh.messages.base import (
    Count,
    Digest,
    Flag,
    Id,
    Message,
    Part,
    Real,
    Sentence,
    Text40,
    message,
)

ModelName = Annotated[str, Meta(min_length=1, max_length=200)]
Have = Annotated[list[Annotated[str, Meta(max_length=44)]], Meta(max_length=4096)]
"""Ranges of one file that a device has: ``"lo-hi"``, hi inclusive."""
Inventory = Annotated[dict[Annotated[str, Meta(max_length=200)], Have], Meta(max_length=1024)]
"""The same by the file's name."""
Layers = Annotated[list[Annotated[int, Meta(ge=0, le=10_000)]], Meta(min_length=2, max_length=2)]


@message("ai-wait")
class Wait(Message, frozen=True, kw_only=True):
    """Admitted; nothing is loaded yet."""


@message("ai-start-req")
class StartReq(Message, frozen=True, kw_only=True):
    """Start was pressed."""

    model: ModelName
    boss: Id
    by: Text40 = ""


@message("ai-inv-req")
class InvReq(Message, frozen=True, kw_only=True):
    """Asks which ranges of this file are cached."""

    url: Annotated[str, Meta(max_length=2_000)]


@message("ai-inv")
class Inv(Message, frozen=True, kw_only=True):
    """These (``"lo-hi"``, hi inclusive)."""

    url: Annotated[str, Meta(max_length=2_000)]
    have: Have


class NbLoad(Part, frozen=True, kw_only=True):
    """Everything that decides bits (PROTOCOL section 6, *(nb)*)."""

    repo: ModelName
    revision: Annotated[str, Meta(max_length=100)]
    config: Digest
    """SHA-256 of ``config.json``: a device with another one refuses."""
    files: dict[Annotated[str, Meta(max_length=200)], Any] = field(default_factory=dict)
    """``{size, sha256?, sample?}`` by name; read by who loads, who refuses what is not of this form."""
    dtype: Annotated[str, Meta(max_length=20)] = "bfloat16"
    enc: Annotated[str, Meta(max_length=8)] = "bf16"
    width: Annotated[int, Meta(ge=1, le=64)] = 16
    cols: Annotated[int, Meta(ge=1, le=256)] = 16
    attn: Annotated[str, Meta(max_length=40)] = "sdpa"
    experts: Annotated[str, Meta(max_length=40)] = "batched_mm"
    kvq: Annotated[str, Meta(max_length=40)] | None = None
    quant: Annotated[str, Meta(max_length=40)] | None = None
    prev: Id
    ranges: dict[Id, Layers] = field(default_factory=dict)
    inv: Annotated[dict[Id, Inventory], Meta(max_length=256)] | None = None
    """Who has what of the weights files, besides who is told."""
    deal: Count = 0
    """Number of this deal, echoed by ready, progress and error: what belongs to an earlier one is ignored."""


@message("ai-load")
class Load(Message, frozen=True, kw_only=True):
    """Load these layers and forward to ``next``."""

    v: Count
    model: ModelName
    range: Layers
    ctx: Annotated[int, Meta(ge=1, le=2**24)]
    kv: Annotated[str, Meta(max_length=8)] = "f16"
    next: Id
    host: Id
    inv: dict[str, Any] | None = None
    nb: NbLoad | None = None


@message("ai-progress")
class Progress(Message, frozen=True, kw_only=True):
    """How far this worker's loading is, 0–100."""

    pct: Annotated[int, Meta(ge=0, le=100)]
    deal: Count | None = None
    asks: Flag = False
    """*(nb)* It waits for its person, who is asked whether it may download so much."""


@message("ai-hostprog")
class HostProgress(Message, frozen=True, kw_only=True):
    """How far everybody's loading is."""

    all: dict[Text40, Annotated[int, Meta(ge=0, le=100)]]
    at: Any = None


@message("ai-ready")
class Ready(Message, frozen=True, kw_only=True):
    """Layers loaded and the link to ``next`` proved."""

    slots: Annotated[list[Annotated[int, Meta(ge=1, le=65534)]], Meta(max_length=64)] = field(
        default_factory=list
    )
    ckpt: Flag = False
    deal: Count | None = None


@message("ai-layers")
class LayersHeld(Message, frozen=True, kw_only=True):
    """Who holds what: ``by`` in people's words, ``ranges`` *(nb)* by id."""

    by: dict[Text40, Annotated[str, Meta(max_length=40)]] = field(default_factory=dict)
    held: dict[Text40, Real] = field(default_factory=dict)
    out: dict[Text40, Annotated[str, Meta(max_length=40)]] = field(default_factory=dict)
    ranges: dict[Id, Layers] | None = None
    same: Flag = False
    """*(nb)* Exact mode and one ``sig``: the text is the same as one device alone would give."""
    dtype: Annotated[str, Meta(max_length=20)] | None = None
    """*(nb)* torch name of what the room computes in."""
    kv: Annotated[str, Meta(max_length=8)] | None = None
    """*(nb)* How caches are kept, as in ``ai-load``."""
    quant: Annotated[str, Meta(max_length=40)] | None = None
    """*(nb)* How linear weights are kept: the class, as in ``ai-load``."""


@message("ai-ready-all")
class ReadyAll(Message, frozen=True, kw_only=True):
    """Online."""

    model: ModelName
    label: Annotated[str, Meta(max_length=200)] = ""
    ctx: Count = 0


@message("ai-share")
class Share(Message, frozen=True, kw_only=True):
    """Hold less, or nothing."""

    gb: Real | None = None
    drop: Flag = False
    why: Sentence = ""


@message("ai-next")
class Next(Message, frozen=True, kw_only=True):
    """The device after you changed."""

    next: Id
    relink: Flag = False


@message("ai-linked")
class Linked(Message, frozen=True, kw_only=True):
    """The link to ``next`` stands, or does not."""

    next: Id
    ok: Flag = False


@message("ai-linklost")
class LinkLost(Message, frozen=True, kw_only=True):
    """A link between workers is gone."""

    name: Text40


@message("ai-error")
class Error(Message, frozen=True, kw_only=True):
    """Fail the laps in flight, or with ``load`` the start."""

    message: Sentence
    pos: Count | None = None
    load: Flag = False
    deal: Count | None = None
    epoch: Annotated[int, Meta(ge=0, le=255)] | None = None
    """*(nb)* Of the frame that failed: an error of another epoch ends no lap of this one."""
    killed: Flag = False
    """*(nb)* What computes there was killed, or ran out of memory: less of it may work (``ai-share``)."""
    lost: Annotated[str, Meta(max_length=8)] | None = None
    """*(nb)* Nothing was wrong with the frame, and it is computed again: ``link``, the one to the next device
    is gone; ``frame``, one before it did not come."""


@message("ai-degraded")
class Degraded(Message, frozen=True, kw_only=True):
    """A chain device is gone, or laps failed."""

    why: Sentence = ""


@message("ai-redeal")
class Redeal(Message, frozen=True, kw_only=True):
    """Dealing again over the devices now here."""

    by: Text40 = ""
    model: ModelName | None = None


@message("ai-start-failed")
class StartFailed(Message, frozen=True, kw_only=True):
    """The start did not work."""

    why: Sentence = ""


@message("ai-wake")
class Wake(Message, frozen=True, kw_only=True):
    """A lap starts."""

    pos: Count | None = None


class Compute(Part, frozen=True, kw_only=True):
    """Mean compute per frame kind, ms."""

    one: Real | None = None
    spec: Real | None = None
    pre: Real | None = None


@message("ai-tele")
class Telemetry(Message, frozen=True, kw_only=True):
    """How long this device computes."""

    k: Compute


@message("ai-map")
class RoomMap(Message, frozen=True, kw_only=True):
    """The room map, about once a second while answering."""

    nodes: list[Any] = field(default_factory=list)
    st: dict[str, Any] = field(default_factory=dict)
    live: Flag = False
