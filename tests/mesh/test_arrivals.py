"""In which line who dials stands, and what becomes of it (PROTOCOL sections 2 to 5)."""

from __future__ import annotations

import asyncio

from pooled_nb.mesh.arrivals import Arrivals
from pooled_nb.mesh.network import Line
from pooled_nb.mesh.stripes import MAX_UNPROVED
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import ROOM, leave
from tests.mesh.test_stripes import in_the_room, stripe_of
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork


def test_who_stands_in_which_line() -> None:
    """PROTOCOL sections 4 and 5: a stripe of who is in the room waits behind no stranger; one of a device
    that waits at the gate waits as that does; one of a device without a link is not heard.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, *_ = await in_the_room(net)
        await RawPeer.dial(net, ROOM, id="waits")
        assert host.mesh._links is not None
        arrivals = Arrivals(host.mesh._links)
        assert arrivals.line_of("hand", "stripe") is Line.STRIPE
        assert arrivals.line_of("waits", "stripe") is Line.LINK
        assert arrivals.line_of("nobody", "stripe") is None
        assert {arrivals.line_of(id, "dc_1") for id in ("hand", "waits", "nobody")} == {Line.LINK}
        await leave(host)

    simulate(scenario)


def test_one_line_that_is_full_leaves_room_in_the_other() -> None:
    """PROTOCOL sections 3 and 4: stripes that prove nothing, of members or of strangers, keep no newcomer
    out, nor the other way about.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, *_ = await in_the_room(net)
        assert host.mesh._links is not None
        arrivals = Arrivals(host.mesh._links)
        for i in range(MAX_UNPROVED):
            await RawPeer.dial(net, ROOM, id=f"waits {i}")
        assert (arrivals.has_room(Line.LINK), arrivals.has_room(Line.STRIPE)) == (False, True)
        for i in range(8):
            for _ in range(8):
                await stripe_of(net, id=f"waits {i}")
        assert arrivals.has_room(Line.STRIPE)
        await asyncio.sleep(60)  # they said nothing, and are gone
        for i in range(8):
            peer = await RawPeer.dial(net, ROOM, id=f"member {i}")
            peer.say("hello", name=f"member {i}", v=4)
            await asyncio.sleep(0.1)
            for _ in range(8):
                await stripe_of(net, id=f"member {i}")
        assert (arrivals.has_room(Line.LINK), arrivals.has_room(Line.STRIPE)) == (True, False)
        await asyncio.sleep(11)
        assert arrivals.has_room(Line.STRIPE)
        await leave(host)

    simulate(scenario)
