"""The life of one link, driven by events (PROTOCOL sections 2, 3 and 4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.gate import Doorway, Pass, Refuse, Say, Side, Wait
from pooled_nb.mesh.linkactions import Action, Admitted, Answered, Cause, Deliver, End, Notice, Send
from pooled_nb.mesh.linkstate import HELD, HELD_BYTES, HELD_PEER, LINGER_S, LinkState, State
from pooled_nb.mesh.messages import Message, chat, deal
from pooled_nb.mesh.messages.link import (
    Admit,
    Auth,
    Bye,
    Hello,
    Leaving,
    Lobby,
    Member,
    MeshProof,
    Ping,
    Pledge,
    Pong,
    Roster,
)
from tests.mesh.opengate import OpenGate

HELLO = Hello(name="x", v=4)


class ScriptedGate:
    """A gate that does what the test says next."""

    def __init__(self, *steps: list[Any]) -> None:
        self.steps = list(steps)
        self.seen: list[Message] = []

    def hello(self, hello: Hello) -> Hello:
        return hello

    def greeted(self, hello: Hello, now: float) -> list[Any]:
        return self.steps.pop(0)

    def closed(self) -> None:
        pass

    def message(self, message: Message, now: float) -> list[Any]:
        self.seen.append(message)
        return self.steps.pop(0)

    def tick(self, now: float) -> list[Any]:
        return []


def link(side: Side, *, dialed: bool = False, gate: Any = None, member: bool = True) -> LinkState:
    gate = gate or OpenGate(Doorway(side, "me", "it", dialed, lambda: None))
    return LinkState(side=side, dialed=dialed, gate=gate, own=HELLO, now=0.0, member=member)


def admitted(side: Side, **more: Any) -> LinkState:
    state = link(side, **more)
    state.opened(0.0)
    state.message(HELLO, 10, 0.0)
    if side is Side.JOINER:
        state.message(Admit(), 10, 0.0)
    assert state.state is State.ADMITTED
    return state


def kinds(actions: list[Action]) -> list[str]:
    return [a.message.t if isinstance(a, (Send, Deliver)) else type(a).__name__ for a in actions]


def test_hello_goes_out_at_open_without_waiting() -> None:
    """PROTOCOL section 3, hello: both, first on every link, at `open`, without waiting for the other's."""
    for side in Side:
        state = link(side)
        assert kinds(state.opened(1.0)) == ["hello"]
        assert state.state is State.HELLO
        assert state.opened(1.0) == []


def test_the_creator_admits_and_the_device_follows() -> None:
    """PROTOCOL section 3, order after admission: `admit` is what a device hears after the hello. Its own
    says that it "can wait in the lobby".
    """
    creator, joiner = link(Side.CREATOR), link(Side.JOINER, dialed=True)
    creator.opened(0.0)
    (hello,) = joiner.opened(0.0)
    assert isinstance(hello, Send)
    assert isinstance(hello.message, Hello)
    assert hello.message.join
    assert kinds(creator.message(hello.message, 10, 0.1)) == ["admit", "Admitted"]
    assert joiner.message(HELLO, 10, 0.1) == []
    assert joiner.state is State.GATE
    assert kinds(joiner.message(Admit(), 10, 0.2)) == ["Admitted"]


def test_before_admission_nothing_reaches_the_room() -> None:
    """PROTOCOL section 3, before admission: ping is answered, 64 messages are kept and handed over on
    admission.
    """
    gate = ScriptedGate([Say(Auth(v=1, hn="h" * 22))], [], [Pass(Admit())])
    state = link(Side.CREATOR, gate=gate)
    state.opened(0.0)
    early = [chat.Ask(text=f"early {i}") for i in range(3)]
    for ask in early:
        assert state.message(ask, 10, 0.0) == []
    assert kinds(state.message(HELLO, 10, 0.1)) == ["auth"]
    assert state.message(Ping(ts=5), 5, 0.2) == [Send(Pong(ts=5))]
    assert state.message(Admit(), 5, 0.2) == []  # for the gate, which knows better
    asks = [chat.Ask(text=f"{i}") for i in range(100)]
    for ask in asks:
        assert state.message(ask, 10, 0.3) == []
    actions = state.message(MeshProof(), 5, 0.4)
    assert kinds(actions[:2]) == ["admit", "Admitted"]
    assert [a.message for a in actions[2:]] == (early + asks)[:HELD]  # type: ignore[union-attr]
    assert gate.seen == [Admit(), MeshProof()]


def test_what_is_held_is_bounded_in_bytes() -> None:
    """PROTOCOL section 3, before admission: what a device makes us keep is bounded in bytes, too."""
    state = link(Side.PEER, member=False)
    state.opened(0.0)
    state.message(HELLO, 10, 0.0)
    for _ in range(10):
        state.message(chat.Stop(), HELD_BYTES // 3, 0.1)
    assert kinds(state.roster(True, 1.0)) == ["Admitted", "ai-stop", "ai-stop", "ai-stop"]


def test_between_devices_the_roster_decides_too() -> None:
    """PROTOCOL section 4, mesh: 256 messages are kept until both proofs stand; the other end must be in the
    roster.
    """
    state = link(Side.PEER, member=False)
    state.opened(0.0)
    assert state.message(HELLO, 10, 0.1) == []
    assert state.state is State.PROVING
    for _ in range(300):
        state.message(chat.Stop(), 5, 0.1)
    assert state.roster(False, 0.2) == []
    assert kinds(state.roster(True, 0.3)) == ["Admitted"] + ["ai-stop"] * HELD_PEER
    assert kinds(state.roster(False, 9.0)) == ["leaving", "End"]


def test_who_is_not_in_the_room_is_closed_after_10_s() -> None:
    """PROTOCOL section 4, mesh: a link that is not proved is closed after 10 s."""
    state = link(Side.PEER, member=False)
    state.opened(0.0)
    state.message(HELLO, 10, 1.0)
    assert state.tick(10.9) == []
    assert kinds(state.tick(11.0)) == ["leaving", "End"]


def test_messages_count_only_from_where_they_may_come() -> None:
    """PROTOCOL section 3: roster, bye and admit only from the creator, pledge only to it."""
    roster, pledge, bye = Roster(members=[Member(id="a", name="a")]), Pledge(gb=1.0), Bye(reason="out")
    creator, joiner, peer = admitted(Side.CREATOR), admitted(Side.JOINER), admitted(Side.PEER)
    assert kinds(joiner.message(roster, 9, 1.0)) == ["roster"]
    assert kinds(creator.message(pledge, 9, 1.0)) == ["pledge"]
    for state, message in [
        (creator, roster),
        (peer, roster),
        (joiner, pledge),
        (peer, pledge),
        (creator, bye),
        (peer, bye),
    ]:
        assert state.message(message, 9, 1.0) == []
        assert state.state is State.ADMITTED
    for state in (creator, joiner, peer):
        for message in (Admit(), Lobby(), MeshProof(none=True), Auth(v=1, hn="h" * 22), HELLO, Hello(v=99)):
            assert state.message(message, 9, 1.0) == []
            assert state.state is State.ADMITTED
    assert joiner.message(bye, 9, 1.0) == [End(Cause.BYE, "out")]


def test_leaving_and_closing() -> None:
    """PROTOCOL section 3, leaving and bye: the link closes at once; a last word gets 300 ms."""
    for side in Side:
        assert admitted(side).message(Leaving(), 5, 1.0) == [End(Cause.LEFT, "it left")]
        said, end = admitted(side).leave()
        assert said == Send(Leaving())
        assert isinstance(end, End)
        assert end.linger == LINGER_S
        assert kinds(link(side).leave()) == ["End"]  # nobody listens yet
    assert admitted(Side.JOINER).message(Bye(closed=True), 5, 1.0) == [End(Cause.CLOSED, "The room is over.")]
    said, end = admitted(Side.CREATOR).refuse("no", closed=True)
    assert said == Send(Bye(reason="no", closed=True))
    assert isinstance(end, End)
    assert end.cause is Cause.REFUSED


def test_nothing_happens_after_the_end() -> None:
    """PROTOCOL section 3, dead links: an ended link says and hears nothing."""
    state = admitted(Side.CREATOR)
    state.broken("gone")
    for actions in (
        state.message(Ping(ts=1), 5, 2.0),
        state.message(chat.Stop(), 5, 2.0),
        state.broken("again"),
        state.leave(),
        state.refuse("x"),
        state.silent("x"),
        state.replaced(),
        state.roster(False, 2.0),
        state.tick(99.0),
        state.opened(2.0),
    ):
        assert actions == []


def test_timeouts() -> None:
    """PROTOCOL sections 2 and 3: 15 s or 40 s to open, 5 s for the hello of who was dialed."""
    state = link(Side.JOINER, dialed=True)
    assert state.tick(14.9) == state.tick(39.9, trying=True) == []
    assert [a.cause for a in state.tick(15.0) if isinstance(a, End)] == [Cause.NO_PATH]
    state = link(Side.JOINER, dialed=True)
    (end,) = state.tick(40.0, trying=True)
    assert isinstance(end, End)
    assert end.cause is Cause.NO_PATH
    assert "%pooled network" in end.next_step
    state = link(Side.JOINER, dialed=True)
    assert [a.cause for a in state.broken("no path works", failed=True) if isinstance(a, End)] == [
        Cause.NO_PATH
    ]
    state = link(Side.JOINER, dialed=True)  # closed under it: that says nothing of paths
    assert [a.cause for a in state.broken("it closed the link") if isinstance(a, End)] == [Cause.BROKEN]
    state = admitted(Side.JOINER)
    assert [a.cause for a in state.broken("the path broke", failed=True) if isinstance(a, End)] == [
        Cause.BROKEN
    ]
    state = link(Side.JOINER, dialed=True)
    state.opened(10.0)
    assert state.tick(14.9) == []
    assert [a.cause for a in state.tick(15.0) if isinstance(a, End)] == [Cause.NO_HELLO]
    state = link(Side.CREATOR)
    state.opened(0.0)
    assert state.tick(14.9) == []
    assert kinds(state.tick(15.0)) == ["End"]


def test_a_device_waits_for_admission_but_not_forever() -> None:
    """PROTOCOL section 4, lobby: no timer runs while a person is being asked."""
    state = link(Side.JOINER, dialed=True)
    state.opened(0.0)
    state.message(HELLO, 10, 0.0)
    assert state.tick(14.9) == []
    assert not state.is_waiting
    (notice,) = state.message(Lobby(), 5, 14.9)
    assert state.is_waiting
    assert isinstance(notice, Notice)
    assert "let this device in" in notice.text
    assert state.tick(900.0) == []
    assert kinds(state.message(Admit(), 5, 901.0)) == ["Admitted"]
    state = link(Side.JOINER, dialed=True)
    state.opened(0.0)
    state.message(HELLO, 10, 0.0)
    assert state.tick(14.9) == []
    (end,) = state.tick(15.0)
    assert isinstance(end, End)
    assert (end.cause, "gate did not answer" in end.why) == (Cause.LATE, True)
    state = admitted(Side.JOINER)
    assert state.tick(14.9) == []
    assert kinds(state.tick(15.0)) == ["leaving", "End"]  # a roster never came
    state = admitted(Side.JOINER)
    state.entered = True
    assert state.tick(900.0) == []


def test_a_gate_may_refuse_and_wait() -> None:
    """PROTOCOL section 4, gate: `bye` where it is refused; the gate's place in the link's life."""
    gate = ScriptedGate([Wait("asking")], [Refuse("Not today."), Pass(Admit())])
    state = link(Side.CREATOR, gate=gate)
    state.opened(0.0)
    assert state.message(HELLO, 10, 0.0) == [Notice("asking")]
    said, end = state.message(MeshProof(), 5, 1.0)
    assert said == Send(Bye(reason="Not today."))
    assert isinstance(end, End)
    assert state.state is State.CLOSED


@pytest.mark.parametrize("ts", [None, "x" * 999, {"a": 1}, float("nan"), float("inf"), [1]])
def test_a_ping_without_a_number_is_answered_without_one(ts: Any) -> None:
    """PROTOCOL section 3, ping: `ts` is an opaque number; nothing else is echoed."""
    assert link(Side.PEER).message(Ping(ts=ts), 5, 0.0)[-1] == Send(Pong())
    assert admitted(Side.PEER).message(Pong(ts=ts), 5, 0.0)[0].__class__ is Answered


MESSAGES: list[Message] = [
    HELLO, Hello(v=3), Hello(back=True, v=4), Admit(), Lobby(), Auth(v=1, hn="n" * 22), MeshProof(none=True),
    Roster(members=[Member(id="it", name="n")]), Pledge(gb=3.0), Ping(ts=1), Pong(ts=1), Leaving(),
    Bye(reason="r"), Bye(closed=True), chat.Stop(), chat.Ask(text="q"), deal.Wait(),
]  # fmt: skip


def happen(state: LinkState, event: str, now: float) -> list[Action]:
    match event:
        case "open":
            return state.opened(now)
        case "broken":
            return state.broken("b")
        case "tick":
            return state.tick(now)
        case "in" | "out":
            return state.roster(event == "in", now)
        case "leave":
            return state.leave()
        case "refuse":
            return state.refuse("r")
    return state.silent("s")


EVENT = st.one_of(
    st.sampled_from(MESSAGES),
    st.sampled_from(["open", "broken", "tick", "in", "out", "leave", "refuse", "silent"]),
)


@settings(deadline=None, max_examples=300)
@given(side=st.sampled_from(Side), dialed=st.booleans(), events=st.lists(EVENT, max_size=30))
def test_any_order_of_events(side: Side, dialed: bool, events: list[Any]) -> None:
    """PROTOCOL section 3, before admission: in any order, the room hears nothing before `Admitted` and after
    the end.
    """
    state = link(side, dialed=dialed, member=False)
    now, actions = 0.0, []
    for event in events:
        now += 0.7
        if isinstance(event, Message):
            actions += state.message(event, 10, now)
        else:
            actions += happen(state, event, now)
    names = [type(a).__name__ for a in actions]
    assert names.count("Admitted") <= 1
    assert names.count("End") <= 1
    if "Deliver" in names:
        assert names.index("Admitted") < names.index("Deliver")
    if "End" in names:
        assert names[-1] == "End"
        assert state.state is State.CLOSED
    sent = [a.message for a in actions if isinstance(a, Send)]
    if sent:
        assert isinstance(sent[0], Hello)
        assert sum(isinstance(m, Hello) for m in sent) == 1
    assert Admitted() not in actions or state.hello is not None
