"""Weights that a device is asked for (PROTOCOL sections 2 and 6)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.weights import Wget, Wpart
from pooled_nb.mesh.network import Path
from pooled_nb.room.serving import may_serve
from tests.room.rooms import open_rooms
from tests.sim.clock import simulate


@pytest.mark.parametrize(
    ("path", "relay", "may"),
    [
        ("direct", False, True),
        ("direct", True, True),
        ("relayed", False, False),
        ("relayed", True, False),
        ("unknown", False, True),
        ("unknown", True, False),
    ],
)
def test_weights_never_cross_a_relay(path: Path, relay: bool, may: bool) -> None:
    """PROTOCOL section 2: "Not known to be direct counts as relayed when a relay is configured"."""
    assert may_serve(path, relay_configured=relay) == may


def test_host_and_worker_answer_with_a_miss() -> None:
    """PROTOCOL section 6, `ai-wget`: answered `ai-wpart {miss: 1}`, so that who asked goes elsewhere."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        await rooms.host.start()  # links the two workers
        one, two = rooms.devices
        heard: list[tuple[str, Message]] = []
        listen = two.on_message

        def overhear(sender: str, message: Message) -> None:
            heard.append((sender, message))
            listen(sender, message)

        two.on_message = overhear  # type: ignore[method-assign]  # heard, and passed on
        for to, id in ((rooms.host, "a"), (one, 7)):
            assert two.mesh.send(to.mesh.id, Wget(id=id, url="toy@main/model.safetensors", lo=0, hi=2**40))
        await asyncio.sleep(1)
        parts = [(sender, m) for sender, m in heard if isinstance(m, Wpart)]
        assert sorted(parts, key=str) == sorted(
            [(rooms.host.mesh.id, Wpart(id="a", miss=True)), (one.mesh.id, Wpart(id=7, miss=True))], key=str
        )
        await rooms.close()

    simulate(scenario)
