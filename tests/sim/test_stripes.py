"""Whole rooms with stripes: they come by themselves, die, and come again, in the middle of answers."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.sim.limits import Scene
    from tests.sim.world import Room

pytestmark = pytest.mark.torch

ROOM = "pooled-room-4TKG9P"


def _stripes(it: Scene, who: str, other: str) -> int:
    """Those that carry slices of the link between two devices, as the first one sees it."""
    devices = it.world.devices
    facts = devices[who].room.mesh.facts(devices[other].room.mesh.id)
    return -1 if facts is None else facts.stripes


def _carried(it: Scene, label: str = "stripe") -> int:
    """Slices that went over stripes so far."""
    return sum(c.wire.sent for c in it.world.net._connections if (c.label == "stripe") is (label == "stripe"))


def test_the_links_of_a_chain_have_them_and_no_other() -> None:
    """PROTOCOL section 5: opened by the link's dialer when the link becomes part of a chain, to the host and
    to the next device; guests have none; slices go over all of them, and the answer is one device's.
    """
    from tests.sim.limits import scene

    async def play(it: Scene) -> None:
        for who, other in (("w1", "host"), ("host", "w1"), ("w1", "w2"), ("w2", "w1"), ("w2", "host")):
            assert _stripes(it, who, other) == 3, (who, other)
        assert _stripes(it, "g1", "host") == _stripes(it, "host", "g1") == 0
        heard = it.ask("g1", text="tell me of hell and of all who dwell there")
        await it.until(lambda: heard.over)
        assert heard.outcome in ("max", "stop")
        assert _carried(it) > 2 * _carried(it, "link")

    scene(play, stripes=3, workers=(0.35, 0.35), host_gb=0.3, guests=1)


def test_an_answer_goes_on_while_stripes_die() -> None:
    """PROTOCOL section 5: one after the other dies in the middle of an answer, and is dialed again: no lap
    fails, nobody is told.
    """
    from tests.sim.limits import scene

    async def play(it: Scene) -> None:
        heard = it.ask(tokens=60)
        before = len(it.world.net._connections)
        for tokens in range(2, 50, 4):
            await it.tokens(heard, tokens)
            it.befall("stripe", "host", other="w1", how="fail")
            await asyncio.sleep(0.05)
        await it.until(lambda: heard.over)
        assert heard.outcome in ("max", "stop")
        assert not any(frame.reset for at, frame in it.sent if at > heard.asked_at + 1.0), "no lap failed"
        await it.until(lambda: _stripes(it, "host", "w1") == 3)
        assert len(it.world.net._connections) > before
        assert it.states("host")[-1][1] == "online"

    scene(play, stripes=3)


@pytest.mark.parametrize("s", [4.0, 120.0])
def test_an_answer_outlives_a_black_hole(s: float) -> None:
    """PROTOCOL sections 5 and 8: one stripe carries nothing for a while, and both ends believe in it: frames
    of a slice or two go twice, so decoding does not even wait; one that is lost with consent is dialed again.
    """
    from tests.sim.limits import scene

    async def play(it: Scene) -> None:
        heard = it.ask(tokens=40)
        await it.tokens(heard, 4)
        at = it.now
        it.befall("stripe", "w1", other="host", how="hole", s=s)
        await it.until(lambda: heard.over)
        assert heard.outcome in ("max", "stop")
        assert it.now - at < 25.0, "no lap had to time out"
        if s > 32:
            await it.until(lambda: _stripes(it, "w1", "host") == 2)
        await it.until(lambda: _stripes(it, "w1", "host") == 3)
        again = it.ask("w1", text="one, two, three, four, one, two, three,", tokens=40)
        await it.until(lambda: again.over)
        assert again.outcome in ("max", "stop")

    scene(play, stripes=3)


def test_they_are_looked_for_less_and_less_and_nobody_waits() -> None:
    """PROTOCOL section 5: "Nobody waits for them": a host that takes none is asked again after 1, 2, 4 …
    30 s, and answers as it did.
    """
    from pooled_nb.mesh.striping import BACK_OFF_S
    from tests.sim.limits import scene

    async def play(it: Scene) -> None:
        host, w1 = (it.world.devices[name] for name in ("host", "w1"))
        endpoint = w1.room.mesh._registration.endpoint
        assert endpoint is not None
        links = host.room.mesh._links
        assert links is not None
        links.stripes.take = lambda connection: links.spawn(connection.close())  # type: ignore[method-assign]
        it.befall("stripe", "w1", other="host", how="late", s=0.0)
        assert _stripes(it, "w1", "host") == 0
        rounds: list[float] = []
        dials = endpoint.dials  # type: ignore[attr-defined]
        heard = it.ask(tokens=20)
        while it.now < heard.asked_at + 150:
            if endpoint.dials > dials:  # type: ignore[attr-defined]
                assert endpoint.dials - dials == 3  # type: ignore[attr-defined]
                dials = endpoint.dials  # type: ignore[attr-defined]
                rounds.append(it.now)
            await asyncio.sleep(0.01)
        assert heard.outcome in ("max", "stop")
        waits = [b - a for a, b in pairwise(rounds)]
        expected = [*BACK_OFF_S[1:], 30.0, 30.0]  # that they died young was the first failure
        assert len(waits) >= len(BACK_OFF_S)
        for wait, least in zip(waits, expected, strict=False):
            assert least <= wait < least + 1.1

    scene(play, stripes=3)


def test_at_most_eight_are_taken() -> None:
    """PROTOCOL section 5: "at most 8 are taken per link": a device that is set to more has 8, and is no worse
    for it.
    """
    from tests.sim.limits import scene

    async def play(it: Scene) -> None:
        heard = it.ask(tokens=20)
        await it.until(lambda: heard.over)
        assert heard.outcome in ("max", "stop")
        assert _stripes(it, "w1", "host") == _stripes(it, "host", "w1") == 8

    scene(play, stripes=20)


def test_who_is_dealt_out_keeps_none() -> None:
    """PROTOCOL section 5: a device whose layers go to another keeps no stripe open for long."""
    from pooled_nb.mesh.striping import KEPT_S
    from tests.sim.limits import scene

    async def play(it: Scene) -> None:
        assert _stripes(it, "w1", "host") == 3

        async def chain(room: Room, ids: tuple[str, ...]) -> None:
            room.mesh.chain(ids)

        it.world.on("w1", lambda room: chain(room, ()))
        await asyncio.sleep(KEPT_S - 1.0)
        assert _stripes(it, "w1", "host") == 3
        await asyncio.sleep(2.5)
        assert _stripes(it, "w1", "host") == _stripes(it, "host", "w1") == 0
        it.world.on("w1", lambda room: chain(room, (ROOM,)))
        await asyncio.sleep(1.0)
        assert _stripes(it, "w1", "host") == _stripes(it, "host", "w1") == 3
        heard = it.ask(tokens=20)
        await it.until(lambda: heard.over)
        assert heard.outcome in ("max", "stop")

    scene(play, stripes=3)


@pytest.mark.parametrize("way", [("host", "w1"), ("w1", "host")], ids=["there", "back"])
@pytest.mark.parametrize("how", ["fail", "hole"])
def test_what_was_in_a_dead_stripe_comes_over_the_others(
    how: str, way: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROTOCOL section 5: a stripe dies with a slice of a frame that goes once, of a prompt or of its return,
    while later frames are there already: the others carry it, and no lap fails. Where both ends believe in
    the stripe, they do so 4 s later, long before consent is lost or a lap times out, and dial another.
    """
    from pooled_nb.mesh.wire import sender
    from tests.sim.limits import scene

    monkeypatch.setattr(sender, "TWICE", 0)  # frames of this model are small: as if they were not

    async def play(it: Scene) -> None:
        net, (of, to) = it.world.net, way
        heard = it.ask(tokens=8, text="tell me of hell and of all who dwell there " * 9)
        stripes = [c for c in net._between(of, to) if c.label == "stripe"]
        await it.until(lambda: sum(frame.n > 1 for at, frame in it.sent if at > heard.asked_at) == 3)
        await it.until(lambda: any(c.wire.sent and c.in_flight > 120 for c in stripes))
        hit = max(stripes, key=lambda c: c.in_flight)
        at, before = it.now, len(net._connections)
        if how == "hole":
            net._hole(hit, 120.0)
        else:
            for end in (hit, hit.other):
                net._at(end, lambda end=end: end.become("failed"))  # type: ignore[misc]  # bound now
        await it.until(lambda: heard.over)
        assert heard.outcome == "max"
        assert it.now - at < (5.5 if how == "hole" else 2.0)
        assert hit.in_flight > 120, "it was lost there"
        assert {frame.epoch for at, frame in it.sent if at > heard.asked_at} == {it.sent[0][1].epoch}
        await it.until(lambda: _stripes(it, "w1", "host") == _stripes(it, "host", "w1") == 3, 60.0)
        assert len(net._connections) > before

    scene(play, stripes=3, latency=0.03)
