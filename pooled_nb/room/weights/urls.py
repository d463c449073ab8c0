"""How a file of a model is named among devices: ``repo@revision/name`` (PROTOCOL section 6). Decides only.

Such a text comes from others: it is a key to compare, and never a path or an address.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PLAIN = re.compile(r"[^/\\:\x00-\x1f\x7f]{1,200}\Z")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
MAX_REPO = 200
"""Characters of a model's name, as of every message that says one."""


class ModelFile(NamedTuple):
    """One file of one state of a model."""

    repo: str
    revision: str
    name: str


def url_of(repo: str, revision: str, name: str) -> str:
    """What a device that is asked for this file hears. What is no name of any file gives no such text.

    Raises
    ------
    ValueError
        `split` would not give it back: no file of a model has such names.
    """
    url = f"{repo}@{revision}/{name}"
    if split(url) != (repo, revision, name):
        raise ValueError("no file of a model has such a name")
    return url


def split(url: str) -> ModelFile | None:
    """Which file is meant; None: none that a room's model can have."""
    place, slash, name = url.rpartition("/")
    repo, at, revision = place.rpartition("@")
    if not (slash and at and plain(name) and _REVISION.match(revision) and len(repo) <= MAX_REPO):
        return None
    parts = repo.split("/")
    if len(parts) > 2 or not all(plain(part) for part in parts):
        return None
    return ModelFile(repo, revision, name)


def plain(name: str) -> bool:
    """Whether it is the name of something in one folder, and of nothing else."""
    return name not in (".", "..") and _PLAIN.match(name) is not None


def is_weights(name: str) -> bool:
    """Whether a file of this name holds weights. Small files are never asked of others by their ranges."""
    return plain(name) and name.endswith((".safetensors", ".gguf"))
