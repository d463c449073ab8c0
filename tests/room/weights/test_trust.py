"""What devices sent in another room, in whole rooms (DESIGN section 6: a host's word holds in its own)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable

import pytest

from pooled_nb.room.weights.hashes import Span
from pooled_nb.shard import Piece
from tests.room.weights.test_supply import HUB, LOCAL, SLOW, URL, Fed, fed_host, play
from tests.room.weights.toyfiles import ToyModel
from tests.sim.network import SimNetwork

BOTH = pytest.mark.parametrize("model", [HUB, LOCAL], ids=["hub", "local"])


def sent_elsewhere(fed: Fed, name: str, pieces: Iterable[Piece], *, wrong: bool) -> None:
    """A device has these from another room, whose host vouched for them."""
    holdings = fed.shards[name].holdings
    for piece in pieces:
        data = fed.model.data(piece)
        holdings.here[piece] = data[:-1] + bytes([data[-1] ^ wrong])
        holdings.came[piece] = hashlib.sha256(holdings.here[piece]).hexdigest()


@BOTH
@pytest.mark.parametrize("wrong", [True, False], ids=["poison", "right"])
def test_the_host_of_this_room_decides(model: ToyModel, wrong: bool) -> None:
    """DESIGN section 6: what is here counts where the host has the same, and else comes once more from it."""

    async def scenario(fed: Fed) -> None:
        await fed.open()
        ada = await fed.add("ada")
        sent_elsewhere(fed, "ada", fed.model.pieces[1:], wrong=wrong)
        await fed.rooms.host.start()
        need = set(fed.model.of(*fed.layers("ada")))
        asked = fed.asked_of("host")
        assert asked == (need if wrong else {fed.model.config})
        shard = fed.shards["ada"]
        assert all(shard.holdings.here[piece] == fed.model.data(piece) for piece in need)
        assert ada.status().unverified == ""
        assert not fed.bad, "nobody of this room did anything wrong"

    play(scenario, model)


@pytest.mark.parametrize("wrong", [True, False], ids=["poison", "right"])
def test_where_nobody_vouches_the_hub_gives_it(wrong: bool) -> None:
    """DESIGN section 6: a public model is read from the hub then, however right it may be."""

    async def scenario(fed: Fed) -> None:
        await fed.open(host=fed_host(HUB), hub=True)
        await fed.add("ada", hub=True)
        sent_elsewhere(fed, "ada", HUB.pieces, wrong=wrong)
        await fed.rooms.host.start()
        await asyncio.sleep(1)
        blocks = HUB.of(*fed.layers("ada"))[2:]
        assert fed.shards["ada"].fetched == blocks
        for piece in blocks:  # and what it names as read was read
            word = fed.rooms.host._weights._word.of(Span(URL, piece.lo, piece.hi))
            assert word is not None
            assert word.sha256 == HUB.sha256(piece)

    play(scenario)


def test_a_host_neither_loads_nor_gives_nor_vouches_for_it() -> None:
    """DESIGN section 6: what a host says is of what it read itself."""

    async def scenario(fed: Fed) -> None:
        await fed.open(host=[], hub=True)
        sent_elsewhere(fed, "host", HUB.pieces, wrong=True)
        await fed.add("ada", hub=True)
        await fed.rooms.host.start()
        await asyncio.sleep(1)
        assert set(fed.shards["host"].fetched) == set(HUB.of(*fed.layers("host")))
        assert not {piece for _, _, piece in fed.wgets} & set(HUB.blocks)
        for name in ("host", "ada"):
            here = fed.shards[name].holdings.here
            assert all(here[piece] == HUB.data(piece) for piece in HUB.of(*fed.layers(name)))
        for piece in HUB.blocks:
            word = await fed.rooms.host._weights.word(URL, piece.lo, piece.hi)
            assert word is None or word.sha256 == HUB.sha256(piece)

    play(scenario)


def test_a_host_passes_no_device_off_as_itself() -> None:
    """PROTOCOL section 6, ``nb-hash``: what it took from a device stays that device's word."""

    async def scenario(fed: Fed) -> None:
        await fed.open(host=fed_host(HUB), hub=True)
        ada = await fed.add("ada", hub=True)
        bo = await fed.add("bo", hub=True)
        await fed.rooms.host.start()
        await asyncio.sleep(1)
        await bo.leave()
        await asyncio.sleep(1)
        await fed.rooms.host.start()
        taken = {piece for who, _, piece in fed.wgets if who == "host"}
        assert taken
        holdings = fed.shards["host"].holdings
        assert not holdings.confirmed, "nor does it give it on"
        await fed.add("cy", hub=True)
        await fed.rooms.host.start()
        assert not fed.asked_of("host") & taken
        for piece in taken:
            word = await fed.rooms.host._weights.word(URL, piece.lo, piece.hi)
            assert word is not None
            assert word.by in (ada.mesh.id, bo.mesh.id)

    play(scenario)


def test_who_knows_that_a_model_is_closed_takes_nothing() -> None:
    """DESIGN section 6: "never for private or gated models": not even where somebody would give it."""

    async def scenario(fed: Fed) -> None:
        await fed.open()
        await fed.add("ada", hub=True)
        fed.shards["ada"].holdings.is_closed = True
        sent_elsewhere(fed, "ada", HUB.blocks, wrong=False)
        await fed.rooms.host.start()
        assert fed.wgets == []
        assert fed.shards["ada"].fetched == HUB.of(*fed.layers("ada"))

    play(scenario)


def test_what_came_is_passed_on_in_the_same_room() -> None:
    """DESIGN section 6: a model of the host's folder: later deals do not hang on the host alone."""
    many = ToyModel(repo="local/many", block=100_000, each=8)

    async def scenario(fed: Fed) -> None:
        await fed.open(net=SimNetwork(bandwidth=SLOW))
        for name in ("ada", "bo"):
            await fed.add(name)
        await fed.rooms.host.start()
        before = {name: set(fed.shards[name].holdings.came) for name in ("ada", "bo")}
        fed.wgets.clear()
        await fed.add("cy")
        await fed.rooms.host.start()
        gave = {of: {piece for _, giver, piece in fed.wgets if giver == of} for of in ("ada", "bo")}
        assert any(gave.values()), fed.wgets
        assert all(gave[name] <= before[name] for name in gave), "and nothing else"
        assert all(fed.right(name) for name in fed.shards)

    play(scenario, many)
