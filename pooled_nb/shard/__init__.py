"""What one device computes: weights, layers, caches, head, sampling.

This module is the shard's door: types and `open_shard`, without torch. Everything else of the
package runs in the child process (DESIGN section 3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pooled_nb.shard.door import (
    BUCKET,
    Columns,
    Control,
    DeviceFacts,
    FileFact,
    Forwarded,
    Loaded,
    LoadSpec,
    ModelFacts,
    Prompt,
    Sampled,
    Sampling,
    Shard,
    Source,
    Turn,
    Want,
)
from pooled_nb.shard.footprint import KV_FORMS, KVQ, CacheSizes, cache_sizes
from pooled_nb.shard.kept import cache_folder
from pooled_nb.shard.lend import lend_gb
from pooled_nb.shard.opening import open_shard
from pooled_nb.shard.pieces import Holdings, Incoming, Missing, Piece, Sent
from pooled_nb.shard.plan import Candidate, ModelSize, Plan, Share, plan_memory, plan_speed
from pooled_nb.shard.quant.forms import QUANT_CLASSES, QUANT_FORMS, Linears, form_of, saved_bytes

if TYPE_CHECKING:
    from pooled_nb.shard.library import (
        KeptModel,
        delete_model,
        find_kept,
        kept_models,
        prune_models,
        pull_model,
    )
    from pooled_nb.shard.ranges import open_holdings
    from pooled_nb.shard.ranges.disk import free_bytes

__all__ = [
    "BUCKET",
    "KVQ",
    "KV_FORMS",
    "QUANT_CLASSES",
    "QUANT_FORMS",
    "CacheSizes",
    "Candidate",
    "Columns",
    "Control",
    "DeviceFacts",
    "FileFact",
    "Forwarded",
    "Holdings",
    "Incoming",
    "KeptModel",
    "Linears",
    "LoadSpec",
    "Loaded",
    "Missing",
    "ModelFacts",
    "ModelSize",
    "Piece",
    "Plan",
    "Prompt",
    "Sampled",
    "Sampling",
    "Sent",
    "Shard",
    "Share",
    "Source",
    "Turn",
    "Want",
    "cache_folder",
    "cache_sizes",
    "delete_model",
    "find_kept",
    "form_of",
    "free_bytes",
    "kept_models",
    "lend_gb",
    "open_holdings",
    "open_shard",
    "plan_memory",
    "plan_speed",
    "prune_models",
    "pull_model",
    "saved_bytes",
]

_OF_DISK = {
    "KeptModel": "library",
    "delete_model": "library",
    "find_kept": "library",
    "free_bytes": "ranges.disk",
    "kept_models": "library",
    "open_holdings": "ranges",
    "prune_models": "library",
    "pull_model": "library",
}


def __getattr__(name: str) -> Any:
    # What locks files brings in asyncio and ssl: 0.1 s that a tab after %pooled does not need.
    if name not in _OF_DISK:
        raise AttributeError(f"module 'pooled_nb.shard' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"pooled_nb.shard.{_OF_DISK[name]}"), name)
    return value
