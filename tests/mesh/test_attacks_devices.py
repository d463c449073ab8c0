"""Every attack of docs/attacks.md that a device can try at a room's doors (PROTOCOL sections 3 and 4), in
virtual time: it is refused in its stated time with its reason, and the devices of the room notice nothing.
"""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.mesh import gatecreator, gatejoiner
from pooled_nb.mesh.gate import Doorway, Say, Side
from pooled_nb.mesh.gatekeeper import GateSettings
from pooled_nb.mesh.gatepeer import MeshExchange
from pooled_nb.mesh.messages import write
from pooled_nb.mesh.newcomer import Credentials
from tests.mesh.attacked import STRANGER, TICK, Room, attack
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, device, leave
from tests.sim.clock import simulate
from tests.sim.liar import Knocker, Map


def test_a_device_that_commits_to_another_nonce() -> None:
    """PROTOCOL section 4, gate transcript: "`jn` must match `jc`", else `bye`, at once."""

    async def scenario(room: Room) -> None:
        held = Credentials(key=room.host.gates.keeper.key)
        liar = await Knocker.at(room.net, ROOM, held=held, jc="0" * 64)
        await asyncio.sleep(TICK)
        assert liar.byes == [gatecreator.WRONG_NONCE]
        await asyncio.sleep(TICK)
        assert liar.is_closed

    attack(scenario)


@pytest.mark.parametrize("ask", [True, False])
def test_a_device_that_reuses_a_pass(ask: bool) -> None:
    """PROTOCOL section 3: "a **seat** goes to the device that proves the pass given for it": a copy of the
    pass of a device that is here and answers takes nothing: its host is asked, and told, or it is refused in
    2 s.
    """

    async def scenario(room: Room) -> None:
        room.host.gates.keeper.settings = GateSettings(ask=ask)
        await asyncio.sleep(2.2)  # between two pings: the room has to ask it first
        stolen = Credentials(pass_=room.one.gates.newcomer.credentials.pass_)
        thief = await Knocker.at(room.net, ROOM, held=stolen, name="one")
        await asyncio.sleep(2.0)
        assert not thief.is_in
        if ask:
            assert thief.told_of("lobby")
            (request,) = room.host.gates.keeper.lobby
            assert request.note == gatecreator.SAME_PASS.format(name="one")
            room.decide(allow=False)
            await asyncio.sleep(TICK)
        assert thief.byes == [gatecreator.DENIED if ask else gatecreator.IN_USE]

    attack(scenario)


@pytest.mark.parametrize("away", [0.2, 3.0])
def test_a_pass_whose_device_is_gone_takes_the_seat(away: float) -> None:
    """PROTOCOL section 3: "Who comes back keeps place and layers": after a crash, under another id, within 2
    s, also at once (a page that is loaded anew).
    """

    async def scenario(room: Room) -> None:
        crashed = room.invited("three")
        await crashed.mesh.join(CODE, ["local"])
        name, seat = crashed.mesh.name, room.host.mesh.seat(crashed.mesh.id)
        room.net.kill(crashed.mesh.id)
        await asyncio.sleep(away)
        back = device(room.net, "three", credentials=crashed.gates.newcomer.credentials)
        began = asyncio.get_running_loop().time()
        await back.mesh.join(CODE, ["local"])
        assert asyncio.get_running_loop().time() - began < 2.5
        assert back.gates.newcomer.trust == "proved"
        assert back.mesh.name == name
        assert room.host.mesh.seat(back.mesh.id) == seat != ""
        assert room.host.names == ["host", "one", "two", "three"]
        await leave(back, crashed)
        await asyncio.sleep(TICK)
        for each in room.devices:
            each.gone.clear()
            each.rosters.clear()

    attack(scenario)


@pytest.mark.parametrize("again", ["same id", "another id"])
def test_a_device_that_was_thrown_out(again: str) -> None:
    """PROTOCOL section 3: "A device thrown out loses its passes", and its link is worth nothing."""

    async def scenario(room: Room) -> None:
        held = Credentials(key=room.host.gates.keeper.key)
        bad = await Knocker.at(room.net, ROOM, id=STRANGER, held=held, name="bad")
        await asyncio.sleep(TICK)
        assert bad.is_in
        keeper = room.host.gates.keeper
        keeper.revoke(room.host.mesh.seat(STRANGER))
        keeper.deny(STRANGER)
        keeper.renew_key()
        room.host.mesh.kick(STRANGER, "Out.")
        await asyncio.sleep(1.0)
        assert bad.byes == ["Out."]
        id = STRANGER if again == "same id" else "n3w"
        kept = Credentials(held.key, bad.told_of("admit")[0]["pass"])
        back = await Knocker.at(room.net, ROOM, id=id, held=kept, name="bad")
        await asyncio.sleep(TICK)
        assert not back.is_in
        if again == "same id":
            assert back.byes == [gatecreator.DENIED]
        else:
            assert back.told_of("lobby")
            room.decide(allow=False)
        await asyncio.sleep(TICK)
        for each in room.devices:
            each.gone.clear()
            each.rosters.clear()

    attack(scenario)


def test_a_device_that_speaks_before_admission() -> None:
    """PROTOCOL section 3, before admission: "nothing of the room reaches a link and nothing it sends reaches
    the room": not a question, not a roster, not a pledge, and after a `bye` none of it is left.
    """

    async def scenario(room: Room) -> None:
        for each in room.devices:
            each.messages.clear()
        rude = await Knocker.at(room.net, ROOM)
        roster = [{"id": ROOM, "name": "mine"}, {"id": rude.connection.own, "name": "me"}]
        said: list[tuple[str, Map]] = [
            ("ai-ask", {"text": "hi"}),
            ("roster", {"members": roster}),
            ("pledge", {"gb": 9.0}),
            ("ai-start-req", {"model": "x"}),
            ("bye", {"reason": "no"}),
            ("admit", {"mk": "m" * 43}),
        ]
        for t, fields in said:
            rude.say(t, **fields)
        rude.connection.wire.send(b"x" * 100)
        await asyncio.sleep(TICK)
        assert [m["t"] for m in rude.told if m["t"] != "ping"] == ["hello", "auth", "lobby"]
        room.decide(allow=False)
        await asyncio.sleep(TICK)
        assert rude.byes == [gatecreator.DENIED]
        assert not room.host.messages
        assert not room.host.frames
        assert room.host.names == ["host", "one", "two"]

    attack(scenario)


def test_devices_that_hold_the_lobby_full() -> None:
    """PROTOCOL section 3, before admission: "8 requests wait in the lobby (the ninth: `bye`)": one id has one
    place only, who has the invite link passes by, and what nobody decides ends after ten minutes.
    """

    async def scenario(room: Room) -> None:
        crowd = [await Knocker.at(room.net, ROOM, id=f"c-{n}", name=f"c{n}") for n in range(8)]
        more = [await Knocker.at(room.net, ROOM, id="c-0", name="c0") for n in range(2)]
        await asyncio.sleep(1.0)
        assert sorted(room.waiting) == [
            "c0 3",
            *(f"c{n}" for n in range(1, 8)),
        ]  # its third link: another request
        assert [peer.byes for peer in (crowd[0], more[0])] == [[gatecreator.ASKED_AGAIN]] * 2
        ninth = await Knocker.at(room.net, ROOM, name="ninth")
        await asyncio.sleep(TICK)
        assert ninth.byes == [gatecreator.FULL]
        guest = room.invited("guest")
        await guest.mesh.join(CODE, ["local"])
        await guest.mesh.leave()
        stay = [*crowd[1:], more[1]]
        for _ in range(120):
            await asyncio.sleep(5.0)
            for peer in stay:
                peer.say("pong")
        await asyncio.sleep(5.0)
        assert room.waiting == []
        assert all(peer.byes == [gatecreator.NOBODY_CAME] for peer in stay)
        for each in room.devices:
            each.gone.clear()
            each.rosters.clear()

    attack(scenario)


def test_a_device_that_takes_the_id_of_another_at_the_creator() -> None:
    """PROTOCOL section 3, before admission: "A new connection under the id of an admitted device waits at the
    gate beside the old link": the invite key alone does not replace it, and a no does not touch who has the
    id.
    """

    async def scenario(room: Room) -> None:
        id = room.one.mesh.id
        held = Credentials(key=room.host.gates.keeper.key)
        thief = await Knocker.at(room.net, ROOM, id=id, held=held, name="one")
        await asyncio.sleep(TICK)
        assert not thief.is_in
        assert room.host.gates.keeper.lobby[0].note == gatecreator.SAME_ID
        room.decide(allow=False)
        await asyncio.sleep(TICK)
        assert thief.byes == [gatecreator.DENIED]
        pass_ = Credentials(pass_=room.two.gates.newcomer.credentials.pass_)
        member = await Knocker.at(room.net, ROOM, id=id, held=pass_, name="two")  # nor does another's pass
        await asyncio.sleep(TICK)
        assert member.byes == [gatecreator.DENIED]
        # Its real owner, whose id was denied meanwhile, still comes back with its pass.
        owner = await Knocker.at(room.net, ROOM, id=id, held=room.one.gates.newcomer.credentials, name="one")
        await asyncio.sleep(TICK)
        assert owner.is_in

    async def run() -> None:
        room = await Room.open()
        await scenario(room)
        await leave(room.two, room.one, room.host)

    simulate(run)


@pytest.mark.parametrize("says", ["nothing", "none", "a wrong proof", "its own back"])
def test_a_device_that_takes_the_id_of_another_at_a_device(says: str) -> None:
    """PROTOCOL section 4, mesh: "Until both proofs stand, a link passes only `hello`, `mesh`, …" and "is
    closed after 10 s; a wrong proof closes it"; the link that there is goes on.
    """

    async def scenario(room: Room) -> None:
        room.two.messages.clear()
        thief = await RawPeer.dial(room.net, room.two.mesh.id, id=room.one.mesh.id)
        thief.say("hello", name="one", v=4, back=1)
        thief.say("ai-token", text="lies")
        await asyncio.sleep(0.1)
        (theirs,) = thief.told_of("mesh")
        if says == "none":
            thief.say("mesh", v=1, none=1)
        elif says == "a wrong proof":
            thief.say("mesh", v=1, p="0" * 64)
        elif says == "its own back":
            thief.raw(theirs)
        await asyncio.sleep(9.5 if says == "nothing" else 1.0)
        assert (thief.connection.state == "closed") == (says != "nothing")
        await asyncio.sleep(1.5)
        assert thief.connection.state == "closed"
        assert room.two.messages == []

    attack(scenario)


def test_a_link_that_proves_nothing_and_is_in_no_roster() -> None:
    """PROTOCOL section 4, mesh: "The other end must also be in the roster": closed after 10 s, whatever it
    proves.
    """

    async def scenario(room: Room) -> None:
        thief = await RawPeer.dial(room.net, room.two.mesh.id, id=STRANGER)
        thief.say("hello", name="x", v=4)
        exchange = MeshExchange(
            lambda: room.host.gates.keeper.mesh_key,  # of a device that was thrown out, say
            Doorway(Side.PEER, STRANGER, room.two.mesh.id, True, thief.connection.fingerprints),
        )
        (said,) = exchange.opened(0.0)
        assert isinstance(said, Say)
        thief.raw(write(said.message))
        await asyncio.sleep(9.0)
        assert thief.connection.state != "closed"
        await asyncio.sleep(2.0)
        assert thief.connection.state == "closed"
        assert room.one.mesh.facts(STRANGER) is room.two.mesh.facts(STRANGER) is None

    attack(scenario)


def test_a_flood_of_hellos_over_one_link() -> None:
    """PROTOCOL section 3, hello: "first on every link": the first counts, and a flood of them takes the loop
    from nobody.
    """

    async def scenario(room: Room) -> None:
        rude = await Knocker.at(room.net, ROOM)
        for n in range(300):
            rude.say("hello", name=f"x{n}", v=4, join=1)
        await asyncio.sleep(TICK)
        assert room.waiting in (["knocker"], [])
        assert len(room.host.notices) <= 2
        await room.noticed_nothing()
        rude.connection.shut()
        rude.connection.other.shut()
        await asyncio.sleep(TICK)
        assert room.waiting == []

    attack(scenario)


def test_a_yes_to_a_request_counts_for_no_other() -> None:
    """PROTOCOL section 4, six digits: the person said yes to the digits of one link; a newer link under that
    id asks anew, under another number.
    """

    async def scenario(room: Room) -> None:
        seen = await Knocker.at(room.net, ROOM, id=STRANGER, name="friend")
        await asyncio.sleep(TICK)
        (request,) = room.host.gates.keeper.lobby
        swapped = await Knocker.at(room.net, ROOM, id=STRANGER, name="friend")
        await asyncio.sleep(0.2)
        assert room.host.gates.keeper.decide(request.number, allow=True) is None
        room.host.mesh.decided()
        await asyncio.sleep(TICK)
        assert not seen.is_in
        assert not swapped.is_in
        assert seen.byes == [gatecreator.ASKED_AGAIN]
        room.decide(allow=False)
        await asyncio.sleep(TICK)

    attack(scenario)


def test_reasons_are_words_for_people() -> None:
    """Each refusal says what happened in a sentence, and no secret."""
    reasons = [
        value
        for module in (gatecreator, gatejoiner)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    ]
    assert len(reasons) > 20
    assert all(reason[0].isupper() and reason[-1] in ".?" for reason in reasons)
