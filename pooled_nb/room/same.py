"""What a worker holds, and whether a new deal asks for exactly that (PROTOCOL sections 3 and 6)."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from pooled_nb.shard import Loaded, LoadSpec


@dataclass(frozen=True, slots=True)
class Held:
    """What the shard holds: how it was asked for, and the bytes of weights and caches it took."""

    spec: LoadSpec
    nbytes: int

    @classmethod
    def of(cls, spec: LoadSpec, loaded: Loaded) -> Held:
        """What a load brought."""
        return cls(spec, loaded.weights + loaded.cache)


def runs(loaded: Loaded) -> str:
    """Where its layers lie and how they are computed, for people; that a CPU computes goes without saying."""
    placed = "" if loaded.placed.startswith("cpu (") and ", " not in loaded.placed else loaded.placed
    return " · ".join(part for part in (placed, loaded.runs) if part)


def holds(held: Held | None, wanted: LoadSpec) -> bool:
    """Whether that is there already, so that nothing has to be read.

    Everything that decides bits must be equal: files, range, dtype, context, caches, frames. The chain around
    them may be another. What the device lends may have changed meanwhile, as long as it still covers them.
    """
    if held is None or _bits(held.spec) != _bits(wanted):
        return False
    lends = wanted.max_gb
    return lends is None or lends == held.spec.max_gb or held.nbytes <= lends * 1e9


def _bits(spec: LoadSpec) -> LoadSpec:
    return structs.replace(spec, max_gb=None, max_download_gb=None)
