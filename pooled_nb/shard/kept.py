"""Where this package keeps what it made on a user's disk."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """The user's cache of this package; ``POOLED_CACHE`` names another."""
    return Path(os.environ.get("POOLED_CACHE") or platformdirs.user_cache_dir("pooled_nb")).expanduser()
