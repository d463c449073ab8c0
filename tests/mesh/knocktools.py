"""What tests of devices that lost their creator share."""

from __future__ import annotations

import asyncio
from typing import Any

from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from tests.mesh.recorder import CODE, Recorder, device
from tests.sim.network import SimEndpoint, SimNetwork


def now() -> float:
    return asyncio.get_running_loop().time()


def endpoint(one: Recorder) -> SimEndpoint:
    found = one.mesh._registration.endpoint
    assert isinstance(found, SimEndpoint)
    return found


async def restarted(net: SimNetwork, host: Recorder, *, ask: bool = False, knows: bool = True) -> Recorder:
    """The same room in a new process, with what was saved; else it knows no pass any more."""
    saved = host.gates.keeper.secrets if knows else None
    again = device(net, "host", gates=Gatekeeper(GateSettings(ask=ask), saved=saved))
    await again.mesh.create(CODE, ["local"], token=host.mesh.token)
    return again


async def until(what: Any, seconds: float = 60.0) -> float:
    """Wait for something; the seconds that it took."""
    began = now()
    while not what():
        assert now() - began < seconds, "it did not happen"
        await asyncio.sleep(0.01)
    return now() - began
