"""PROTOCOL section 2: our signaling server behaves as PeerJS's own (DESIGN section 4)."""

import asyncio
import errno
import json
import logging
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tornado.httpclient import AsyncHTTPClient, HTTPClientError
from tornado.websocket import WebSocketClientConnection, websocket_connect

from pooled_nb.errors import SignalingDown
from pooled_nb.mesh import signalserver
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.switchboard import Drop, Limits, Send, Switchboard
from tests.mesh.rtctools import FastClock, nothing_left, served, until


def told(actions) -> list[tuple[int, dict]]:
    return [(a.member, json.loads(a.text)) for a in actions if isinstance(a, Send)]


def join(
    board: Switchboard, member: int, id: str, *, token: str = "t", key: str = "peerjs", now: float = 0.0
):
    return board.join(member, key=key, id=id, token=token, now=now)


def offer(dst: str, payload: object = "x") -> str:
    return json.dumps({"type": "OFFER", "src": "forged", "dst": dst, "payload": payload})


# decisions


def test_open_and_forward():
    """PROTOCOL section 2: OPEN at registration; a message goes to dst, its src is the server's word."""
    board = Switchboard()
    assert told(join(board, 1, "a")) == [(1, {"type": "OPEN"})]
    assert told(join(board, 2, "b")) == [(2, {"type": "OPEN"})]
    payload = {"connectionId": "dc_1", "n": [1, 2.5, None, "ż"]}
    assert told(board.receive(1, offer("b", payload), 1.0)) == [
        (2, {"type": "OFFER", "src": "a", "dst": "b", "payload": payload})
    ]


@pytest.mark.parametrize("type", ["ANSWER", "CANDIDATE", "LEAVE", "EXPIRE"])
def test_every_kind_is_forwarded(type: str):
    """PROTOCOL section 2: ANSWER, CANDIDATE, LEAVE and EXPIRE are passed on as OFFER is."""
    board = Switchboard()
    join(board, 1, "a")
    join(board, 2, "b")
    assert told(board.receive(1, json.dumps({"type": type, "dst": "b"}), 1.0)) == [
        (2, {"type": type, "src": "a", "dst": "b"})
    ]


def test_taken_and_taken_over():
    """PROTOCOL section 2: another token is refused; the same one takes over without a second OPEN."""
    board = Switchboard()
    join(board, 1, "a", token="mine")
    refused = join(board, 2, "a", token="other")
    assert told(refused) == [(2, {"type": "ID-TAKEN", "payload": {"msg": "ID is taken"}})]
    assert refused[-1] == Drop(2)
    assert join(board, 3, "a", token="mine") == [Drop(1)]
    board.gone(1)
    join(board, 4, "b")
    assert [m for m, _ in told(board.receive(4, offer("a"), 1.0))] == [3]


@pytest.mark.parametrize(
    ("id", "token", "key"),
    [
        ("", "t", "peerjs"),
        ("a", "", "peerjs"),
        ("a", "t", "mine"),
        ("a--b", "t", "peerjs"),
        ("a", "t" * 201, "peerjs"),
        ("a", "t t", "peerjs"),
        ("a", "t\n", "peerjs"),
        ("a", "\u0142", "peerjs"),
        ("a\n", "t", "peerjs"),
        ("\u0661", "t", "peerjs"),
        ("a" * 101, "t", "peerjs"),
        ("a", "t", ""),
        ("a", "t", "\ufffd"),
    ],
)
def test_who_is_refused(id: str, token: str, key: str):
    """PROTOCOL section 2: id rules, token and key are checked; the refusal says why and closes."""
    board = Switchboard()
    actions = join(board, 1, id, token=token, key=key)
    [(_, said)] = told(actions)
    assert said["type"] == "ERROR"
    assert said["payload"]["msg"]
    assert actions[-1] == Drop(1)
    assert len(board) == 0


def test_absent_is_waited_for():
    """PROTOCOL section 2: a message to an absent id is kept 5 s and handed over when it comes."""
    board = Switchboard()
    join(board, 1, "a")
    assert board.receive(1, offer("b", 1), 0.0) == []
    assert board.receive(1, offer("b", 2), 0.1) == []
    assert board.tick(4.9) == []
    assert [m.get("payload") for _, m in told(join(board, 2, "b", now=4.9))] == [None, 1, 2]
    assert board.tick(60.0) == []


def test_absent_comes_back_once():
    """PROTOCOL section 2: after 5 s it comes back as EXPIRE, once for each sender; LEAVE is not kept."""
    board = Switchboard()
    join(board, 1, "a")
    join(board, 2, "c")
    for member in (1, 1, 2):
        board.receive(member, offer("b"), 0.0)
    board.receive(1, json.dumps({"type": "LEAVE", "dst": "d"}), 0.0)
    assert told(board.tick(5.0)) == [
        (1, {"type": "EXPIRE", "src": "b", "dst": "a"}),
        (2, {"type": "EXPIRE", "src": "b", "dst": "c"}),
    ]
    assert board.tick(5.1) == []


def test_only_heartbeats_keep_alive():
    """PROTOCOL section 2: a client without HEARTBEAT expires after 60 to 90 s."""
    board = Switchboard()
    join(board, 1, "a")
    join(board, 2, "b")
    for now in range(0, 200, 5):
        board.receive(1, '{"type":"HEARTBEAT"}', float(now))
        board.receive(2, offer("a"), float(now))
        actions = board.tick(float(now))
        if now < 60:
            assert actions == []
        if now >= 90:
            assert len(board) == 1


def test_leave_to_nobody_ends_the_member():
    board = Switchboard()
    join(board, 1, "a")
    assert board.receive(1, '{"type":"LEAVE"}', 1.0) == [Drop(1)]
    assert len(board) == 0


def test_what_it_holds_is_bounded():
    """PROTOCOL section 2: members, queues, sizes and rates are bounded."""
    limits = Limits(members=2, queued=3, queued_all=2, queued_bytes=10_000, text=2_000, rate=10, burst=20)
    board = Switchboard(limits)
    join(board, 1, "a")
    join(board, 2, "b")
    assert told(join(board, 3, "c"))[0][1]["type"] == "ERROR"
    for n in range(10):
        board.receive(1, offer("x", n), 0.0)
    for dst in ("y", "z"):
        board.receive(1, offer(dst), 0.0)
    assert told(board.receive(1, offer("b"), 0.0))
    assert board.receive(1, offer("b", "x" * 2_000), 0.0) == []
    join(board, 2, "b", now=0.0)
    passed = sum(bool(board.receive(1, offer("b"), 0.0)) for _ in range(25))
    assert passed < 20
    assert told(board.receive(1, offer("b"), 10.0))
    board.gone(2)
    assert [m["payload"] for _, m in told(join(board, 4, "x", now=1.0)) if "payload" in m] == [0, 1, 2]


@pytest.mark.parametrize("dst", ["", "-a", "a--b", "a/b", "a\n", "\u0142", "a" * 101, None, 7, ["b"], {}])
def test_to_whom_nobody_can_write(dst: object):
    """DESIGN section 4: the rules of ids hold for ``dst``, too: nothing is kept for what can be no id."""
    board = Switchboard()
    join(board, 1, "a")
    assert board.receive(1, json.dumps({"type": "OFFER", "dst": dst}), 0.0) == []
    assert board.held[1] == 0
    assert board.tick(9.0) == []


def test_what_cannot_wait_comes_back_at_once():
    """PROTOCOL section 2: one sender cannot fill the queue for others; EXPIRE says that nothing waits."""
    board = Switchboard(Limits(queued=8, queued_by=4))
    join(board, 1, "loud")
    join(board, 2, "quiet")
    for n in range(4):
        assert board.receive(1, offer(f"x{n % 2}", n), 0.0) == []
    full = [(1, {"type": "EXPIRE", "src": "x0", "dst": "loud"})]
    assert told(board.receive(1, offer("x0"), 0.0)) == full
    assert board.receive(1, json.dumps({"type": "LEAVE", "dst": "x0"}), 0.0) == []
    assert board.receive(2, offer("x0", "still"), 0.0) == []
    assert [m["src"] for _, m in told(join(board, 3, "x0"))[1:]] == ["loud", "loud", "quiet"]
    # what was fetched gives its sender room again
    assert board.receive(1, offer("y"), 0.0) == []


def test_what_waits_is_bounded_in_bytes():
    """PROTOCOL section 2: few large messages for many who are absent: above the bound they come back."""
    board = Switchboard(Limits(queued_bytes=10_000))
    join(board, 1, "a")
    heavy = [board.receive(1, offer(f"x{n}", "x" * 3_000), 0.0) for n in range(5)]
    assert [bool(actions) for actions in heavy] == [False, False, False, True, True]
    assert board.held[2] <= 10_000
    board.tick(6.0)
    assert board.held[2] == 0
    assert board.receive(1, offer("x9", "x" * 3_000), 6.0) == []


def test_a_flood_ends_its_sender_alone():
    """PROTOCOL section 2: what is above the rate is not read; who goes on is told why, and dropped."""
    board = Switchboard(Limits(rate=10, burst=20))
    join(board, 1, "loud")
    join(board, 2, "quiet")
    outcomes = [board.receive(1, offer("quiet"), 0.0) for _ in range(60)]
    assert [bool(o) for o in outcomes[:20]] == [True] * 20
    assert not any(outcomes[20:40])
    assert told(outcomes[40]) == [(1, {"type": "ERROR", "payload": {"msg": "Too many messages"}})]
    assert outcomes[40][-1] == Drop(1)
    assert not any(outcomes[41:])
    assert len(board) == 1
    assert board.receive(2, offer("loud"), 0.0) == []  # kept: it may come back


def test_who_calmed_down_is_not_dropped():
    """PROTOCOL section 2: many short bursts in a long life are no flood."""
    board = Switchboard(Limits(rate=10, burst=20, silent_s=1e9))
    join(board, 1, "a")
    join(board, 2, "b")
    for minute in range(40):
        for _ in range(25):
            board.receive(1, offer("b"), 60.0 * minute)
    assert len(board) == 2


def test_noise_counts():
    """PROTOCOL section 2: binary frames and pings are no messages, and no way around the rate."""
    board = Switchboard(Limits(rate=10, burst=20))
    join(board, 1, "a")
    actions = [action for _ in range(50) for action in board.noise(1, 100, 0.0)]
    assert Drop(1) in actions
    assert board.noise(1, 100, 0.0) == []


def test_bytes_of_a_member_are_bounded():
    """PROTOCOL section 2: few and large messages are a flood, too."""
    board = Switchboard(Limits(rate_bytes=1_000, burst_bytes=10_000))
    join(board, 1, "a")
    join(board, 2, "b")
    heavy = offer("b", "x" * 3_000)
    assert [bool(board.receive(1, heavy, 0.0)) for _ in range(5)] == [True, True, True, False, False]
    assert board.receive(1, heavy, 4.0)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
texts = st.text() | st.builds(
    json.dumps,
    st.dictionaries(
        st.sampled_from(["type", "src", "dst", "payload"]),
        st.sampled_from(["OFFER", "LEAVE", "HEARTBEAT", "a", "b", "c"]) | json_values,
    ),
)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("join"), st.integers(1, 5), st.sampled_from(["a", "b", "c", "--"]), st.sampled_from("tu")
        ),
        st.tuples(st.just("said"), st.integers(1, 5), texts),
        st.tuples(st.just("gone"), st.integers(1, 5)),
        st.tuples(st.just("tick"), st.floats(0, 30)),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=150)
@given(steps)
def test_any_order_of_anything(steps):
    """PROTOCOL section 2: a bad frame never ends the server, and nobody hears what is not for him."""
    board, now, holder, number = Switchboard(), 0.0, {}, 5
    for step in steps:
        match step:
            case ("join", _, id, token):
                number += 1
                actions = board.join(number, key="peerjs", id=id, token=token, now=now)
                if Drop(number) not in actions:
                    holder[id] = number
            case ("said", member, text):
                actions = board.receive(member + 5, text, now)
            case ("gone", member):
                board.gone(member + 5)
                holder = {id: m for id, m in holder.items() if m != member + 5}
                actions = []
            case ("tick", wait):
                now += wait
                actions = board.tick(now)
        for action in actions:
            if isinstance(action, Send) and "dst" in (said := json.loads(action.text)):
                assert holder.get(said["dst"]) == action.member
            if isinstance(action, Drop):
                holder = {id: m for id, m in holder.items() if m != action.member}
    members, waiting, waiting_bytes, _ = board.held
    assert members == len(holder)
    board.tick(now + 1_000)
    assert board.held == (0, 0, 0, 0)
    assert waiting <= 30
    assert (waiting == 0) == (waiting_bytes == 0)


# over real sockets


class Peer:
    def __init__(self, socket: WebSocketClientConnection) -> None:
        self.socket = socket

    async def read(self) -> dict | None:
        text = await asyncio.wait_for(self.socket.read_message(), 20)
        return None if text is None else json.loads(text)

    async def write(self, text: str | bytes, binary: bool = False) -> None:
        await self.socket.write_message(text, binary=binary)


async def connect(server: SignalServer, id: str, token: str = "t") -> Peer:
    return Peer(await websocket_connect(f"{server.url}peerjs?key=peerjs&id={id}&token={token}&version=1.5.5"))


async def test_over_sockets():
    """PROTOCOL section 2: OPEN, forwarding, ID-TAKEN, takeover and closing, over WebSockets."""
    async with nothing_left(), served() as server:
        a, b = await connect(server, "a"), await connect(server, "b")
        assert await a.read() == {"type": "OPEN"}
        assert await b.read() == {"type": "OPEN"}
        await a.write(offer("b"))
        assert await b.read() == {"type": "OFFER", "src": "a", "dst": "b", "payload": "x"}
        thief = await connect(server, "b", "other")
        assert (await thief.read() or {})["type"] == "ID-TAKEN"
        assert await thief.read() is None
        again = await connect(server, "b")
        assert await b.read() is None
        await a.write(offer("b", 2))
        assert (await again.read() or {})["payload"] == 2
        for peer in (a, again):
            peer.socket.close()
        await until(lambda: len(server) == 0)


async def test_bad_frames_end_nothing(caplog):
    """PROTOCOL section 2: garbage, binary and oversized frames leave the others as they were."""
    async with nothing_left(), served() as server:
        a, b = await connect(server, "a"), await connect(server, "b")
        assert await a.read()
        assert await b.read()
        for text in ("", "{", "null", '{"type":7}', "\x00", '{"type":"OFFER","dst":{}}', "[" * 50_000):
            await a.write(text)
        await a.write(b"\xff\xfe", binary=True)
        await a.write(offer("b"))
        assert await b.read()
        await a.write("x" * (Limits().text + 1))
        assert await a.read() is None
        await b.write(offer("b", "still here"))
        assert (await b.read() or {})["payload"] == "still here"
        nonsense = await websocket_connect(f"{server.url}peerjs?key=peerjs&id=%ff%fe&token=sesame")
        assert json.loads(await nonsense.read_message())["type"] == "ERROR"
        b.socket.close()
    assert "sesame" not in caplog.text
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


async def test_expire_over_sockets():
    """PROTOCOL section 2: EXPIRE comes back after 5 s by the server's own clock."""
    async with nothing_left(), served(FastClock(20)) as server:
        a = await connect(server, "a")
        await a.read()
        await a.write(offer("nobody"))
        assert await a.read() == {"type": "EXPIRE", "src": "nobody", "dst": "a"}
        a.socket.close()


async def test_http():
    """PROTOCOL section 2: GET {path}{key}/id draws an id; a page of any origin may ask (DESIGN section 4)."""
    async with nothing_left(), served() as plain:
        pathed = await SignalServer.start(path="/signal/room/")
        http = AsyncHTTPClient(force_instance=True)
        for server in (plain, pathed):
            base = server.url.replace("ws://", "http://")
            got = await http.fetch(f"{base}peerjs/id?ts=1")
            assert len(got.body) == 32
            assert got.headers["Access-Control-Allow-Origin"] == "*"
            assert json.loads((await http.fetch(base)).body)["name"] == "PeerJS Server"
            for path in ("other/id", "peerjs/peers", "../etc"):
                with pytest.raises(HTTPClientError):
                    await http.fetch(base + path)
        assert pathed.url.endswith("/signal/room/")
        http.close()
        await pathed.close()


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


async def test_every_address_of_both_families():
    """PROTOCOL section 2: what listens on ``::`` takes IPv4, too: its lines name such addresses."""
    async with nothing_left():
        server = await SignalServer.start(host="::")
        http = AsyncHTTPClient(force_instance=True)
        places = [f"ws://127.0.0.1:{server.port}/", server.url]
        if has_ipv6():
            places.append(f"ws://[::1]:{server.port}/")
        for place in places:
            assert (await http.fetch(place.replace("ws://", "http://"))).code == 200
        http.close()
        await server.close()


async def test_port_in_use():
    """PROTOCOL section 2: a port that cannot be had is said in words."""
    async with nothing_left():
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            with pytest.raises(SignalingDown, match=str(port)):
                await SignalServer.start(port=port)


@pytest.mark.parametrize(
    ("error", "port", "step"),
    [
        (OSError(errno.EADDRINUSE, "in use"), 9000, "Close the program that uses this port"),
        (PermissionError(errno.EACCES, "denied"), 443, "an administrator's rights"),
        (PermissionError(errno.EACCES, "denied"), 9000, "Close the program that uses this port"),
        (OSError(errno.EADDRNOTAVAIL, "not ours"), 9000, "Name an address of this machine"),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), 9000, "Name an address of this machine"),
    ],
)
async def test_why_it_cannot_be_started(monkeypatch, error, port, step):
    """PROTOCOL section 2: each reason has its own next step; on Windows a port in use is a denied one."""

    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(signalserver, "bind_sockets", refuse)
    with pytest.raises(SignalingDown) as told:
        await SignalServer.start(host="127.0.0.1", port=port)
    assert step in told.value.next_step


async def test_close_with_members():
    """Closing drops everybody, twice is once, and nothing stays behind."""
    async with nothing_left():
        server = await SignalServer.start()
        a = await connect(server, "a")
        await a.read()
        # one that completed the handshake and never reads again
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /peerjs?key=peerjs&id=b HTTP/1.1\r\nHost: x\r\n")
        await server.close()
        await server.close()
        assert await a.read() is None
        with pytest.raises(OSError, match=r"refused|failed"):
            await asyncio.open_connection("127.0.0.1", server.port)
        writer.close()
