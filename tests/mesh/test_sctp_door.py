"""Tuned or stock: who decides it, when, and what is said about it (DESIGN section 4)."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest
from aiortc import RTCConfiguration, RTCPeerConnection

from pooled_nb.mesh import sctp
from pooled_nb.mesh.network import ConnectionStats
from pooled_nb.mesh.sctp import pin, trial
from pooled_nb.mesh.sctp.judge import REPORT, UNTRIED, UPDATE, Judge, Verdict
from pooled_nb.mesh.sctp.peer import Peer
from tests.mesh.rtctools import Inbox, linked, nothing_left, registered, served

CONFIGURATION = RTCConfiguration(iceServers=[])


def judge(trial: Callable[[], str] = lambda: "", **options: Any) -> Judge:
    return Judge(trial, **{"misfit": lambda: "", "env": {}, **options})


# which aiortc is known


def test_the_installed_aiortc_is_the_known_one() -> None:
    """Fails on the day when another minor is installed: read it, try it, and then change `pin.KNOWN`."""
    have = {name: metadata.version(name) for name in pin.KNOWN}
    assert pin.misfit() == "", f"pooled_nb tunes {pin.KNOWN}, and {have} is installed: links will be slower"


@pytest.mark.parametrize(
    ("aiortc", "aioice", "names"),
    [
        ("1.16.0", "0.13.0", ""),
        ("1.16.4", "0.13.2", ""),
        ("1.17.0", "0.13.0", "aiortc 1.17.0"),
        ("1.1.16", "0.13.0", "aiortc 1.1.16"),
        ("2.16.0", "0.13.0", "aiortc 2.16.0"),
        ("1.160", "0.13.0", "aiortc 1.160"),
        ("1.16.0", "0.14.0", "aioice 0.14.0"),
        ("", "0.13.0", "aiortc"),
    ],
)
def test_another_minor_is_not_known(aiortc: str, aioice: str, names: str) -> None:
    def have(name: str) -> str:
        found = {"aiortc": aiortc, "aioice": aioice}[name]
        if not found:
            raise metadata.PackageNotFoundError
        return found

    said = pin.misfit(have)
    assert (names in said) if names else said == ""


# the verdict


async def test_it_is_found_once() -> None:
    """However many rooms, loops and threads ask, at once and later."""
    tries: list[int] = []
    go = threading.Event()

    def trial() -> str:
        tries.append(threading.get_ident())
        go.wait(10)
        return ""

    one = judge(trial)
    assert one.verdict is UNTRIED
    told: list[Verdict] = []
    threads = [threading.Thread(target=lambda: told.append(asyncio.run(one.settle()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    here = [asyncio.create_task(one.settle()) for _ in range(8)]
    await asyncio.sleep(0.01)
    here[0].cancel()  # a room that is given up while it opens
    await asyncio.sleep(0)
    assert one.verdict is UNTRIED
    go.set()
    told += await asyncio.gather(*here[1:])
    for thread in threads:
        await asyncio.to_thread(thread.join, 10)
    assert told == [Verdict(True)] * 15
    assert (await one.settle(), one.verdict) == (Verdict(True), Verdict(True))
    assert len(tries) == 1
    assert tries[0] != threading.get_ident()


async def test_what_is_wrong_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    one = judge(lambda: "closing a channel: what came differs")
    for _ in range(3):
        assert await one.settle() == Verdict(False, "closing a channel: what came differs", REPORT)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        (
            "WARNING",
            "data channels: stock aiortc (closing a channel: what came differs): links are slower. " + REPORT,
        )
    ]


async def test_that_all_is_well_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    one = judge()
    for _ in range(3):
        await one.settle()
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO", "data channels: tuned for aiortc 1.16")
    ]


async def test_another_version_is_not_tried() -> None:
    one = judge(_never, misfit=lambda: "aiortc 1.17.0 is another")
    assert await one.settle() == Verdict(False, "aiortc 1.17.0 is another", UPDATE)


@pytest.mark.parametrize("value", ["stock", " STOCK "])
async def test_a_person_may_say_stock(value: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    found = await judge(_never, env={"POOLED_SCTP": value}).settle()
    assert (found.tuned, found.why) == (False, "POOLED_SCTP=stock is set")
    assert "unset POOLED_SCTP" in found.step
    assert [r.levelname for r in caplog.records] == ["INFO"]  # it was asked for


async def test_a_setting_that_says_nothing_hides_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await judge(lambda: "closing: what came differs", env={"POOLED_SCTP": "tuned"}).settle()
    assert [r.levelname for r in caplog.records] == ["WARNING"]


async def test_a_trial_that_raises_or_hangs() -> None:
    let_go = threading.Event()

    def broken() -> str:
        raise SystemExit

    assert (await judge(broken).settle()).why == "the trial of it failed with SystemExit"
    one = judge(lambda: "" if let_go.wait(10) else "x", wait=0.05)
    late = Verdict(False, "the trial of it did not end", REPORT)
    assert await one.settle() == late
    let_go.set()
    await asyncio.sleep(0.02)
    assert one.verdict == late  # connections that were made meanwhile are stock


# connections


async def test_as_the_verdict_says(monkeypatch: pytest.MonkeyPatch) -> None:
    one = judge(lambda: "it is broken")
    monkeypatch.setattr(sctp, "_judge", one)
    windows = sctp.Windows()
    for _ in range(2):  # before there is a verdict, and after it
        pc = sctp.peer_connection(CONFIGURATION, windows.of("a"))
        pc.createDataChannel("x")
        assert type(pc) is RTCPeerConnection
        assert (sctp.stats(pc), windows.of("a")) == (None, None)
        await pc.close()
        await sctp.settle()
    assert sctp.verdict() == one.verdict


async def test_tuned_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sctp, "_judge", judge())
    assert (await sctp.settle()).tuned
    pc = sctp.peer_connection(CONFIGURATION, sctp.Windows().of("a"))
    assert isinstance(pc, Peer)
    assert sctp.stats(pc) is None  # nothing to count yet
    pc.createDataChannel("x")
    assert isinstance(sctp.stats(pc), ConnectionStats)
    await pc.close()


async def test_others_who_use_aiortc_have_it_as_it_comes() -> None:
    """A kernel may hold a person's own connections."""
    assert sctp.verdict().tuned
    pc: Any = RTCPeerConnection(CONFIGURATION)
    pc.createDataChannel("x")
    assert {type(part).__module__.partition(".")[0] for part in (pc, pc.sctp, pc.sctp.transport)} == {
        "aiortc"
    }
    await pc.close()


async def test_media_is_aiortcs_own() -> None:
    """A peer may offer what no room has."""
    pc = Peer(CONFIGURATION)
    pc.addTransceiver("audio", direction="recvonly")
    pc.createDataChannel("x")
    assert type(pc.sctp).__module__ == "aiortc.rtcsctptransport"
    assert pc.stats() is None
    await pc.close()


async def test_a_window_for_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared by its link and its stripes, and gone with the last of them."""
    monkeypatch.setattr(sctp, "_judge", judge())
    await sctp.settle()
    windows = sctp.Windows()
    first, other = windows.of("a"), windows.of("b")
    assert first is windows.of("a")
    assert first is not other
    pcs = [sctp.peer_connection(CONFIGURATION, windows.of("a")) for _ in range(2)]
    del first, other
    gc.collect()
    assert list(windows._windows) == ["a"]
    for pc in pcs:
        await pc.close()
    del pc, pcs
    gc.collect()
    assert not windows._windows


# a room all the same


def _never() -> str:
    raise AssertionError("tried")


class Broken(Peer):
    """Of another aiortc than the one that is known."""

    def _RTCPeerConnection__createSctpTransport(self) -> None:
        raise AttributeError("_data_channel_flush")


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (lambda: judge(lambda: trial.run(Broken)), "opening a connection: AttributeError"),
        (lambda: judge(_never, misfit=lambda: "aiortc 1.17.0 is another"), "aiortc 1.17.0 is another"),
    ],
)
async def test_where_it_is_not_known_links_are_stock(
    one: Callable[[], Judge], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sctp, "_judge", one())
    async with nothing_left(), served() as server, registered(server.url) as a, registered(server.url) as b:
        near, far = await linked(a, b)
        assert sctp.verdict().why == why
        inbox = Inbox(far.wire)
        for data in (b"x", b"y" * 60_000):
            near.wire.send(data)
            assert await inbox.get() == data
        assert near.stats() is None
