"""What this device may give of models' files, and where pieces from a room go (PROTOCOL section 6)."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.kept import cache_folder
from pooled_nb.shard.pieces import Holdings, Incoming, Piece, Sent
from pooled_nb.shard.ranges import disk, names
from pooled_nb.shard.ranges.hubcache import hub_file
from pooled_nb.shard.ranges.rangefile import RangeFile
from pooled_nb.shard.ranges.root import Ranges
from pooled_nb.shard.ranges.segments import OWN, Counts, joined

MAX_READ = 1 << 30
"""Bytes of one read."""
_FILES = 64
"""Files whose listings are remembered."""
_HASHES = 256


def open_holdings(own: Mapping[tuple[str, str], Path] | None = None) -> Holdings:
    """What this device has.

    Parameters
    ----------
    own
        Folders of models that this device hosts under a name of its own (``local/NAME``), by repo and
        revision; looked at anew each time.
    """
    return _Holdings(Ranges(), {} if own is None else own)


class _Holdings:
    """See `pieces.Holdings`.

    Only what everybody may read is given away: what is known to be public and not gated, this device's own
    folders, and the model of the offline wheel. Of it only files that a model is loaded from. Besides, what
    came over a room and that room vouches for, as long as the model is not known to be closed.
    """

    def __init__(self, ranges: Ranges, own: Mapping[tuple[str, str], Path]) -> None:
        self._ranges, self._own = ranges, own
        self._files: dict[tuple[str, str, str, Counts], RangeFile] = {}
        self._hashes: dict[tuple[object, ...], str] = {}
        self._confirmed: dict[tuple[str, str, str], frozenset[Sent]] = {}
        self._lock = threading.Lock()

    def have(self, repo: str, revision: str, name: str) -> list[tuple[int, int]]:
        """See `pieces.Holdings.have`."""
        with contextlib.suppress(ModelNotFound), _in_words():
            if whole := self._whole(repo, revision, name):
                return [(0, whole.stat().st_size)]
            counts = self._counts(repo, revision, name)
            file = self._ranges.model(repo, revision).known(name, counts) if counts else None
            return joined(file.held()) if file is not None else []
        return []

    def read(self, repo: str, revision: str, name: str, lo: int, hi: int) -> bytes:
        """See `pieces.Holdings.read`."""
        with _in_words():
            data = self._read(repo, revision, name, lo, hi) if 0 <= lo < hi <= lo + MAX_READ else None
        if data is None:
            raise ModelNotFound(f"This device does not have these bytes of {name[:80]!r}.", "Ask another.")
        return data

    def _read(self, repo: str, revision: str, name: str, lo: int, hi: int) -> bytes | None:
        if whole := self._whole(repo, revision, name):
            return disk.read_range(whole, lo, hi)
        counts = self._counts(repo, revision, name)
        if counts is None:
            return None
        key = (repo, revision, name, counts)
        file = self._files.get(key)
        data = file.read(lo, hi) if file is not None else None
        if data is None:  # not looked at yet, or removed and fetched again since
            file = self._ranges.model(repo, revision).known(name, counts)
            data = file.read(lo, hi) if file is not None else None
            if file is not None and data is not None:
                if len(self._files) >= _FILES:
                    self._files = {}
                self._files[key] = file
        return data

    def sha256(self, repo: str, revision: str, name: str, lo: int, hi: int) -> str:
        """See `pieces.Holdings.sha256`. A small file is read for it, once."""
        with contextlib.suppress(ModelNotFound), _in_words():
            if not names.is_weights(name):
                small = self._whole(repo, revision, name)
                return self._hash(small, lo, hi) if small else ""
            file = self._ranges.model(repo, revision).known(name, OWN)
            return file.sha256(lo, hi) if file else ""
        return ""

    def sent(self, repo: str, revision: str, name: str) -> list[Sent]:
        """See `pieces.Holdings.sent`."""
        with contextlib.suppress(ModelNotFound), _in_words():
            names.check_file(name, 1)
            file = self._ranges.model(repo, revision).known(name, Counts(hub=False, sent=None))
            return file.sent() if file is not None else []
        return []

    def confirm(self, repo: str, revision: str, name: str, sent: Collection[Sent]) -> None:
        """See `pieces.Holdings.confirm`."""
        key = (repo, revision, name)
        with self._lock:
            self._confirmed[key] = self._confirmed.get(key, frozenset()) | frozenset(sent)

    def closed(self, repo: str, revision: str) -> bool:
        """See `pieces.Holdings.closed`."""
        with contextlib.suppress(ModelNotFound), _in_words():
            return self._ranges.model(repo, revision).open is False
        return False

    def take(self, repo: str, revision: str, piece: Piece) -> Incoming | None:
        """See `pieces.Holdings.take`."""
        with _in_words():
            model = self._ranges.model(repo, revision)
            if _is_small(piece.name):
                if (piece.lo, piece.hi) != (0, piece.size):
                    raise ModelNotFound(f"{piece.name} comes whole, or not at all.", "Tell the host.")
                if self._whole(repo, revision, piece.name, ours=True):
                    return None
                return model.begin_small(piece.name, piece.size)
            if not names.is_weights(piece.name):
                raise ModelNotFound(f"{piece.name[:80]!r} is no file that a model is loaded from.", "")
            if self._whole(repo, revision, piece.name, ours=True):
                return None
            # Of what devices sent before, all that counts in this room is no longer asked for.
            return model.file(piece.name, piece.size, OWN).begin(piece.lo, piece.hi, room=True)

    # inside

    def _whole(self, repo: str, revision: str, name: str, *, ours: bool = False) -> Path | None:
        """A file that is whole in some folder, and may be given away.

        ``ours``: whether to fetch it ourselves; what the cache itself has then looks after itself.
        """
        if not (_is_small(name) or names.is_weights(name)):
            return None
        folder = self._own.get((repo, revision)) or _wheel_folder(repo, revision)
        names.check_file(name, 1)
        if folder is not None:
            path = folder if folder.name == name else folder / name  # a GGUF file is a model by itself
            return path.resolve() if path.is_file() else None
        model = self._ranges.model(repo, revision)
        if not ours and model.open is not True:
            return None
        return _resolved(hub_file(repo, revision, name))

    def _counts(self, repo: str, revision: str, name: str) -> Counts | None:
        """What of a weights file may be given away; None: nothing."""
        known, sent = self._ranges.model(repo, revision).open, self._confirmed.get((repo, revision, name))
        if known is False or not (known or sent):
            return None
        return Counts(hub=known is True, sent=sent or frozenset())

    def _hash(self, path: Path, lo: int, hi: int) -> str:
        facts = path.stat()
        if (lo, hi) != (0, facts.st_size):
            return ""
        key = (path, facts.st_size, facts.st_mtime_ns, facts.st_ino)
        if key not in self._hashes:
            if len(self._hashes) >= _HASHES:
                self._hashes = {}
            data = disk.read_range(path, lo, hi)
            if data is None:
                return ""
            self._hashes[key] = hashlib.sha256(data).hexdigest()
        return self._hashes.get(key, "")


def _is_small(name: str) -> bool:
    from pooled_nb.shard.found import SMALL

    return name in SMALL


def _wheel_folder(repo: str, revision: str) -> Path | None:
    from pooled_nb.shard import wheel

    if revision != wheel.REVISION or not wheel.is_this_model(repo):
        return None
    folder = cache_folder() / "models" / f"{wheel.LABEL}--{wheel.REVISION}"
    return folder if (folder / "config.json").is_file() else None


def _resolved(path: Path | None) -> Path | None:
    """The hub's cache has links to its files; they are read as they are."""
    return None if path is None else path.resolve()


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except ModelNotFound:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelNotFound(
            f"What is kept of this model cannot be read: {error}.", "Check the disk of the cache."
        ) from error
