"""Rooms in a storm of faults: whatever breaks, all are in again, and the room hears a true story of it.

PROTOCOL sections 3 (dead links) and 8, over whole meshes with the real gates, each on a clock of its own. One
seed is one run.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from pooled_nb.mesh.messages import chat
from pooled_nb.mesh.messages.link import Member
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from tests.mesh.machines import OnMachine, machines
from tests.mesh.recorder import ROOM, Recorder
from tests.sim.clock import simulate
from tests.sim.faults import FaultyNetwork

NAMES = ["one", "two", "three"]
SEEDS = range(40)
FAULTS = ["freeze", "freeze", "fail", "half", "cut", "deaf", "isolate", "outage", "kill", "restart"]


class Story:
    """What a creator's room believes, from what it was told; a lie fails at once."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.here: dict[str, bool] = {}
        """By id: whether it is linked."""
        self.lies: list[str] = []
        admitted, away, gone = recorder.on_admitted, recorder.on_away, recorder.on_gone

        def on_admitted(member: Member, was: str) -> None:
            admitted(member, was)
            if was:
                self._must(was in self.here, f"{was} was not here, and is admitted as if it were")
                self.here.pop(was, None)
            self._must(member.id not in self.here, f"{member.id} is admitted twice")
            self.here[member.id] = True

        def on_away(id: str, name: str, why: str) -> None:
            away(id, name, why)
            self._must(self.here.get(id) is True, f"{id} is away, and was not linked")
            self.here[id] = False

        def on_gone(id: str, name: str, why: str, *, left: bool) -> None:
            gone(id, name, why, left=left)
            self._must(id in self.here, f"{id} is gone, and was not here")
            self.here.pop(id, None)

        recorder.on_admitted, recorder.on_away = on_admitted, on_away  # type: ignore[method-assign]
        recorder.on_gone = on_gone  # type: ignore[method-assign]

    def _must(self, true: bool, lie: str) -> None:
        if not true:
            self.lies.append(lie)

    def check(self) -> None:
        assert self.lies == []
        assert set(self.here) == {member.id for member in self.recorder.mesh.roster} - {ROOM}


class Storm:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.net = FaultyNetwork(jitter=self.random.choice([0.0, 0.02, 0.2]), seed=seed)
        self.host: OnMachine
        self.devices: dict[str, OnMachine] = {}
        self.told: list[str] = []

    async def begin(self) -> None:
        self.host, *others = await machines(self.net, "host", *NAMES)
        self.devices = dict(zip(NAMES, others, strict=True))
        self.story = Story(self.host.recorder)
        self.story.here = {m.id: True for m in self.host.recorder.mesh.roster[1:]}
        await self.deal()

    async def deal(self) -> None:
        """As a room does it: one is before two, and dials it; three is a guest."""
        one, two = self.devices["one"], self.devices["two"]
        ids = [one.recorder.mesh.id, two.recorder.mesh.id]
        self.host.recorder.mesh.chain(ids)
        one.recorder.mesh.chain([ROOM, ids[1]])
        two.recorder.mesh.chain([ROOM, ids[0]])
        await one.machine.spawn(one.recorder.mesh.connect(ids[1]))

    async def fault(self) -> None:
        kind, pick = self.random.choice(FAULTS), self.random.choice
        name = pick(["host", *NAMES])
        one = self.host if name == "host" else self.devices[name]
        seconds = self.random.choice([1.0, 5.0, 12.0, 20.0, 40.0])
        other = pick([each for each in ["host", *NAMES] if each != name])
        self.told.append(f"{kind} {name} {other} {seconds}")
        match kind:
            case "freeze":
                await one.freeze(seconds, network_first=pick([True, False]))
            case "fail":
                self.net.fail(name, other, "all")
            case "half":
                for end in self.net._between(name, other):
                    self.net._at(end, lambda end=end: end.become("failed"))  # type: ignore[misc]
            case "cut" | "deaf":
                ways = [(name, other), (other, name)] if kind == "cut" else [(name, other)]
                for a, b in ways:
                    self.net.cut(a, b)
                await asyncio.sleep(seconds)
                for a, b in ways:
                    self.net.mend(a, b)
            case "isolate":
                self.net.isolate(name, away=True)
                await asyncio.sleep(seconds)
                self.net.isolate(name, away=False)
            case "outage":
                self.net.signaling(False)
                await asyncio.sleep(seconds)
                self.net.signaling(True)
            case "kill" if name != "host":
                await self.again(name, seconds)
            case "restart" if name == "host":
                await self.restart(seconds, quietly=pick([True, False]))

    async def again(self, name: str, seconds: float) -> None:
        """A new process, with the pass of the old one, while that still seems to be there."""
        old = self.devices[name]
        held: Newcomer = old.recorder.gates.newcomer
        old.machine.kill()
        self.net.end(old.machine)
        await asyncio.sleep(seconds)
        credentials = Credentials(pass_=held.credentials.pass_)
        new = self.devices[name] = OnMachine(self.net, name, credentials=credentials)
        await new.join()

    async def restart(self, seconds: float, *, quietly: bool) -> None:
        """The host in a new process; the old one closed its connections, or was killed."""
        old, mesh = self.host, self.host.recorder.mesh
        gates = mesh._gates
        keeper = gates if isinstance(gates, Gatekeeper) else old.recorder.gates.keeper
        saved, token = keeper.secrets, mesh.token
        self.story.check()
        if quietly:
            await old.machine.spawn(mesh.abandon())
        old.machine.kill()
        self.net.end(old.machine)
        await asyncio.sleep(seconds)
        gates = Gatekeeper(GateSettings(ask=False), saved=saved)
        self.host = OnMachine(self.net, "host", gates=gates)
        self.story = Story(self.host.recorder)
        await self.host.create(token=token)

    def calm(self) -> None:
        """After the storm: all are here, once, under their names, and hear each other."""
        host = self.host.recorder
        self.story.check()
        assert all(self.story.here.values())
        assert not any(left for _, _, left in host.gone)  # nobody said so
        assert sorted(host.names) == sorted(["host", *NAMES])
        for name, each in self.devices.items():
            one = each.recorder
            assert one.closed == []
            assert one.mesh.knocking is None
            assert one.names == host.names
            assert one.mesh.name == name
            told = [line for line in one.diary if line in ("away host", "back")]
            assert told == ["away host", "back"] * (len(told) // 2)
            assert host.mesh.seat(one.mesh.id)
            assert len([c for c in self.net._ends_of(each.machine) if c.remote == ROOM]) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_all_are_in_again(seed: int) -> None:
    """PROTOCOL sections 3 and 8: after any faults every device is in, under its name, linked once; nobody was
    told a lie on the way; neighbours of the chain are linked, too.
    """

    async def scenario() -> None:
        storm = Storm(seed)
        await storm.begin()
        try:
            for _ in range(6):
                await storm.fault()
                await asyncio.sleep(storm.random.choice([0.0, 0.03, 0.5, 4.0, 20.0]))
            await asyncio.sleep(70)
            storm.calm()
            await storm.deal()
            await asyncio.sleep(2)
            one, two = (storm.devices[name].recorder for name in ("one", "two"))
            assert one.mesh.send(two.mesh.id, chat.Queue(n=7))
            assert two.mesh.send(one.mesh.id, chat.Queue(n=8))
            storm.host.recorder.mesh.broadcast(chat.Queue(n=9))
            await asyncio.sleep(2)
            for each in storm.devices.values():
                assert each.recorder.messages.count((ROOM, chat.Queue(n=9))) == 1
            assert two.messages.count((one.mesh.id, chat.Queue(n=7))) == 1
            assert one.messages.count((two.mesh.id, chat.Queue(n=8))) == 1
        except BaseException:
            print(storm.told)
            raise
        for each in [*storm.devices.values(), storm.host]:
            await each.leave()

    simulate(scenario)
