"""A room that only remembers what its mesh told it."""

from __future__ import annotations

import asyncio
from typing import Any

from pooled_nb.mesh.clock import Clock, LoopClock
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.gate import Doorway, Gate, Side
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.link import DeviceMeta, Member
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from pooled_nb.mesh.wiresettings import WireSettings
from tests.sim.network import SimNetwork

CODE = "4TKG9P"
ROOM = f"pooled-room-{CODE}"


class Recorder:
    """`MeshListener` with a diary; ``mesh`` is set by `device`."""

    def __init__(self) -> None:
        self.mesh: Mesh
        self.gates: BothGates
        self.rosters: list[list[str]] = []
        self.admitted: list[str] = []
        self.was: list[str] = []
        self.away: list[tuple[str, str]] = []
        self.gone: list[tuple[str, str, bool]] = []
        self.messages: list[tuple[str, Message]] = []
        self.frames: list[tuple[str, Frame]] = []
        self.notices: list[str] = []
        self.closed: list[str] = []
        self.diary: list[str] = []

    def on_roster(self, members: tuple[Member, ...]) -> None:
        self.diary.append("roster")
        self.rosters.append([m.name for m in members])

    def on_admitted(self, member: Member, was: str) -> None:
        self.diary.append(f"admitted {member.name}")
        self.admitted.append(member.name)
        self.was.append(was)

    def on_away(self, id: str, name: str, why: str) -> None:
        self.diary.append(f"away {name}")
        self.away.append((name, why))

    def on_back(self) -> None:
        self.diary.append("back")

    def on_gone(self, id: str, name: str, why: str, *, left: bool) -> None:
        self.diary.append(f"gone {name}")
        self.gone.append((name, why, left))

    def on_message(self, sender: str, message: Message) -> None:
        self.diary.append(f"message {message.t}")
        self.messages.append((sender, message))

    def on_frame(self, sender: str, frame: Frame) -> None:
        self.frames.append((sender, frame))

    def on_notice(self, text: str) -> None:
        self.notices.append(text)

    def on_closed(self, why: str) -> None:
        self.diary.append("closed")
        self.closed.append(why)

    @property
    def names(self) -> list[str]:
        return [m.name for m in self.mesh.roster]


class BothGates:
    """The real gates, for a device that a test lets create a room or join one."""

    def __init__(self, settings: GateSettings, credentials: Credentials) -> None:
        self.keeper = Gatekeeper(settings)
        self.newcomer = Newcomer(credentials)
        self.creates = False

    @property
    def mesh_key(self) -> str | None:
        return self.keeper.mesh_key if self.creates else self.newcomer.mesh_key

    def door(self, doorway: Doorway) -> Gate:
        self.creates = doorway.side is Side.CREATOR
        return (self.keeper if self.creates else self.newcomer).door(doorway)


def device(
    net: SimNetwork,
    name: str,
    meta: DeviceMeta | None = None,
    *,
    ask: bool = False,
    credentials: Credentials | None = None,
    clock: Clock | None = None,
    **more: Any,
) -> Recorder:
    """A device that is in no room yet; a room that it creates asks nobody, unless ``ask``. It opens no
    stripes of its own accord, unless its ``wiring`` says so.
    """
    recorder = Recorder()
    recorder.gates = BothGates(GateSettings(ask=ask), credentials or Credentials())
    recorder.mesh = Mesh(
        network=net,
        clock=clock or LoopClock(),
        name=name,
        meta=meta or DeviceMeta(),
        listener=recorder,
        **{"gates": recorder.gates, "wiring": WireSettings(stripes=0), **more},
    )
    return recorder


async def room(net: SimNetwork, *names: str, **more: Any) -> list[Recorder]:
    """A room: the first creates it, the others join one after the other."""
    devices = [device(net, name, **more) for name in names]
    await devices[0].mesh.create(CODE, ["local"])
    for other in devices[1:]:
        await other.mesh.join(CODE, ["local"])
    await asyncio.sleep(1.0)
    return devices


async def leave(*devices: Recorder) -> None:
    for one in devices:
        await one.mesh.leave()
