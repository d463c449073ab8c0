"""The small files of a GGUF model: every device makes them of the file's header, and they are the same.

They are kept by the header's hash in this package's cache; what nobody used for long goes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from pathlib import Path

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.gguf.config import config_of, generation_of
from pooled_nb.shard.gguf.reader import Header
from pooled_nb.shard.gguf.tokenizer import build
from pooled_nb.shard.kept import cache_folder
from pooled_nb.shard.ranges.disk import put

_FORM = b"pooled_nb gguf 1"
"""Changes with what is written here."""
_KEEP = 8
_OLD_S = 7 * 86400.0


def small_folder(header: Header, head: bytes, name: str, *, tokenizer: bool) -> Path:
    """Return a folder with ``config.json`` and ``generation_config.json``, made of a header if need be.

    Parameters
    ----------
    header, head
        What was read, and its bytes: those up to ``header.end`` count.
    name
        The file's, for the sentences.
    tokenizer
        Whether ``tokenizer.json`` and ``tokenizer_config.json`` are wanted, too.

    Raises
    ------
    ModelNotFound
        The header contradicts itself, or the cache cannot be written.
    ModelNotSupported
        It is a model that is not read; says why.
    """
    key = hashlib.sha256(_FORM + head[: header.end]).hexdigest()[:32]
    folder = cache_folder() / "gguf" / key
    try:
        if not (folder / "config.json").is_file():
            config, generation = config_of(header, name), generation_of(header, name)
            folder.mkdir(parents=True, exist_ok=True)
            put(folder / "generation_config.json", _json(generation))
            put(folder / "config.json", _json(config))
            _sweep(folder)
        if tokenizer and not (folder / "tokenizer_config.json").is_file():
            vocabulary, said = build(header, name)
            put(folder / "tokenizer.json", vocabulary.encode())
            put(folder / "tokenizer_config.json", _json(said))
        with contextlib.suppress(OSError):  # another user's cache, or a read-only one
            os.utime(folder)
    except OSError as error:
        raise ModelNotFound(
            f"The cache folder cannot be written: {error.strerror or error}.",
            "Free some disk space, or name another folder in POOLED_CACHE.",
        ) from error
    return folder


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _sweep(own: Path) -> None:
    """Remove what nobody used for a week, but for the last few."""
    with contextlib.suppress(OSError):
        others = sorted((path.stat().st_mtime, path) for path in own.parent.iterdir() if path != own)
        for used, path in others[: max(0, len(others) - _KEEP)]:
            if used < time.time() - _OLD_S:
                shutil.rmtree(path, ignore_errors=True)
