"""What the trial of tuned connections finds (DESIGN section 4): nothing here, and each fault put in."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from aiortc import RTCConfiguration, RTCPeerConnection

from pooled_nb.mesh.sctp import trial
from pooled_nb.mesh.sctp.dtls import Dtls
from pooled_nb.mesh.sctp.peer import Peer


def found(make: trial.Make | None = None) -> str:
    """In a thread without a loop, as the door calls it; leaves no thread and no loop."""
    told: list[str] = []
    thread = threading.Thread(target=lambda: told.append(trial.run(make)))
    thread.start()
    thread.join(20)
    return told[0]


async def test_nothing_is_wrong_here() -> None:
    assert found() == ""


async def test_it_blocks_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step of it is long, on the loop that it has: a timer every 5 ms is never kept waiting for 50 ms."""
    took: list[float] = []
    clock = time.thread_time  # of this thread's CPU: what else runs on the machine does not count
    real = asyncio.events.Handle._run

    def run(self: Any) -> None:
        began = clock()
        real(self)
        took.append(clock() - began)

    monkeypatch.setattr(asyncio.events.Handle, "_run", run)
    assert found() == ""
    assert len(took) > 100
    assert max(took) < 0.05


class SendsNothing(Peer):
    def _dtls(self) -> Dtls:
        dtls: Any = super()._dtls()
        dtls.send_now = lambda packets: None
        return dtls  # type: ignore[no-any-return]


class RepeatsNothing(Peer):
    """What is lost stays lost."""

    def _dtls(self) -> Dtls:
        dtls: Any = super()._dtls()
        real, sent = dtls.send_now, set()

        def send_now(packets: Sequence[bytes]) -> None:
            for packet in packets:
                tsn = packet[16:20] if packet[12] == 0 else None
                if tsn is None or tsn not in sent:
                    sent.add(tsn)
                    real([packet])

        dtls.send_now = send_now
        return dtls  # type: ignore[no-any-return]


class HearsNothing(Peer):
    def createDataChannel(self, *args: Any, **options: Any) -> Any:
        channel = super().createDataChannel(*args, **options)
        association: Any = self.sctp

        def receive_now(packet: bytes) -> None:
            raise ValueError

        association.receive_now = receive_now
        return channel


class Swaps(Peer):
    """Hands messages over in another order, two by two."""

    def createDataChannel(self, *args: Any, **options: Any) -> Any:
        channel: Any = super().createDataChannel(*args, **options)
        emit, held = channel.emit, []

        def swapped(event: str, *args: Any) -> Any:
            if event != "message":
                return emit(event, *args)
            held.append(args)
            while len(held) == 2:
                emit(event, *held.pop())
                emit(event, *held.pop())
            return True

        channel.emit = swapped
        return channel


class FailsLater(Peer):
    def createDataChannel(self, *args: Any, **options: Any) -> Any:
        def fail() -> None:
            raise KeyError

        asyncio.get_running_loop().call_later(0.02, fail)
        return super().createDataChannel(*args, **options)


class HearsNoClose(Peer):
    async def close(self) -> None:
        """Goes on."""


class Refuses(Peer):
    def createDataChannel(self, *args: Any, **options: Any) -> Any:
        raise AttributeError


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (SendsNothing, "opening a connection: nothing came of it"),
        (HearsNothing, "opening a connection: nothing came of it"),
        (Swaps, "small messages: "),
        (RepeatsNothing, "a message that loses packets: nothing came of it"),
        (FailsLater, ": KeyError"),
        (HearsNoClose, "closing a connection: nothing came of it"),
        (Refuses, "opening a connection: AttributeError"),
    ],
)
async def test_a_fault_is_found(make: trial.Make, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "LIMIT_S", 1.2)
    monkeypatch.setattr(trial, "TRIES", 1)
    assert why in found(make)


async def test_a_machine_that_was_busy_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once more, and no more often; what was found wrong is not asked again."""
    made: list[Any] = []

    def counted(make: trial.Make) -> trial.Make:
        made.clear()

        def one(configuration: RTCConfiguration) -> RTCPeerConnection:
            made.append(configuration)
            return make(configuration)

        return one

    monkeypatch.setattr(trial, "LIMIT_S", 0.3)
    assert "nothing came of it" in found(counted(SendsNothing))
    assert len(made) == 2 * trial.TRIES
    monkeypatch.setattr(trial, "LIMIT_S", 2.0)
    assert "AttributeError" in found(counted(Refuses))
    assert len(made) == 2

    def better_soon(configuration: RTCConfiguration) -> RTCPeerConnection:
        return (SendsNothing if len(made) <= 2 else Peer)(configuration)

    assert found(counted(better_soon)) == ""
    assert len(made) == 4
