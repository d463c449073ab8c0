"""What a deal asks of this device's shard, or why it cannot be taken (PROTOCOL section 6). Decides only."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from pooled_nb.mesh.messages import deal
from pooled_nb.mesh.versions import PROTOCOL
from pooled_nb.room.chain import ENCODING
from pooled_nb.shard import KV_FORMS, KVQ, FileFact, LoadSpec, form_of


@dataclass(frozen=True, slots=True)
class Own:
    """What this device's person decides of every load; see `pooled_nb.room.worker.Worker`."""

    folder: str | None
    lends_gb: float
    max_download_gb: float
    room: str


def spec_of(message: deal.Load, own: Own) -> LoadSpec | str:
    """What to load; or why this deal is not taken, in words."""
    if message.v != PROTOCOL:
        return f"The deal is for room protocol {message.v}, this device speaks {PROTOCOL}. Update the older."
    nb = message.nb
    if nb is None:
        return "The host does not say which files the model is made of. It needs pooled_nb."
    if nb.dtype not in ENCODING or nb.enc != ENCODING[nb.dtype].name.lower():
        return f"Dtype {nb.dtype!r} and encoding {nb.enc!r} do not go together. Update the older device."
    if message.kv not in KV_FORMS or nb.kvq != (KVQ if message.kv == "q8" else None):
        return f"Caches kept as {message.kv!r} ({nb.kvq!r}) are not known here. Update the older device."
    quant = form_of(nb.quant)
    if quant is None:
        return f"Weights kept as {nb.quant!r} are not known here. Update the older device."
    lo, hi = message.range
    if not lo < hi:
        return f"The deal's layer range {lo}–{hi} is empty."
    files: dict[str, FileFact] = {}
    for name, facts in nb.files.items():
        try:
            files[name] = msgspec.convert(facts, FileFact)
        except msgspec.ValidationError:
            return f"The deal's file list is wrong at {name!r}."
    return LoadSpec(
        repo=nb.repo,
        revision=nb.revision,
        folder=own.folder,
        config_sha256=nb.config,
        lo=lo,
        hi=hi,
        ends=False,
        ctx=message.ctx,
        dtype=nb.dtype,
        files=files,
        width=nb.width,
        cols=nb.cols,
        attn=nb.attn,
        experts=nb.experts,
        exact=nb.width > 1,
        max_gb=own.lends_gb,
        max_download_gb=own.max_download_gb,
        kv=message.kv,
        quant=quant,
        room=own.room,
    )
