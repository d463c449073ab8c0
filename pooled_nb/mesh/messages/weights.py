"""Messages by which devices hand each other pieces of the room's model (PROTOCOL section 6, ``ai-wget``)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from pooled_nb.mesh.messages.base import Count, Digest, Flag, Id, Message, message

Offset = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""Bytes of a file: model files are larger than 2 GiB."""
Asked = Annotated[str, Meta(min_length=1, max_length=100)] | Count
"""Names one request among those of its device; only ever echoed."""


Url = Annotated[str, Meta(max_length=2_000)]
"""Which file: ``repo@revision/name`` among ours."""


@message("ai-wget")
class Wget(Message, frozen=True, kw_only=True):
    """Asks for bytes ``lo`` to ``hi`` (inclusive) of a file; at most ``win`` of them unacknowledged."""

    id: Asked
    url: Url
    lo: Offset
    hi: Offset
    win: Count | None = None


@message("ai-wpart")
class Wpart(Message, frozen=True, kw_only=True):
    """A part at ``off`` (counted from ``lo``), the end, or that there is nothing to be had here."""

    id: Asked
    off: Offset | None = None
    data: Annotated[bytes, Meta(max_length=65_536)] | None = None
    done: Flag = False
    miss: Flag = False


@message("ai-wack")
class Wack(Message, frozen=True, kw_only=True):
    """``got`` bytes have arrived, or no more are wanted."""

    id: Asked
    got: Offset | None = None
    cancel: Flag = False


@message("nb-hash")
class NbHash(Message, frozen=True, kw_only=True):
    """*(nb)* SHA-256 of bytes ``lo`` to ``hi`` (inclusive) of a file.

    From the host: it vouches for it, or passes on what the device ``by`` read. Without ``sha256`` it does
    not, or not any more; with ``by`` alone, for nothing within it that this device named. From a device: it
    read that from the hub; without ``sha256`` it asks.
    """

    url: Url
    lo: Offset
    hi: Offset
    sha256: Digest | None = None
    by: Id | None = None


@message("nb-hashes")
class NbHashes(Message, frozen=True, kw_only=True):
    """*(nb)* The same of many ranges of one file, host to device: ``all`` by ``"lo-hi"``."""

    url: Url
    all: Annotated[dict[Annotated[str, Meta(max_length=44)], Digest], Meta(max_length=512)]
    by: Id | None = None


@message("nb-bad")
class NbBad(Message, frozen=True, kw_only=True):
    """*(nb)* What the device ``id`` sent as these bytes was not what the host vouches for."""

    url: Url
    lo: Offset
    hi: Offset
    id: Id
