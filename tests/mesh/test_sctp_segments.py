"""Several datagrams in one call of the system, both ways, and where it has none (DESIGN section 4)."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pooled_nb.mesh.sctp import datagrams, segments, turns
from tests.mesh.rtctools import until
from tests.mesh.sctppair import connected, echoed
from tests.mesh.sctpquick import DTLS, HOST, RTP, STUN, Quick, quickened

here = pytest.mark.skipif(not segments.works(), reason="this system sends no runs")
ROOT = Path(__file__).parents[2]


@pytest.fixture
async def quick() -> AsyncIterator[Quick]:
    async with quickened() as made:
        yield made


class System:
    """A socket whose calls are counted, and of which some fail."""

    def __init__(self, sock: Any, *fails: int) -> None:
        self.fails = list(fails)
        self.runs = self.singles = 0
        self._sock = sock

    def sendmsg(self, *args: Any) -> int:
        self.runs += 1
        if self.fails:
            raise OSError(self.fails.pop(0), "it does not")
        sent: int = self._sock.sendmsg(*args)
        return sent

    def sendto(self, *args: Any) -> int:
        self.singles += 1
        sent: int = self._sock.sendto(*args)
        return sent


def way(quick: Quick, *fails: int) -> tuple[datagrams.Put, System]:
    """From the quickened socket to who sends to it."""
    transport = quick.sink.transport
    real, system = transport._sock, System(transport._sock, *fails)
    transport._sock = system
    try:
        to = quick.sender.getsockname()
        return datagrams.way(SimpleNamespace(protocol=quick.sink, remote_addr=to)), system
    finally:
        transport._sock = real


def run(size: int, count: int, last: int) -> list[bytes]:
    """So many datagrams of a size and one of another, all different."""
    return [DTLS + bytes([n]) * (size - 1) for n in range(count)] + [DTLS + b"e" * (last - 1)]


@here
@pytest.mark.parametrize("host", [HOST, "::1"])
@pytest.mark.parametrize(("count", "last"), [(1, 1_200), (3, 7), (50, 1_199)])
async def test_a_run_comes_as_its_datagrams(host: str, count: int, last: int) -> None:
    """Both ways: to an end that is ours, and to one that knows nothing of runs. The last may be shorter."""
    if host == "::1" and not _has_v6():
        pytest.skip("this system has no IPv6 on loopback")
    sent = run(1_200, count, last)
    async with quickened(host) as quick:
        quick.send_run(*sent)
        await until(lambda: len(quick.taken) == len(sent))
        assert quick.taken == sent
        put, system = way(quick)
        put(b"".join(sent), 1_200)
        assert [quick.sender.recv(2_048) for _ in sent] == sent
        assert (system.runs, system.singles) == (1, 0)
        assert quick.sink.errors == []


@here
async def test_one_call_of_the_system_for_many(quick: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came in one piece is one batch, and counts as what is in it: 64 in one turn."""
    calls: list[int] = []
    split = segments.Buffer.read

    def read(self: segments.Buffer, by: Any) -> tuple[list[bytes], Any]:
        got = split(self, by)
        calls.append(len(got[0]))
        return got

    monkeypatch.setattr(segments.Buffer, "read", read)
    async with quickened() as other:
        for n in range(4):
            other.send_run(*[DTLS + bytes([n])] * 32)
        await until(lambda: len(other.taken) == 128)
        assert calls[:4] == [32, 32, 32, 32]
        assert other.batches[:2] == [64, 64]


@here
async def test_each_is_told_apart(quick: Quick) -> None:
    """RFC 7983 section 7: STUN and RTP may come in one piece with DTLS; aioice hears whose they are."""
    quick.send_run(DTLS + b"1", STUN + b"2", DTLS + b"3", RTP + b"4", b"\xff5", STUN + b"!", DTLS)
    await until(lambda: DTLS in quick.taken)
    assert quick.taken == [DTLS + b"1", DTLS + b"3", DTLS]
    assert quick.sink.stock == [STUN + b"2", RTP + b"4", STUN + b"!"]
    assert quick.sink.senders == [quick.sender.getsockname()] * 3


@here
async def test_a_large_piece_lets_others_in(quick: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn ends in the middle of it: the rest comes in the next ones, before what came later."""
    monkeypatch.setattr(turns, "TURN_S", 0.0)
    monkeypatch.setattr(turns, "LEAST_S", 0.0)
    sent = run(20, 20, 20)
    quick.send_run(*sent)
    quick.send(DTLS + b"later")
    seen: list[int] = []

    def look() -> None:
        seen.append(len(quick.taken))
        if len(quick.taken) < len(sent) + 1:
            asyncio.get_running_loop().call_soon(look)

    look()
    await until(lambda: len(quick.taken) == len(sent) + 1)
    assert quick.taken == [*sent, DTLS + b"later"]
    assert set(quick.batches) <= {0, 1}
    assert set(range(1, 21)) <= set(seen)


@here
@pytest.mark.parametrize("at_once", [True, False])
async def test_the_rest_of_a_piece_ends_with_the_transport(
    quick: Quick, monkeypatch: pytest.MonkeyPatch, *, at_once: bool
) -> None:
    if not at_once:
        monkeypatch.setattr(turns, "TURN_S", 0.0)
        monkeypatch.setattr(turns, "LEAST_S", 0.0)
    close = quick.sink.transport.close
    quick.slow = close if at_once else lambda: asyncio.get_running_loop().call_soon(close)
    quick.send_run(*run(20, 5, 20))
    await until(lambda: quick.taken)
    await asyncio.sleep(0.02)
    assert len(quick.taken) == 1


@here
async def test_what_is_longer_than_a_datagram_of_ours_is_cut_off(quick: Quick) -> None:
    """As a plain read does: nobody makes this end keep, or parse, 64 KiB."""
    quick.send(DTLS * 60_000)
    quick.send_run(DTLS * 9_000, DTLS * 9_000, DTLS * 9)
    await until(lambda: len(quick.taken) == 4)
    assert quick.taken == [DTLS * 2_048, DTLS * 2_048, DTLS * 2_048, DTLS * 9]


@here
@pytest.mark.parametrize("number", sorted(segments.REFUSED))
async def test_a_path_that_takes_no_runs(quick: Quick, number: int) -> None:
    """Nothing of the run is lost, and it is not tried there again; nobody hears of an error."""
    sent = run(1_200, 3, 700)
    put, system = way(quick, number)
    for _ in range(2):
        put(b"".join(sent), 1_200)
        assert [quick.sender.recv(2_048) for _ in sent] == sent
    assert (system.runs, system.singles) == (1, 8)
    assert quick.sink.errors == []


@here
async def test_a_run_that_the_system_has_no_room_for_is_lost(quick: Quick) -> None:
    """As single ones are. What else goes wrong is told, once, and the next run is tried as one."""
    put, system = way(quick, errno.EAGAIN, errno.EPERM)
    sent = run(1_200, 3, 700)
    for _ in range(3):
        put(b"".join(sent), 1_200)
    assert [quick.sender.recv(2_048) for _ in sent] == sent
    assert (system.runs, system.singles) == (3, 0)
    assert [error.errno for error in quick.sink.errors if isinstance(error, OSError)] == [errno.EPERM]


async def test_one_alone_is_no_run(quick: Quick) -> None:
    put, system = way(quick)
    put(DTLS, 1)
    assert quick.sender.recv(2_048) == DTLS
    assert (system.runs, system.singles) == (0, 1)


@pytest.mark.parametrize("sends", [True, False])
@pytest.mark.parametrize("joins", [True, False])
async def test_connections_where_the_system_has_less(
    monkeypatch: pytest.MonkeyPatch, *, sends: bool, joins: bool
) -> None:
    """Older kernels and other systems have neither, or one of both: what comes is the same."""
    if not sends:
        monkeypatch.setattr(segments, "works", lambda: False)
    if not joins:
        monkeypatch.setattr(segments, "join", lambda sock: False)
    async with connected() as (near, far):
        for size in (1, 1_200, 10_240, 65_000):
            await echoed(near, far, bytes(range(256)) * (size // 256) + b"x" * (size % 256))


@here
async def test_a_connection_whose_path_takes_no_runs_any_more() -> None:
    """As where its MTU shrinks: in the middle of it."""
    async with connected() as (near, far):
        await echoed(near, far, b"x" * 20_000)
        transport = near.pair.protocol.transport
        real, transport._sock = transport._sock, System(transport._sock, errno.EMSGSIZE)
        system = transport._sock
        try:
            near.dtls._pair = None
            await echoed(near, far, b"y" * 20_000)
            await echoed(near, far, b"z" * 20_000)
        finally:
            transport._sock, near.dtls._pair = real, None
        assert system.runs == 1
        assert system.singles > 34


def test_a_system_without_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that refuses them, one that takes a run for a single datagram, and others than Linux."""

    def none(*_: Any) -> None:
        raise OSError(errno.ENOPROTOOPT, "Protocol not available")

    class One(socket.socket):
        def sendmsg(self, data: Any, *args: Any) -> int:
            return self.sendto(data[0], args[-1])

    assert segments.join(SimpleNamespace(setsockopt=none)) is False
    monkeypatch.setattr(segments, "TRY_S", 0.01)
    with _fresh():
        monkeypatch.setattr(segments, "_socket", lambda: One(socket.AF_INET, socket.SOCK_DGRAM))
        assert segments.works() is False
    with _fresh():
        monkeypatch.setattr(segments, "_socket", none)
        assert segments.works() is False
    with _fresh():
        monkeypatch.setattr(sys, "platform", "darwin")
        assert segments.works() is False
        assert segments.join(SimpleNamespace(setsockopt=lambda *a: None)) is False


SMALL_MTU = """
import asyncio, socket, types
from pooled_nb.mesh.sctp import datagrams, segments

async def main():
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to:
        to.bind(("127.0.0.1", 0))
        to.settimeout(5)
        protocol = types.SimpleNamespace(transport=transport, error_received=print)
        put = datagrams.way(types.SimpleNamespace(protocol=protocol, remote_addr=to.getsockname()))
        put(b"a" * 1200 + b"b" * 1200 + b"c" * 700, 1200)
        print(segments.works(), [len(to.recv(2048)) for _ in range(3)])
    transport.close()

asyncio.run(main())
"""


@here
def test_a_path_of_a_small_mtu() -> None:
    """A run is refused there, where single datagrams pass in fragments."""
    line = ["unshare", "-rn", "sh", "-ec", 'ip link set lo mtu 1000 up; exec "$0" -c "$1"']
    trial = subprocess.run([*line[:4], line[4].partition(";")[0]], capture_output=True, check=False)
    if trial.returncode:
        pytest.skip("no network of the test's own can be made here")
    done = subprocess.run(
        [*line, sys.executable, SMALL_MTU], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    assert done.stdout == "True [1200, 1200, 700]\n", done.stderr


class _fresh:
    """`works` is asked anew, and again afterwards."""

    def __enter__(self) -> None:
        segments.works.cache_clear()

    def __exit__(self, *_: object) -> None:
        segments.works.cache_clear()


def _has_v6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True
