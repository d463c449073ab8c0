"""Whether there is a direct link (PROTOCOL section 2)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.listener import LinkFacts
from pooled_nb.mesh.network import Path
from pooled_nb.room.weights.reaching import PATH_S, REACH_S, Reaching
from tests.sim.clock import simulate


class Mesh:
    """One other device: ``paths`` of its link, one after the other at each look; None: there is none."""

    def __init__(self, *paths: Path | None, dial_s: float = 0.0, fails: bool = False) -> None:
        self.paths = list(paths)
        self.dial_s, self.fails, self.dials = dial_s, fails, 0

    async def connect(self, to: str) -> None:
        self.dials += 1
        await asyncio.sleep(self.dial_s)
        if self.fails:
            raise LinkFailed("There is no path.", "Wait.")
        if self.paths and self.paths[0] is None:
            self.paths.pop(0)

    def facts(self, id: str) -> LinkFacts | None:
        path = self.paths[0] if len(self.paths) == 1 or self.paths[0] is None else self.paths.pop(0)
        return None if path is None else LinkFacts(rtt_s=None, path=path, quiet_s=0.0)


def reach(mesh: Mesh) -> tuple[bool, float]:
    async def whole() -> tuple[bool, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        found = await Reaching(mesh=mesh, clock=LoopClock()).reach("a", REACH_S)
        return found, loop.time() - began

    return simulate(whole)


@pytest.mark.parametrize(("path", "direct"), [("direct", True), ("relayed", False)])
def test_a_link_that_is_there(path: Path, direct: bool) -> None:
    """PROTOCOL section 2: "Model weights never cross a relayed link"."""
    mesh = Mesh(path)
    assert reach(mesh) == (direct, 0.0)
    assert mesh.dials == 0


def test_a_link_is_dialed() -> None:
    """PROTOCOL section 2: "Others link on demand (weights)"."""
    mesh = Mesh(None, "direct", dial_s=2.0)
    assert reach(mesh) == (True, 2.0)
    assert mesh.dials == 1


def test_nobody_is_waited_for_longer_than_that() -> None:
    """PROTOCOL section 6: what cannot be had from a device comes from elsewhere, soon."""
    assert reach(Mesh(None, dial_s=100.0)) == (False, REACH_S)
    found, took = reach(Mesh(None, fails=True))
    assert (found, took <= REACH_S) == (False, True)


def test_what_is_not_known_to_be_direct_is_not() -> None:
    """PROTOCOL section 2: "Not known to be direct counts as relayed": it is known soon after a link opens."""
    assert reach(Mesh("unknown", "unknown", "direct"))[0]
    assert reach(Mesh("unknown")) == (False, PATH_S)
