"""The mesh thread's loop, as it is on Windows: by construction, with what exists there alone in its place."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pooled_nb.mesh import loop as loops
from pooled_nb.mesh.loop import Datagrams, new_loop

REFUSED = ConnectionResetError(10054, "nobody listens on the port that was sent to")


class Heard(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.errors: list[Exception] = []

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.data.append(data)

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)


class Reads:
    """What the proactor hands out: a read, which a test ends as it likes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.open: asyncio.Future[Any] | None = None
        self.refusals = 0

    def recvfrom(self, sock: Any, size: int) -> asyncio.Future[Any]:
        if self.refusals:  # newer Pythons raise it here
            self.refusals -= 1
            raise REFUSED
        self.open = self.loop.create_future()
        return self.open

    def _stop_serving(self, sock: Any) -> None: ...


@pytest.fixture
def udp() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        yield sock


async def reading(monkeypatch: pytest.MonkeyPatch, sock: socket.socket) -> tuple[Reads, Heard, Any]:
    monkeypatch.setattr(loops, "AGAIN_S", 0.0)
    loop = asyncio.get_running_loop()
    reads, heard = Reads(loop), Heard()
    monkeypatch.setattr(loop, "_proactor", reads, raising=False)
    transport = Datagrams(loop, sock, heard, None, None, None)
    await settled(lambda: reads.open is not None)
    return reads, heard, transport


async def settled(so: Any) -> None:
    for _ in range(100):
        if so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


async def test_a_refused_packet_does_not_end_the_reading(
    monkeypatch: pytest.MonkeyPatch, udp: socket.socket
) -> None:
    """DESIGN section 4: looking for a path sends to ports where nobody listens; it still reads."""
    reads, heard, transport = await reading(monkeypatch, udp)
    first = reads.open
    assert first is not None
    reads.refusals = 2
    first.set_exception(REFUSED)
    await settled(lambda: reads.open is not first)
    assert heard.errors == [REFUSED] * 3
    assert reads.open is not None
    reads.open.set_result((b"hello", ("127.0.0.1", 9)))
    await settled(lambda: heard.data)
    assert heard.data == [b"hello"]
    transport.close()
    await asyncio.sleep(0)


async def test_a_closed_socket_is_not_read_again(monkeypatch: pytest.MonkeyPatch, udp: socket.socket) -> None:
    reads, heard, transport = await reading(monkeypatch, udp)
    first = reads.open
    assert first is not None
    transport.close()
    await asyncio.sleep(0.01)
    assert reads.open is first
    assert heard.errors == []


def test_on_windows_the_loop_is_the_kind_that_starts_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 3: the shard is a process; a policy set by Jupyter must not take that away."""

    class Proactor(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return 0.0

    policy = asyncio.get_event_loop_policy()
    monkeypatch.setattr(asyncio, "ProactorEventLoop", Proactor, raising=False)
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: pytest.fail("the policy was asked"))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        loop = new_loop()
    try:
        assert isinstance(loop, Proactor)
        before = time.perf_counter()
        assert before <= loop.time() <= time.perf_counter()
        assert "_make_datagram_transport" in vars(type(loop))
    finally:
        loop.close()
    assert asyncio.get_event_loop_policy() is policy


def test_the_loops_timers_keep_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer that was set by one clock and judged by another would fire never, or always."""

    class Proactor(asyncio.SelectorEventLoop):
        def __init__(self) -> None:
            super().__init__()
            self._clock_resolution = 0.5  # on Windows 0.0156, of a clock that is not ours

    monkeypatch.setattr(asyncio, "ProactorEventLoop", Proactor, raising=False)
    loop = loops._windows_loop()
    fired = SimpleNamespace(at=0.0)

    async def wait() -> None:
        start = loop.time()
        loop.call_later(0.02, lambda: setattr(fired, "at", loop.time() - start))
        while not fired.at:  # noqa: ASYNC110 - a busy loop: an idle one sleeps until then anyhow
            await asyncio.sleep(0)

    loop.run_until_complete(wait())
    loop.close()
    assert fired.at >= 0.015


@pytest.mark.skipif(sys.platform == "win32", reason="the other kind is Windows' own")
def test_elsewhere_it_is_the_policys() -> None:
    """A program's choice of loop holds for ours too, where every kind can do all we need."""
    loop = new_loop()
    assert isinstance(loop, asyncio.SelectorEventLoop)
    loop.close()
