"""Devices of ours over real WebRTC, with the real gates and no model, for tests of who gets in."""

from __future__ import annotations

from pooled_nb.mesh import stacks
from pooled_nb.mesh.clock import Clock, LoopClock
from pooled_nb.mesh.gatekeeper import GateSettings
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages.link import DeviceMeta
from pooled_nb.mesh.newcomer import Credentials
from pooled_nb.mesh.rtcnetwork import RtcNetwork
from tests.mesh.recorder import BothGates, Recorder
from tests.mesh.rtctools import FastClock


def kernel(
    name: str,
    *,
    ask: bool = True,
    key: str | None = None,
    pass_: str | None = None,
    speed: float = 1.0,
    signaling: float = 1.0,
    transport: str = stacks.DEFAULT,
) -> Recorder:
    """``ask``: a room that it creates asks. ``speed``: how much faster than the wall its clock goes;
    ``signaling``: the clock of its signaling and dials alone.
    """
    recorder = Recorder()
    recorder.gates = BothGates(GateSettings(ask=ask), Credentials(key=key, pass_=pass_))
    recorder.mesh = Mesh(
        network=RtcNetwork(_clock(speed * signaling), IcePolicy.local(), transport=transport),
        clock=_clock(speed),
        name=name,
        meta=DeviceMeta(),
        listener=recorder,
        gates=recorder.gates,
    )
    return recorder


def _clock(speed: float) -> Clock:
    return FastClock(speed) if speed != 1.0 else LoopClock()
