"""Every attack of docs/attacks.md that a signaling server, or somebody in the middle, can try (PROTOCOL
sections 3 and 4), in virtual time: it is refused in its stated time with its reason, and the devices of the
room notice nothing. What a device can try: `test_attacks_devices`.
"""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.errors import LinkFailed, RoomRefused
from pooled_nb.mesh import gatecreator, gatejoiner
from pooled_nb.mesh.newcomer import Credentials
from tests.mesh.attacked import TICK, Room, attack, joining, refused
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, device
from tests.sim.liar import Knocker, Map

# -- a signaling server that lies --------------------------------------------------------------------


def test_a_server_that_swaps_fingerprints_gets_no_proof() -> None:
    """PROTOCOL section 4: "Signaling can swap certificate fingerprints": who then passes everything on sees
    no secret, is not recognised, and the digits of the two screens differ; denied, the device is told.
    """

    async def scenario(room: Room) -> None:
        room.net.stands_before(ROOM)
        victim = room.invited("victim")
        task = await joining(victim)
        (middle,) = room.net.middles
        (request,) = room.host.gates.keeper.lobby
        assert request.note == gatecreator.OLD_LINK
        assert victim.gates.newcomer.waiting == "lobby"
        assert victim.gates.newcomer.digits != request.digits
        assert room.host.gates.keeper.key not in str(middle.heard)
        room.decide(allow=False)
        await refused(task, gatecreator.DENIED)
        assert not middle.told("admit")

    attack(scenario)


def test_a_server_that_swaps_fingerprints_and_a_host_who_allows() -> None:
    """PROTOCOL section 4, device: "waits for its person to confirm": the other digits are the last word, and
    the device leaves loudly and does not knock again.
    """

    async def scenario(room: Room) -> None:
        room.net.stands_before(ROOM)
        victim = room.invited("victim")
        task = await joining(victim)
        room.decide(allow=True)
        await asyncio.sleep(TICK)
        assert victim.gates.newcomer.waiting == "confirm"
        assert victim.gates.newcomer.mesh_key is None
        assert "compare the six digits" in victim.notices[-1]
        assert victim.gates.newcomer.confirm(same=False)
        victim.mesh.decided()
        await refused(task, gatejoiner.NOT_CONFIRMED)
        await asyncio.sleep(90.0)
        assert len(room.net.middles) == 1
        for each in room.devices:  # it was in the roster meanwhile
            each.gone.clear()

    attack(scenario, came=2)


def test_a_second_fingerprint_is_no_binding() -> None:
    """PROTOCOL section 4, binding: "Exactly **one** distinct fingerprint per end": with two of them nobody is
    proved, and the link ends after 5 s.
    """

    async def scenario(room: Room) -> None:
        victim = room.invited("victim")
        room.net.two_prints.add(ROOM)
        task = asyncio.create_task(victim.mesh.join(CODE, ["local"]))
        await asyncio.sleep(5.0)
        assert not task.done()
        await asyncio.sleep(0.6)
        await refused(task, gatecreator.NO_BINDING)
        assert room.waiting == []

    attack(scenario)


def test_a_replayed_proof_is_worth_nothing() -> None:
    """PROTOCOL section 4, gate transcript: nonces, binding and ids are of one link: the same words over
    another, of the same id or not, prove nothing.
    """

    async def scenario(room: Room) -> None:
        heard: list[Map] = []

        def record(way: str, message: Map) -> list[Map]:
            heard.extend([message] if way == "in" else [])
            return [message]

        room.net.stands_before(ROOM, record)
        victim = room.invited("victim")
        task = await joining(victim)
        room.net.steps_aside()
        for id in (victim.mesh.id, "elsewhere"):
            thief = await RawPeer.dial(room.net, ROOM, id=id)
            for message in heard:
                thief.raw(message)
            await asyncio.sleep(TICK)
            assert not thief.told_of("admit")
            assert thief.told_of("lobby")
        assert len(room.waiting) == 2
        room.decide(allow=False)
        await asyncio.sleep(TICK)
        with pytest.raises(RoomRefused):
            await task

    attack(scenario)


def test_words_in_another_order() -> None:
    """PROTOCOL section 4, gate transcript: a proof before the hello, or before the challenge, is none, and
    who does not answer the challenge is refused 10 s after its hello.
    """

    async def scenario(room: Room) -> None:
        held = Credentials(key=room.host.gates.keeper.key)
        honest = await Knocker.at(room.net, ROOM, held=held, answers=False)
        proof = {"t": "auth-proof", "jn": "n" * 22, "kp": "0" * 64}
        early = await RawPeer.dial(room.net, ROOM)
        early.raw(proof)
        early.say("hello", name="early", v=4, join=1, auth=1, jc="0" * 64, kc=1)
        await asyncio.sleep(9.9)
        assert not early.told_of("bye")
        await asyncio.sleep(0.7)
        assert [m["reason"] for m in early.told_of("bye")] == [gatecreator.NO_PROOF]
        assert honest.byes == [gatecreator.NO_PROOF]

    attack(scenario)


@pytest.mark.parametrize("forged", ["admit", "via", "lobby and admit", "no auth"])
def test_the_creator_impersonated_after_its_code_was_freed(forged: str) -> None:
    """PROTOCOL section 4, device: who registers the code while the host is away from signaling proves nothing
    to a device that holds the invite key: refused at once, or by its person, or after 2 minutes.
    """

    async def scenario(room: Room) -> None:
        room.net.free(ROOM)
        impostors = await RawPeer.listen(room.net, ROOM)
        victim = room.invited("victim")
        task = await joining(victim)
        (impostor,) = impostors
        auth = {} if forged == "no auth" else {"auth": 1}
        impostor.say("hello", name="host", v=4, gate=1, **auth)
        if auth:
            impostor.say("auth", v=1, hn="h" * 22)
        if forged in ("lobby and admit", "no auth"):
            impostor.say("lobby")
        via = {"via": "key", "hp": "0" * 64} if forged == "via" else {}
        impostor.say("admit", mk="m" * 43, **{"pass": "q" * 22}, **via)
        await asyncio.sleep(TICK)
        if forged == "admit":
            await refused(task, "without recognising its invite link")
        elif forged == "via":
            await refused(task, "could not prove that it knows your link")
        else:
            assert not task.done()
            assert victim.gates.newcomer.waiting == "confirm"
            assert (victim.gates.newcomer.digits == "") == (forged == "no auth")
            assert ("cannot prove itself" in victim.notices[-1]) == (forged == "no auth")
            for _ in range(round(gatejoiner.CONFIRM_S / 5)):
                await asyncio.sleep(5.0)
                impostor.say("pong")
            await refused(task, gatejoiner.NOBODY_CONFIRMED)
        assert victim.gates.newcomer.credentials.pass_ is None
        assert victim.gates.newcomer.mesh_key is None
        await asyncio.sleep(90.0)
        assert len(impostors) == 1  # it never knocks again
        assert impostor.told_of("leaving")

    attack(scenario)


def test_a_device_of_the_room_does_not_believe_an_impostor_either() -> None:
    """PROTOCOL section 4, device: with its pass it knows the host again, and nobody else."""

    async def scenario(room: Room) -> None:
        back = device(
            room.net, "one", credentials=Credentials(pass_=room.one.gates.newcomer.credentials.pass_)
        )
        room.net.free(ROOM)
        impostors = await RawPeer.listen(room.net, ROOM)
        task = await joining(back)
        impostors[0].say("hello", name="host", v=4, gate=1, auth=1)
        impostors[0].say("auth", v=1, hn="h" * 22)
        impostors[0].say("admit", mk="m" * 43)
        await asyncio.sleep(TICK)
        await refused(task, "from the visit before")

    attack(scenario)


def test_a_flood_of_connections() -> None:
    """PROTOCOL section 3, before admission: connections that wait are bounded, silent ones give way and end
    by themselves; invited devices come in meanwhile, and the room goes on.
    """

    async def scenario(room: Room) -> None:
        greets = [await Knocker.at(room.net, ROOM, id=f"g-{n % 3}", answers=False) for n in range(20)]
        silent = [await RawPeer.dial(room.net, ROOM, id=f"s-{n}") for n in range(80)]
        assert sum(peer.connection.state != "closed" for peer in silent + greets) <= 64
        await room.noticed_nothing()
        late = room.invited("late")
        await asyncio.wait_for(late.mesh.join(CODE, ["local"]), TICK)
        await late.mesh.leave()
        await asyncio.sleep(16.0)
        assert all(peer.connection.state == "closed" for peer in silent + greets)
        assert {reason for peer in greets for reason in peer.byes} == {gatecreator.NO_PROOF}
        assert room.waiting == []
        for each in room.devices:
            each.gone.clear()
            each.rosters.clear()

    attack(scenario)


# -- somebody in the middle --------------------------------------------------------------------------


@pytest.mark.parametrize("strips", ["nothing", "auth"])
def test_a_relay_that_forges_lobby_and_admit(strips: str) -> None:
    """PROTOCOL section 4, device: a relay that keeps the host out of it shows digits that the host's screen
    does not have, or none: the device says which, and its person's no is final.
    """

    async def scenario(room: Room) -> None:
        def forge(way: str, message: Map) -> list[Map]:
            if strips == "auth" and message["t"] == "hello":
                return [{key: value for key, value in message.items() if key not in ("auth", "jc")}]
            if way == "in":
                return [message] if message["t"] == "hello" else []
            if message["t"] in ("lobby", "auth") and strips == "auth":
                return [{"t": "lobby"}, {"t": "admit", "mk": "m" * 43, "pass": "q" * 22}]
            if message["t"] == "auth":
                return [message, {"t": "lobby"}, {"t": "admit", "mk": "m" * 43}]
            return [message]

        room.net.stands_before(ROOM, forge)
        victim = room.invited("victim")
        task = await joining(victim)
        said = victim.gates.newcomer
        assert said.waiting == "confirm"
        assert all(
            request.digits != said.digits or not said.digits for request in room.host.gates.keeper.lobby
        )
        if strips == "auth":
            assert said.digits == ""
            assert "cannot prove itself" in victim.notices[-1]
            assert room.host.gates.keeper.lobby[0].note == gatecreator.NO_DIGITS
        said.confirm(same=False, digits=said.digits)
        victim.mesh.decided()
        await refused(task, "not the same" if strips == "nothing" else "nobody here vouched")
        assert said.mesh_key is said.credentials.pass_ is None
        await asyncio.sleep(11.0)
        assert room.waiting == []

    attack(scenario)


def test_a_relay_that_forges_a_proof_of_the_host() -> None:
    """PROTOCOL section 4, device: "a wrong `hp`: leave, say so loudly, never knock again"."""

    async def scenario(room: Room) -> None:
        def forge(way: str, message: Map) -> list[Map]:
            if way == "out" and message["t"] == "lobby":
                return [{"t": "admit", "via": "key", "hp": "0" * 64, "mk": "m" * 43}]
            return [message]

        room.net.stands_before(ROOM, forge)
        victim = room.invited("victim")
        with pytest.raises(RoomRefused, match="somebody may stand between you") as caught:
            await asyncio.wait_for(victim.mesh.join(CODE, ["local"]), TICK)
        assert "Do not use this link again" in str(caught.value)
        await asyncio.sleep(90.0)
        assert len(room.net.middles) == 1
        room.net.steps_aside()
        with pytest.raises(RoomRefused, match="could not prove"):  # nor when it is asked to
            await victim.mesh.join(CODE, ["local"])

    attack(scenario)


def test_a_relay_cannot_choose_its_nonce_to_fit_the_digits() -> None:
    """PROTOCOL section 4, gate transcript: the device's nonce is committed to before it sees the host's, and
    shown only after: a relay that knows both cannot pass on another one.
    """

    async def scenario(room: Room) -> None:
        def other_nonce(way: str, message: Map) -> list[Map]:
            return [message | {"jn": "n" * 22} if message["t"] == "auth-proof" else message]

        room.net.stands_before(ROOM, other_nonce)
        victim = room.invited("victim")
        task = asyncio.create_task(victim.mesh.join(CODE, ["local"]))
        await asyncio.sleep(TICK)
        await refused(task, gatecreator.WRONG_NONCE)
        assert room.waiting == []

    attack(scenario)


def test_somebody_between_two_devices() -> None:
    """PROTOCOL section 4, mesh: "a wrong proof closes it": passing proofs on helps nobody, the certificates
    differ; the devices hear why.
    """

    async def scenario(room: Room) -> None:
        three = room.invited("three")
        await three.mesh.join(CODE, ["local"])
        room.net.stands_before(room.two.mesh.id)
        began = asyncio.get_running_loop().time()
        with pytest.raises(LinkFailed, match="it does not hold this room's key"):
            await three.mesh.connect(room.two.mesh.id)
        assert asyncio.get_running_loop().time() - began < TICK
        (middle,) = room.net.middles
        assert middle.told("mesh")
        room.net.steps_aside()
        await three.mesh.connect(room.two.mesh.id)
        await three.mesh.leave()
        await asyncio.sleep(2.0)
        for each in room.devices:
            each.gone.clear()
            each.rosters.clear()

    attack(scenario)
