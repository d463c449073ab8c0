"""What a worker is told to hold: ``ai-load``, as the deal is now (PROTOCOL section 6)."""

from __future__ import annotations

from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.versions import PROTOCOL
from pooled_nb.room.chain import ENCODING
from pooled_nb.room.dealing import Deal
from pooled_nb.shard import KVQ, QUANT_CLASSES, FileFact, ModelFacts


def load_message(
    deal: Deal,
    id: str,
    *,
    model: ModelFacts,
    host: str,
    number: int,
    inv: dict[str, dict[str, list[str]]] | None = None,
) -> wire.Load:
    """The message for one of the deal's workers.

    Parameters
    ----------
    number
        What it answers with.
    inv
        What others have of the weights files, by id and name.
    """
    seat = deal.seat(id)
    if seat is None:
        raise ValueError("only a device of the deal is told what to hold")
    before, after = deal.neighbours(id)
    return wire.Load(
        v=PROTOCOL,
        model=model.repo,
        range=[seat.lo, seat.hi],
        ctx=deal.ctx,
        kv=deal.kv,
        next=after,
        host=host,
        nb=wire.NbLoad(
            repo=model.repo,
            revision=model.revision,
            config=model.config_sha256,
            files={name: _facts(file) for name, file in model.files.items()},
            dtype=deal.dtype,
            enc=ENCODING[deal.dtype].name.lower(),
            width=deal.width,
            cols=deal.cols,
            kvq=KVQ if deal.kv == "q8" else None,
            quant=QUANT_CLASSES.get(deal.quant),
            prev=before,
            ranges=deal.ranges,
            inv=inv,
            deal=number,
        ),
    )


def _facts(file: FileFact) -> dict[str, object]:
    """One file as the deal says it; what is not known is left out, never null (PROTOCOL section 3)."""
    known = {"sha256": file.sha256, "sample": file.sample, "header": file.header}
    return {"size": file.size, **{name: value for name, value in known.items() if value}}
