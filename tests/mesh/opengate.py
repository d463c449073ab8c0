"""A gate that lets everybody in at once: for tests of what is not the gate."""

from __future__ import annotations

import msgspec

from pooled_nb.mesh.gate import Doorway, Gate, GateAction, Pass, Side, Wait
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.link import Admit, Hello, Lobby


class OpenGate:
    def __init__(self, doorway: Doorway) -> None:
        self._side = doorway.side

    def hello(self, hello: Hello) -> Hello:
        return msgspec.structs.replace(hello, join=True) if self._side is Side.JOINER else hello

    def greeted(self, hello: Hello, now: float) -> list[GateAction]:
        if self._side is Side.JOINER:
            return []
        return [Pass(Admit() if self._side is Side.CREATOR else None)]

    def message(self, message: Message, now: float) -> list[GateAction]:
        if self._side is not Side.JOINER:
            return []
        match message:
            case Admit():
                return [Pass()]
            case Lobby():
                return [Wait("Waiting for the room's owner to let this device in.")]
        return []

    def tick(self, now: float) -> list[GateAction]:
        return []

    def closed(self) -> None:
        pass


class OpenGates:
    mesh_key: str | None = None

    def __init__(self, gate: type[OpenGate] = OpenGate) -> None:
        self._gate = gate

    def door(self, doorway: Doorway) -> Gate:
        return self._gate(doorway)
