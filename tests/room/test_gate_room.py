"""The door of a whole room, as its people see it: lobby, digits, links, who is thrown out (section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pooled_nb.errors import NotReady, RoomClosed, RoomRefused
from pooled_nb.mesh import codes
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSecrets, GateSettings
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from pooled_nb.mesh.proofs import new_nonce
from pooled_nb.room.core import ChatSettings
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.doorfacts import Doubt, GateChoices, Invite
from pooled_nb.room.sentences import THROWN_OUT
from tests.room.rooms import Rooms, ask, open_rooms
from tests.sim.clock import simulate

OTHER_KEY = new_nonce()


def knocking(rooms: Rooms, name: str = "mira", **more: object) -> asyncio.Task[DeviceRoom]:
    return asyncio.create_task(rooms.add(gb=0.0, name=name, **more))  # type: ignore[arg-type]  # by keyword


def with_link(rooms: Rooms) -> Newcomer:
    """A device that was given the invite link of now."""
    return Newcomer(Credentials(key=codes.parse(rooms.host.invite().link).key))


def answers(same: bool, asked: list[Doubt]) -> Callable[[Doubt], Awaitable[bool]]:
    async def confirm(doubt: Doubt) -> bool:
        asked.append(doubt)
        await asyncio.sleep(5)
        return same

    return confirm


def test_from_the_knock_to_the_room() -> None:
    """PROTOCOL section 4: without key or pass the person is asked, and both screens show the same digits."""

    async def scenario() -> None:
        rooms = await open_rooms(ask=True)
        told: list[str] = []
        joining = knocking(rooms, progress=lambda _, text: told.append(text))
        await asyncio.sleep(1)
        status = rooms.host.status()
        (line,) = status.lobby
        assert (line.number, line.name, line.lends_gb, line.note) == (1, "mira", 0.0, "")
        digits = line.digits
        assert status.sentence == (
            f"mira waits to be let in: {digits}. Allow with %pooled allow mira, or deny."
        )
        assert status.can[:2] == ["allow", "deny"]
        assert status.gate == GateChoices(ask=True)
        assert [n for n in rooms.notices if "mira" in n and digits in n]
        assert told[-1] == f"Waiting for the host to let this device in. Both screens must show {digits}."
        assert not joining.done()
        await asyncio.sleep(300)  # people take their time
        assert await rooms.host.allow(1) == "mira"
        mira = await joining
        await asyncio.sleep(1)
        assert rooms.host.status().lobby == []
        assert [d.name for d in rooms.host.status().devices] == ["host", "mira"]
        there = mira.status()
        assert (there.trust, there.digits, there.gate) == ("first", digits, GateChoices())
        assert rooms.heard["mira"][0].startswith("Trust on first use: nothing proved")
        assert digits in rooms.heard["mira"][0]
        with pytest.raises(NotReady, match="waits no longer"):
            await rooms.host.allow(1)
        await rooms.close()

    simulate(scenario)


def test_denied_is_told_in_words_and_does_not_knock_again() -> None:
    """PROTOCOL section 3, `bye`: refused, in the host's words, and no second knock follows by itself."""

    async def scenario() -> None:
        rooms = await open_rooms(ask=True)
        joining = knocking(rooms)
        await asyncio.sleep(1)
        assert await rooms.host.deny(1) == "mira"
        with pytest.raises(RoomRefused, match="did not let this device in"):
            await joining
        await asyncio.sleep(120)
        assert rooms.host.status().lobby == []
        assert len(rooms.host.status().devices) == 1
        await rooms.close()

    simulate(scenario)


def test_the_lobby_in_words() -> None:
    """DESIGN section 7, wording: who waits, and what can be typed; a name that cannot be has its number."""

    async def scenario() -> None:
        rooms = await open_rooms(ask=True)
        waiting = [knocking(rooms, "my laptop")]
        await asyncio.sleep(1)
        assert "%pooled allow 1, or" in rooms.host.status().sentence
        waiting += [knocking(rooms, name) for name in ("leo", "ana")]
        await asyncio.sleep(1)
        said = rooms.host.status().sentence
        assert said == "my laptop and 2 others wait to be let in. See who: %pooled lobby."
        await rooms.host.deny(2)
        assert rooms.host.status().sentence.startswith("my laptop and 1 other waits")
        await rooms.host.start()
        assert rooms.host.status().sentence.startswith("Online on host, which holds every layer. my laptop")
        await rooms.host.leave()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (rooms.host.status().lobby, rooms.host.status().sentence) == ([], "The room is closed.")
        assert all(isinstance(task.exception(), (RoomClosed, RoomRefused)) for task in waiting)

    simulate(scenario)


def test_the_link_lets_in_without_asking_and_proves_the_host() -> None:
    """PROTOCOL section 4: `via: "key"`; nobody is asked on either side."""

    async def scenario() -> None:
        rooms = await open_rooms(ask=True)
        mira = await rooms.add(gb=0.0, name="mira", newcomer=with_link(rooms))
        await asyncio.sleep(1)
        assert (mira.status().trust, mira.status().digits) == ("proved", "")
        assert rooms.heard["mira"] == ["The host proved that it is the one you mean."]
        assert not [n for n in rooms.notices if "asks to join" in n]
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("same", [True, False, None])
def test_an_old_link_is_confirmed_by_a_person_or_left(same: bool | None) -> None:
    """PROTOCOL section 4, Device: it holds a key, `admit` has no `via`: its person compares the digits."""

    async def scenario() -> None:
        rooms = await open_rooms(ask=True)
        asked: list[Doubt] = []
        confirm = None if same is None else answers(same, asked)
        joining = knocking(rooms, newcomer=Newcomer(Credentials(key=OTHER_KEY)), confirm=confirm)
        await asyncio.sleep(1)
        digits = rooms.host.status().lobby[0].digits
        await rooms.host.allow(1)
        await asyncio.sleep(3)
        assert [doubt.digits for doubt in asked] == ([] if same is None else [digits])
        assert all(doubt.digits in doubt.text for doubt in asked)
        if same:
            mira = await joining
            await asyncio.sleep(1)
            assert (mira.status().trust, mira.status().digits) == ("confirmed", digits)
            assert rooms.heard["mira"][-1].startswith("You compared the digits")
        else:
            words = "nobody is here to compare" if same is None else "were not the same"
            with pytest.raises(RoomRefused, match=words):
                await joining
            await asyncio.sleep(1)
            assert len(rooms.host.status().devices) == 1
        await rooms.close()

    simulate(scenario)


def test_a_question_to_a_person_ends_with_its_link() -> None:
    """PROTOCOL section 4: nobody is asked any more about a host that is gone; a failing answer is no yes."""

    async def scenario() -> None:
        rooms = await open_rooms(ask=True)
        ended: list[str] = []

        async def confirm(doubt: Doubt) -> bool:
            try:
                await asyncio.sleep(1e6)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            return True

        async def broken(doubt: Doubt) -> bool:
            raise ValueError("no screen")

        joining = knocking(rooms, "leo", newcomer=Newcomer(Credentials(key=OTHER_KEY)), confirm=broken)
        await asyncio.sleep(1)
        await rooms.host.allow(1)
        with pytest.raises(RoomRefused, match="asking you to compare the six digits failed"):
            await joining
        joining = knocking(rooms, newcomer=Newcomer(Credentials(key=OTHER_KEY)), confirm=confirm)
        await asyncio.sleep(1)
        await rooms.host.allow(2)
        await asyncio.sleep(3)
        await rooms.host.leave()
        with pytest.raises(RoomClosed):
            await joining
        assert ended == ["cancelled"]

    simulate(scenario)


def test_who_is_thrown_out_is_out_with_its_pass_and_its_link() -> None:
    """PROTOCOL section 3, `bye`: a device thrown out loses its passes; its layers are missing at once."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), ask=False)
        await rooms.host.set_gate(GateChoices(ask=True))
        link = rooms.host.invite().link
        mira = await rooms.add(name="mira", newcomer=with_link(rooms))
        await rooms.host.start()
        await asyncio.sleep(1)
        held = mira._admission.newcomer.credentials
        assert held.pass_
        rooms.notices.clear()
        assert await rooms.host.kick(mira.mesh.id) == "mira"
        status = rooms.host.status()
        assert status.state == "degraded"
        assert status.sentence.startswith("mira was taken out; layers ")
        assert [(d.name, d.gone) for d in status.devices] == [
            ("host", False),
            ("worker", False),
            ("mira", True),
        ]
        assert rooms.notices[-1] == (
            "mira is taken out of the room. The invite link is new: old ones only lead to the lobby now."
        )
        await asyncio.sleep(1)
        assert mira.status().state == "closed"
        said = mira.status().sentence
        assert said.startswith("The room's owner took this device out")
        assert said.endswith(THROWN_OUT)
        assert rooms.host.invite().link != link
        joining = knocking(rooms, newcomer=Newcomer(held))  # neither its pass nor its link counts
        await asyncio.sleep(1)
        assert [line.name for line in rooms.host.status().lobby] == ["mira"]
        await rooms.host.deny(1)
        with pytest.raises(RoomRefused):
            await joining
        for nobody in (mira.mesh.id, rooms.host.mesh.id, "nobody"):
            with pytest.raises(NotReady, match="not in the room"):
                await rooms.host.kick(nobody)
        await rooms.close()

    simulate(scenario)


def test_a_renewed_link_and_who_is_inside() -> None:
    """PROTOCOL section 4: an old key only leads to the lobby; passes go on to count."""

    async def scenario() -> None:
        rooms = await open_rooms(ask=True)
        old = with_link(rooms)
        mira = await rooms.add(gb=0.0, name="mira", newcomer=with_link(rooms))
        held = mira._admission.newcomer.credentials
        fresh = await rooms.host.renew_invite()
        assert fresh == rooms.host.invite()
        assert fresh.code == "4TKG9P"
        assert rooms.notices[-1].startswith("The invite link is new: ")
        joining = knocking(rooms, "leo", newcomer=old)
        await asyncio.sleep(1)
        assert [line.name for line in rooms.host.status().lobby] == ["leo"]
        joining.cancel()
        await asyncio.gather(joining, return_exceptions=True)
        await mira.leave()
        await asyncio.sleep(1)
        again = await rooms.add(gb=0.0, name="mira", newcomer=Newcomer(Credentials(held.key, held.pass_)))
        assert again.status().trust == "proved"
        met = Newcomer(Credentials(pass_=again._admission.newcomer.credentials.pass_))
        met.met = "first"
        await again.leave()
        await asyncio.sleep(1)
        await rooms.add(gb=0.0, name="ana", newcomer=met)
        await asyncio.sleep(1)
        assert rooms.heard["ana"][-1].startswith("This is the host of the visit before. Trust on first use")
        await rooms.close()

    simulate(scenario)


def test_asking_off_says_what_that_means() -> None:
    """PROTOCOL section 4: with asking off the code is enough, and a new link keeps nobody out."""

    async def scenario() -> None:
        rooms = await open_rooms(ask=True)
        waiting = knocking(rooms)
        await asyncio.sleep(1)
        await rooms.host.set_gate(GateChoices(ask=False, starts="host"))
        assert rooms.notices[-3:] == [
            "Asking is off: whoever knows the code comes in.",
            "Who waits still waits for your word: see %pooled lobby.",
            "Only you start the room.",
        ]
        leo = await rooms.add(gb=0.0, name="leo")
        assert leo.status().trust == "first"
        assert not waiting.done()
        await rooms.host.allow(1)
        await waiting
        await rooms.host.renew_invite()
        assert "the code alone still lets anybody in" in rooms.notices[-1]
        assert rooms.host.status().gate == GateChoices(ask=False, starts="host")
        await rooms.close()

    simulate(scenario)


def test_a_room_that_only_its_host_starts() -> None:
    """PROTOCOL section 7, `ai-busy`: a guest's question starts nothing, and says whom to ask."""

    async def scenario() -> None:
        rooms = await open_rooms(starts="host")
        guest = await rooms.add(gb=0.0, name="mira")
        for _ in range(2):
            with pytest.raises(NotReady, match=r"only its host starts it. Ask the host"):
                await ask(guest, "hello")
        assert rooms.host.status().state == "open"
        assert rooms.notices == ["mira asks, and only you start this room: %pooled start does."]
        await rooms.host.start()
        assert (await ask(guest, "hello", max_tokens=3)).done.reason == "max"
        await rooms.close()

    simulate(scenario)


def test_a_guest_may_start_it_else() -> None:
    """PROTOCOL section 6: the first question starts the room, whoever asks."""

    async def scenario() -> None:
        rooms = await open_rooms()
        guest = await rooms.add(gb=0.0, name="mira")
        assert (await ask(guest, "hello", max_tokens=3)).done.reason == "max"
        await rooms.close()

    simulate(scenario)


def test_only_the_host_has_the_door() -> None:
    """DESIGN section 7: what a device cannot do is said in words; a room that is over has no door."""

    async def scenario() -> None:
        rooms = await open_rooms()
        guest = await rooms.add(gb=0.0)
        for call in (
            lambda: guest.allow(1),
            lambda: guest.deny(1),
            lambda: guest.kick("x"),
            guest.renew_invite,
            lambda: guest.set_gate(GateChoices()),
        ):
            with pytest.raises(NotReady, match=r"Only the host .* [Aa]sk the host"):
                await call()
        await rooms.host.leave()
        with pytest.raises(RoomClosed):
            rooms.host.invite()
        with pytest.raises(RoomClosed):
            await rooms.host.allow(1)
        await rooms.close()

    simulate(scenario)


def test_a_host_that_starts_again_knows_its_links_and_passes() -> None:
    """PROTOCOL sections 3 and 4: same code by its token at once, same key, mesh key and passes."""

    async def scenario() -> None:
        rooms = await open_rooms(ask=True)
        link = with_link(rooms)
        mira = await rooms.add(gb=0.0, name="mira", newcomer=with_link(rooms))
        held = mira._admission.newcomer.credentials
        keeper, token = rooms.host._gate.keeper, rooms.host.mesh.token
        rooms.net.kill(rooms.host.mesh.id)
        before = asyncio.get_running_loop().time()
        again = await open_rooms(net=rooms.net, ask=True, keeper=_reborn(keeper.secrets), token=token)
        back = await again.add(gb=0.0, name="mira", newcomer=Newcomer(held))
        leo = await again.add(gb=0.0, name="leo", newcomer=link)
        assert asyncio.get_running_loop().time() - before < 10, "not when the server forgets who is gone"
        assert [room.status().trust for room in (back, leo)] == ["proved", "proved"]
        assert back.mesh._gates.mesh_key == keeper.mesh_key
        await again.close()
        await rooms.close()

    simulate(scenario)


def _reborn(secrets: GateSecrets) -> Gatekeeper:
    return Gatekeeper(GateSettings(ask=True), saved=secrets)


def test_who_comes_into_a_room_that_lost_a_device_hears_so() -> None:
    """PROTOCOL section 3, order after admission; section 6, ``ai-degraded``: its question starts nothing."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), ask=False)
        await rooms.host.start()
        await rooms.host.configure(ChatSettings(redeal=False))
        await rooms.devices[0].leave()
        await asyncio.sleep(1)
        late = await rooms.add(gb=0.0, name="late")
        await asyncio.sleep(1)
        assert late.status().state == "degraded"
        assert late.status().sentence.endswith("The host can start the room again.")
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize(
    ("server", "here"),
    [
        ("ws://127.0.0.1:9000/", True),
        ("ws://[::1]:9/", True),
        ("wss://signal.example.org", False),
        ("cloud", False),
    ],
)
def test_a_link_that_only_this_machine_can_use_is_known(server: str, here: bool) -> None:
    """PROTOCOL section 2, links: nobody should send one to a friend in vain."""
    invite = Invite(code="4TKG9P", link=codes.link("4TKG9P", "k" * 22, server))
    assert invite.here_only is here
