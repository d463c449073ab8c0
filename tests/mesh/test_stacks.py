"""The WebRTC stacks behind one seam: which there are, and that their two ends understand each other."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from pooled_nb.errors import BadOption, LinkFailed
from pooled_nb.mesh import descriptions, sctp, stacks
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.rtcnetwork import RtcNetwork
from tests.mesh.rtctools import HandClock, Inbox, Pair, close, join, nothing_left, served, until

MIXED = [(one, other) for one in stacks.NAMES for other in stacks.NAMES if one != other]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no process forks here")
LEAVES = """
import asyncio, atexit, os, sys
from tests.mesh.rtctools import HandClock, Inbox, Pair, join
async def main():
    near, far = Pair({name!r}, {name!r})()
    await join(near, far)
    child = os.fork() if {forks} else 0
    if {forks} and child == 0:
        atexit._run_exitfuncs()  # not the loop: its sockets are the parent's, too
        os._exit(0)
    box = Inbox(far.wire)
    near.wire.send(b"here")
    assert await box.get() == b"here"
    assert not child or os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert "aiortc" not in sys.modules or {name!r} == "aiortc"
asyncio.run(main())
"""


def test_names(monkeypatch: pytest.MonkeyPatch):
    """What a setting may say; what is not here is one error, with what to do."""
    assert stacks.DEFAULT in stacks.available()
    assert set(stacks.versions()) == set(stacks.available())
    with pytest.raises(BadOption, match="aiortc or wrtc"):
        stacks.get("quic")
    monkeypatch.setattr(stacks, "find_spec", lambda name: None if name == "wrtc" else object())
    assert stacks.available() == ("aiortc",)
    with pytest.raises(BadOption, match=r"not installed.*pip install 'pooled-nb\[wrtc\]'"):
        RtcNetwork(HandClock(), IcePolicy.local(), transport="wrtc")


async def test_one_is_loaded_off_the_loop(monkeypatch: pytest.MonkeyPatch, transport: str):
    """DESIGN section 3: nothing blocks the loop above 50 ms, and a stack takes some 400 to load."""
    loads: list[int] = []
    load = stacks.get
    monkeypatch.setattr(stacks, "get", lambda name: (loads.append(threading.get_ident()), load(name))[1])
    async with nothing_left(), served() as server:
        network = RtcNetwork(LoopClock(), IcePolicy.local(), transport=transport)
        assert loads == []
        for name in ("a", "b"):
            await (await network.register(name, [server.url])).close()
    assert len(loads) == 1
    assert threading.get_ident() not in loads


async def test_one_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch):
    """A package of another system, or half an installation, is said in words before the first connection."""
    from pooled_nb.mesh.stacks import over_wrtc

    def broken(name: str) -> object:
        raise ImportError("no such symbol")

    monkeypatch.setattr(over_wrtc, "_loaded", [])
    monkeypatch.setattr(over_wrtc, "import_module", broken)
    with pytest.raises(BadOption, match=r"cannot be loaded: no such symbol\. Run: "):
        await over_wrtc.WrtcStack().settle()


@pytest.mark.parametrize(("near", "far"), MIXED)
async def test_each_understands_the_other(near: str, far: str):
    """PROTOCOL sections 4 and 5: channels, fingerprints, paths and closing are the same, whoever dials."""
    for name in (near, far):
        if name not in stacks.available():
            pytest.skip(f"the package {name} is not installed")
    async with nothing_left():
        for closes in (0, 1):
            ends = Pair(near, far)()
            heard: list[str] = []
            ends[1 - closes].on_state = heard.append
            await join(*ends)
            assert ends[0].fingerprints() == (ends[1].fingerprints() or ())[::-1]
            for one, other in (ends, ends[::-1]):
                boxes = [Inbox(channel) for channel in (other.control, other.wire, other.keepalive)]
                for n, channel in enumerate((one.control, one.wire, one.keepalive)):
                    for i in range(40):
                        channel.send(bytes([n, i]) * 2_300)
                    assert [await boxes[n].get() for i in range(40)] == [
                        bytes([n, i]) * 2_300 for i in range(40)
                    ]
                assert one.path == "direct"
            await ends[closes].close()
            await until(lambda heard=heard: heard[-1:] == ["closed"])
            await close(*ends)


@pytest.mark.skipif("wrtc" not in stacks.available(), reason="the package wrtc is not installed")
async def test_who_aborts_the_association_alone():
    """RFC 9260 section 9.1: all channels end, as those above are told."""
    async with nothing_left():
        near, far = Pair("aiortc", "wrtc")()
        await join(near, far)
        ended: list[str] = []
        for name in ("control", "wire", "keepalive"):
            getattr(far, name).on_close = lambda name=name: ended.append(name)
        await near._peer.pc.sctp.stop()  # type: ignore[attr-defined]
        await until(lambda: sorted(ended) == ["control", "keepalive", "wire"])
        await close(near, far)


async def test_who_breaks_a_bound_of_the_association_is_gone():
    """PROTOCOL section 2: memory is bounded; the connection fails with the reason."""
    assert sctp.verdict().tuned, sctp.verdict().why
    async with nothing_left():
        near, far = Pair("aiortc", "aiortc")()
        await join(near, far)
        far._peer.pc.sctp.on_abort("it sends too many streams")  # type: ignore[attr-defined]
        assert (far.state, far.failure) == ("failed", "it sends too many streams")
        await close(near, far)


async def test_what_is_too_long_is_one_error(pair: Pair):
    """A message above what the other end takes is refused in words, and the channel goes on."""
    async with nothing_left():
        near, far = pair()
        await join(near, far)
        box = Inbox(far.control)
        with pytest.raises(LinkFailed, match="was not sent"):
            near.control.send(bytes(600_000))
        near.control.send(b"next")
        assert await box.get() == b"next"
        await close(near, far)


async def test_text_is_no_message(pair: Pair):
    """PROTOCOL section 3: text on a binary channel is ignored, on each stack."""
    async with nothing_left():
        near, far = pair()
        await join(near, far)
        box = Inbox(far.control)
        near._control._channel._channel.send("text")  # type: ignore[union-attr]
        near.control.send(b"bytes")
        assert await box.get() == b"bytes"
        await close(near, far)


async def test_no_description(pair: Pair):
    """PROTOCOL section 2: what a stack cannot read is one error, and the device goes on."""
    async with nothing_left():
        near, far = pair()
        half = "v=0\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n"
        with pytest.raises(LinkFailed, match="did not understand"):
            await far.answer(descriptions.Taken(half, "", ()))
        assert far.state == "failed"
        await close(near, far)


@pytest.mark.parametrize("forks", [False, pytest.param(True, marks=needs_fork)])
def test_a_process_ends_with_connections_open(transport: str, forks: bool):
    """Who ends a kernel, or forks it, closes nothing first: no crash, and no wait. wrtc brings no aiortc."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", LEAVES.format(name=transport, forks=forks)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "Fatal" in done.stderr) == (0, False), done.stderr
