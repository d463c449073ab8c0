"""``pooled-nb doctor``: its probes against real sockets, servers and processes."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pooled_nb.doctor import channels, examination, folders, network, relay, signaling, stun, udp, versions
from pooled_nb.doctor.device import look as look_at_device
from pooled_nb.doctor.examination import examined
from pooled_nb.doctor.findings import Finding
from pooled_nb.mesh import sctp, stacks
from pooled_nb.mesh.addresses import own_addresses
from pooled_nb.mesh.sctp.judge import REPORT, Judge
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.turnmint import TurnMint
from tests.front.udpservers import answering as server
from tests.front.udpservers import binding, refusal
from tests.front.udpservers import relay as turn_server
from tests.mesh.rtctools import nothing_left, served

SECRET = "hunter2hunter2"


async def test_udp_of_this_machine() -> None:
    async with nothing_left():
        seen = await udp.look()
    assert [one.problem for one in seen if one.loopback] == [""]


async def test_stun_over_real_packets() -> None:
    """RFC 8489: a binding request, and what the server saw."""
    async with nothing_left(), server(binding()) as one, server(binding()) as two:
        urls = [f"stun:127.0.0.1:{port}" for port in (one, two)]
        seen = await stun.look(urls)
        assert [s.problem for s in seen] == ["", ""]
        assert len({s.mapped for s in seen}) == 1
        async with server(binding(shift=7)) as other:
            seen = await stun.look([urls[0], f"stun:127.0.0.1:{other}"])
            assert len({s.mapped for s in seen}) == 2


async def test_stun_that_does_not_answer() -> None:
    """A black hole, noise, a name that is none: words, within the limit."""
    noise = [b"", b"\x00" * 30, b"\x01\x01\x00\x08" + b"x" * 24]
    async with nothing_left(), server(lambda m, a: None) as silent, server(lambda m, a: noise[1]) as loud:
        seen = await stun.look(
            [f"stun:127.0.0.1:{silent}", f"stun:127.0.0.1:{loud}", "stun:no-such-name.invalid"], limit=0.4
        )
    assert [one.problem for one in seen][:2] == ["no answer", "no answer"]
    assert seen[2].problem in ("its name is not found", "no answer")
    assert [one.server for one in seen][2] == "no-such-name.invalid"


async def test_stun_asks_again() -> None:
    """UDP loses packets: the first one is not the last."""
    asked = 0

    def second(request: object, addr: tuple[str, int]) -> object:
        nonlocal asked
        asked += 1
        return binding()(request, addr) if asked == 2 else None  # type: ignore[arg-type]

    async with server(second) as port:  # type: ignore[arg-type]
        [seen] = await stun.look([f"stun:127.0.0.1:{port}"])
    assert (seen.problem, asked) == ("", 2)


async def asked(setting: str) -> relay.Relay:
    [seen] = await relay.look(await network.read({"POOLED_TURN": setting}))
    return seen


async def test_relay_that_lets_us_in() -> None:
    async with nothing_left(), server(turn_server("alice", SECRET)) as port:
        seen = await asked(f"turn:alice:{SECRET}@127.0.0.1:{port}")
        assert (seen.place, seen.problem) == (f"127.0.0.1:{port}", "")


async def test_relay_that_refuses() -> None:
    """What is told has neither user nor password (DESIGN section 7)."""
    async with server(turn_server("alice", "another")) as port:
        seen = await asked(f"turn:alice:{SECRET}@127.0.0.1:{port}")
        assert seen.problem == "it refuses this user or password"
    async with server(lambda request, addr: refusal(request, 486)) as port:
        seen = await asked(f"turn:alice:{SECRET}@127.0.0.1:{port}")
        assert "quota" in seen.problem
    assert "alice" not in repr(seen)
    assert SECRET not in repr(seen)


async def test_relay_that_cannot_be_read_or_is_none() -> None:
    assert await relay.look(await network.read({})) == []
    seen = await asked(f"http://alice:{SECRET}@x")
    assert (seen.place, "POOLED_TURN" in seen.problem) == ("", True)
    assert SECRET not in repr(seen)


async def test_relays_that_a_signaling_server_names() -> None:
    """PROTOCOL section 2, ICE: where none is set, the deployment is asked; each relay of it is tried."""
    mint = TurnMint(uris=("turn:127.0.0.1:9", "turn:127.0.0.1:9?transport=tcp"), secret=b"shared")
    signal = await SignalServer.start(host="0.0.0.0", mint=mint)
    where = next(iter(own_addresses()), None)
    if where is None:
        pytest.skip("this machine has no network")
    nothing = await network.read({})
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(relay, "ANSWER_S", 0.5)
            spec = f"ws://{where}:{signal.port}/"
            seen = await relay.look(nothing, [spec, "not a spec", signal.url])
        assert [(one.place, one.source, one.given) for one in seen] == [("127.0.0.1:9", spec, True)] * 2
        assert [one.problem for one in seen] == ["no answer", "nothing answers at this port"]
        assert await relay.look(await network.read({"POOLED_TURN": "off"}), [spec]) == []
    finally:
        await signal.close()
    assert await relay.look(nothing, [spec]) == []


async def test_signaling_servers() -> None:
    """PROTOCOL section 2: each is asked for an id, as a room does; the embedded one too."""
    with socket.create_server(("127.0.0.1", 0)) as deaf, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        async with nothing_left(), served() as up:
            wanted = [
                up.url,
                f"ws://127.0.0.1:{closed.getsockname()[1]}/",
                f"ws://127.0.0.1:{deaf.getsockname()[1]}/",
                "ftp://alice:hunter2@x/",
            ]
            seen = await signaling.look(wanted, limit=1.0)
    embedded, good, refused, silent, bad = seen
    assert (embedded.shown, embedded.problem) == ("embedded", "")
    assert (good.shown, good.problem) == (up.url, "")
    assert "refused" in refused.problem
    assert silent.problem == "no answer"
    assert "ftp" in bad.problem
    assert "hunter2" not in bad.shown


async def test_data_channels_open() -> None:
    """DESIGN section 4: a real pair over loopback, bytes there and back."""
    async with nothing_left():
        seen = await channels.look()
    assert seen.problem == ""
    assert seen.ms is not None
    assert (seen.tuned, seen.stock, seen.step) == ("aiortc 1.16", "", "")


async def test_data_channels_that_are_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 4: they open and work, and it is said why they are slower, and what to do."""
    monkeypatch.setattr(sctp, "_judge", Judge(lambda: "closing a channel: what came differs", env={}))
    async with nothing_left():
        seen = await channels.look()
    assert (seen.problem, seen.ms is None) == ("", False)
    assert (seen.tuned, seen.stock, seen.step) == ("", "closing a channel: what came differs", REPORT)


async def test_data_channels_over_what_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rooms would run on is looked at, not the default; where it is not there, it is said what to do."""
    network_of = await network.read({"POOLED_TRANSPORT": stacks.DEFAULT})
    assert network_of.transport == stacks.DEFAULT
    if "wrtc" in stacks.available():
        assert (await network.read({"POOLED_TRANSPORT": "wrtc"})).transport == "wrtc"
        async with nothing_left():
            seen = await channels.look("wrtc")
        assert (seen.problem, seen.over, seen.tuned) == ("", "wrtc", "")
        assert channels.judge(seen)[0].result.endswith(" ms; over wrtc")
    monkeypatch.setattr(stacks, "available", lambda: (stacks.DEFAULT,))
    [found] = channels.judge(await channels.look("wrtc"))
    assert (found.mark, "not installed" in found.result) == ("fail", True)
    assert "pooled-nb[wrtc]" in found.todo


async def test_a_setting_of_the_wire_that_cannot_be_read_is_no_relay() -> None:
    for env in ({"POOLED_STRIPES": "9"}, {"POOLED_SCTP": "fast"}):
        [found] = relay.judge(await relay.look(await network.read(env)))
        assert (found.what, found.mark) == ("network settings", "fail")
        assert next(iter(env)) in found.result
        assert "Choose" in found.todo


async def test_the_models_disk() -> None:
    seen = folders.look_at_disk()
    assert seen.writable
    assert seen.free_gb is not None
    assert seen.free_gb > 0


async def test_a_device_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch does not load, its process says so, and this one goes on."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    seen = await look_at_device()
    assert seen.facts is None
    assert "cannot be imported here" in seen.problem
    assert "pip install" in seen.step


def test_a_probe_that_hangs_does_not_hold_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver or a disk that hangs: words in its place, and nobody waits for its thread."""
    let_go = threading.Event()

    def hang() -> folders.Disk:
        let_go.wait(30)
        raise OSError("too late")

    async def broken() -> list[udp.Udp]:
        raise ValueError("secret words of a library")

    async def missing(over: str) -> channels.Channels:
        raise ImportError("x", name="aiortc.something")

    monkeypatch.setattr(folders, "look_at_disk", hang)
    monkeypatch.setattr(udp, "look", broken)
    monkeypatch.setattr(channels, "look", missing)
    monkeypatch.setattr(examination, "FILES_S", 0.1)
    monkeypatch.setattr(
        versions,
        "look",
        lambda: versions.Versions(
            python="3.11.7",
            python_wants=">=3.11",
            packages=[versions.Package(name="torch", have=None, wants=">=2.9")],
        ),
    )
    try:
        found = {finding.what: finding for finding in examined([], {"POOLED_STUN": "off"})}
    finally:
        let_go.set()
    assert (found["disk for models"].mark, found["disk for models"].result) == (
        "warn",
        "no answer within 0 s",
    )
    assert (found["UDP"].mark, found["UDP"].result) == ("fail", "this check itself failed: ValueError")
    assert (found["data channels"].mark, found["data channels"].result) == (
        "skip",
        "not looked at: aiortc is not installed, or does not load",
    )
    assert found["torch"].mark == "fail"
    assert (found["device"].mark, "as a guest" in found["device"].result) == ("skip", True)
    assert found["signaling, embedded"].mark == "ok"


def doctor(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    look = (
        "import sys; from pooled_nb.cli import main; status = main(sys.argv[1:]); "
        "assert not {'torch', 'transformers'} & set(sys.modules); sys.exit(status)"
    )
    return subprocess.run(
        [sys.executable, "-c", look, "doctor", *argv],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONIOENCODING": "utf-8", **env},
        timeout=90,
        check=False,
    )


def test_a_whole_run() -> None:
    """In a process of its own: one JSON object, torch in the child only, no secret, status by what fails."""
    done = doctor(
        "--json",
        "--signal",
        "ws://127.0.0.1:9/",
        POOLED_TURN=f"turn:alice:{SECRET}@127.0.0.1:9",
        HF_TOKEN="hf_verysecrettoken",
        COLAB_RELEASE_TAG="x",
    )
    said = json.loads(done.stdout)
    found = {finding["what"]: Finding(**finding) for finding in said["findings"]}
    assert said["ok"] is False
    assert done.returncode == 1
    assert {"python", "pooled_nb", "torch", "device", "runtime folder", "UDP on this machine"} <= set(found)
    assert found["data channels"].mark == "ok"
    assert found["signaling, embedded"].mark == "ok"
    assert found["signaling ws://127.0.0.1:9/"].mark == "fail"
    assert found["relay 127.0.0.1:9"].mark == "fail"
    assert found["Google Colab"].mark == "warn"
    assert all(finding.todo for finding in found.values() if finding.mark == "fail")
    for secret in (SECRET, "alice", "hf_verysecrettoken"):
        assert secret not in done.stdout + done.stderr


def test_a_run_for_people() -> None:
    done = doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓ python" in done.stdout
    assert "signaling, embedded" in done.stdout
    assert done.stdout.rstrip().endswith(("works.", "everywhere."))


def test_a_library_that_it_needs_itself() -> None:
    """An environment that is half installed is what a doctor is for: words, and no traceback."""
    look = (
        "import sys; sys.modules['psutil'] = None; from pooled_nb.cli import main; sys.exit(main(['doctor']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", look],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "✗ psutil" in done.stdout
    assert "pip install -U pooled-nb" in done.stdout
    assert "Traceback" not in done.stderr


async def test_probes_run_at_once() -> None:
    """All of them together take no longer than the slowest: the limits are not added up."""
    running = 0
    most = 0

    async def slow() -> list[udp.Udp]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(udp, "look", slow)
        patch.setattr(channels, "look", lambda over: slow())
        patch.setattr(stun, "look", lambda urls: slow())
        patch.setattr(signaling, "look", lambda servers: slow())
        patch.setattr(relay, "look", lambda ways, signal: slow())
        patch.setattr(examination, "device", _NoDevice)
        await examination.examine([], {})
    assert most == 5


class _NoDevice:
    @staticmethod
    async def look() -> None:
        return None

    @staticmethod
    def judge(seen: object) -> list[Finding]:
        return []


def test_time_is_bounded() -> None:
    """The nets below the probes: none is longer than the device's."""
    assert max(examination.FILES_S, examination.NETWORK_S) <= examination.DEVICE_S <= 60
