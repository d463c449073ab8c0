"""A signaling server that lies, over real WebRTC: what it can do to a room, and what it cannot.

Each attack is a line of ``docs/attacks.md``. While it runs, a member of the room goes on speaking.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pooled_nb.errors import LinkFailed, PooledError, RoomRefused
from pooled_nb.mesh.binarypack import pack
from pooled_nb.mesh.endpoint import MAX_NEW, MAX_NEW_PER_DEVICE
from pooled_nb.mesh.gatejoiner import IMPOSTOR, NOT_CONFIRMED, UNRECOGNISED
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.network import Line
from tests.e2e.kernel import kernel
from tests.e2e.lyingserver import (
    LyingServer,
    Middle,
    Signal,
    candidate,
    doubled,
    lying_server,
    swapped,
    with_sdp,
)
from tests.e2e.needs import bound
from tests.mesh.recorder import CODE, ROOM, Recorder, leave
from tests.mesh.rtctools import until

pytestmark = pytest.mark.timeout(120)
WRONG = "AAAAAAAAAAAAAAAAAAAAAA"


class Room:
    """A creator that asks, and a member that speaks all the time."""

    def __init__(self, server: LyingServer, owner: Recorder, member: Recorder) -> None:
        self.server, self.owner, self.member = server, owner, member
        self.key = owner.gates.keeper.key
        self._talk = asyncio.ensure_future(self._talks())

    async def _talks(self) -> None:
        while True:
            self.member.mesh.send(ROOM, wire.LinkLost(name="x"))
            await asyncio.sleep(0.05)

    @property
    def heard(self) -> int:
        return sum(sender == self.member.mesh.id for sender, _ in self.owner.messages)

    async def goes_on(self) -> None:
        """The member is still heard, and is still the same member."""
        before = self.heard
        await until(lambda: self.heard >= before + 5, 10)
        assert [m.id for m in self.owner.mesh.roster] == [ROOM, self.member.mesh.id]
        assert not self.member.closed
        assert not self.owner.gone

    async def close(self) -> None:
        self._talk.cancel()
        await leave(self.member, self.owner)


@contextlib.asynccontextmanager
async def room(speed: float = 1.0) -> AsyncIterator[Room]:
    """``speed``: of the owner's clock."""
    async with lying_server() as server:
        owner = kernel("host", speed=speed)
        await owner.mesh.create(CODE, [server.url])
        try:
            member = kernel("nora", key=owner.gates.keeper.key)
            await member.mesh.join(CODE, [server.url])
        except BaseException:
            await leave(owner)
            raise
        made = Room(server, owner, member)
        try:
            yield made
        finally:
            await made.close()


async def joins(device: Recorder, server: LyingServer) -> str:
    """How a join fails, in words."""
    with pytest.raises(PooledError) as failed:
        await device.mesh.join(CODE, [server.url])
    assert device.mesh.roster == ()
    await leave(device)
    return str(failed.value)


@pytest.mark.parametrize("type", ["OFFER", "ANSWER"])
async def test_a_swapped_fingerprint_opens_no_link(type: str) -> None:
    """PROTOCOL section 4: "Signaling can swap certificate fingerprints": DTLS then refuses."""
    async with room() as made:
        made.server.lie = lambda signal: [with_sdp(signal, swapped) if signal["type"] == type else signal]
        words = await joins(kernel("mira", key=made.key, speed=10), made.server)
        assert "no network path to the host" in words
        assert not made.owner.gates.keeper.lobby
        await made.goes_on()


@pytest.mark.parametrize("type", ["OFFER", "ANSWER"])
async def test_a_second_fingerprint_is_refused_before_anything_is_tried(type: str) -> None:
    """PROTOCOL section 4, binding: "Exactly **one** distinct fingerprint per end", looked for in the text."""
    async with room() as made:
        made.server.lie = lambda signal: [with_sdp(signal, doubled) if signal["type"] == type else signal]
        words = await joins(kernel("mira", key=made.key, speed=10), made.server)
        if type == "ANSWER":
            assert "did not name exactly one certificate" in words
        else:
            assert "15 s" in words
        assert len(made.owner.mesh._links.book.of(made.member.mesh.id)) == 1
        await made.goes_on()


async def test_an_old_offer_that_is_played_again_opens_nothing() -> None:
    """PROTOCOL section 2: a connection of this id is known, or nobody has the keys of the one that was."""
    async with room(speed=8) as made:
        (old,) = made.server.offers(made.member.mesh.id)
        for _ in range(5):
            made.server.say(old)
        await made.goes_on()
        gone = kernel("gone", key=made.key)
        await gone.mesh.join(CODE, [made.server.url])
        id = gone.mesh.id
        await leave(gone)
        await until(lambda: len(made.owner.mesh.roster) == 2)
        made.owner.gone.clear()
        made.server.say(made.server.offers(id)[0])
        await until(lambda: made.owner.mesh._links.book.of(id))
        # Nobody dials: no hello, no request, and it is given up (15 s, 40 s while paths are tried).
        await made.goes_on()
        await until(lambda: not made.owner.mesh._links.book.of(id))
        assert not made.owner.gates.keeper.lobby
        assert len(made.owner.mesh.roster) == 2


async def test_messages_out_of_order_and_twice_still_make_one_link() -> None:
    """PROTOCOL section 2: candidates may come before the OFFER, answers twice and for nobody."""
    async with room() as made:
        held: list[Signal] = []

        def lie(signal: Signal) -> list[Signal]:
            cid = signal["payload"]["connectionId"]
            if signal["type"] == "OFFER":
                held.append(signal)
                early = [candidate(signal["src"], ROOM, cid, port) for port in range(40_000, 40_100)]
                return [*early, signal, signal, *early]
            other = {**signal, "payload": {**signal["payload"], "connectionId": "dc_nobody"}}
            return [other, {**signal, "src": made.member.mesh.id}, signal, signal, *held]

        made.server.lie = lie
        guest = kernel("mira", key=made.key)
        await guest.mesh.join(CODE, [made.server.url])
        assert guest.gates.newcomer.trust == "proved"
        assert [m.name for m in made.owner.mesh.roster] == ["host", "nora", "mira"]
        assert len(made.owner.mesh._links.book.of(guest.mesh.id)) == 1
        await leave(guest)
        await until(lambda: len(made.owner.mesh.roster) == 2)
        made.owner.gone.clear()
        await made.goes_on()


async def test_who_comes_under_the_id_of_a_member_takes_nothing_of_it() -> None:
    """PROTOCOL section 3: "waits at the gate beside the old link"; 4: ids are part of what is proved."""
    async with room() as made:
        owner, member, stranger = made.owner, made.member, kernel("mira", key=made.key)
        keeper = owner.gates.keeper

        def lie(signal: Signal) -> list[Signal]:
            if signal["type"] == "OFFER":
                made.server.lie = back(signal["src"])
                return [{**signal, "src": member.mesh.id}]
            return [signal]

        def back(real: str):
            def lie(signal: Signal) -> list[Signal]:
                return [{**signal, "dst": real}]

            return lie

        made.server.lie = lie
        joining = asyncio.ensure_future(stranger.mesh.join(CODE, [made.server.url]))
        await until(lambda: keeper.lobby)
        (request,) = keeper.lobby
        # It holds the invite key, but it proved another id than it came under: a person is asked.
        assert request.id == member.mesh.id
        assert "has the same id" in request.note
        await made.goes_on()
        keeper.decide(request.number, allow=False)
        owner.mesh.decided()
        with pytest.raises(RoomRefused, match="did not let this device in"):
            await joining
        await leave(stranger)
        await made.goes_on()


@pytest.mark.parametrize(("lie", "holds"), [("asks nobody", "key"), ("asks nobody", "pass"), ("asks", "key")])
async def test_another_process_under_the_code_of_a_room_cannot_prove_itself(lie: str, holds: str) -> None:
    """PROTOCOL section 4: the id is free, another has it; who holds key or pass is not taken in by it."""
    async with room() as made:
        made.server.free(ROOM)
        with impostor(made.server.url, ask=lie == "asks") as said:
            assert await asyncio.to_thread(said) == "open"
            pass_ = made.member.gates.newcomer.credentials.pass_
            victim = kernel("mira", key=made.key) if holds == "key" else kernel("mira", pass_=pass_)
            joining = asyncio.ensure_future(victim.mesh.join(CODE, [made.server.url]))
            if lie == "asks":
                # Its person lets everybody in; ours compares digits that nobody reads out, and says no.
                await until(lambda: victim.gates.newcomer.waiting == "confirm")
                assert any("did not recognise your link" in notice for notice in victim.notices)
                victim.gates.newcomer.confirm(same=False)
                victim.mesh.decided()
            with pytest.raises(PooledError) as refused:
                await joining
            words = NOT_CONFIRMED if lie == "asks" else "and without asking anybody"
            assert words in str(refused.value)
            # A pass of another room, or of one that was forgotten, is no alarm by itself: a link is.
            assert ("Do not use this link again" in str(refused.value)) == (holds == "key")
            assert victim.mesh.roster == ()
            await leave(victim)
        await made.goes_on()


OTHER_ROOM = """
import asyncio, sys
from tests.e2e.kernel import kernel
from tests.mesh.recorder import CODE

async def main(url, ask):
    owner = kernel("host", ask=ask)
    await owner.mesh.create(CODE, [url])
    print("open", flush=True)
    while True:
        await asyncio.sleep(0.05)
        for request in owner.gates.keeper.lobby:
            owner.gates.keeper.decide(request.number, allow=True)
        owner.mesh.decided()

asyncio.run(main(sys.argv[1], sys.argv[2] == "True"))
"""


@contextlib.contextmanager
def impostor(url: str, *, ask: bool):
    """Another process that opens a room under the same code, with keys of its own."""
    root = Path(__file__).resolve().parents[2]
    argv = bound(sys.executable, "-c", OTHER_ROOM, url, str(ask))
    process = subprocess.Popen(argv, cwd=root, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    assert process.stdout
    try:
        yield lambda: process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_a_flood_of_offers_and_candidates_costs_no_member_its_link() -> None:
    """PROTOCOL section 2, DESIGN section 4: what is taken is bounded, what comes to nothing goes."""
    async with room(speed=8) as made:
        endpoint = made.owner.mesh._registration.endpoint
        (old,) = made.server.offers(made.member.mesh.id)
        for number in range(300):
            payload = {**old["payload"], "connectionId": f"dc_{number}"}
            src = f"flood{number % 50}" if number % 2 else "one"
            made.server.say({**old, "src": src, "payload": payload})
            for port in range(20):
                made.server.say(candidate(src, ROOM, f"dc_{number}", 40_000 + port))
            if number % 10 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(endpoint._connections) > 20)
        # Those that gave way are still being closed, for as long as this machine takes for it.
        living = [remote for (remote, _), link in endpoint._connections.items() if link.state != "closed"]
        assert len(living) <= 1 + MAX_NEW
        assert living.count("one") <= MAX_NEW_PER_DEVICE[Line.LINK]
        await made.goes_on()
        assert not made.owner.gates.keeper.lobby
        # What does not come to be gives way after 8 s to who waits in line, who dialed least first.
        guest = kernel("mira", key=made.key)
        await guest.mesh.join(CODE, [made.server.url])
        assert guest.gates.newcomer.trust == "proved"
        await leave(guest)
        # All of it is given up in the end.
        await until(lambda: len(endpoint._connections) == 1)


# -- a relay in the middle -----------------------------------------------------------------------------


@pytest.mark.parametrize("holds", [True, False], ids=["invite link", "only the code"])
async def test_a_relay_that_hands_on_every_byte_shows_other_digits_on_each_end(holds: bool) -> None:
    """PROTOCOL section 4: the proof is bound to this very link; the person is asked; the digits differ."""
    async with room() as made:
        middle = Middle(made.server, ROOM)
        keeper = made.owner.gates.keeper
        victim = kernel("mira", key=made.key if holds else None)
        try:
            joining = asyncio.ensure_future(victim.mesh.join(CODE, [made.server.url]))
            await until(lambda: keeper.lobby and victim.gates.newcomer.waiting == "lobby")
            (request,) = keeper.lobby
            assert request.name == "mira"
            shown = victim.gates.newcomer.digits
            assert len(shown) == len(request.digits) == 7
            assert shown != request.digits
            await made.goes_on()
            if holds:
                # The host's person lets it in without looking: the victim's own is asked, and looks.
                keeper.decide(request.number, allow=True)
                made.owner.mesh.decided()
                await until(lambda: victim.gates.newcomer.waiting == "confirm")
                victim.gates.newcomer.confirm(same=False)
                victim.mesh.decided()
                with pytest.raises(PooledError, match=re.escape(NOT_CONFIRMED)):
                    await joining
                await until(lambda: len(made.owner.mesh.roster) == 2)
                made.owner.gone.clear()
            else:
                keeper.decide(request.number, allow=False)
                made.owner.mesh.decided()
                with pytest.raises(RoomRefused):
                    await joining
            assert victim.mesh.roster == ()
            await made.goes_on()
        finally:
            await leave(victim)
            await middle.close()


@pytest.mark.parametrize("forged", ["admit", "lobby, then admit", "admit with a guess"])
async def test_a_relay_that_forges_what_the_host_says_takes_nobody_in_who_holds_a_link(forged: str) -> None:
    """PROTOCOL section 4: "a wrong `hp`: leave"; no `via`: "only after a `lobby`", and its person's word."""
    async with room() as made:
        middle = Middle(made.server, ROOM)
        middle.swallows = ("lobby", "admit", "bye")
        keeper, victim = made.owner.gates.keeper, kernel("mira", key=made.key)
        newcomer = victim.gates.newcomer
        try:
            joining = asyncio.ensure_future(victim.mesh.join(CODE, [made.server.url]))
            await until(lambda: keeper.lobby)
            assert newcomer.waiting == "", "the host asked, and the relay kept it to itself"
            admit = {"t": "admit", "mk": "m" * 43}
            if forged == "admit with a guess":
                admit |= {"via": "key", "hp": "0" * 64}
            assert middle.near
            if forged == "lobby, then admit":
                middle.near.control.send(pack({"t": "lobby"}))
            middle.near.control.send(pack(admit))
            words = {
                "admit": UNRECOGNISED,
                "lobby, then admit": NOT_CONFIRMED,
                "admit with a guess": IMPOSTOR,
            }[forged]
            if forged == "lobby, then admit":
                await until(lambda: newcomer.waiting == "confirm")
                assert newcomer.digits != keeper.lobby[0].digits
                assert not joining.done()
                newcomer.confirm(same=False)
                victim.mesh.decided()
            with pytest.raises(PooledError, match=re.escape(words)):
                await joining
            assert newcomer.mesh_key is None
            assert newcomer.credentials.pass_ is None
            await made.goes_on()
        finally:
            await leave(victim)
            await middle.close()


async def test_a_relay_between_two_devices_or_in_a_stripe_is_refused() -> None:
    """PROTOCOL section 4, `mesh`: "a wrong proof closes it; it may be redialed", and so with stripes."""
    async with room() as made:
        lea = kernel("lea", key=made.key)
        await lea.mesh.join(CODE, [made.server.url])
        member = made.member
        try:
            await until(lambda: len(member.mesh.roster) == 3)
            middle = Middle(made.server, lea.mesh.id)
            with pytest.raises(LinkFailed, match="does not hold this room's key"):
                await member.mesh.connect(lea.mesh.id)
            assert member.mesh.facts(lea.mesh.id) is lea.mesh.facts(member.mesh.id) is None
            await middle.close()

            middle = Middle(made.server, ROOM)
            with pytest.raises(LinkFailed):
                await member.mesh._dialing.stripe(ROOM)
            await middle.close()

            # Without it both come to be.
            await member.mesh.connect(lea.mesh.id)
            await member.mesh._dialing.stripe(ROOM)
        finally:
            await leave(lea)
        await until(lambda: len(made.owner.mesh.roster) == 2)
        made.owner.gone.clear()
        await made.goes_on()
