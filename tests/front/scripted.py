"""A room of one scripted device behind the real seam (`pooled_nb.room.core.RoomCore`).

It stands in for the network and the model only; the thread, the answers and everything a person
touches are the real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from pooled_nb.errors import NotReady, PooledError
from pooled_nb.room.core import (
    AnswerEvent,
    AskOptions,
    DeviceLine,
    Done,
    Notice,
    Piece,
    Queued,
    Role,
    Started,
    State,
    Stats,
    Status,
)


class ScriptedCore:
    """Answers with the words of the question, one piece each."""

    def __init__(self, role: Role = "host", code: str = "4TKG9P", *, state: State | None = None) -> None:
        self.role: Role = role
        self.code = code
        self.state: State = state or ("open" if role == "host" else "online")
        self.on_change: Callable[[], None] | None = None
        self.on_notice: Callable[[str], None] | None = None
        self.log: list[Any] = []
        self.before: list[AnswerEvent] = [Queued(place=1), Notice(text="Waiting for laptop.")]
        self.done: Done | None = None
        self.gap_s = 0.001
        self.endless = False
        self.refuse: PooledError | None = None
        self.stopped = asyncio.Event()
        self.name = "laptop"

    def _set(self, state: State) -> None:
        self.state = state
        if self.on_change is not None:
            self.on_change()

    def status(self) -> Status:
        me = DeviceLine(
            id="a",
            name=self.name,
            role=self.role,
            kind="cpu",
            lends_gb=2.0,
            layers=(0, 10),
            held_gb=0.1,
            me=True,
        )
        other = DeviceLine(
            id="b",
            name="<b>desk|top</b>",
            role="worker",
            kind="cpu",
            lends_gb=2.0,
            layers=(10, 30),
            rtt_ms=1.2,
        )
        return Status(
            code=self.code,
            state=self.state,
            sentence=f"The room is {self.state}.",
            model="org/model",
            label="model",
            layers=30,
            ctx=2048,
            devices=[me, other],
        )

    async def start(self, progress: Callable[[int, str], None] | None = None) -> None:
        self.log.append("start")
        if self.state != "open":
            raise NotReady("The room is not open.", "Wait.")
        self._set("loading")
        for percent in (0, 50, 100):
            if progress is not None:
                progress(percent, f"laptop: reading layers 1–10 ({percent})")
            await asyncio.sleep(self.gap_s)
        self._set("online")

    async def ask(self, text: str, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        self.log.append(("ask", text, options))
        self.stopped.clear()
        if self.refuse is not None:
            raise self.refuse
        over = False
        try:
            for event in self.before:
                yield event
            yield Started(mid=1)
            words = text.split()
            sent = 0
            reason = "stop"
            while words and (self.endless or sent < len(words)):
                yield Piece(text=words[sent % len(words)] + " ")
                sent += 1
                await asyncio.sleep(self.gap_s)
                if self.stopped.is_set():
                    reason = "abort"
                    break
            stats = Stats(tokens=sent, ms=100.0 * sent, first_ms=100.0)
            yield self.done or Done(reason=reason, stats=stats, tokens=list(range(sent)))  # type: ignore[arg-type]
            over = True
        finally:
            if not over:
                self.log.append("closed early")

    async def stop(self) -> None:
        self.log.append("stop")
        self.stopped.set()

    async def reset(self) -> None:
        self.log.append("reset")

    async def leave(self) -> None:
        self.log.append("leave")
        self.stopped.set()
        self._set("closed")


class Rooms:
    """`pooled_nb.room.host` and `join`, scripted: keeps what they were called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.fail: BaseException | None = None
        self.wait_s = 0.0
        self.cancelled = 0
        self.core = ScriptedCore()

    async def _open(self, core: ScriptedCore, options: dict[str, Any]) -> ScriptedCore:
        if (report := options.get("progress")) is not None:
            report(30, "finding the model")
        try:
            await asyncio.sleep(self.wait_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fail is not None:
            raise self.fail
        self.core = core
        return core

    async def host(self, model: str, **options: Any) -> ScriptedCore:
        self.calls.append(("host", model, options))
        return await self._open(ScriptedCore("host", options.get("code") or "4TKG9P"), options)

    async def join(self, code: str, *, servers: Sequence[str] | None = None, **options: Any) -> ScriptedCore:
        self.calls.append(("join", code, {"servers": servers, **options}))
        role = "guest" if options.get("role") == "guest" else "worker"
        return await self._open(ScriptedCore(role, code.replace("-", "").upper()), options)  # type: ignore[arg-type]
