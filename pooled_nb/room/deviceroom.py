"""The room as a device sees it that is not its host: a worker, or a guest (PROTOCOL sections 6 and 7)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from pooled_nb.errors import RoomClosed
from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import Message, chat, weights
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.messages.link import DeviceMeta, Member
from pooled_nb.mesh.network import Network
from pooled_nb.mesh.newcomer import Newcomer
from pooled_nb.mesh.wiresettings import DEFAULT, WireSettings
from pooled_nb.room import away
from pooled_nb.room.admission import Admission
from pooled_nb.room.asking import Asking
from pooled_nb.room.core import (
    ChatSettings,
    Role,
    State,
    Status,
    unheard,
)
from pooled_nb.room.deviceasks import DeviceAsks
from pooled_nb.room.devicestatus import Known, device_status
from pooled_nb.room.doorfacts import Confirm
from pooled_nb.room.flapping import Flapping
from pooled_nb.room.handing import HandingOver, Now
from pooled_nb.room.keeping import Slot
from pooled_nb.room.leaving import in_turn
from pooled_nb.room.lending import Lending
from pooled_nb.room.networking import Networking
from pooled_nb.room.nothost import NotHost
from pooled_nb.room.style import heard_style, heard_visibility
from pooled_nb.room.supplied import Supplied
from pooled_nb.room.transcript import Transcript
from pooled_nb.room.ways import Ways
from pooled_nb.room.weights.deviceside import DeviceWeights
from pooled_nb.room.weights.means import Means
from pooled_nb.room.weights.supply import Supply
from pooled_nb.shard import Shard

ENTERING = 80
"""Percent of joining once the room is found: what follows takes as long as people do."""
OLD_IDS = 8
"""Ids under which this device was here before, that are remembered."""
TICK_S = 1.0
"""Between two looks at how long it knocks."""


class DeviceRoom(NotHost, Networking, Supplied, DeviceAsks):
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
    means
        What it may do about weights.
    copies
        What disk copies of its checkpoints are kept under; empty: there are none.
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
        means: Means | None = None,
        wiring: WireSettings = DEFAULT,
        newcomer: Newcomer | None = None,
        confirm: Confirm | None = None,
        ways: Ways | None = None,
        copies: str = "",
    ) -> None:
        self.code, self._clock = code, clock
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
            wiring=wiring,
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
        means = means or Means()
        self._weights = DeviceWeights(
            mesh=self.mesh, holdings=means.holdings, runner=means.runner, gives=means.gives
        )
        self._supply = Supply(
            mesh=self.mesh,
            clock=clock,
            means=means,
            others=self._weights,
            on_change=self._changed,
            say=self._say,
        )
        self._lending = Lending(
            mesh=self.mesh,
            clock=clock,
            meta=meta,
            shard=shard,
            new_shard=new_shard,
            gb=lends_gb,
            folder=folder,
            max_download_gb=means.download_gb,
            room=copies,
            supply=self._supply,
            on_change=self._changed,
            say=self._say,
        )
        self._asking = Asking(self.mesh)
        self._handing = HandingOver(clock, pledge=self._lending.pledge, now=self._now)
        self._ids: deque[str] = deque(maxlen=OLD_IDS)
        self._id = ""
        """Under which the chat knows it; another than the mesh's between a new link and `on_back`."""
        self._state: State = "open"
        self._why = self._lost = ""
        self._flapping = Flapping()
        self._ticker: Timer | None = None
        self._ready: wire.ReadyAll | None = None
        self._held = wire.LayersHeld()
        self._progress: dict[str, int] = {}
        self._waiting = 0
        self._settings = ChatSettings()
        self._released: asyncio.Task[None] | None = None

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
        waits = not self._held.ranges and self._state in ("open", "loading") and self._lending.offers
        return "worker" if self._lending.holds or waits else "guest"

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
            worker=self._lending.worker,
            known=Known(
                ready=self._ready,
                held=self._held,
                progress=self._progress,
                waiting=self._waiting,
                settings=self._settings,
                shared=self._lending.shared,
                leaving=self._handing.is_on,
                knocks=bool(self._admission.newcomer.waiting),
            ),
            supply=self._supply,
            given=self._weights.given,
            mine=self._asking.answering,
            trust=self._admission.newcomer.trust,
            digits=self._admission.digits,
            network=self.network,
        )

    async def leave(self, *, after_answer: bool = False) -> None:
        """Leave the room. Never raises."""
        if after_answer and self._state not in ("closed", "away"):
            await self._handing.wait()
        if self._state != "closed":
            self._over("You left the room.")
            await self.mesh.leave()
        await asyncio.shield(self._release())

    def _now(self) -> Now:
        return Now(
            holds=self._lending.holds,
            answer=self.transcript.under_way,
            mine=self._asking.answering,
            here=self._state not in ("closed", "away"),
        )

    # -- MeshListener ------------------------------------------------------------------------------

    def on_roster(self, members: tuple[Member, ...]) -> None:
        """Who is here changed; with the first roster this device knows its id and can hold layers."""
        if self.mesh.id not in self._ids:
            self._ids.append(self.mesh.id)
        self._id = self._id or self.mesh.id
        self._lending.enter()
        self.on_change()

    def on_admitted(self, member: Member, was: str) -> None:
        """Only of the creator."""

    def on_away(self, id: str, name: str, why: str) -> None:
        """The link to the host broke; this device knocks. Its layers and its questions are kept."""
        self._weights.left(id)
        self._supply.gone(id)
        if id != self.mesh.creator:
            return
        self._asking.away()
        self._set("away")
        self._lost = away.lost(name)
        self._knocks()

    def on_back(self) -> None:
        """This device is in the room again: the host says next how it goes on, and hears what was asked."""
        if self._state != "away":
            return
        self.transcript.back(self._id, self.mesh.id)
        self._id = self.mesh.id
        self._settings = ChatSettings()  # what is not the default, the host says
        self._set("open", away.BACK)
        if self._flapping.back():
            self.on_notice(away.BACK)
        self._asking.back()

    def on_gone(self, id: str, name: str, why: str, *, left: bool) -> None:
        """A neighbour's link ended; the host hears of it."""
        self._weights.left(id)
        self._supply.gone(id)
        if self._lending.needs(id):
            self.mesh.send(self.mesh.creator, wire.LinkLost(name=name))
        self.on_change()

    def on_message(self, sender: str, message: Message) -> None:
        """What the host says. Other devices only speak of weights."""
        self._weights.heard(sender, message)
        if isinstance(message, weights.Wpart):
            self._supply.heard(sender, message)
        if sender != self.mesh.creator:
            return
        replay = self._asking.is_replay(message)
        mine = self._asking.read(message)
        if self.transcript.read(message, replay=replay) or mine:
            self.on_change()
        match message:
            case wire.Wait():
                self._ready, self._held, self._progress = None, wire.LayersHeld(), {}
                self._set("open")
            case wire.Load():
                if self._state == "open":  # else it is this device alone that loads, or nothing new
                    self._loading()
                self._lending.load(message)
            case wire.Next():
                self._lending.next(message)
            case wire.Share():
                self._lending.share(message)
            case wire.StartReq() | wire.Redeal():
                self._loading()
                self._asking.tell(away.DEALT)
            case wire.StartFailed():
                self._lending.drop()
                self._set("open", message.why)
            case wire.Degraded():
                self._ready, self._progress = None, {}
                self._set("degraded", message.why)
                self._asking.tell(message.why)
            case wire.HostProgress():
                self._progress = message.all
                if self._state == "open":  # it came while the room loads
                    self._set("loading")
            case wire.LayersHeld():
                self._held = message
                self._lending.left_out(self._ids, message.ranges or {})
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
        self._lending.on_frame(sender, frame)

    def on_closed(self, why: str) -> None:
        """Thrown out, the room is over, or the host is lost."""
        self._over(why)
        self.on_notice(why)
        self._release()

    # -- what changes ------------------------------------------------------------------------------

    def _loading(self) -> None:
        self._ready, self._held, self._progress = None, wire.LayersHeld(), {}
        self._set("loading")

    def _over(self, why: str) -> None:
        self._set("closed", why)
        self._asking.close(RoomClosed(why))

    def _release(self) -> asyncio.Task[None]:
        """Give back memory, and the place where the pass is kept: once, and whoever waits waits for all."""
        if self._released is None:
            self._released = asyncio.get_running_loop().create_task(self._give_back(), name="pooled-release")
        return self._released

    async def _give_back(self) -> None:
        self._weights.stop()
        await in_turn(
            lambda: self._admission.close(self.mesh.end),
            self.close_ways,
            self._lending.close,
            self._supply.close,
            self._weights.close,
        )

    def _knocks(self) -> None:
        """Time passes, and is shown."""
        if self._state == "away" and self._flapping.broken(self._clock.now()):
            self.on_notice(self._lost)
        if self._ticker is not None:
            self._ticker.cancel()
        self._ticker = self._clock.call_later(TICK_S, self._knocks) if self._state == "away" else None
        self.on_change()

    def _set(self, state: State, why: str = "") -> None:
        if self._state != "closed":
            self._state, self._why = state, why
        if self._state != "away" and self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        self.on_change()

    def _changed(self) -> None:
        self.on_change()

    def _say(self, text: str) -> None:
        self.on_notice(text)
