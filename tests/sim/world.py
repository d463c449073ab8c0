"""A whole room as the simulator runs it: one host, its devices, what their people ask, what befalls them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pooled_nb.errors import PooledError
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from pooled_nb.mesh.newcomer import Newcomer
from pooled_nb.mesh.wiresettings import WireSettings
from pooled_nb.room.core import AnswerEvent, AskOptions, Done, Notice, Piece, Queued, Started
from pooled_nb.room.dealer import Settings
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.memory import Memory
from tests.room.rooms import meta_of
from tests.sim.clocks import Machine
from tests.sim.faults import FaultyNetwork
from tests.sim.onedevice import Entry, Spied
from tests.sim.realshard import Ills, Pace, RealShard, facts
from tests.sim.shape import Shape
from tests.sim.tamper import Tamper

CODE = "4TKG9P"
Room = HostRoom | DeviceRoom
PATIENCE_S = 14.5
"""PROTOCOL section 8, dropped: silent 15 s; a tick is half a second."""


@dataclass
class Heard:
    """What an asker heard of one question, with the time of each event."""

    who: str
    text: str
    what: str
    options: AskOptions
    asked_at: float
    events: list[tuple[float, AnswerEvent]] = field(default_factory=list)
    refused: str = ""
    """Why there is no answer, in the words of the error that the asker got."""
    lost: bool = False
    """The asker's own process was killed: nobody reads it any more."""
    over: bool = False

    @property
    def mid(self) -> int:
        """As its host counts now: one that was started anew makes the answer under another number."""
        return next((e.mid for _, e in reversed(self.events) if isinstance(e, Started)), 0)

    @property
    def said(self) -> str:
        return "".join(e.text for _, e in self.events if isinstance(e, Piece))

    @property
    def done(self) -> Done | None:
        return next((e for _, e in self.events if isinstance(e, Done)), None)

    @property
    def outcome(self) -> str:
        """For messages and traces."""
        done = self.done
        return done.reason if done else "refused" if self.refused else "lost" if self.lost else "nothing"


@dataclass
class Device:
    """One device through all its lives."""

    name: str
    gb: float
    machine: Machine
    room: Room
    newcomer: Newcomer | None = None
    shards: list[RealShard] = field(default_factory=list)
    ills: Ills = field(default_factory=Ills)
    tamper: Tamper = field(default_factory=Tamper)
    notices: list[tuple[float, str]] = field(default_factory=list)
    states: list[tuple[float, str, str]] = field(default_factory=list)
    left: bool = False
    joined: bool = False
    pinched: bool = False
    """A load of it was, or is going to be, killed: its share is halved then."""
    away: bool = False
    """It was left or killed, or is being taken back: nothing more befalls it now."""
    kept: Any = None
    """What a disk holds of the host's room: see `hostlife`."""

    @property
    def goes(self) -> bool:
        """Its person wants it to leave, or its room is over."""
        return self.machine.goes

    @goes.setter
    def goes(self, value: bool) -> None:
        self.machine.goes = value

    @property
    def here(self) -> bool:
        """Its person is in the room, as far as it knows."""
        return not self.machine.dead and not self.left and self.room.status().state != "closed"


class World:
    """See the module. Made inside a running loop; `tests.sim.run` drives it."""

    def __init__(self, shape: Shape, seed: int, remember: Callable[[Device], object]) -> None:
        self.remember = remember
        self.keeper: Gatekeeper | None = None
        self.loop = asyncio.get_running_loop()
        self.shape, self.rng = shape, Random(seed)
        self.net = FaultyNetwork(latency=shape.latency, jitter=shape.jitter, loss=shape.loss, seed=seed + 1)
        self.devices: dict[str, Device] = {}
        self.heard: list[Heard] = []
        self.said: list[Entry] = Spied.begin()
        """What the host's conversation was made of, in all of the host's lives."""
        self.trace: list[str] = []
        self.machines: list[Machine] = []
        self.asking: list[asyncio.Task[None]] = []
        self.doing: list[asyncio.Task[Any]] = []
        """What befalls devices and takes its time."""
        self.wrong: list[str] = []
        """What was seen to be wrong while it happened."""
        self._shown: dict[tuple[str, int], str] = {}
        self._roster: dict[str, str] = {}

    @property
    def now(self) -> float:
        return self.loop.time() - 1_000.0

    def note(self, who: str, what: str) -> None:
        """One line of the trace."""
        self.trace.append(f"{self.now:10.4f} {who:5} {what}")

    def random_bytes(self, n: int) -> bytes:
        return self.rng.randbytes(n)

    # -- devices -----------------------------------------------------------------------------------

    def machine(self, name: str) -> Machine:
        machine = Machine(name, self.loop, offset=round(self.rng.uniform(0, 1e5), 3))
        self.machines.append(machine)
        return machine

    def _new_shard(self, device: Device) -> RealShard:
        pace = Pace(frame=self.shape.frame, load=self.shape.load)
        shard = RealShard(device.machine.clock, pace=pace, ills=device.ills)
        device.shards.append(shard)
        return shard

    async def host(self) -> Device:
        """Open the room."""
        machine = self.machine("host")
        device = Device("host", self.shape.host_gb, machine, None)  # type: ignore[arg-type]  # set below
        self.devices["host"] = device
        keeper = Gatekeeper(GateSettings(ask=False), random_bytes=self.random_bytes)
        await machine.spawn(self.open(device, keeper, None))
        return device

    async def open(
        self, device: Device, keeper: Gatekeeper, token: str | None, memory: Memory | None = None
    ) -> None:
        """Open the room on a host's machine; with ``memory`` it is one that goes on."""
        shape, self.keeper = self.shape, keeper
        room = HostRoom(
            settings=Settings(
                code=CODE,
                split="memory",
                ctx=shape.ctx,
                exact=True,
                lends_gb=device.gb,
                speculate=shape.speculate,
            ),
            model=facts(),
            shard=self._new_shard(device),
            new_shard=lambda: self._new_shard(device),
            network=self.net,
            clock=device.machine.clock,
            name="host",
            meta=meta_of(device.gb),
            wiring=WireSettings(keepalive_ms=shape.keepalive_ms, stripes=shape.stripes),
            keeper=keeper,
        )
        device.room = room
        self._listen(device)
        if memory is not None:
            room.recall(memory)
            self.said.append(("recalled", memory.chat))
        await room.open(["sim"], token)
        self.remember(device)

    def end(self, device: Device) -> None:
        """Its process is killed, and what computes for it."""
        self.net.end(device.machine)
        device.machine.kill()
        for shard in device.shards:
            shard.vanish()

    async def join(self, name: str, gb: float, newcomer: Newcomer | None = None) -> Device:
        """A device comes in, or an earlier one comes in again with its pass."""
        machine = self.machine(name)
        newcomer = newcomer or Newcomer(random_bytes=self.random_bytes)
        device = self.devices.get(name)
        if device is None:
            device = Device(name, gb, machine, None, newcomer)  # type: ignore[arg-type]  # set below
            self.devices[name] = device
        device.machine, device.newcomer = machine, newcomer
        device.left = device.goes = False
        await machine.spawn(self._join(device))
        return device

    async def _join(self, device: Device) -> None:
        machine = device.machine
        shard = self._new_shard(device) if device.gb else None
        room = DeviceRoom(
            code=CODE,
            network=self.net,
            clock=machine.clock,
            name=device.name,
            meta=meta_of(device.gb),
            shard=shard,
            new_shard=lambda: self._new_shard(device),
            lends_gb=device.gb,
            folder=None,
            wiring=WireSettings(keepalive_ms=self.shape.keepalive_ms, stripes=self.shape.stripes),
            newcomer=device.newcomer,
        )
        device.room = room
        device.tamper.before(room.mesh)
        self._listen(device)
        for _ in range(40):  # as a person who tries again; a room may be away for minutes
            try:
                await room.join(["sim"])
            except PooledError as error:
                self.note(device.name, f"cannot join: {error}")
                if room.status().state == "closed":
                    break
                await machine.clock.sleep(5.0)
            else:
                device.joined = True
                self.note(device.name, f"is in as {room.mesh.id}, named {room.mesh.name}")
                return
        device.left = True
        await room.leave()

    def _listen(self, device: Device) -> None:
        room, machine = device.room, device.machine

        def notice(text: str) -> None:
            device.notices.append((self.now, text))
            self.note(device.name, f"notice: {text}")

        def changed() -> None:
            if machine.dead:
                return
            status = room.status()
            if not status.sentence.strip():
                self.wrong.append(f"{device.name} is {status.state} without a sentence")
            device.goes = device.goes or status.state == "closed"
            if not device.states or device.states[-1][1:] != (status.state, status.sentence):
                device.states.append((self.now, status.state, status.sentence))
                self.note(device.name, f"{status.state}: {status.sentence}")
            if isinstance(room, DeviceRoom):
                self._watch(device.name, room)
            else:
                self._judges(room)

        room.on_notice, room.on_change = notice, changed

    def _judges(self, room: HostRoom) -> None:
        """Nobody goes from the roster before an awake host has heard nothing of it for its patience."""
        here = {member.id: member.name for member in room.mesh.roster}
        before, self._roster = self._roster, here
        host = self.devices["host"].machine
        for id, name in before.items():
            machine = self.net.machines.get(id)
            if id in here or name in here.values() or machine is None or machine is host:
                continue
            heard = self.net.heard.get((host, machine), 0.0)
            silent = self.loop.time() - host.slept - heard
            cut = self.net.was_cut("host", machine.name, 20.0)  # some of what came was of a link that is lost
            if silent < PATIENCE_S and not machine.goes and not cut and room.status().state != "closed":
                self.wrong.append(
                    f"{name} was dropped at {self.now:.1f} s, {silent:.1f} s after it was heard"
                )

    def _watch(self, name: str, room: DeviceRoom) -> None:
        """What a screen has shown of an answer is the beginning of what it shows later."""
        shown = room.transcript
        now = {item.mid: item.reply for item in shown.items if item.mid}
        if shown.answering and shown.newest:
            now[shown.newest] = shown.text
        for mid, text in now.items():
            before = self._shown.get((name, mid), "")
            if not (text.startswith(before) or before.startswith(text)):
                self.wrong.append(f"{name} showed {before!r} of answer {mid}, and then {text!r}")
            if len(text) > len(before):
                self._shown[name, mid] = text

    # -- people ------------------------------------------------------------------------------------

    def ask(self, who: str, what: str, text: str, options: AskOptions) -> Heard:
        """Somebody asks, or wishes the newest answer continued or made anew."""
        device = self.devices[who]
        heard = Heard(who, text, what, options, self.now)
        self.heard.append(heard)
        task = device.machine.spawn(self._asks(device, heard), f"{who} asks")
        task.add_done_callback(lambda done: self._asked(heard, done))
        self.asking.append(task)
        return heard

    async def _asks(self, device: Device, heard: Heard) -> None:
        await device.machine.awake()
        room = device.room
        self.note(heard.who, f"asks {heard.what} {heard.text!r}")
        try:
            if heard.what == "ask":
                events = room.ask(heard.text, heard.options)
            else:
                events = room.again(heard.what, heard.options)  # type: ignore[arg-type]  # continue, regen
            async for event in events:
                heard.events.append((self.now, event))
                if isinstance(event, (Started, Queued, Notice, Done)):
                    self.note(heard.who, f"hears {event!r:.160}")
        except PooledError as error:
            heard.refused = str(error)
            self.note(heard.who, f"is refused: {error}")

    def _asked(self, heard: Heard, task: asyncio.Task[None]) -> None:
        heard.over = True
        if task.cancelled():
            heard.lost = True
        elif (error := task.exception()) is not None:
            self.wrong.append(f"{heard.who} asked {heard.text!r} and met {type(error).__name__}: {error}")

    def on(self, who: str, job: Callable[[Room], Coroutine[Any, Any, object]]) -> asyncio.Task[object] | None:
        """Something that a device's person does, when its process runs."""
        device = self.devices.get(who)
        if device is None or device.machine.dead or device.left:
            return None

        async def does() -> object:
            await device.machine.awake()
            try:
                return await job(device.room)
            except PooledError as error:
                self.note(who, f"cannot: {error}")
                return error

        return device.machine.spawn(does(), f"{who} does")
