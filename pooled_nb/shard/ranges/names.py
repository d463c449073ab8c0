"""Names that come from a room, and what they are called on disk.

No word of a room ever becomes part of a path: folders are named by hashes, which cannot lead out, cannot be
reserved on Windows, are never too long, and keep apart what differs only in case. The words themselves are
kept in a file beside. Only small files keep their own names, since libraries look for them by these.
"""

from __future__ import annotations

import hashlib
import re

from pooled_nb.errors import ModelNotFound

MAX_REPO, MAX_REVISION, MAX_NAME = 200, 100, 200
"""Characters."""
_PLAIN = re.compile(r"[^/\\:\x00-\x1f\x7f]+")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_SMALL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d|conin\$|conout\$)(\..*)?", re.IGNORECASE)
"""Names of devices on Windows, whatever comes after the dot."""
WEIGHTS = (".safetensors", ".gguf")
"""How the names of files end that are kept in segments."""


def check_model(repo: str, revision: str) -> None:
    """Refuse what names no model.

    Raises
    ------
    ModelNotFound
    """
    parts = repo.split("/")
    if len(repo) > MAX_REPO or len(parts) > 2 or not all(_is_plain(part) for part in parts):
        raise ModelNotFound(
            f"{repo[:80]!r} is no name of a model.", "Write it like HuggingFaceTB/SmolLM2-135M-Instruct."
        )
    if len(revision) > MAX_REVISION or ".." in revision or not _REVISION.fullmatch(revision):
        raise ModelNotFound(
            f"{revision[:80]!r} is no revision of a model.", "Give a commit, a tag or a branch."
        )


def check_file(name: str, size: int) -> None:
    """Refuse a name that leads out of a model's own folder, and a size that no file has.

    Raises
    ------
    ModelNotFound
    """
    if len(name) > MAX_NAME or not _is_plain(name):
        raise ModelNotFound(f"{name[:80]!r} is no name of a model's file.", "Choose another model.")
    if not 0 < size < 1 << 60:
        raise ModelNotFound(f"{name} cannot have {size} bytes.", "Choose another model.")


def check_small(name: str) -> None:
    """Refuse a small file whose name is not one on every system, or is that of weights.

    Raises
    ------
    ModelNotFound
    """
    if (
        not _SMALL.fullmatch(name)
        or ".." in name
        or name.endswith(".")
        or _RESERVED.fullmatch(name)
        or is_weights(name)
    ):
        raise ModelNotFound(f"{name[:80]!r} is no name of a model's small file.", "Choose another model.")


def is_weights(name: str) -> bool:
    """Whether a file is kept in segments."""
    return name.lower().endswith(WEIGHTS)


def model_key(repo: str, revision: str) -> str:
    """Name a model's folder: a few letters for people, then a hash over all of it."""
    letters = re.sub(r"[^a-z0-9_-]", "_", repo.rsplit("/", 1)[-1].lower())[:32]
    return f"{letters}--{_hash(f'{repo}@{revision}')}"


def file_key(name: str) -> str:
    """Name a file's folder."""
    return _hash(name)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _is_plain(part: str) -> bool:
    if not _PLAIN.fullmatch(part) or part.strip(". ") != part.strip() or not part.strip(". "):
        return False
    try:
        part.encode()
    except UnicodeEncodeError:  # half a character
        return False
    return ".." not in part
