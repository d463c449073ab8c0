"""What a panel stands between: a room, an answer, and a comm that keeps what was sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal

from pooled_nb.errors import PooledError
from pooled_nb.room.core import DeviceLine, Role, Status, Verb
from pooled_nb.room.doorfacts import Invite
from pooled_nb.widgets.painter import NAME
from pooled_nb.widgets.sources import AnswerFacts, Told

LINK = "pooled://room/r/4TKG9P?signal=local#k=Zm9yLXRlc3RzLW9ubHktbm90LWEtcmVhbC1rZXktMTIz"
STATIC = {"text/plain": "plain", "text/html": "<p>plain</p>", "text/markdown": "plain"}


def device(name: str, layers: tuple[int, int] | None = None, **more: Any) -> DeviceLine:
    given = {"id": name, "role": "worker", "kind": "cuda", "lends_gb": 6.0, "path": "direct", **more}
    return DeviceLine(name=name, layers=layers, **given)


def studio(layers: tuple[int, int] | None = None, **more: Any) -> DeviceLine:
    return device("studio", layers, role="host", me=True, **{"path": "", **more})


def status(state: str = "online", devices: list[DeviceLine] | None = None, **more: Any) -> Status:
    """A room of three; what is given goes before it."""
    layers = (lambda lo, hi: (lo, hi)) if state != "open" else lambda lo, hi: None
    three = [
        studio(layers(0, 10), held_gb=0.1),
        device("mira", layers(10, 20), held_gb=0.1, rtt_ms=6.2),
        device("basement", layers(20, 30), held_gb=0.1, rtt_ms=24.4, path="relayed"),
        device("ana", role="guest", lends_gb=0.0),
    ]
    given: dict[str, Any] = {
        "code": "4TKG9P",
        "sentence": "",
        "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "label": "SmolLM2-135M-Instruct",
        "layers": 30,
        "ctx": 8192,
        "dtype": "bfloat16",
        "need_gb": 0.3,
        **more,
    }
    return Status(state=state, devices=three if devices is None else devices, **given)  # type: ignore[arg-type]


class Watched:
    def __init__(self) -> None:
        self.watchers: set[Callable[[], None]] = set()

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        self.watchers.add(wake)
        return lambda: self.watchers.discard(wake)

    def changed(self) -> None:
        for wake in list(self.watchers):
            wake()


class Given:
    """A `Coming` that ends on another thread."""

    def __init__(self, invite: Invite, why: PooledError | None) -> None:
        self._invite = invite
        self._why = why

    def on_end(self, do: Callable[[], None]) -> None:
        threading.Thread(target=do, name="pooled-mesh").start()

    def error(self) -> PooledError | None:
        return self._why

    def result(self) -> Invite:
        return self._invite


class FakeRoom(Watched):
    """A `RoomSource`."""

    def __init__(self, now: Status | None = None, role: Role | None = "host") -> None:
        super().__init__()
        self.now = now
        self.role = role
        self.left = False
        self.progress: tuple[int | None, str] = (None, "")
        self.notices: list[str] = []
        self.commands: list[tuple[str, dict[str, object], str]] = []
        self.commanded = threading.Event()
        self.told: list[Told | None] = []
        self.links = 0
        self.refuses: PooledError | None = None
        self.late = False  # whether it refuses only after it was asked

    def seen(self) -> Status | None:
        return self.now

    def become(self, now: Status) -> None:
        self.now = now
        self.changed()

    def command(self, name: str, options: dict[str, object], done: Told | None = None) -> None:
        self.commands.append((name, options, threading.current_thread().name))
        self.told.append(done)
        self.commanded.set()

    def invite(self, *, wait: Literal[False]) -> Given:
        if self.refuses is not None and not self.late:
            raise self.refuses
        assert threading.current_thread().name == NAME
        return Given(Invite(code="4TKG9P", link=LINK + "x" * self.links), self.refuses)

    def renew_invite(self, *, wait: Literal[False]) -> Given:
        self.links += 1
        return self.invite(wait=False)


class FakeAnswer(Watched):
    """An `AnswerSource`."""

    def __init__(self, question: str = "Why?") -> None:
        super().__init__()
        self.question = question
        self.pieces: list[str] = []
        self.ended = False
        self.now = AnswerFacts(can=("stop",))
        self.stops = 0
        self.follows: FakeAnswer | PooledError | None = None
        self.asked: list[str] = []

    def since(self, seen: int) -> tuple[list[str], bool]:
        ended = self.ended
        return self.pieces[seen:], ended

    def facts(self) -> AnswerFacts:
        return self.now

    def say(self, *pieces: str, **facts: Any) -> None:
        self.pieces += pieces
        self.now = AnswerFacts(started=True, **{"can": ("stop",), **facts})
        self.changed()

    def end(self, reason: Any = "stop", can: tuple[Verb, ...] = ("continue", "regen"), **facts: Any) -> None:
        self.now = AnswerFacts(started=True, reason=reason, can=can, **facts)  # type: ignore[arg-type]
        self.ended = True
        self.changed()

    def stop(self) -> None:
        self.stops += 1

    def again(self, what: Literal["continue", "regen"]) -> FakeAnswer:
        self.asked.append(what)
        if isinstance(self.follows, PooledError):
            raise self.follows
        assert self.follows is not None
        return self.follows
