"""Bring blocks of weights files into the range cache: a few requests at once, resumed, tried again."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.door import Progress
from pooled_nb.shard.ranges import Incoming, RangeFile
from pooled_nb.shard.sources.answers import Again
from pooled_nb.shard.sources.crew import Crew
from pooled_nb.shard.sources.http import Remote, pause
from pooled_nb.shard.sources.needs import Ask, requests, worthwhile
from pooled_nb.shard.sources.rate import Rate
from pooled_nb.shard.sources.retry import Retry
from pooled_nb.shard.sources.words import HubUnreachable, keeping, unreached

AGAIN = "Check the network, then start again: it goes on where it stopped"
WRITE = 256 << 10
SOON_S = 0.25


class _Piece:
    """A block that is on its way; its lock is held."""

    def __init__(self, lo: int, hi: int, incoming: Incoming) -> None:
        self.lo, self.hi, self.incoming = lo, hi, incoming

    @property
    def at(self) -> int:
        """The first byte of the file that it lacks."""
        return self.lo + self.incoming.at


class Download:
    """Blocks of some files. ``missing``: by file, in order."""

    def __init__(
        self,
        remotes: Mapping[str, Remote],
        files: Mapping[str, RangeFile],
        missing: Mapping[str, Sequence[tuple[int, int]]],
        crew: Crew,
    ) -> None:
        self._remotes, self._files, self._missing, self._crew = remotes, files, missing, crew
        self.total = sum(hi - lo for pieces in missing.values() for lo, hi in pieces)
        self.came = 0
        """Bytes that this download brought."""
        self.done = 0
        """Bytes of the blocks that are here: those, and what others or earlier tries brought."""
        self._lock = threading.Lock()

    def run(self, progress: Progress, repo: str) -> None:
        """Bring all of them. Each byte is fetched once, also where several kernels want it at the same time.

        Raises
        ------
        ModelNotFound
            The hub or the disk says no; what came is kept.
        """
        rate = Rate(self.total, time.monotonic())

        def tell() -> None:
            words = rate.words(self.done, self.came, time.monotonic())
            progress(2 + min(97, self.done * 97 // max(1, self.total)), words)

        asks = [
            ask
            for name, pieces in self._missing.items()
            for ask in requests(name, pieces, self.total, ranged=self._remotes[name].ranged)
        ]
        try:
            self._crew.run([lambda ask=ask: self._bring(ask) for ask in asks], tell)  # type: ignore[misc]
        except HubUnreachable as error:
            raise unreached(error, repo, AGAIN, self.came) from error
        except ModelNotFound as error:
            raise type(error)(error.what, keeping(error.next_step, self.came)) from error

    def _bring(self, ask: Ask) -> None:
        """Bring the blocks of one request that nobody else is bringing; the others are waited for later."""
        with self._taken(ask, wait=None) as (taken, later):
            for run in _runs(taken, gaps=not self._remotes[ask.name].ranged):
                self._stream(ask.name, run)
        for piece in later:
            self._crew.add(lambda piece=piece: self._wait(Ask(ask.name, (piece,))))  # type: ignore[misc]

    def _wait(self, ask: Ask) -> None:
        with self._taken(ask, wait=self._crew.check) as (taken, _):
            for piece in taken:
                self._stream(ask.name, [piece])

    @contextlib.contextmanager
    def _taken(
        self, ask: Ask, *, wait: Callable[[], None] | None
    ) -> Iterator[tuple[list[_Piece], list[tuple[int, int]]]]:
        """Take blocks, and tell which another kernel is fetching. What does not become whole is kept."""
        file, taken, later = self._files[ask.name], list[_Piece](), list[tuple[int, int]]()
        try:
            for lo, hi in ask.pieces:
                incoming = file.begin(lo, hi, wait=wait)
                if incoming is not None:
                    taken.append(_Piece(lo, hi, incoming))
                    self._count(incoming.at, came=0)
                elif file.find(lo, hi) is not None:
                    self._count(hi - lo, came=0)
                else:
                    later.append((lo, hi))
            yield taken, later
        finally:
            for piece in taken:
                piece.incoming.keep()  # what is whole has ended, and stays as it is

    def _stream(self, name: str, run: list[_Piece]) -> None:
        """Bring neighbouring blocks, in one request if all goes well."""
        remote, retry = self._remotes[name], Retry()
        while _finish(run):
            lo, hi = run[0].at, run[-1].hi
            try:
                with remote.ask(lo, hi, self._crew) as (part, chunks):
                    if not part.ranged and not worthwhile(lo, sum(p.hi - p.at for p in run)):
                        raise _no_ranges(remote, hi)
                    at = part.lo
                    for chunk in _large(chunks):
                        self._write(run, at, chunk)
                        at += len(chunk)
                        retry.came(len(chunk))
                        self._crew.check()
                        if at > hi or (at == hi and not part.ranged):
                            break  # else the answer ends here, and its connection is used again
                if _finish(run):
                    raise Again("it broke off")
            except Again as error:
                pause(retry, error, self._crew)

    def _write(self, run: list[_Piece], at: int, chunk: bytes) -> None:
        """Put bytes of the file from ``at`` on where they belong; what is here already is skipped."""
        view, end = memoryview(chunk), at + len(chunk)
        while run and run[0].at < end:
            piece = run[0]
            first, last = piece.at, min(piece.hi, end)
            piece.incoming.write(view[first - at : last - at])
            self._count(last - first, came=last - first)
            if piece.at < piece.hi:
                return
            _finish(run)

    def _count(self, done: int, *, came: int) -> None:
        with self._lock:
            self.done += done
            self.came += came


def _large(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Join small chunks, where that takes no time: fewer writes, and pages that are read faster later."""
    parts, size, last = list[bytes](), 0, time.monotonic()
    try:
        for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            if size >= WRITE or time.monotonic() - last > SOON_S:
                yield b"".join(parts)
                parts, size, last = [], 0, time.monotonic()
    except Exception:
        if parts:
            yield b"".join(parts)
        raise
    if parts:
        yield b"".join(parts)


def _finish(run: list[_Piece]) -> bool:
    """Keep the blocks at the beginning that are whole, for good; return whether any is left."""
    while run and run[0].at >= run[0].hi:
        run.pop(0).incoming.finish()
    return bool(run)


def _runs(taken: list[_Piece], *, gaps: bool) -> list[list[_Piece]]:
    """Cut blocks where bytes lie between them that nobody wants, or that are here."""
    runs: list[list[_Piece]] = []
    for piece in taken:
        if runs and (gaps or runs[-1][-1].hi == piece.at):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return runs


def _no_ranges(remote: Remote, hi: int) -> ModelNotFound:
    return ModelNotFound(
        f"The server sends whole files only: for a part of {remote.name}, {hi / 1e9:.2g} GB would come.",
        f"Set HF_ENDPOINT to another mirror, or fetch all of it: "
        f"hf download {remote.repo} --revision {remote.revision}",
    )
