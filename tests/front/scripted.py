"""A room of one scripted device behind the real seam (`pooled_nb.room.core.RoomCore`).

It stands in for the network and the model only; the thread, the answers and everything a person
touches are the real ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from pooled_nb.errors import NotReady, PooledError, RoomRefused
from pooled_nb.room.core import (
    Again,
    AnswerEvent,
    AskOptions,
    ChatSettings,
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
    Verb,
)
from pooled_nb.room.doorfacts import (
    Doubt,
    GateChoices,
    Invite,
    LobbyLine,
    NetworkChoice,
    NetworkFacts,
    Trust,
)
from pooled_nb.room.memory import SavedQuestion
from pooled_nb.room.weights.ask import DownloadAsk


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
        self.amid: dict[int, list[AnswerEvent | asyncio.Event]] = {}
        """By number of pieces that were shown before: what is told then, and what is waited for."""
        self.done: Done | None = None
        self.gap_s = 0.001
        self.endless = False
        self.refuse: PooledError | None = None
        self.stopped = asyncio.Event()
        self.politely, self.may_go = asyncio.Event(), asyncio.Event()
        self.change: dict[str, Any] = {}
        self.name = "laptop"
        self.settings = ChatSettings()
        self.cut = 10
        self.mid = 0
        self.question = ""
        self.busy = False
        self.lobby: list[LobbyLine] = []
        self.gate = GateChoices()
        self.network = NetworkFacts(signaling="ws://127.0.0.1:9000/")
        self.trust: Trust = ""
        self.digits = ""
        self.key = "SCRIPTEDkeySCRIPTEDkey"
        self.others = True
        self.asks: DownloadAsk | None = None
        self.may_load = asyncio.Event()

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
            layers=(0, self.cut),
            held_gb=0.1,
            me=True,
        )
        other = DeviceLine(
            id="b",
            name="<b>desk|top</b>",
            role="worker",
            kind="cpu",
            lends_gb=2.0,
            layers=(self.cut, 30),
            rtt_ms=1.2,
        )
        now = Status(
            code=self.code,
            state=self.state,
            sentence=f"The room is {self.state}.",
            model="org/model",
            label="model",
            layers=30,
            ctx=2048,
            devices=[me, other] if self.others else [me],
            mine=self.busy,
            can=self._can(),
            newest=self.mid if self.question else 0,
            settings=self.settings,
            lobby=list(self.lobby),
            gate=self.gate,
            network=self.network,
            trust=self.trust,
            digits=self.digits,
            asks=self.asks,
        )
        return msgspec.structs.replace(now, **self.change)

    def ask_download(self, gb: float = 12.0, free_gb: float | None = 80.0) -> None:
        """It asks its person (mesh loop, or before anybody listens)."""
        self.asks = DownloadAsk(model="org/model", lo=0, hi=10, gb=gb, free_gb=free_gb)
        self._set(self.state)

    async def allow_download(self, *, yes: bool) -> None:
        self.log.append(("download", yes))
        if self.asks is None:
            raise NotReady("This device asks for no download now.", "Nothing has to be allowed.")
        self.asks = None
        self.may_load.set()
        self._set(self.state)

    def become(self, state: State, **change: Any) -> None:
        """It is in this state, and its status differs in that (mesh loop)."""
        self.change = change
        self._set(state)

    def ask_to_join(self, *names: str) -> None:
        """Somebody stands at the door (mesh loop, or before anybody listens)."""
        for name in names:
            n = len(self.lobby) + 1
            digits = f"{482019 + n:07_d}".replace("_", " ")
            line = LobbyLine(number=n, name=name, kind="Jupyter, CUDA", lends_gb=8.0, digits=digits)
            self.lobby = [*self.lobby, line]
        self._set(self.state)

    async def allow(self, number: int) -> str:
        return self._decide("allow", number)

    async def deny(self, number: int) -> str:
        return self._decide("deny", number)

    def _decide(self, what: str, number: int) -> str:
        self.log.append((what, number))
        self._host_only("Only the host lets devices in.")
        found = [line for line in self.lobby if line.number == number]
        if not found:
            raise NotReady("This device waits no longer.", "See who does: %pooled lobby.")
        self.lobby = [line for line in self.lobby if line.number != number]
        self._set(self.state)
        return found[0].name

    async def kick(self, id: str) -> str:
        self.log.append(("kick", id))
        self._host_only("Only the host takes devices out.")
        if id != "b":
            raise NotReady("This device is not in the room.", "See who is: %pooled status.")
        self.others = False
        self._set(self.state)
        return "<b>desk|top</b>"

    def invite(self) -> Invite:
        self._host_only("Only the host has the invite link.")
        return Invite(code=self.code, link=f"pooled://room/r/{self.code}#k={self.key}")

    async def renew_invite(self) -> Invite:
        self.log.append("renew")
        self.key = self.key[::-1]
        return self.invite()

    async def set_gate(self, choices: GateChoices) -> None:
        self.log.append(("gate", choices))
        self._host_only("Only the host says who comes in.")
        self.gate = choices
        self._set(self.state)

    async def set_network(self, choice: NetworkChoice) -> NetworkFacts:
        self.log.append(("network", choice))
        self.network = NetworkFacts(
            signaling="ws://127.0.0.1:9000/",
            stun=choice.stun or [],
            relay="relay.example:3478" if choice.turn else "",
            relay_from="settings" if choice.turn else "",
            relay_only=bool(choice.relay_only),
        )
        return self.network

    def _host_only(self, sentence: str) -> None:
        if self.role != "host":
            raise NotReady(sentence, "Ask the host.")

    def _can(self) -> list[Verb]:
        if self.state == "closed":
            return []
        dealt = self.dealt or self.state == "degraded"
        host: list[Verb] = ["set", "close", "redeal" if dealt else "start"]
        asks: list[Verb] = ["download"] if self.asks else []
        last: list[Verb] = ["stop"] if self.busy else ["continue", "regen"] if self.question else []
        return [*asks, *last, *(host if self.role == "host" else []), "leave"]

    @property
    def dealt(self) -> bool:
        return self.state in ("online", "answering")

    async def start(self, progress: Callable[[int, str], None] | None = None, *, fast: bool = False) -> None:
        self.log.append("start fast" if fast else "start")
        if self.state not in ("open", "online", "degraded"):
            raise NotReady("The room is not open.", "Wait.")
        self.change = {}
        self._set("loading")
        for percent in (0, 50, 100):
            if percent and self.asks is not None:
                await self.may_load.wait()
            if progress is not None:
                progress(percent, f"laptop: reading layers 1–10 ({percent})")
            await asyncio.sleep(self.gap_s)
        self._set("online")

    async def again(self, what: Again, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        self.log.append((what, options))
        if not self.question:
            raise NotReady("There is no answer yet.", "Ask first.")
        words = self.question if what == "regen" else f"and {self.question}"
        async with contextlib.aclosing(self._answer(words)) as events:
            async for event in events:
                yield event

    async def configure(self, settings: ChatSettings) -> None:
        self.log.append(("configure", settings))
        if self.role != "host":
            raise NotReady("Only the host sets how the room answers.", "Ask its person.")
        self.settings = settings
        self._set(self.state)

    async def ask(self, text: str, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        self.log.append(("ask", text, options))
        self.question = self.question if self.refuse is not None else text
        async with contextlib.aclosing(self._answer(text)) as events:
            async for event in events:
                yield event

    async def _answer(self, text: str) -> AsyncGenerator[AnswerEvent, None]:
        self.stopped.clear()
        if self.refuse is not None:
            raise self.refuse
        over = False
        try:
            for event in self.before:
                yield event
            self.mid += 1
            self.busy = True
            yield Started(mid=self.mid)
            words = text.split()
            sent = 0
            reason = "stop"
            while words and (self.endless or sent < len(words)):
                for event in self.amid.pop(sent, []):
                    if isinstance(event, asyncio.Event):
                        await event.wait()
                    else:
                        yield event
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
            self.busy = False
            if self.on_change is not None:
                self.on_change()
            if not over:
                self.log.append("closed early")

    async def stop(self) -> None:
        self.log.append("stop")
        self.stopped.set()

    async def reset(self) -> None:
        self.log.append("reset")

    async def leave(self, *, after_answer: bool = False) -> None:
        if after_answer:
            self.log.append("leave politely")
            self.politely.set()
            await self.may_go.wait()
        self.log.append("leave")
        self.may_go.set()
        self.stopped.set()
        self._set("closed")


class LeftCore(ScriptedCore):
    """A room that goes on: its process before left questions."""

    def __init__(self, code: str, asked: Sequence[SavedQuestion] = ()) -> None:
        super().__init__("host", code, state="online")
        self.asked = list(asked)
        self.resuming = False
        self.on_memory = lambda: None

    async def abandon(self) -> None:
        self.log.append("abandon")
        self.stopped.set()
        self._set("closed")


class Rooms:
    """`pooled_nb.room.host`, `join` and `resume`, scripted: keeps what they were called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.fail: BaseException | None = None
        self.wait_s = 0.0
        self.cancelled = 0
        self.lobby = ""
        self.doubt: Doubt | None = None
        self.left: list[SavedQuestion] = []
        self.core = ScriptedCore()

    async def _open(self, core: ScriptedCore, options: dict[str, Any]) -> ScriptedCore:
        report = options.get("progress") or (lambda percent, words: None)
        report(30, "finding the model")
        if self.lobby:
            report(None, self.lobby)
        try:
            await asyncio.sleep(self.wait_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fail is not None:
            raise self.fail
        if self.doubt is not None:
            # Somebody is asked, as long as it takes; an interrupt gives up.
            report(None, self.doubt.text)
            if not await options["confirm"](self.doubt):
                raise RoomRefused("The digits were not confirmed.", "Ask the host for a new link.")
            core.trust = "confirmed"
        self.core = core
        return core

    async def host(self, model: str, **options: Any) -> ScriptedCore:
        self.calls.append(("host", model, options))
        return await self._open(ScriptedCore("host", options.get("code") or "4TKG9P"), options)

    async def resume(self, code: str | None = None, **options: Any) -> ScriptedCore:
        self.calls.append(("resume", code or "", options))
        return await self._open(LeftCore("4TKG9P", self.left), options)

    async def join(self, code: str, *, servers: Sequence[str] | None = None, **options: Any) -> ScriptedCore:
        self.calls.append(("join", code, {"servers": servers, **options}))
        role = "guest" if options.get("role") == "guest" else "worker"
        return await self._open(ScriptedCore(role, code.replace("-", "").upper()), options)  # type: ignore[arg-type]
