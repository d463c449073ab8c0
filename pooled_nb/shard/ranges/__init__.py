"""The range cache: what was fetched of models' files, kept on the user's disk (DESIGN section 6)."""

from __future__ import annotations

from pooled_nb.shard.ranges.holdings import open_holdings
from pooled_nb.shard.ranges.hubcache import hub_file
from pooled_nb.shard.ranges.incoming import Incoming
from pooled_nb.shard.ranges.kept import Kept, KeptFile
from pooled_nb.shard.ranges.modelfiles import ModelFiles
from pooled_nb.shard.ranges.rangefile import RangeFile
from pooled_nb.shard.ranges.root import Ranges
from pooled_nb.shard.ranges.segments import Counts

__all__ = [
    "Counts",
    "Incoming",
    "Kept",
    "KeptFile",
    "ModelFiles",
    "RangeFile",
    "Ranges",
    "hub_file",
    "open_holdings",
]
