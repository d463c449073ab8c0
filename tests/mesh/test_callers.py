"""Many that dial at once (PROTOCOL section 2): all are answered in turn, and no turn is long."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import ClassVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.mesh import endpoint
from pooled_nb.mesh.callers import MAX_WAITING, PATIENCE_S, TURN_S, Callers
from pooled_nb.mesh.descriptions import MAX_CANDIDATES
from pooled_nb.mesh.endpoint import GIVES_WAY_S, RtcEndpoint
from pooled_nb.mesh.link import Link
from pooled_nb.mesh.linkbook import GIVES_WAY_S as LINK_S
from pooled_nb.mesh.linkbook import MAX_WAITING as MAX_LINKS
from pooled_nb.mesh.linkbook import LinkBook
from pooled_nb.mesh.messages.link import Hello
from pooled_nb.mesh.network import Connection, Line
from pooled_nb.mesh.peerjs.shapes import (
    CandidatePayload,
    Description,
    IceCandidate,
    Offer,
    OfferPayload,
)
from tests.mesh.rtctools import (
    ROOM,
    HandClock,
    nothing_left,
    offer_text,
    opened,
    raw,
    registered,
    said,
    served,
    until,
)

A_TURN = 4


def offer(src: str, cid: str = "dc_1", label: str = "") -> Offer:
    payload = OfferPayload(
        sdp=Description("offer", ""), connection_id=cid, label=label, reliable=True, serialization="binary"
    )
    return Offer(src=src, payload=payload)


def candidate(cid: str = "dc_1") -> CandidatePayload:
    return CandidatePayload(candidate=IceCandidate(candidate="x"), connection_id=cid)


def test_a_hundred_at_once_are_all_answered_a_few_in_a_turn() -> None:
    """PROTOCOL section 2, DESIGN section 3: nothing blocks the loop above 50 ms."""
    line = Callers(at_once=64, each=12, a_turn=A_TURN)
    assert all(line.offer(offer(f"d{number}"), 0.0) for number in range(100))
    now, new, answered, turns = 0.0, Counter[str](), [], []
    while line.wake is not None:
        turn = 0
        while (caller := line.next(new, now)) is not None:
            new[caller.offer.src] += 1
            answered.append(caller.offer.src)
            turn += 1
        turns.append(turn)
        if new.total() > 60:  # the first ones are connected by now
            new.clear()
        now = max(line.wake or 0.0, now) + 1e-6
    assert answered == [f"d{number}" for number in range(100)]
    assert max(turns) == A_TURN
    assert now < 1.0


def test_one_that_comes_alone_waits_for_nothing() -> None:
    line = Callers(at_once=64, each=12, a_turn=A_TURN)
    assert line.wake is None
    line.offer(offer("a"), 5.0)
    caller = line.next({}, 5.0)
    assert caller is not None
    assert caller.offer.src == "a"
    assert line.wake is None


def test_candidates_of_who_waits_are_kept_and_others_ignored() -> None:
    """PROTOCOL section 2: "JSON text on a WebSocket"; candidates follow their OFFER at once."""
    line = Callers(at_once=1, each=12, a_turn=A_TURN)
    line.offer(offer("a"), 0.0)
    for _ in range(MAX_CANDIDATES + 5):
        line.candidate("a", candidate())
    line.candidate("b", candidate())
    line.candidate("a", candidate("dc_2"))
    assert line.next({"x": 1}, 0.0) is None, "all places are taken"
    caller = line.next({}, TURN_S)
    assert caller is not None
    assert len(caller.candidates) == MAX_CANDIDATES
    assert len(line) == 0


def test_who_has_waited_15_s_has_given_up() -> None:
    """PROTOCOL section 2: a join stops at 15 s."""
    line = Callers(at_once=1, each=12, a_turn=A_TURN)
    line.offer(offer("old"), 0.0)
    line.offer(offer("new"), 1.0)
    caller = line.next({}, PATIENCE_S)
    assert caller is not None
    assert caller.offer.src == "new"
    assert line.next({}, PATIENCE_S + TURN_S) is None
    assert line.wake is None


def test_one_device_that_dials_without_end_holds_up_nobody() -> None:
    """PROTOCOL section 2: of many, "who dialed least goes first"."""
    line = Callers(at_once=64, each=12, a_turn=A_TURN)
    taken = [line.offer(offer("one", f"dc_{number}"), 0.0) for number in range(50)]
    assert taken == [True] * 12 + [False] * 38
    assert not line.offer(offer("one", "dc_0"), 0.0), "it stands in the line"
    line.offer(offer("other"), 0.0)
    new = Counter({"one": 3})
    caller = line.next(new, 0.0)
    assert caller is not None
    assert caller.offer.src == "other"
    assert line.next(Counter({"one": 12}), 0.0) is None
    assert line.next({}, 0.0, room=False) is None, "the room has no place for one more link"
    assert line.next({}, 0.0) is not None


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20), st.floats(0, 8)), max_size=400))
def test_what_waits_is_bounded(events: list[tuple[int, int, float]]) -> None:
    line, now, new = Callers(at_once=8, each=3, a_turn=A_TURN), 0.0, Counter[str]()
    for src, cid, step in events:
        now += step if cid == 0 else 0.0
        line.offer(offer(f"d{src}", f"dc_{cid}"), now)
        line.candidate(f"d{src}", candidate(f"dc_{cid}"))
        if cid % 3 == 0 and (caller := line.next(new, now)) is not None:
            assert now - caller.since < PATIENCE_S
            assert new[caller.offer.src] < 3
            new[caller.offer.src] += 1
            assert new.total() <= 8
        if cid == 20:
            new.clear()
        assert len(line) <= MAX_WAITING
        assert all(n <= 3 for n in Counter(key[0] for key in line._line).values())


async def test_more_than_may_come_at_a_time_all_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2: who dials a full endpoint waits in line, and is answered in time."""
    monkeypatch.setattr(endpoint, "MAX_NEW", 2)
    async with nothing_left(), served() as server, registered(server.url, id=ROOM) as host:
        taken: list[Connection] = []
        host.on_connection = taken.append
        room = False
        host.has_room = lambda line: room
        async with contextlib.AsyncExitStack() as stack:
            guests = [await stack.enter_async_context(registered(server.url)) for _ in range(6)]
            dials = [asyncio.ensure_future(guest.dial(ROOM)) for guest in guests]
            await until(lambda: len(host._callers[Line.LINK]) == 6)
            assert not taken
            room = True
            await opened(*await asyncio.wait_for(asyncio.gather(*dials), 30))
            assert len(taken) == 6
            assert len(host._callers[Line.LINK]) == 0


async def test_one_that_never_comes_to_be_gives_way_to_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2: OFFERs that nobody stands behind keep nobody out; no more go than others wait."""
    monkeypatch.setattr(endpoint, "MAX_NEW", 2)
    clock = HandClock()
    async with nothing_left(), served() as server, registered(server.url, id=ROOM, clock=clock) as host:
        host.on_connection = lambda _connection: None
        liar = await raw(server, "liar")
        made, payload = await offer_text()
        for number in range(2):
            await liar.say(said("OFFER", {**payload, "connectionId": f"dc_{number}"}))
        await until(lambda: len(host._connections) == 2)
        first, second = host._connections.values()
        async with registered(server.url) as guest:
            dial = asyncio.ensure_future(guest.dial(ROOM))
            await until(lambda: len(host._callers[Line.LINK]) == 1)
            clock.advance(GIVES_WAY_S - 0.1)
            clock.advance(0.2)
            await until(lambda: first.state == "closed")
            assert len(host._callers[Line.LINK]) == 1
            clock.advance(TURN_S)
            await opened(await asyncio.wait_for(dial, 30))
            assert second.state in ("new", "connecting"), "one waited, so one went"
        liar.close()
        await made.close()


class Fake:
    """Stands for a connection: it is connected half a second after it was answered, where it ever is."""

    made: ClassVar[list[tuple[float, Fake]]] = []

    def __init__(self, *, remote: str, connection_id: str, label: str, clock: HandClock, **_: object) -> None:
        self.remote, self.label, self.dialed, self.state = remote, label, False, "new"
        self.connection_id = connection_id
        self.on_released: Callable[[], None] = lambda: None
        Fake.made.append((clock.now(), self))
        if not remote.startswith("nobody"):
            clock.call_later(0.5, lambda: setattr(self, "state", "connected"))

    async def answer(self, _taken: object) -> str:
        return ""

    async def close(self) -> None:
        self.state = "closed"
        self.on_released()


@contextlib.asynccontextmanager
async def faked(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[RtcEndpoint, HandClock]]:
    """An endpoint whose connections are `Fake`; members are in the room, and have links."""
    clock = HandClock()
    monkeypatch.setattr(endpoint, "RtcConnection", Fake)
    monkeypatch.setattr(endpoint.descriptions, "take", lambda sdp: sdp)
    monkeypatch.setattr(Fake, "made", [])
    async with served() as server, registered(server.url, id=ROOM, clock=clock) as host:
        host.on_connection = lambda connection: None
        host.line_of = lambda remote, label: (
            Line.LINK if label != "stripe" else Line.STRIPE if "member" in remote else None
        )
        yield host, clock


async def turns(clock: HandClock, seconds: float) -> int:
    """Let time pass: the most that were answered in one turn of the loop."""
    most, end = 0, clock.now() + seconds
    while clock.now() < end - 1e-9:
        before = len(Fake.made)
        clock.advance(TURN_S / 2)
        most = max(most, len(Fake.made) - before)
        await asyncio.sleep(0)
    return most


async def test_a_class_that_opens_its_stripes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 5: 30 workers open 3 stripes each as the model is dealt. All are answered within their
    patience, so many at a time that the loop stands still for no 50 ms (DESIGN section 3).
    """
    async with faked(monkeypatch) as (host, clock):
        for number in range(90):
            host._received(offer(f"member {number // 3}", f"dc_{number}", "stripe"))
        assert 0 < len(Fake.made) <= endpoint.A_TURN[Line.STRIPE]
        assert await turns(clock, 5.0) <= endpoint.A_TURN[Line.STRIPE]
        assert len(Fake.made) == 90
        assert {fake.state for _, fake in Fake.made} == {"connected"}
        assert max(sum(abs(at - other) < 0.5 for other, _ in Fake.made) for at, _ in Fake.made) <= 64
        assert sum(endpoint.A_TURN.values()) * 0.005 < 0.05


async def test_strangers_and_stripes_do_not_keep_each_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL sections 2 and 5: a flood of OFFERs of strangers takes no place of a member's stripe, nor do
    stripes of members take those of newcomers, and who calls a stripe what has no link is not heard at all.
    """
    async with faked(monkeypatch) as (host, clock):
        for number in range(400):
            host._received(offer(f"nobody {number}"))
            host._received(offer(f"nobody {number}", "dc_2", "stripe"))
        await turns(clock, 1.0)
        flood = len(Fake.made)
        assert flood == endpoint.MAX_NEW, "they never come to be"
        assert 200 < len(host._callers[Line.LINK]) <= MAX_WAITING
        assert all(fake.label != "stripe" for _, fake in Fake.made)
        began = clock.now()
        for number in range(12):
            host._received(offer(f"member {number // 3}", f"dc_{number}", "stripe"))
        await turns(clock, 0.2)
        assert [fake.label for _, fake in Fake.made[flood:]] == ["stripe"] * 12
        assert max(at for at, _ in Fake.made) - began < 0.2

    async with faked(monkeypatch) as (host, clock):
        for number in range(300):  # members that open without end, and never come to be
            host._received(offer("nobody, one member", f"dc_{number}", "stripe"))
        await turns(clock, 1.0)
        assert len(Fake.made) == endpoint.MAX_NEW_PER_DEVICE[Line.STRIPE]
        for number in range(300):
            host._received(offer(f"nobody, member {number}", "dc_1", "stripe"))
        await turns(clock, 1.0)
        flood = len(Fake.made)
        assert flood == endpoint.MAX_NEW
        assert len(host._callers[Line.STRIPE]) <= MAX_WAITING
        for number in range(12):
            host._received(offer(f"newcomer {number}"))
        began = clock.now()
        await turns(clock, 0.2)
        assert [fake.remote for _, fake in Fake.made[flood:]] == [f"newcomer {n}" for n in range(12)]
        assert max(at for at, _ in Fake.made) - began < 0.2


async def test_a_connection_that_cannot_be_made_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2: whatever a stack stumbles on, who stands behind in the line is answered."""
    async with faked(monkeypatch) as (host, clock):
        room = False
        host.has_room = lambda line: room
        for number in range(6):
            host._received(offer(f"guest {number}"))
        room = True

        def make(key: tuple[str, str], label: str, *, dialed: bool) -> Fake:
            if key[0] == "guest 0":
                raise RuntimeError("no more of these")
            return made(key, label, dialed=dialed)  # type: ignore[return-value]

        made = host._make
        monkeypatch.setattr(host, "_make", make)
        await turns(clock, 1.0)
        assert [fake.remote for _, fake in Fake.made] == [f"guest {number}" for number in range(1, 6)]


async def test_what_calls_itself_a_stripe_in_any_way_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 4: "A stripe is taken whenever a link … exists": without one it is not heard. A dialer
    that gives no label has its connectionId as one.
    """
    async with faked(monkeypatch) as (host, _):
        host._received(offer("nobody", "stripe", ""))
        assert Fake.made == []
        host._received(offer("member", "stripe", ""))
        assert [fake.label for _, fake in Fake.made] == ["stripe"]
        assert host._since["member", "stripe"][0] is Line.STRIPE


def test_a_full_room_has_a_place_again_when_a_link_stays_silent() -> None:
    """PROTOCOL section 3: links wait for admission in a bounded number; slow ones are given time."""
    book = LinkBook("me")

    def link(number: int, hello: Hello | None) -> Link:
        state = SimpleNamespace(hello=hello, now=0.0)
        return cast("Link", SimpleNamespace(remote=f"d{number}", state=state, is_admitted=False))

    for number in range(MAX_LINKS):
        assert book.has_room(100.0)
        book.add(link(number, Hello()))
    assert not book.has_room(100.0), "all of them said hello: they are at the gate"
    book.remove(book.of("d0")[0])
    book.add(link(0, None))
    assert not book.has_room(LINK_S - 0.1)
    assert book.has_room(LINK_S)
