"""Real devices under chaos: processes over aiortc on one machine, and what befalls them (PROTOCOL section 8).

A `Device` is a process of `tests.e2e.chaosdevice` and its shard's child; `tests.e2e.chaosroom` makes rooms of
them. No time is asserted, but the text always is.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.needs import bound

ROOT = Path(__file__).parents[2]
LIMIT_S = 90.0
"""Of any wait: below what a test has, so that what did not come is named."""
FULL = pytest.mark.skipif(
    os.environ.get("POOLED_CHAOS") != "all",
    reason="one of the long ones: make chaos runs them (POOLED_CHAOS=all)",
)
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals that freeze a process")

Said = dict[str, Any]


@dataclass
class Asked:
    """A question, and all that its asker heard."""

    device: Device
    number: int
    events: list[tuple[float, Said]] = field(default_factory=list)
    """(when, the event)."""
    end: Said | None = None
    """What the call gave at last; with ``error`` where it failed."""

    def of(self, kind: str) -> list[tuple[float, Said]]:
        """The events of one kind so far."""
        return [(at, event) for at, event in self.events if event["type"] == kind]

    @property
    def pieces(self) -> list[tuple[float, str]]:
        """When which text was added."""
        return [(at, event["text"]) for at, event in self.of("piece")]

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces)

    @property
    def gap(self) -> float:
        """The longest time in which nothing was added: what befell it was felt."""
        times = [at for at, _ in self.pieces]
        return max((b - a for a, b in pairwise(times)), default=0.0)

    def until(self, pieces: int, seconds: float = LIMIT_S) -> float:
        """Wait until that many pieces were shown; when the last of them was."""
        self.device.until(
            lambda: len(self.pieces) >= pieces or self.end is not None, f"{pieces} pieces", seconds
        )
        assert self.end is None, f"it ended before: {self.end}, {self.of('done')}"
        return self.pieces[pieces - 1][0]

    def done(self, seconds: float = LIMIT_S) -> Said:
        """Wait for the end; the one `Done`."""
        self.device.until(lambda: self.end is not None, "the end of the answer", seconds)
        assert self.end is not None
        assert "error" not in self.end, self.end
        dones = self.of("done")
        assert len(dones) == 1
        assert self.events[-1][1]["type"] == "done", "something came after the end"
        return dones[0][1]


class Device:
    """One process. It is ended with the test's own, whatever happens to that.

    ``prefix``: a command that runs it somewhere else, as in a network of its own.
    """

    def __init__(
        self,
        folder: Path,
        *,
        env: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
        program: str = "tests.e2e.chaosdevice",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._log = (folder / "log.txt").open("a")
        self.process = subprocess.Popen(
            [*prefix, *bound(sys.executable, "-X", "faulthandler", "-m", program)],
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.said: list[Said] = []
        self._answers: dict[int, Said] = {}
        self._asked: dict[int, Asked] = {}
        self._number = 0
        self._more = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                said: Said = json.loads(line)
            except ValueError:
                said = {"at": time.monotonic(), "heard": "noise", "text": line}
            with self._more:
                self._take(said)
                self._more.notify_all()
        with self._more:
            self._over = True
            self._more.notify_all()

    def _take(self, said: Said) -> None:
        if said.get("heard") == "event":
            self._asked[said["ask"]].events.append((said["at"], said["event"]))
            return
        if "re" in said:
            self._answers[said["re"]] = said
            if said["re"] in self._asked:
                self._asked[said["re"]].end = said
            return
        self.said.append(said)

    # -- talking to it -----------------------------------------------------------------------------

    def tell(self, do: str, **order: Any) -> int:
        """Say what to do; the number of the order."""
        self._number += 1
        if do == "ask":
            self._asked[self._number] = Asked(self, self._number)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"n": self._number, "do": do, **order}) + "\n")
        self.process.stdin.flush()
        return self._number

    def answer(self, number: int, seconds: float = LIMIT_S) -> Said:
        """Wait for what an order gave."""
        self.until(lambda: number in self._answers, f"the answer to order {number}", seconds)
        answer = self._answers[number]
        assert "error" not in answer, f"{answer}\n{self.log()}"
        return answer

    def call(self, do: str, **order: Any) -> Said:
        """Say what to do and wait for what it gave."""
        return self.answer(self.tell(do, **order))

    def ask(self, text: str, **options: Any) -> Asked:
        """Ask; does not wait."""
        return self._asked[self.tell("ask", text=text, options=options)]

    def until(self, holds: Callable[[], bool], what: str, seconds: float = LIMIT_S) -> None:
        """Wait until this holds of what it said."""
        with self._more:
            came = self._more.wait_for(lambda: holds() or self._over, seconds)
            if came and holds():
                return
        last = [said for said in self.said if said.get("heard") != "changed"][-6:]
        how = "the process ended" if came else f"not within {seconds:.0f} s"
        pytest.fail(
            f"{self.folder.name}: {what}: {how}. It said last: {json.dumps(last, indent=1)}\n{self.log()}"
        )

    def until_state(self, *states: str, since: int = 0, seconds: float = LIMIT_S) -> Said:
        """Wait for one of these states, of what was said from ``since`` on."""
        self.until(lambda: self.find(since, *states) is not None, f"state {' or '.join(states)}", seconds)
        found = self.find(since, *states)
        assert found is not None
        return found

    def find(self, since: int, *states: str) -> Said | None:
        """The first status of one of these states."""
        return next(
            (s for s in self.said[since:] if s.get("heard") == "status" and s["state"] in states), None
        )

    @property
    def now(self) -> Said:
        """What it shows by what it said last."""
        return next(
            (s for s in reversed(self.said) if s.get("heard") == "status"), {"state": "", "devices": []}
        )

    @property
    def notices(self) -> list[str]:
        """What its person was told."""
        return [said["text"] for said in self.said if said.get("heard") == "notice"]

    def log(self) -> str:
        """The end of its standard error."""
        return (self.folder / "log.txt").read_text(errors="replace")[-3_000:]

    # -- what befalls it ---------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[psutil.Process]:
        """Its shard's child, and what that started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [p for p in psutil.Process(self.pid).children(recursive=True) if p.is_running()]
        return []

    def signal(self, number: int, *, kernel: bool = True, shard: bool = True) -> None:
        """Send a signal to the kernel's process, the shard's child, or both."""
        children = self.children() if shard else []
        pids = [*([self.pid] if kernel else []), *(p.pid for p in children)]
        assert pids
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    @contextlib.contextmanager
    def frozen(self, *, kernel: bool = True, shard: bool = True) -> Iterator[None]:
        """Stopped while in the block: a lid that was closed, a machine that swaps."""
        self.signal(signal.SIGSTOP, kernel=kernel, shard=shard)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT, kernel=kernel, shard=shard)

    def kill(self) -> None:
        """Killed with its shard, as by a power cut; waits until it is gone."""
        self.signal(signal.SIGKILL)
        self.process.wait(20)
        self._reader.join(20)

    def close(self) -> None:
        """End it, however it is."""
        if self.process.poll() is None:
            self.kill()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self._log.close()
