"""PROTOCOL section 2: the PeerJS client, its shapes and its decisions."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.errors import RoomError, SignalingDown
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.peerjs import client, shapes
from pooled_nb.mesh.peerjs.client import (
    Client,
    Deliver,
    Dial,
    Exhausted,
    Hang,
    Outage,
    Refused,
    Registered,
    Write,
)
from pooled_nb.mesh.peerjs.session import Session
from pooled_nb.mesh.specs import parse
from tests.mesh.rtctools import FastClock, nothing_left, raw, served, until

OPEN = '{"type":"OPEN"}'
TAKEN = '{"type":"ID-TAKEN","payload":{"msg":"ID is taken"}}'
CANDIDATE = {
    "type": "CANDIDATE",
    "src": "a",
    "dst": "b",
    "payload": {
        "candidate": {
            "candidate": "candidate:1 1 udp 1 10.0.0.1 9 typ host",
            "sdpMid": "0",
            "sdpMLineIndex": 0,
        },
        "type": "data",
        "connectionId": "dc_1",
    },
}


# shapes


def test_shapes_are_those_of_peerjs():
    """PROTOCOL section 2: JSON text on a WebSocket; shapes in DESIGN section 4."""
    payload = shapes.OfferPayload(
        sdp=shapes.Description("offer", "v=0"),
        connection_id="dc_1",
        label="dc_1",
        reliable=True,
        serialization="binary",
    )
    assert json.loads(shapes.write("OFFER", "b", payload)) == {
        "type": "OFFER",
        "dst": "b",
        "payload": {
            "sdp": {"type": "offer", "sdp": "v=0"},
            "type": "data",
            "connectionId": "dc_1",
            "label": "dc_1",
            "reliable": True,
            "serialization": "binary",
        },
    }
    answer = shapes.AnswerPayload(sdp=shapes.Description("answer", "v=0"), connection_id="dc_1")
    assert json.loads(shapes.write("ANSWER", "b", answer))["payload"] == {
        "sdp": {"type": "answer", "sdp": "v=0"},
        "type": "data",
        "connectionId": "dc_1",
    }
    got = shapes.read(json.dumps(CANDIDATE))
    assert isinstance(got, shapes.Candidate)
    assert got.payload.candidate.sdp_mid == "0"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '{"type":"NEWS"}',
        '{"type":"OFFER","src":"a"}',
        '{"type":"OFFER","src":"a","payload":{"type":"media","connectionId":"m","sdp":{"type":"offer","sdp":""}}}',
        '{"type":"EXPIRE"}',
        '{"type":"EXPIRE","src":7}',
        '{"type":"OPEN"' + " " * shapes.MAX_TEXT + "}",
        "[" * 100_000,
    ],
)
def test_what_cannot_be_read_is_ignored(text: str):
    """PROTOCOL section 2: everything a server says is untrusted."""
    assert shapes.read(text) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
kinds = st.sampled_from(["OPEN", "ID-TAKEN", "ERROR", "EXPIRE", "LEAVE", "OFFER", "ANSWER", "CANDIDATE", "X"])


@settings(deadline=None, max_examples=150)
@given(
    st.text()
    | st.binary()
    | st.builds(
        lambda t, v: json.dumps({**v, "type": t}),
        kinds,
        st.dictionaries(st.sampled_from(["src", "dst", "payload"]), json_values, max_size=3),
    )
)
def test_reading_never_raises(text):
    """PROTOCOL section 2: nothing a server says raises."""
    shapes.read(text)


@pytest.mark.parametrize(
    ("id", "allowed"),
    [
        ("pooled-room-4TKG9P", True),
        ("a_b c-d", True),
        ("0", True),
        ("", False),
        ("-a", False),
        ("a-", False),
        ("a--b", False),
        ("ż", False),
        ("a/b", False),
        ("a\n", False),
        ("a" * 101, False),
    ],
)
def test_ids(id: str, allowed: bool):
    """PROTOCOL section 2: ids are ASCII letters and digits, single separators inside."""
    assert shapes.id_allowed(id) is allowed


def test_random_ids_are_allowed_and_differ():
    drawn = {shapes.random_id() for _ in range(100)}
    assert len(drawn) == 100
    assert all(map(shapes.id_allowed, drawn))


# the decider


def registered_client(**more) -> Client:
    c = Client(1, id="me", **more)
    assert c.start(0.0) == [Dial(1, 0, client.LAST_ANSWER_S)]
    assert c.opened(1, 0.1) == []
    assert c.received(1, OPEN, 0.2) == [Registered(0)]
    assert c.is_up
    return c


def test_an_outage_moves_on_and_the_last_gets_longer():
    """PROTOCOL section 2: servers in order; an outage moves on; no answer in 8 s, 20 s for the last."""
    c = Client(3, id="me")
    assert c.start(0.0) == [Dial(1, 0, 8.0)]
    assert c.tick(7.9) == []
    assert c.tick(8.0) == [Hang(1), Dial(2, 1, 8.0)]
    assert c.lost(1, "late news of the first", 8.5) == []
    c.opened(2, 9.0)
    error = '{"type":"ERROR","payload":{"msg":"full"}}'
    assert c.received(2, error, 9.1) == [Hang(2), Dial(3, 2, 20.0)]
    assert c.tick(29.0) == []
    assert c.tick(29.1) == [
        Hang(3),
        Exhausted(((0, "no answer"), (1, "server-error: full"), (2, "no answer"))),
    ]
    assert c.wake is None


def test_the_first_that_answers_is_kept():
    """PROTOCOL section 2: the first server that answers is kept, also over an outage."""
    c = Client(2, id="me")
    c.start(0.0)
    assert c.lost(1, "network", 0.1) == [Hang(1), Dial(2, 1, 20.0)]
    c.opened(2, 0.2)
    assert c.received(2, OPEN, 0.3) == [Registered(1, ((0, "network"),))]
    assert Outage(True, "socket-closed") in c.lost(2, "socket-closed", 5.0)
    assert c.tick(7.0) == [Dial(3, 1, 8.0)]


def test_an_answer_does_not_move_on():
    """PROTOCOL section 2: an answer (unavailable-id) is no outage."""
    c = Client(2, id="me")
    c.start(0.0)
    c.opened(1, 0.1)
    assert c.received(1, TAKEN, 0.2) == [Hang(1), Refused(0, "ID is taken")]
    assert c.received(1, OPEN, 0.3) == []
    assert c.wake is None


def test_backoff():
    """PROTOCOL section 2: reconnect after 2, 4, 8, 16, 30, 30 … s."""
    c = registered_client()
    now, waits = 10.0, []
    actions = c.lost(1, "socket-closed", now)
    assert actions == [Hang(1), Outage(True, "socket-closed")]
    for attempt in range(2, 8):
        due = c.wake
        assert due is not None
        waits.append(due - now)
        assert c.tick(due - 0.01) == []
        assert c.tick(due) == [Dial(attempt, 0, 8.0)]
        now = due + 0.5
        # one notice for the whole outage
        assert c.lost(attempt, "network", now) == [Hang(attempt)]
    assert waits == [2, 4, 8, 16, 30, 30]


ECHO = json.dumps(json.loads(shapes.to_self("me")) | {"src": "me"})
SELF = Write(shapes.to_self("me"))


def test_takeover_needs_no_open():
    """PROTOCOL section 2: the same id and token take over, without a second OPEN (DESIGN section 4): what
    this device writes to itself comes back.
    """
    c = registered_client()
    c.lost(1, "socket-closed", 10.0)
    c.tick(12.0)
    assert c.opened(2, 12.1) == [SELF]
    assert c.is_up
    assert c.received(2, ECHO, 12.2) == [Outage(False)]
    assert c.received(2, ECHO, 12.3) == []
    # the next outage begins with the shortest wait again
    c.lost(2, "socket-closed", 20.0)
    assert c.wake == 22.0


def test_a_silent_server_is_not_back():
    """PROTOCOL section 2: "no answer in 8 s": a server that takes sockets and says nothing is still gone."""
    c = registered_client()
    c.lost(1, "socket-closed", 10.0)
    c.tick(12.0)
    c.opened(2, 12.1)
    assert c.tick(17.1) == [Write(shapes.HEARTBEAT)]
    assert c.tick(20.0) == [Hang(2)]
    assert not c.is_up
    assert c.wake == 24.0


def test_another_devices_message_is_an_answer_too():
    """PROTOCOL section 2: a server that passes messages on to us has our id."""
    c = registered_client()
    c.lost(1, "socket-closed", 10.0)
    c.tick(12.0)
    c.opened(2, 12.1)
    back, delivered = c.received(2, json.dumps(CANDIDATE), 12.2)
    assert back == Outage(False)
    assert isinstance(delivered, Deliver)


def test_nobody_has_our_id():
    """PROTOCOL section 2: what a server says to be from ourselves is never delivered."""
    c = registered_client()
    for type in ("OFFER", "LEAVE", "EXPIRE", "CANDIDATE"):
        assert c.received(1, json.dumps(CANDIDATE | {"type": type, "src": "me"}), 1.0) == []


def test_a_restarted_server_says_open():
    """PROTOCOL section 2: a server that forgot the id opens it anew."""
    c = registered_client()
    c.lost(1, "socket-closed", 10.0)
    c.tick(12.0)
    c.opened(2, 12.1)
    assert c.received(2, OPEN, 12.2) == [Outage(False)]


def test_a_kept_token_takes_the_first_socket_over():
    """PROTOCOL section 2: the creator that was killed and restarted reclaims its code at once."""
    c = Client(1, id="me", resumes=True)
    c.start(0.0)
    assert c.opened(1, 0.1) == [SELF]
    assert c.received(1, ECHO, 0.2) == [Registered(0)]
    silent = Client(2, id="me", resumes=True)
    silent.start(0.0)
    silent.opened(1, 0.1)
    assert silent.tick(8.0) == [Write(shapes.HEARTBEAT), Hang(1), Dial(2, 1, 20.0)]
    fresh = Client(1, id="me")
    fresh.start(0.0)
    fresh.opened(1, 0.1)
    assert fresh.tick(5.2) == [Write(shapes.HEARTBEAT)]
    assert fresh.tick(20.0)[-1] == Exhausted(((0, "no answer"),))


def test_taken_while_away_goes_on_trying():
    """PROTOCOL section 2: another holder of the id delays us, it does not end the room."""
    c = registered_client()
    c.lost(1, "socket-closed", 10.0)
    c.tick(12.0)
    c.opened(2, 12.1)
    assert c.received(2, TAKEN, 12.2) == [Hang(2)]
    assert not c.is_up
    assert c.wake == pytest.approx(16.2)


def test_heartbeat():
    """PROTOCOL section 2: a HEARTBEAT every 5 s; a loop that stalled owes no burst (PROTOCOL section 8)."""
    c = registered_client()
    assert c.wake == pytest.approx(5.1)
    assert c.tick(5.1) == [Write('{"type":"HEARTBEAT"}')]
    assert c.tick(70.0) == [Write('{"type":"HEARTBEAT"}')]
    assert c.tick(70.1) == []
    c.lost(1, "socket-closed", 71.0)
    assert c.tick(72.9) == []


def test_a_late_tick_judges_no_server():
    """PROTOCOL section 8: a tick that came late gives the server 2 s to be heard."""
    c = Client(2, id="me")
    c.start(0.0)
    assert c.tick(9.5) == []
    assert c.wake == 11.5
    c.opened(1, 9.6)
    assert c.received(1, OPEN, 9.7) == [Registered(0)]
    other = Client(2, id="me")
    other.start(0.0)
    other.tick(30.0)
    assert other.tick(32.0) == [Hang(1), Dial(2, 1, 20.0)]


def test_messages_before_registration_are_not_delivered():
    c = Client(1, id="me")
    c.start(0.0)
    c.opened(1, 0.1)
    assert c.received(1, json.dumps(CANDIDATE), 0.2) == []
    c.received(1, OPEN, 0.3)
    [action] = c.received(1, json.dumps(CANDIDATE), 0.4)
    assert isinstance(action, Deliver)
    assert c.close() == [Hang(1)]
    assert c.received(1, json.dumps(CANDIDATE), 0.5) == []


events = st.lists(
    st.tuples(
        st.sampled_from(["opened", "open", "echo", "taken", "error", "message", "lost", "tick"]),
        st.integers(0, 2),
        st.floats(0, 40),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=200)
@given(events, st.integers(1, 3), st.booleans())
def test_any_order_of_events(steps, servers, resumes):
    """PROTOCOL section 2: in whatever order, outages pair up and one attempt is alive at a time."""
    c = Client(servers, id="me", resumes=resumes)
    now, attempts, down, registered, over = 0.0, 0, False, 0, 0
    pending = c.start(now)
    for what, back, wait in [("", 0, 0.0), *steps]:
        now += wait
        attempt = max(0, attempts - back)
        match what:
            case "opened":
                pending = c.opened(attempt, now)
            case "open":
                pending = c.received(attempt, OPEN, now)
            case "echo":
                pending = c.received(attempt, ECHO, now)
            case "taken":
                pending = c.received(attempt, TAKEN, now)
            case "error":
                pending = c.received(attempt, '{"type":"ERROR"}', now)
            case "message":
                pending = c.received(attempt, json.dumps(CANDIDATE), now)
            case "lost":
                pending = c.lost(attempt, "x", now)
            case "tick":
                pending = c.tick(now)
        for action in pending:
            match action:
                case Dial(number, index, _):
                    assert number == attempts + 1
                    assert index < servers
                    attempts = number
                case Registered(_):
                    registered += 1
                case Outage(is_down, _):
                    assert is_down is not down
                    assert registered == 1
                    down = is_down
                case Refused() | Exhausted():
                    over += 1
                    assert registered == 0
                case Deliver():
                    assert c.is_up
        assert registered + over <= 1
        assert (c.wake is None) == bool(over)


# the socket under it


def session(urls, clock=None, messages=None, outages=None, resumes=False) -> Session:
    servers = [parse(u) for u in urls]
    return Session(
        clock or LoopClock(),
        [s.socket_url("alpha", "token") for s in servers],
        [s.shown for s in servers],
        id="alpha",
        resumes=resumes,
        on_message=(messages if messages is not None else []).append,
        on_outage=(outages if outages is not None else []).append,
    )


async def test_session_moves_on_and_says_what_failed(unused_tcp_port):
    """PROTOCOL section 2: servers are tried in order; the error says which and how each failed."""
    dead = f"ws://127.0.0.1:{unused_tcp_port}"
    async with nothing_left(), served() as server:
        one = session([dead, server.url])
        await one.register()
        assert one.server == server.url
        assert one.is_up
        await one.close()
        none = session([dead])
        with pytest.raises(SignalingDown, match=f"{dead} .network: connection refused") as caught:
            await none.register()
        assert "token" not in str(caught.value)


async def test_session_silent_server_is_left(unused_tcp_port):
    """PROTOCOL section 2: no answer in 8 s moves on, although the port is open."""
    async with nothing_left(), served() as server:
        silent = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        one = session([f"ws://127.0.0.1:{port}", server.url], FastClock(20))
        await one.register()
        assert one.server == server.url
        await one.close()
        silent.close()


async def test_session_refused():
    """PROTOCOL section 2: an id with another token is answered no, and no other server is asked."""
    async with nothing_left(), served() as server, served() as other:
        first = session([server.url])
        await first.register()
        second = Session(
            LoopClock(),
            [
                parse(server.url).socket_url("alpha", "another"),
                parse(other.url).socket_url("alpha", "another"),
            ],
            [server.url, other.url],
            id="alpha",
            on_message=print,
            on_outage=print,
        )
        with pytest.raises(RoomError, match="ID is taken"):
            await second.register()
        assert len(other) == 0
        await first.close()


async def test_session_reconnects_after_the_server_died():
    """PROTOCOL section 2: the room outlives its server; same id and token, one outage and one return."""
    outages: list[bool] = []
    messages: list[shapes.PeerMessage] = []
    async with nothing_left():
        async with served() as server:
            one = session([server.url], FastClock(20), messages, outages)
            await one.register()
            port = server.port
        await until(lambda: outages == [True])
        with pytest.raises(SignalingDown, match="not reachable"):
            one.send(
                "OFFER", "beta", shapes.AnswerPayload(sdp=shapes.Description("answer", ""), connection_id="x")
            )
        async with served(port=port) as server:
            await until(lambda: outages == [True, False])
            assert len(server) == 1
            beta = await raw(server, "beta")
            one.send(
                "ANSWER",
                "beta",
                shapes.AnswerPayload(sdp=shapes.Description("answer", "v=0"), connection_id="x"),
            )
            assert (await beta.hear("ANSWER"))["src"] == "alpha"
            await beta.say(json.dumps(CANDIDATE | {"dst": "alpha"}))
            await until(lambda: [message.src for message in messages] == ["beta"])
            beta.close()
            await one.close()
            await until(lambda: len(server) == 0)


async def test_session_takes_over_a_living_socket():
    """PROTOCOL section 2: a kept token takes the id over at once, and the old socket is closed."""
    async with nothing_left(), served() as server:
        outages: list[bool] = []
        old = session([server.url], outages=outages)
        await old.register()
        new = session([server.url], FastClock(10), resumes=True)
        await new.register()
        assert len(server) == 1
        await until(lambda: outages == [True])
        await old.close()
        assert new.is_up
        await new.close()


async def test_session_can_be_given_up():
    """A registration that is cancelled leaves nothing behind."""
    async with nothing_left():
        kept = []  # a writer that nobody keeps closes its connection from Python 3.13 on
        silent = await asyncio.start_server(lambda r, w: kept.append(w), "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        one = session([f"ws://127.0.0.1:{port}"])
        task = asyncio.create_task(one.register())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        silent.close()
        for writer in kept:
            writer.close()
