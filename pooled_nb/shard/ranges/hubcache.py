"""The hub's own cache: a file that is whole there is not fetched again."""

from __future__ import annotations

import re
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}")


def hub_file(repo: str, revision: str, name: str) -> Path | None:
    """A whole file of a commit, in the hub's own cache; None where it is not there.

    A branch or tag is never looked for: it may have moved on.
    """
    if not _COMMIT.fullmatch(revision):
        return None
    from huggingface_hub import try_to_load_from_cache  # 0.1 s

    try:
        found = try_to_load_from_cache(repo, name, revision=revision)
    except (OSError, ValueError):  # names that no hub has
        return None
    path = Path(found) if isinstance(found, str) else None
    return path if path is not None and path.is_file() else None
