"""What a test holds of the shaper: the process with the relay and a signaling server (`program`)."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.e2e.needs import bound
from tests.shaper import candidates
from tests.shaper.candidates import Address
from tests.shaper.line import Counts, LineSettings

ROOT = Path(__file__).parents[2]
NOTHING = LineSettings()


@dataclass(frozen=True)
class Way:
    """A path; see `paths.Path`."""

    path: int
    for_a: Address
    for_b: Address


class Counted(Counts):
    """`Counts` of one line, and which it is."""

    path: int = 0
    label: str = ""
    src: str = ""
    dst: str = ""


class Shaper:
    """Calls may block for a millisecond; use it from any thread.

    Where lines are to be told something, ``where`` takes the fields of `paths.Where`: ``path``, ``ends``,
    ``label``, ``sent_by``. Paths that come to be later are told the same.

    Attributes
    ----------
    url
        Of the signaling server that leads every connection through the relay.
    """

    def __init__(self, settings: LineSettings = NOTHING, *, seed: int = 0) -> None:
        argv = ["--seed", str(seed), "--settings", msgspec.json.encode(settings).decode()]
        self._process = subprocess.Popen(
            bound(sys.executable, "-m", "tests.shaper.program", *argv),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._number = 0
        self._turn = threading.Lock()
        self.url: str = self._read()["url"]

    def open(
        self,
        a: Address | None,
        b: Address | None = None,
        *,
        names: Sequence[str] = ("a", "b"),
        label: str = "",
    ) -> Way:
        """A path between two ends; where one is may be said later, with `place`."""
        said = self._call("open", a=a, b=b, names=list(names), label=label)
        return Way(said["path"], tuple(said["for_a"]), tuple(said["for_b"]))

    def place(self, way: Way, *, a: Address | None = None, b: Address | None = None) -> None:
        """Say where an end is."""
        self._call("place", path=way.path, a=a, b=b)

    def offer(self, sdp: str) -> tuple[str, Way]:
        """For a test that signals by hand: the offer as the answerer shall see it, and its path."""
        way = self.open(candidates.first(sdp))
        return candidates.rewritten(sdp, way.for_b), way

    def answer(self, sdp: str, way: Way) -> str:
        """The answer as the offerer shall see it."""
        self.place(way, b=candidates.first(sdp))
        return candidates.rewritten(sdp, way.for_a)

    def change(self, settings: LineSettings, **where: Any) -> None:
        """Lines have these settings from now on, for what comes."""
        self._call("change", settings=msgspec.to_builtins(settings), where=where)

    def freeze(self, seconds: float, **where: Any) -> None:
        """Lines let nothing out for so long; 0 thaws them."""
        self._call("freeze", seconds=seconds, where=where)

    def swallow(self, seconds: float | None = None, **where: Any) -> None:
        """Lines are black holes for so long, or for good; 0 ends it."""
        self._call("swallow", seconds=seconds, where=where)

    def counts(self, **where: Any) -> list[Counted]:
        """Of each line, so far."""
        return msgspec.convert(self._call("counts", where=where)["counts"], list[Counted])

    def total(self, **where: Any) -> Counts:
        """Of all these lines together."""
        counts = self.counts(**where)
        fields = Counts.__struct_fields__
        return Counts(**{name: sum(getattr(one, name) for one in counts) for name in fields})

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _call(self, do: str, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        with self._turn:
            self._number += 1
            self._process.stdin.write(json.dumps({"n": self._number, "do": do, **order}) + "\n")
            self._process.stdin.flush()
            said = self._read()
            assert said["re"] == self._number
        assert "error" not in said, said["error"]
        return said

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the shaper ended"
        said: dict[str, Any] = json.loads(line)
        return said


@contextlib.contextmanager
def shaper(settings: LineSettings = NOTHING, *, seed: int = 0) -> Iterator[Shaper]:
    """A `Shaper`, closed after it."""
    made = Shaper(settings, seed=seed)
    try:
        yield made
    finally:
        made.close()
