"""The room as a device sees it that is not its host: a worker, or a guest (PROTOCOL sections 6 and 7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from pooled_nb.errors import NotReady, RoomClosed
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.mesh import KEEPALIVE_MS, Mesh
from pooled_nb.mesh.messages import Message, chat, weights
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.messages.link import DeviceMeta, Member
from pooled_nb.mesh.network import Network
from pooled_nb.mesh.newcomer import Newcomer
from pooled_nb.room import sentences, serving
from pooled_nb.room.admission import Admission
from pooled_nb.room.asked import Asked
from pooled_nb.room.core import (
    Again,
    AnswerEvent,
    AskOptions,
    ChatSettings,
    Notice,
    Role,
    State,
    Status,
    unheard,
)
from pooled_nb.room.devicestatus import Known, device_status
from pooled_nb.room.doorfacts import Confirm
from pooled_nb.room.feed import Feed
from pooled_nb.room.keeping import Slot
from pooled_nb.room.leaving import in_turn
from pooled_nb.room.networking import Networking
from pooled_nb.room.nothost import NotHost
from pooled_nb.room.questions import check_again, check_question, params_of
from pooled_nb.room.style import heard_style, heard_visibility
from pooled_nb.room.transcript import Transcript
from pooled_nb.room.ways import Ways
from pooled_nb.room.worker import Worker, room_key
from pooled_nb.shard import Shard

ENTERING = 80
"""Percent of joining once the room is found: what follows takes as long as people do."""
MAX_DOWNLOAD_GB = 20.0
"""What a room may make this device download, unless its person says otherwise."""


class DeviceRoom(NotHost, Networking):
    """`RoomCore` and `MeshListener` of a device that joined. Everything runs on the mesh loop.

    Parameters
    ----------
    shard
        None: this device lends nothing and stays a guest.
    lends_gb
        What it lends at most.
    newcomer
        What it knows of the room: key, pass. None: nothing.
    confirm
        Asks this device's person whether the digits are the same on both screens; None: nobody confirms.
    ways
        By which ways its connections go.
    """

    def __init__(
        self,
        *,
        code: str,
        network: Network,
        clock: Clock,
        name: str,
        meta: DeviceMeta,
        shard: Shard | None,
        new_shard: Callable[[], Shard],
        lends_gb: float,
        folder: str | None,
        max_download_gb: float = MAX_DOWNLOAD_GB,
        keepalive_ms: float = KEEPALIVE_MS,
        newcomer: Newcomer | None = None,
        confirm: Confirm | None = None,
        ways: Ways | None = None,
    ) -> None:
        self.code = code
        self.on_change: Callable[[], None] = unheard
        self.on_notice: Callable[[str], None] = unheard
        self._ways = ways
        newcomer = newcomer or Newcomer()
        self.mesh = Mesh(
            network=network,
            clock=clock,
            name=name,
            meta=meta,
            listener=self,
            gates=newcomer,
            keepalive_ms=keepalive_ms,
        )
        self._admission = Admission(
            code=code,
            mesh=self.mesh,
            clock=clock,
            newcomer=newcomer,
            confirm=confirm,
            on_change=self._changed,
            say=self._say,
        )
        self.transcript = Transcript()
        self._clock, self._shard, self._new_shard = clock, shard, new_shard
        self._lends_gb, self._folder, self._max_download_gb = lends_gb, folder, max_download_gb
        self._worker: Worker | None = None
        self._asked = Asked()
        self._state: State = "open"
        self._why = ""
        self._ready: wire.ReadyAll | None = None
        self._held = wire.LayersHeld()
        self._progress: dict[str, int] = {}
        self._waiting = 0
        self._settings = ChatSettings()
        self._released: asyncio.Task[None] | None = None
        if shard:
            shard.on_died = self._on_shard_died

    def keep(self, slot: Slot | None, name: str) -> None:
        """Save this device's pass in this slot, for this name. See `pooled_nb.room.keeping`."""
        self._admission.keep(slot, name)

    async def join(self, servers: list[str], progress: Callable[[int, str], None] | None = None) -> None:
        """Find the room and be admitted; ``progress`` hears what is waited for, and the digits to compare.

        Raises
        ------
        RoomNotFound, RoomRefused, RoomClosed, LinkFailed, SignalingDown
        """
        before = self.on_notice
        if progress is not None:
            told = self.on_notice = lambda text: progress(ENTERING, text)
        try:
            await self._admission.enter(servers)
        finally:
            if progress is not None and self.on_notice is told:
                self.on_notice = before

    @property
    def role(self) -> Role:
        """A worker while it holds or loads layers, or while nothing is dealt and it lends memory."""
        worker = self._worker
        if worker is None:
            return "guest"
        waits = not self._held.ranges and self._state in ("open", "loading") and not worker.trouble
        return "worker" if worker.layers or worker.progress is not None or waits else "guest"

    # -- RoomCore ----------------------------------------------------------------------------------

    def status(self) -> Status:
        """See `RoomCore.status`."""
        return device_status(
            code=self.code,
            role=self.role,
            state=self._state,
            why=self._why,
            mesh=self.mesh,
            transcript=self.transcript,
            worker=self._worker,
            known=Known(self._ready, self._held, self._progress, self._waiting, self._settings),
            mine=self._asked.answering,
            trust=self._admission.newcomer.trust,
            digits=self._admission.digits,
            network=self.network,
        )

    def ask(self, text: str, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        """See `RoomCore.ask`."""
        return self._put(
            lambda: check_question(text, options),
            lambda rid, checked: chat.Ask(text=text, rid=rid, nb=params_of(checked)),
        )

    def again(self, what: Again, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        """See `RoomCore.again`."""
        return self._put(
            lambda: check_again(what, options),
            lambda rid, checked: chat.Cmd(
                cmd=what, rid=rid, nb=params_of(checked), mid=self.transcript.newest or None
            ),
        )

    async def _put(
        self, check: Callable[[], AskOptions], say: Callable[[str, AskOptions], Message]
    ) -> AsyncIterator[AnswerEvent]:
        options = check()
        if self._state == "closed":
            raise RoomClosed(self._why or "The room is over.", "Join another room.")
        feed = Feed()
        rid = self._asked.add(feed)
        if not self.mesh.send(self.mesh.creator, say(rid, options)):
            self._asked.forget(feed)
            raise NotReady("There is no link to the host now.", "Try again when it is back.")
        if options.fast:
            feed.put(Notice(sentences.HOST_CHOOSES))
        try:
            async for event in feed:
                yield event
        finally:
            self._asked.forget(feed)
            if not feed.over:
                self.mesh.send(self.mesh.creator, chat.Stop(rid=rid))

    async def stop(self) -> None:
        """See `RoomCore.stop`."""
        # By name, where one runs: it may have ended by now, and then the next must not be hit.
        self.mesh.send(self.mesh.creator, chat.Stop(rid=self._asked.rid))

    async def leave(self) -> None:
        """Leave the room. Never raises."""
        if self._state != "closed":
            self._over("You left the room.")
            await self.mesh.leave()
        await asyncio.shield(self._release())

    # -- MeshListener ------------------------------------------------------------------------------

    def on_roster(self, members: tuple[Member, ...]) -> None:
        """Who is here changed; with the first roster this device knows its id and can hold layers."""
        if self._worker is None and self._shard is not None:
            self._worker = Worker(
                me=self.mesh.id,
                links=self.mesh,
                shard=self._living_shard,
                clock=self._clock,
                folder=self._folder,
                lends_gb=self._lends_gb,
                max_download_gb=self._max_download_gb,
                on_change=self._changed,
                room=room_key(self.code),
            )
        self.on_change()

    def on_admitted(self, member: Member) -> None:
        """Only of the creator."""

    def on_gone(self, id: str, name: str, why: str, *, left: bool) -> None:
        """A neighbour's link ended; the host hears of it."""
        if self._worker and self._worker.needs(id):
            self.mesh.send(self.mesh.creator, wire.LinkLost(name=name))
        self.on_change()

    def on_message(self, sender: str, message: Message) -> None:
        """What the host says. Other devices only ask for weights."""
        if isinstance(message, weights.Wget):
            self.mesh.send(sender, serving.answer(message, self.mesh.facts(sender), relay=self.has_relay))
        if sender != self.mesh.creator:
            return
        shown = self.transcript.read(message)
        mine = self._asked.read(message, self.mesh.id)
        if shown or mine:
            self.on_change()
        match message:
            case wire.Load():
                self._loading()
                self._take(message)
            case wire.StartReq() | wire.Redeal():
                self._loading()
            case wire.StartFailed():
                self._unload("open", message.why)
            case wire.Degraded():
                self._ready = None
                self._set("degraded", message.why)
            case wire.HostProgress():
                self._progress = message.all
            case wire.LayersHeld():
                self._held = message
                self._drop_if_left_out()
            case wire.ReadyAll():
                self._ready, self._progress = message, {}
                self._set("online")
            case chat.Queue():
                self._waiting = message.n
            case chat.Visibility():
                self._settings = heard_visibility(message, self._settings)
            case chat.Style():
                self._settings = heard_style(message, self._settings)
            case _:
                return
        self.on_change()

    def on_frame(self, sender: str, frame: Frame) -> None:
        """A frame of the device before this one."""
        if self._worker:
            self._worker.on_frame(sender, frame)

    def on_closed(self, why: str) -> None:
        """Thrown out, the room is over, or the host is lost."""
        self._over(why)
        self.on_notice(why)
        self._release()

    # -- what changes ------------------------------------------------------------------------------

    def _take(self, message: wire.Load) -> None:
        if self._worker:
            self._worker.load(message)
        else:
            number = message.nb.deal if message.nb else None
            self.mesh.send(
                message.host, wire.Error(message="This device lends no memory.", load=True, deal=number)
            )

    def _drop_if_left_out(self) -> None:
        if self._worker and self.mesh.id not in (self._held.ranges or {}):
            self._worker.drop()

    def _loading(self) -> None:
        self._ready, self._held, self._progress = None, wire.LayersHeld(), {}
        self._set("loading")

    def _unload(self, state: State, why: str) -> None:
        if self._worker:
            self._worker.drop()
        self._set(state, why)

    def _over(self, why: str) -> None:
        self._set("closed", why)
        self._asked.close(RoomClosed(why))

    def _release(self) -> asyncio.Task[None]:
        """Give back memory, and the place where the pass is kept: once, and whoever waits waits for all."""
        if self._released is None:
            self._released = asyncio.get_running_loop().create_task(self._give_back(), name="pooled-release")
        return self._released

    async def _give_back(self) -> None:
        await in_turn(
            lambda: self._admission.close(self.mesh.end),
            self.close_ways,
            self._close_worker,
            self._close_shard,
        )

    async def _close_worker(self) -> None:
        if self._worker:
            await self._worker.close()

    async def _close_shard(self) -> None:
        if self._shard:
            self._shard.on_died = None
            await self._shard.close()

    def _living_shard(self) -> Shard:
        if self._shard is None:
            self._shard = self._new_shard()
            self._shard.on_died = self._on_shard_died
        return self._shard

    def _on_shard_died(self, why: str) -> None:
        self._shard = None
        if self._worker:
            self._worker.lost(why)
        self.on_notice(why)

    def _set(self, state: State, why: str = "") -> None:
        if self._state != "closed":
            self._state, self._why = state, why
        self.on_change()

    def _changed(self) -> None:
        self.on_change()

    def _say(self, text: str) -> None:
        self.on_notice(text)
