"""The shaper as a process: datagrams between two sockets, what they are told, and connections over it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from pooled_nb.mesh.frame import Encoding, Frame, Kind
from tests.e2e.kernel import kernel
from tests.mesh.recorder import CODE, ROOM
from tests.mesh.rtctools import until
from tests.shaper import candidates
from tests.shaper.handle import Shaper, shaper
from tests.shaper.line import LineSettings

HELD_S = 0.4
"""Seconds in which what is held must not come; a slow machine makes no difference to it."""


@pytest.fixture(scope="module")
def made() -> Iterator[Shaper]:
    with shaper(seed=5) as net:
        yield net


@pytest.fixture
def net(made: Shaper) -> Iterator[Shaper]:
    yield made
    made.change(LineSettings())
    made.freeze(0)
    made.swallow(0)


class End:
    """A socket on one side of a path."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(20)
        self.at: candidates.Address = self.socket.getsockname()
        self.to: candidates.Address = ("", 0)

    def send(self, *data: bytes) -> None:
        for one in data:
            self.socket.sendto(one, self.to)

    def hear(self, n: int = 1) -> list[bytes]:
        return [self.socket.recv(4_096) for _ in range(n)]

    def hears_nothing(self) -> bool:
        self.socket.settimeout(HELD_S)
        try:
            self.socket.recv(4_096)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(20)
        return False


@pytest.fixture
def ends(net: Shaper) -> Iterator[tuple[End, End, int]]:
    a, b = End(), End()
    way = net.open(a.at)
    net.place(way, b=b.at)
    a.to, b.to = way.for_a, way.for_b
    yield a, b, way.path
    a.socket.close()
    b.socket.close()


def test_datagrams_pass_both_ways_and_come_from_where_they_are_answered(
    net: Shaper, ends: tuple[End, End, int]
) -> None:
    a, b, path = ends
    a.send(b"there")
    assert b.socket.recvfrom(99) == (b"there", b.to)
    b.send(b"back", b"again")
    assert a.hear(2) == [b"back", b"again"]
    assert [(c.src, c.came, c.came_bytes, c.went) for c in net.counts(path=path)] == [
        ("a", 1, 5, 1),
        ("b", 2, 9, 2),
    ]


def test_a_change_is_of_the_lines_that_are_meant(net: Shaper, ends: tuple[End, End, int]) -> None:
    a, b, path = ends
    net.change(LineSettings(loss=1.0), path=path, sent_by="a")
    a.send(b"lost")
    b.send(b"through")
    assert a.hear() == [b"through"]
    net.change(LineSettings(duplicate=1.0), path=path)
    a.send(b"twice")
    assert b.hear(2) == [b"twice", b"twice"]
    assert net.total(path=path, sent_by="a").lost == 1


def test_a_path_that_comes_later_is_told_the_same(net: Shaper) -> None:
    net.change(LineSettings(loss=1.0), ends=["x"])
    net.swallow(None, ends=["x", "y"], sent_by="y")
    a, b = End(), End()
    for names, lost, swallowed in (("x", "z"), 1, 0), (("y", "x"), 0, 1), (("y", "z"), 0, 0):
        way = net.open(a.at, b.at, names=names)
        a.to = way.for_a
        a.send(b"?")
        while not (count := net.total(path=way.path)).came:
            pass
        assert (count.lost, count.swallowed) == (lost, swallowed), names
    a.socket.close()
    b.socket.close()


def test_frozen_it_holds_and_thawed_it_gives_all(net: Shaper, ends: tuple[End, End, int]) -> None:
    a, b, _ = ends
    net.freeze(600)
    a.send(b"1", b"2", b"3")
    assert b.hears_nothing()
    net.freeze(0)
    assert b.hear(3) == [b"1", b"2", b"3"]


def test_a_black_hole_is_for_good_until_it_ends(net: Shaper, ends: tuple[End, End, int]) -> None:
    a, b, path = ends
    net.swallow()
    a.send(b"1", b"2")
    assert b.hears_nothing()
    net.swallow(0)
    a.send(b"3")
    assert b.hear() == [b"3"]
    assert net.total(path=path).swallowed == 2


def test_an_order_that_makes_no_sense_is_said(net: Shaper) -> None:
    with pytest.raises(AssertionError, match="KeyError"):
        net._call("place", path=999, a=["127.0.0.1", 1])
    with pytest.raises(AssertionError, match="ValidationError"):
        net._call("change", settings={"loss": 2}, where={})


SDP = "\r\n".join(
    [
        "v=0",
        "m=application 9 UDP/DTLS/SCTP webrtc-datachannel",
        "a=candidate:1 1 tcp 9 10.0.0.1 9 typ host tcptype active",
        "a=candidate:2 1 udp 2130706431 fe80::1 5000 typ host",
        "a=candidate:3 1 udp 2130706431 127.0.0.2 6000 typ host",
        "a=candidate:4 1 udp 1694498815 1.2.3.4 7000 typ srflx raddr 127.0.0.2 rport 6000",
        "a=end-of-candidates",
        "a=fingerprint:sha-256 AB:CD",
        "",
    ]
)


def test_a_description_leads_elsewhere_and_says_the_same_otherwise() -> None:
    assert candidates.first(SDP) == ("127.0.0.2", 6000)
    lines = [line for line in SDP.split("\r\n") if "candidate:" not in line]
    told = candidates.rewritten(SDP, ("127.0.0.9", 77)).split("\r\n")
    assert told[2] == "a=candidate:3 1 udp 2130706431 127.0.0.9 77 typ host"
    assert [line for line in told if "candidate:" not in line] == lines
    assert candidates.first("\r\n".join(told)) == ("127.0.0.9", 77)
    with pytest.raises(ValueError, match="without a candidate"):
        candidates.first("\r\n".join(lines))


async def test_every_connection_of_a_room_has_a_path_of_its_own(net: Shaper) -> None:
    """PROTOCOL sections 2, 4 and 5: candidates alone are replaced, so the proofs over the certificates hold;
    link and stripes meet loss, each its own, and frames come whole and in order.
    """
    net.change(LineSettings(delay_ms=10.0, loss=0.05))
    host, one = kernel("host", ask=False), kernel("one")
    await host.mesh.create(CODE, [net.url])
    await one.mesh.join(CODE, [net.url])
    host.mesh.chain([one.mesh.id])
    one.mesh.chain([ROOM])
    await until(lambda: (facts := one.mesh.facts(ROOM)) is not None and facts.stripes == 3)
    frames = [
        Frame(kind=Kind.HIDDEN_B, pos=i, n=1, payload=bytes([i]) * 30_000, enc=Encoding.BF16)
        for i in range(20)
    ]
    for frame in frames:
        assert host.mesh.send_frame(one.mesh.id, frame)
    await until(lambda: len(one.frames) == len(frames), 60)
    assert [frame for _, frame in one.frames] == frames

    ours = net.counts(ends=[one.mesh.id, ROOM])
    assert sorted({c.path: c.label == "stripe" for c in ours}.values()) == [False, True, True, True]
    assert len(ours) == 8
    big = {c.path for c in ours if c.src == ROOM and c.came_bytes > 30_000}
    assert len(big) == 4, "slices went over each"
    assert sum(c.lost for c in ours) > 0
    await one.mesh.leave()
    await host.mesh.leave()
