"""PROTOCOL section 2: how much of a signaling server one address may take."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh import quota
from pooled_nb.mesh.quota import AddressLimits, Quota
from pooled_nb.mesh.switchboard import Drop, Limits, Send, Switchboard

SMALL = AddressLimits(
    members=3,
    sockets=5,
    new_per_min=60,
    new_burst=8,
    messages=10,
    messages_burst=20,
    bytes=1_000,
    bytes_burst=5_000,
)


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::ffff", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.1", None),
        ("127.8.8.8", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("", quota.UNKNOWN),
        ("host", quota.UNKNOWN),
        ("1.2.3.4.5", quota.UNKNOWN),
    ],
)
def test_whose_limits(address: str, group: str | None):
    """PROTOCOL section 2: IPv6 counts by /64; programs of this machine count for nobody."""
    assert quota.group(address) == group


@pytest.mark.parametrize(
    ("header", "last"),
    [
        ("", ""),
        ("203.0.113.9", "203.0.113.9"),
        ("10.0.0.1, 127.0.0.1 , 203.0.113.9", "203.0.113.9"),
        ("203.0.113.9:4711", "203.0.113.9"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("evil, unknown", "unknown"),
        (",", ""),
    ],
)
def test_the_last_hop_counts(header: str, last: str):
    """PROTOCOL section 2: what stands before the last address was said by the client itself."""
    assert quota.forwarded(header) == last


@pytest.mark.parametrize(
    ("peer", "may"),
    [("127.0.0.1", True), ("10.0.0.2", True), ("fd00::2", True), ("8.8.8.8", False), ("x", False)],
)
def test_who_may_be_a_proxy(peer: str, may: bool):
    assert quota.is_proxy(peer) is may


def test_members_and_sockets():
    """PROTOCOL section 2: open connections of one address are bounded, and come back when they close."""
    q = Quota(SMALL)
    assert [q.accept("a", 0.0) for _ in range(6)] == [True] * 5 + [False]
    assert [q.enter("a", 0.0) for _ in range(4)] == ["", "", "", quota.TOO_MANY]
    assert q.accept("b", 0.0)
    assert q.enter("b", 0.0) == ""
    q.closed("a")
    q.left("a")
    assert q.accept("a", 10.0)
    assert q.enter("a", 10.0) == ""


def test_new_connections_a_minute():
    """PROTOCOL section 2: above the rate it is told why; far above it is cut off unheard; then time heals."""
    q = Quota(SMALL)
    said = []
    for _ in range(12):
        if not q.accept("a", 0.0):
            said.append(None)
            continue
        said.append(q.enter("a", 0.0))
        if said[-1] == "":
            q.left("a")
        q.closed("a")
    assert said == [""] * 8 + [quota.TOO_FAST] * 2 + [None] * 2
    assert q.accept("a", 3.0)
    assert q.enter("a", 3.0) == ""


def test_behind_a_proxy_its_word_counts():
    """PROTOCOL section 2: connections through a proxy are counted where they enter."""
    q = Quota(SMALL)
    said = []
    for _ in range(12):
        said.append(q.enter("a", 0.0, is_forwarded=True))
        if said[-1] == "":
            q.left("a")
    assert said[:8] == [""] * 8
    assert set(said[8:]) == {quota.TOO_FAST}


def test_messages_and_bytes_of_all_sockets():
    """PROTOCOL section 2: the rate is of an address, however many sockets it opens."""
    board = Switchboard(Limits(each=SMALL))
    for member in (1, 2):
        board.join(member, key="peerjs", id=f"m{member}", token="t", now=0.0, address="a")
    board.join(3, key="peerjs", id="m3", token="t", now=0.0, address="b")
    line = '{"type":"OFFER","dst":"m3"}'
    heard = sum(len(board.receive(1 + n % 2, line, 0.0)) for n in range(40))
    assert heard == 20
    assert board.receive(3, '{"type":"OFFER","dst":"m1"}', 0.0)  # another address notices nothing
    assert board.receive(1, line, 1.0)
    heavy = '{"type":"OFFER","dst":"m3","payload":"' + "x" * 4_000 + '"}'
    assert board.receive(1, heavy, 60.0)
    assert board.receive(2, heavy, 60.0) == []


def test_a_class_behind_one_router():
    """PROTOCOL section 2: 100 devices of one address arrive at once, each loads the page, asks for a relay,
    dials and trickles its candidates; a moment later the router blinks and all come again: nobody is refused.
    """
    board = Switchboard()
    board.join(0, key="peerjs", id="host", token="t", now=0.0, address="host")
    offer = '{"type":"OFFER","dst":"host","payload":"' + "x" * 8_000 + '"}'
    for _n in range(100):
        for _ in ("page", "relay"):
            assert board.accept("school", 0.0)
            assert board.quota.spend("school", 0, 0.0)
            board.released("school")
        assert board.quota.mint("school", 0.0)
    for now, first in ((0.0, 1), (2.0, 101)):
        for n in range(100):
            assert board.accept("school", now)
            board.join(first + n, key="peerjs", id=f"m{n}", token="t", now=now, address="school")
            for text in (offer, *['{"type":"CANDIDATE","dst":"host"}'] * 25):
                assert board.receive(first + n, text, now)
        assert len(board) == 101
        # the sockets of before may be noticed late: they still count
    assert board.quota.accept("school", 2.0)


def test_a_loud_neighbour_silences_nobody():
    """PROTOCOL section 2: who shares the address of a flood is not taken for dead, nor dropped for it."""
    board = Switchboard(Limits(each=SMALL, burst=200, silent_s=75))
    for member in (1, 2):
        board.join(member, key="peerjs", id=f"m{member}", token="t", now=0.0, address="a")
    for now in range(0, 200, 5):
        for _ in range(120):
            board.receive(1, '{"type":"OFFER","dst":"m2"}', float(now))
        assert board.receive(2, '{"type":"HEARTBEAT"}', float(now)) == []
        assert Drop(2) not in board.tick(float(now))
    assert board.receive(2, '{"type":"OFFER","dst":"m2"}', 300.0)


def test_who_is_over_learns_nothing():
    """PROTOCOL section 2: who tries too often hears that, and not whether a token was right."""
    board = Switchboard(Limits(each=SMALL))
    board.join(1, key="peerjs", id="room", token="secret", now=0.0, address="b")
    for n in range(2, 12):
        board.accept("a", 0.0)
        actions = board.join(n, key="peerjs", id="room", token="secret", now=0.0, address="a")
        if n < 10:
            assert actions == [Drop(n - 1)]  # taken over, time and again
        board.released("a")
    [send, drop] = actions
    assert isinstance(send, Send)
    assert quota.TOO_FAST.encode() in send.text
    assert drop == Drop(n)
    assert len(board) == 1


def test_who_is_refused_takes_no_place():
    """PROTOCOL section 2: tries with an id that is taken, or a wrong key, do not use the address up."""
    board = Switchboard(Limits(each=AddressLimits(members=2)))
    board.join(1, key="peerjs", id="room", token="secret", now=0.0, address="a")
    for n in range(2, 20):
        key = "peerjs" if n % 2 else "wrong"
        assert Drop(n) in board.join(n, key=key, id="room", token="other", now=0.0, address="a")
    board.join(20, key="peerjs", id="second", token="t", now=0.0, address="a")
    assert len(board) == 2


def test_totals_hold_for_everybody():
    """PROTOCOL section 2: loopback has no limits by address, and stands under those of the server."""
    board = Switchboard(Limits(members=2, sockets=4))
    assert [board.accept(None, 0.0) for _ in range(5)] == [True] * 4 + [False]
    board.released(None)
    assert board.accept(None, 0.0)
    for member in (1, 2):
        board.join(member, key="peerjs", id=f"m{member}", token="t", now=0.0)
    [said, drop] = board.join(3, key="peerjs", id="m3", token="t", now=0.0)
    assert quota.FULL.encode() in said.text
    assert drop == Drop(3)


def test_minting():
    """PROTOCOL section 2: credentials of a relay are asked for some times a minute."""
    q = Quota(SMALL, minted_per_min=60, minted_burst=3)
    assert [q.mint("a", 0.0) for _ in range(4)] == [True] * 3 + [False]
    assert q.mint("b", 0.0)
    assert q.mint(None, 0.0)
    assert q.mint("a", 1.0)


def test_memory_stays_flat():
    """PROTOCOL section 2: a flood from ever new addresses is bounded, and forgotten when it is over."""
    q = Quota(SMALL, addresses=100)
    for n in range(1_000):
        group = f"2001:db8:{n:x}::/64"
        if q.accept(group, 0.0):
            assert q.enter(group, 0.0) == ""
            q.left(group)
            q.closed(group)
        else:
            assert q.enter(group, 0.0) == quota.FULL
    assert len(q) == 100
    q.tick(0.5)
    assert len(q) == 100
    q.tick(2.0)
    assert len(q) == 0


steps = st.lists(
    st.tuples(
        st.sampled_from(["accept", "closed", "enter", "left", "spend", "tick"]),
        st.sampled_from(["a", "b", None]),
        st.floats(0, 5),
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=150)
@given(steps)
def test_any_order(steps):
    """PROTOCOL section 2: counts never go below nothing nor above their limits, in whatever order."""
    q, now = Quota(SMALL), 0.0
    for what, group, wait in steps:
        now += wait
        match what:
            case "accept":
                q.accept(group, now)
            case "closed":
                q.closed(group)
            case "enter":
                q.enter(group, now)
            case "left":
                q.left(group)
            case "spend":
                q.spend(group, 300, now)
            case "tick":
                q.tick(now)
        for who in q._known.values():
            assert 0 <= who.sockets <= SMALL.sockets
            assert 0 <= who.members <= SMALL.members
            assert 0 <= who.messages.credit <= SMALL.messages_burst
            assert -3 <= who.arrivals.credit <= SMALL.new_burst
    for group in ("a", "b"):
        for _ in range(SMALL.sockets):
            q.closed(group)
            q.left(group)
    q.tick(now + 1_000)
    assert len(q) == 0
