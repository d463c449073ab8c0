"""The files of one model at one revision, as far as they are here."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.ranges import about, disk, locking, names
from pooled_nb.shard.ranges.about import About, AboutFile
from pooled_nb.shard.ranges.incoming import Incoming
from pooled_nb.shard.ranges.rangefile import RangeFile
from pooled_nb.shard.ranges.segments import ALL, OWN, PARTS, Counts, part_name

MAX_SMALL = 128 << 20
"""Bytes of a small file; the largest tokenizers known have 35 MB."""
_USED, SMALL, SETS, FILES = "used", "small", "sets", "files"

_SHA256 = re.compile(r"[0-9a-f]{64}")
_KEY = 20
"""Hex digits of a hash that name a folder; what lies in it is hashed whole before it counts."""


class ModelFiles:
    """Made by `Ranges.model`. Safe for several threads and kernels at once.

    Attributes
    ----------
    repo, revision
        As a room or the hub names them.
    root
        Of the whole cache.
    folder
        The small files (config.json, tokenizer …), each in a folder named by its hash: what one room calls
        ``config.json`` never takes the place of what another does.
    home
        Everything of this model but its locks, which lie in ``locks``.
    used
        A file that was touched when the model was used last.
    """

    def __init__(self, root: Path, repo: str, revision: str) -> None:
        names.check_model(repo, revision)
        key = names.model_key(repo, revision)
        self.repo, self.revision, self.root = repo, revision, root
        self.home, self.locks = root / "models" / key, root / "locks" / key
        self.folder, self.used = self.home / SMALL, self.home / _USED

    @property
    def about(self) -> About | None:
        """What is remembered of it; None where nothing of it is here."""
        found = None if self.home.is_symlink() else about.read(self.home, About)
        return found if found and (found.repo, found.revision) == (self.repo, self.revision) else None

    @property
    def open(self) -> bool | None:
        """Whether it is public and not gated; None where nobody said so."""
        return known.open if (known := self.about) else None

    def remember(self, *, label: str = "", open: bool | None = None) -> None:
        """Keep what the hub said of it; what is not given stays.

        Parameters
        ----------
        label
            Its name for people.
        open
            Public and not gated: only then it may be given to other devices.

        Raises
        ------
        ModelNotFound
            The cache cannot be written.
        """
        with self._writing(0), locking.gate(self.locks):
            self._describe()
            old = self.about or About(repo=self.repo, revision=self.revision)
            new = msgspec.structs.replace(
                old, label=label[: names.MAX_REPO] or old.label, open=old.open if open is None else open
            )
            if new != old:
                about.write(self.home, new)

    def put_small(self, name: str, data: bytes) -> None:
        """Keep a small file.

        Raises
        ------
        ModelNotFound
            Such a name no small file has, or the cache cannot be written.
        """
        self._check_small(name, len(data))
        with self._writing(len(data)):
            self._describe()
            self.folder.mkdir(exist_ok=True)
            disk.put(self._place(name, hashlib.sha256(data).hexdigest()), data)

    def small(self, name: str, sha256: str) -> bytes | None:
        """A small file with exactly this hash, where it is here."""
        names.check_small(name)
        if not _SHA256.fullmatch(sha256):  # of a deal: it may be a path
            return None
        path = self.folder / sha256[:_KEY] / name
        size = None if self._is_link() else disk.regular_size(path)
        data = disk.read_range(path, 0, size) if size and size <= MAX_SMALL else None
        return data if data is not None and hashlib.sha256(data).hexdigest() == sha256 else None

    def together(self, files: Mapping[str, bytes]) -> Path:
        """A folder with these small files and no others: libraries read whatever lies beside a config.

        Raises
        ------
        ModelNotFound
            Such a name no small file has, or the cache cannot be written.
        """
        said = [f"{name} {hashlib.sha256(data).hexdigest()}" for name, data in sorted(files.items())]
        folder = self.home / SETS / hashlib.sha256("\n".join(said).encode()).hexdigest()[:_KEY]
        for name, data in files.items():
            self._check_small(name, len(data))
            with self._writing(len(data)):
                self._describe()
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / name
                if disk.regular_size(path) != len(data) or disk.read_range(path, 0, len(data)) != data:
                    disk.put(path, data)
        return folder

    def begin_small(self, name: str, size: int) -> Incoming | None:
        """Begin to fetch a small file; None: another kernel is fetching it.

        Raises
        ------
        ModelNotFound
            Such a name no small file has, or the cache cannot be written.
        """
        self._check_small(name, size)
        with contextlib.ExitStack() as stack, self._writing(size):
            stack.enter_context(self.in_use())
            lock = locking.try_lock(self.locks / f"{names.file_key(name)}-{size:x}")
            if lock is None:
                return None
            stack.callback(lock.release)
            self._describe()
            self.folder.mkdir(exist_ok=True)
            part = self.home / f"{names.file_key(name)}-{part_name(0, size, True)}"
            incoming = Incoming(part, size, lambda sha256: self._place(name, sha256), self.root)
            incoming.held = stack.pop_all()
        return incoming

    def file(self, name: str, size: int, counts: Counts = ALL) -> RangeFile:
        """A weights file of so many bytes, whether anything of it is here or not.

        Parameters
        ----------
        counts
            Which of its segments are seen.

        Raises
        ------
        ModelNotFound
            A name that leads out, or one of which the hub gave bytes of another size. What a room said of
            its size holds for that room.
        """
        names.check_file(name, size)
        others = [file.size for file in self._here(name, OWN) if file.size != size and file.held()]
        if others:
            raise _other_size(self.repo, name, others[0], size)
        folder = AboutFile(name=name, size=size).folder
        return RangeFile(self, name, size, self.home / FILES / folder, counts)

    def known(self, name: str, counts: Counts = OWN) -> RangeFile | None:
        """A weights file of which segments are here that count, by its name alone."""
        return next((file for file in self._here(name, counts) if file.held()), None)

    def files(self) -> list[RangeFile]:
        """The weights files of which bytes are here, or on their way; by name."""
        return sorted(self._here(), key=lambda file: file.name)

    def use(self) -> AbstractContextManager[None]:
        """Mark it as used now, and keep it from being removed within the block.

        Raises
        ------
        ModelNotFound
            Another process has been removing it for very long.
        """
        self._touch()
        return self.in_use()

    # for the files of it

    def in_use(self) -> AbstractContextManager[None]:
        """Keep it from being removed within the block."""
        return locking.in_use(self.locks)

    def describe_file(self, name: str, size: int) -> None:
        """Write down which file a folder is of, before anything comes into it. The model is in use.

        Raises
        ------
        OSError
        """
        self._describe()
        file = AboutFile(name=name, size=size)
        folder = self.home / FILES / file.folder
        if about.read(folder, AboutFile) != file:
            about.write(folder, file)

    # inside

    def _place(self, name: str, sha256: str) -> Path:
        """Where a small file with this hash belongs."""
        folder = self.folder / sha256[:_KEY]
        folder.mkdir(exist_ok=True)
        return folder / name

    def _here(self, name: str = "", counts: Counts = ALL) -> list[RangeFile]:
        """Files of which anything is here: of this name, or all."""
        if self._is_link():
            return []
        try:
            folders = os.listdir(self.home / FILES)
        except OSError:
            return []
        begins = f"{names.file_key(name)}-" if name else ""
        found = []
        for folder in folders:
            path = self.home / FILES / folder
            file = about.read(path, AboutFile) if folder.startswith(begins) else None
            if file is None or folder != file.folder or path.is_symlink():
                continue
            with contextlib.suppress(OSError):
                inside = {*os.listdir(path)} - {about.ABOUT, PARTS}
                if inside or os.listdir(path / PARTS):
                    found.append(RangeFile(self, file.name, file.size, path, counts))
        return found

    def _is_link(self) -> bool:
        """Whether some folder of it is a link: what that leads to is not this cache's."""
        return any(
            path.is_symlink() for path in (self.home, self.folder, self.home / SETS, self.home / FILES)
        )

    def _describe(self) -> None:
        if self._is_link():
            raise OSError(errno.ELOOP, "a folder in it is a link")
        if self.about is None:
            about.write(self.home, About(repo=self.repo, revision=self.revision))
            self._touch()

    def _touch(self) -> None:
        with contextlib.suppress(OSError):
            if self.home.is_dir():
                self.used.touch()

    def _check_small(self, name: str, size: int) -> None:
        names.check_small(name)
        if not 0 < size <= MAX_SMALL:
            raise ModelNotFound(f"{name} of {self.repo} cannot have {size} bytes.", "Choose another model.")

    @contextlib.contextmanager
    def _writing(self, need: int) -> Iterator[None]:
        try:
            with self.in_use():
                yield
        except OSError as error:
            raise disk.in_words(error, self.root, need) from error


def find_model(root: Path, home: Path) -> ModelFiles | None:
    """The model whose folder this is; None where it is none."""
    found = None if home.is_symlink() else about.read(home, About)
    try:
        model = ModelFiles(root, found.repo, found.revision) if found else None
    except ModelNotFound:
        return None
    return model if model and model.home == home else None


def _other_size(repo: str, name: str, here: int, said: int) -> ModelNotFound:
    return ModelNotFound(
        f"{name} of {repo} is said to have {said} bytes, and what is in the cache is of {here}.",
        f"Where the cache is wrong: pooled-nb models delete {repo}",
    )
