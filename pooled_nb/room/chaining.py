"""The chain of a deal, made of what the host knows (PROTOCOL section 6)."""

from __future__ import annotations

from pooled_nb.mesh.mesh import Mesh
from pooled_nb.room.chain import Chain
from pooled_nb.room.dealer import Dealer, Settings
from pooled_nb.room.dealing import Deal
from pooled_nb.room.drafting import Drafting


def chain_of(deal: Deal, *, dealer: Dealer, settings: Settings, mesh: Mesh, epoch: int = 0) -> Chain:
    """A new chain over the devices that hold this deal. ``epoch``: where those of the one before ended."""
    workers = deal.seats[1:]

    def worst_rtt() -> float:
        now = dealer.deal
        facts = [mesh.facts(seat.id) for seat in now.seats[1:]] if now else []
        return max((f.rtt_s or 0.0 for f in facts if f), default=0.0)

    return Chain(
        shard=dealer.shard,
        sender=mesh,
        clock=mesh.clock,
        workers=[seat.id for seat in workers],
        names=[seat.name for seat in workers],
        dtype=deal.dtype,
        dim=dealer.model.dim,
        width=deal.width,
        cols=deal.cols,
        rtt=worst_rtt,
        epoch=epoch,
        keeps=dealer.ckpt,
        recent=settings.checkpoints,
        drafting=Drafting(exact=dealer.exact, drafter=bool(dealer.drafts)) if settings.speculate else None,
        ran=dealer.ran,
    )
