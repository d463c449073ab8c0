"""Bring blocks of weights files into the range cache: a few requests at once, resumed, tried again."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.door import Progress
from pooled_nb.shard.ranges import RangeFile
from pooled_nb.shard.sources.answers import Again
from pooled_nb.shard.sources.crew import Crew, Task
from pooled_nb.shard.sources.http import Remote, pause
from pooled_nb.shard.sources.needs import Ask, requests, worthwhile
from pooled_nb.shard.sources.rate import Rate
from pooled_nb.shard.sources.retry import Retry
from pooled_nb.shard.sources.taking import Taken, Taking, runs
from pooled_nb.shard.sources.words import HubUnreachable, keeping, unreached

AGAIN = "Check the network, then start again: it goes on where it stopped"
WRITE = 256 << 10
SOON_S = 0.25
_LOOK_S = 0.05


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
        self._known = {name: threading.Event() for name in missing}
        """Set once the first request of a file was answered: whether its server knows ranges shows there."""
        self._rest: dict[str, deque[Ask]] = {}

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

        tasks: list[Task] = []
        for name, pieces in self._missing.items():
            asks = deque(requests(name, pieces, self.total, ranged=self._remotes[name].ranged))
            if asks:
                tasks.append(partial(self._first, asks.popleft()))
                tasks += [partial(self._after, name)] * len(asks)
            self._rest[name] = asks
        try:
            self._crew.run(tasks, tell)
        except HubUnreachable as error:
            raise unreached(error, repo, AGAIN, self.came) from error
        except ModelNotFound as error:
            raise type(error)(error.what, keeping(error.next_step, self.came)) from error

    def _first(self, ask: Ask) -> None:
        try:
            self._bring(ask)
        finally:
            self._known[ask.name].set()

    def _after(self, name: str) -> None:
        """Bring what the next request of a file is for, unless the first one brings the whole file."""
        while not self._known[name].wait(_LOOK_S):
            self._crew.check()
        with self._lock:
            ask = self._rest[name].popleft() if self._rest[name] else None
        if ask is not None:
            self._bring(ask)

    def _all_after(self, name: str) -> list[tuple[int, int]]:
        """Blocks of all requests of a file that were not made yet; they will not be made."""
        with self._lock:
            rest, self._rest[name] = self._rest[name], deque()
        return [piece for ask in rest for piece in ask.pieces]

    def _bring(self, ask: Ask) -> None:
        """Bring the blocks of one request that nobody else is bringing; the others are waited for later."""
        taking = self._taking(ask, wait=None)
        with taking.held() as taken:
            others = runs(taken, gaps=not self._remotes[ask.name].ranged)
            while others:
                self._stream(ask.name, taking, others.pop(0), others)
        for piece in taking.later:
            self._crew.add(partial(self._wait, Ask(ask.name, (piece,))))

    def _wait(self, ask: Ask) -> None:
        taking = self._taking(ask, wait=self._crew.check)
        with taking.held() as taken:
            self._stream(ask.name, taking, taken, [])

    def _taking(self, ask: Ask, *, wait: Callable[[], None] | None) -> Taking:
        return Taking(self._files[ask.name], ask, wait, lambda here: self._count(here, came=0))

    def _stream(self, name: str, taking: Taking, run: list[Taken], others: list[list[Taken]]) -> None:
        """Bring neighbouring blocks, in one request if all goes well.

        Where the server sends the whole file in place of a range, ``others`` and what no request was made for
        yet come along.
        """
        remote, retry = self._remotes[name], Retry()
        while taking.finish(run):
            lo, hi = run[0].at, taking.end(run)
            try:
                with remote.ask(lo, hi, self._crew) as (part, chunks):
                    if not part.ranged:
                        run += [one for other in others for one in other]
                        others.clear()
                        taking.extend(self._all_after(name))
                        hi = taking.end(run)
                    self._known[name].set()
                    if not part.ranged and not worthwhile(lo, taking.need(run)):
                        raise _no_ranges(remote, hi)
                    at = part.lo
                    for chunk in _large(chunks):
                        self._crew.check()  # what is read after a cut is not the file
                        retry.came(self._write(taking, run, at, chunk))
                        at += len(chunk)
                        if at > hi or (not part.ranged and (at == hi or not run)):
                            break  # else the answer ends here, and its connection is used again
                if taking.finish(run):
                    raise Again("it broke off")
            except Again as error:
                pause(retry, error, self._crew)

    def _write(self, taking: Taking, run: list[Taken], at: int, chunk: bytes) -> int:
        """Put bytes of the file from ``at`` on where they belong; what is here already is skipped.

        Returns
        -------
        int
            Bytes that were written: a server that sends the same ones again and again is no help.
        """
        view, end, written = memoryview(chunk), at + len(chunk), 0
        while run and run[0].at < end:
            piece = run[0]
            first, last = piece.at, min(piece.hi, end)
            piece.incoming.write(view[first - at : last - at])
            self._count(last - first, came=last - first)
            written += last - first
            if piece.at < piece.hi:
                break
            taking.finish(run)
        return written

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


def _no_ranges(remote: Remote, hi: int) -> ModelNotFound:
    return ModelNotFound(
        f"The server sends whole files only: for a part of {remote.name}, {hi / 1e9:.2g} GB would come.",
        f"Set HF_ENDPOINT to another mirror, or fetch all of it: "
        f"hf download {remote.repo} --revision {remote.revision}",
    )
