"""All models of the range cache: what there is, and how it becomes less."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
from pathlib import Path

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.kept import cache_folder
from pooled_nb.shard.ranges import disk, locking
from pooled_nb.shard.ranges.kept import Kept, bytes_below, describe
from pooled_nb.shard.ranges.modelfiles import ModelFiles, find_model

_TRASH = "trash"


class Ranges:
    """The range cache. Safe for several threads and kernels at once; nothing is written before a file comes.

    Parameters
    ----------
    root
        Its folder; None: in the user's cache of this package.
    """

    def __init__(self, root: Path | None = None) -> None:
        root = cache_folder() / "ranges" if root is None else root
        if sys.platform == "win32":  # a segment's name alone has a hundred letters, and a path mostly 260
            root = Path(disk.extended(os.path.abspath(root)))
        self.root = root

    def model(self, repo: str, revision: str) -> ModelFiles:
        """The files of a model, whether anything of it is here or not.

        Raises
        ------
        ModelNotFound
            The names cannot be a model's.
        """
        return ModelFiles(self.root, repo, revision)

    def models(self) -> list[Kept]:
        """What is here, by repo and revision."""
        kept = [describe(model) for model in self._all()]
        return sorted((k for k in kept if k is not None), key=lambda k: (k.repo, k.revision))

    def free(self) -> int | None:
        """Bytes that may still be written there; None where the system does not say."""
        return disk.free_bytes(self.root)

    def delete(self, repo: str, revision: str | None = None) -> int:
        """Remove a model (all its revisions, unless one is given), but what some kernel loads or writes now.

        Returns
        -------
        int
            Bytes that became free.

        Raises
        ------
        ModelNotFound
            The cache cannot be written.
        """
        return sum(
            self._remove(model)
            for model in self._all()
            if model.repo == repo and revision in (None, model.revision)
        )

    def prune(self, most: int) -> int:
        """Remove models, the least recently used first, until no more than so many bytes are kept.

        Before that, what is held twice goes. What some kernel loads or writes now stays.

        Returns
        -------
        int
            Bytes that became free.

        Raises
        ------
        ModelNotFound
            The cache cannot be written.
        """
        self._empty_trash()
        freed = 0
        found = [(kept.used, kept.bytes, model) for model in self._all() if (kept := describe(model))]
        total = sum(size for _, size, _ in found)
        for _, _, model in found:
            if total - freed > most:
                freed += self._tidy(model)
        for _, _, model in sorted(found, key=lambda f: f[0]):
            if total - freed > most:
                freed += self._remove(model)
        return freed

    def _all(self) -> list[ModelFiles]:
        try:
            homes = sorted(self.root.joinpath("models").iterdir())
        except OSError:
            return []
        return [model for home in homes if (model := find_model(self.root, home)) is not None]

    def _remove(self, model: ModelFiles) -> int:
        trash = self.root / _TRASH / secrets.token_hex(8)
        try:
            with locking.alone(model.locks) as is_alone:
                if not is_alone or not model.home.exists():
                    return 0
                freed = bytes_below(model.home)
                trash.parent.mkdir(exist_ok=True)
                try:
                    os.replace(model.home, trash)
                except PermissionError:
                    if os.name == "nt":  # somebody has a file of it open
                        return 0
                    raise
                locking.sweep(model.locks)
        except OSError as error:
            raise disk.in_words(error, self.root, 0) from error
        self._empty_trash()
        return freed

    def _tidy(self, model: ModelFiles) -> int:
        with contextlib.suppress(OSError, ModelNotFound), locking.alone(model.locks) as is_alone:
            if is_alone:
                locking.sweep(model.locks)
                return sum(file.tidy() for file in model.files())
        return 0

    def _empty_trash(self) -> None:
        """Also what a process left that ended meanwhile. The folder stays: another may be about to use it."""
        with contextlib.suppress(OSError):
            for gone in self.root.joinpath(_TRASH).iterdir():
                shutil.rmtree(gone, ignore_errors=True)
