"""What `benchmarks.panel` runs inside of its kernel: answers that grow at a given rate, and their panels."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, Literal

import psutil

from pooled_nb.errors import NotReady
from pooled_nb.room.core import DeviceLine, Role, Status
from pooled_nb.widgets.answer_panel import AnswerPanel
from pooled_nb.widgets.room_panel import RoomPanel
from pooled_nb.widgets.sources import AnswerFacts, Coming, Told

TOKEN = " token"
TICK_S = 0.002
"""A faster feeder says several tokens at once, as a room does whose lap settles several."""


class Fed:
    """What is watched, by panels or by nobody."""

    def __init__(self) -> None:
        self._wakers: list[Callable[[], None]] = []

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See `pooled_nb.widgets.sources`."""
        self._wakers.append(wake)
        return lambda: self._wakers.remove(wake)

    def changed(self) -> None:
        """Tell whoever watches."""
        for wake in self._wakers:
            wake()


class FedAnswer(Fed):
    """An `AnswerSource` that grows by a token a call."""

    question = "Write a long story."

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self.ended = False

    def since(self, seen: int) -> tuple[list[str], bool]:
        """See `AnswerSource`."""
        return self.pieces[seen:], self.ended

    def facts(self) -> AnswerFacts:
        """See `AnswerSource`."""
        return AnswerFacts(started=True, reason="stop" if self.ended else None, can=("stop",))

    def stop(self) -> None:
        """See `AnswerSource`."""

    def again(self, what: Literal["continue", "regen"]) -> FedAnswer:
        """See `AnswerSource`."""
        return FedAnswer()

    def token(self) -> None:
        """One more."""
        self.pieces.append(TOKEN)
        self.changed()

    def end(self) -> None:
        """No more."""
        self.ended = True
        self.changed()


class FedRoom(Fed):
    """A `RoomSource` of three devices whose numbers change with every token."""

    role: Role | None = "host"
    left = False
    progress: tuple[int | None, str] = (None, "")
    notices: list[str] = []  # noqa: RUF012 # never changed

    def __init__(self) -> None:
        super().__init__()
        self._used = 0
        self._devices = [
            DeviceLine(
                id=str(n),
                name=f"device {n}",
                role="worker" if n else "host",
                kind="cuda",
                lends_gb=6.0,
                layers=(10 * n, 10 * n + 10),
                held_gb=0.1,
                rtt_ms=6.2 if n else None,
                path="direct" if n else "",
                me=not n,
            )
            for n in range(3)
        ]

    def seen(self) -> Status:
        """See `RoomSource`."""
        return Status(
            code="4TKG9P",
            state="answering",
            sentence="Answering.",
            label="SmolLM2-135M-Instruct",
            layers=30,
            ctx=8192,
            used=self._used,
            devices=self._devices,
            can=["stop", "set"],
        )

    def command(self, name: str, options: dict[str, object], done: Told | None = None) -> None:
        """See `RoomSource`."""

    def invite(self, *, wait: Literal[False]) -> Coming:
        """See `RoomSource`."""
        raise NotReady("There is no link here.")

    renew_invite = invite

    def token(self) -> None:
        """One more."""
        self._used += 1
        self.changed()

    def end(self) -> None:
        """Nothing to do."""


Source = FedAnswer | FedRoom


def _static() -> dict[str, str]:
    return {"text/plain": "", "text/html": ""}


def panel_of(source: Source) -> Any:
    """Its panel."""
    if isinstance(source, FedRoom):
        return RoomPanel(source, fallback=_static)
    return AnswerPanel(source, fallback=_static)


def feed(sources: list[Source], rate: float, seconds: float) -> tuple[float, float]:
    """Say tokens at that rate from a network thread; seconds it took and CPU seconds of the process."""

    def run() -> None:
        said, end = 0, began + seconds
        while (now := time.perf_counter()) < end:
            due = int((now - began) * rate)
            for _ in range(due - said):
                for source in sources:
                    source.token()
            said = due
            time.sleep(max(TICK_S, min(1 / rate, end - now)))

    began, cpu = time.perf_counter(), time.process_time()
    thread = threading.Thread(target=run, name="pooled-mesh")
    thread.start()
    thread.join()
    return time.perf_counter() - began, time.process_time() - cpu


def cost(kind: str, count: int, rate: float, seconds: float, *, panels: bool) -> float:
    """CPU of this process in percent of a core, while so many sources grow with or without panels."""
    sources: list[Source] = [FedRoom() if kind == "room" else FedAnswer() for _ in range(count)]
    shown = [panel_of(source) for source in sources] if panels else []
    time.sleep(0.5)
    took, cpu = feed(sources, rate, seconds)
    for source in sources:
        source.end()
    for panel in shown:
        panel.close()
    return 100 * cpu / took


def memory(tokens: int, rate: float) -> tuple[float, float]:
    """MB that one answer of so many tokens adds beyond its text, and MB that the process grew by."""
    answer = FedAnswer()
    panel = panel_of(answer)
    feed([answer], rate, tokens / 10 / rate)
    gc.collect()
    tracemalloc.start()
    process, text = psutil.Process(), len(panel.text)
    resident, traced = process.memory_info().rss, tracemalloc.get_traced_memory()[0]
    feed([answer], rate, tokens / rate)
    time.sleep(0.2)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - traced
    tracemalloc.stop()
    resident = process.memory_info().rss - resident
    # The trait, and the stream's own copy of it.
    text = len("".join(answer.pieces)) - text
    panel.close()
    return (grown - 2 * text) / 1e6, resident / 1e6
