"""Where a model's files come from: folders, caches, the hub, the offline wheel (DESIGN section 6).

| what | in |
|---|---|
| find a model, and what it is made of | `finding`, `hub`; `folders`, `wheel` beside this package |
| what of it is here, and what lacks | `here`, `lacking`; which bytes a range needs: `needs` |
| bring the rest | `fetching`, `smallfile`, `header`, `download`; several requests at once: `crew` |
| one file by ranges | `http`, `answers`, `retry` |
| words | `words`, `rate` |
"""

from __future__ import annotations

from pooled_nb.shard.sources.fetching import fetch
from pooled_nb.shard.sources.finding import find, pull
from pooled_nb.shard.sources.here import Located
from pooled_nb.shard.sources.lacking import lacks

__all__ = ["Located", "fetch", "find", "lacks", "pull"]
