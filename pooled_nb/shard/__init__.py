"""What one device computes: weights, layers, caches, head, sampling.

This module is the shard's door: types and `open_shard`, without torch. Everything else of the
package runs in the child process (DESIGN section 3).
"""

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
from pooled_nb.shard.lend import lend_gb
from pooled_nb.shard.opening import open_shard
from pooled_nb.shard.plan import Candidate, ModelSize, Plan, Share, plan_memory, plan_speed

__all__ = [
    "BUCKET",
    "KVQ",
    "KV_FORMS",
    "CacheSizes",
    "Candidate",
    "Columns",
    "Control",
    "DeviceFacts",
    "FileFact",
    "Forwarded",
    "LoadSpec",
    "Loaded",
    "ModelFacts",
    "ModelSize",
    "Plan",
    "Prompt",
    "Sampled",
    "Sampling",
    "Shard",
    "Share",
    "Source",
    "Turn",
    "Want",
    "cache_sizes",
    "lend_gb",
    "open_shard",
    "plan_memory",
    "plan_speed",
]
