"""``pooled-nb signal``: our signaling server as a program of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from pooled_nb.cli import main
from pooled_nb.errors import BadOption, RoomError, SignalingDown
from pooled_nb.mesh.addresses import own_addresses
from pooled_nb.mesh.loop import new_loop
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.terminal.serving import checked_path, reachable, told
from tests.mesh.rtctools import Inbox, linked, registered

POSIX = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")


@contextlib.contextmanager
def running(*argv: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The program, and the value that it says to type; ended on the way out."""
    program = subprocess.Popen(
        [sys.executable, "-m", "pooled_nb.cli", "signal", "--port", "0", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"},
    )
    assert program.stdout is not None
    try:
        value = ""
        for line in program.stdout:
            if "--signal" in line and not value:
                value = line.partition("--signal ")[2].strip()
            if line.startswith("Ctrl-C"):
                break
        assert value, program.stderr.read() if program.stderr else ""
        yield program, value
    finally:
        if program.poll() is None:
            program.kill()
        program.communicate()


async def test_two_peers_meet_over_it() -> None:
    """PROTOCOL section 2: two devices register at it by the value that it says, and one dials the other."""
    with running("--path", "/rooms") as (_, value):
        assert value.endswith("/rooms/")
        async with registered(value, id="pooled-room-4TKG9P") as room, registered(value) as device:
            near, far = await linked(device, room)
            inbox = Inbox(far.wire)
            near.wire.send(b"hello")
            assert await inbox.get() == b"hello"
            with pytest.raises(RoomError, match="does not give this id"):
                async with registered(value, id="pooled-room-4TKG9P"):
                    pass


@POSIX
@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_it_ends_cleanly(number: str) -> None:
    """Told to end, it says so, and its port is free at once."""
    with running() as (program, value):
        program.send_signal(getattr(signal, number))
        said, wrong = program.communicate(timeout=20)
        assert program.returncode == 0
    assert "The signaling server has ended." in wrong
    assert "Traceback" not in said + wrong
    port = int(value.rpartition(":")[2].strip("/"))
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


def test_where_a_loop_takes_no_signals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Works on Windows by construction: there Ctrl-C comes as KeyboardInterrupt, and ends it the same way."""

    def no_handlers(*args: object) -> None:
        raise NotImplementedError

    loop = type(new_loop_once())
    monkeypatch.setattr(loop, "add_signal_handler", no_handlers)
    before = signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT))
    monkeypatch.setattr("pooled_nb.terminal.serving.told", lambda *args: timer.start() or ["here"])
    assert main(["signal", "--port", "0"]) == 0
    assert "The signaling server has ended." in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) == before


def new_loop_once() -> asyncio.AbstractEventLoop:
    loop = new_loop()
    loop.close()
    return loop


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, and the next step."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["signal", "--port", str(taken.getsockname()[1])]) == 1
    said = capsys.readouterr().err
    assert "No signaling server can be started on 127.0.0.1:" in said
    assert "Close the program that uses this port, or name another one." in said


@pytest.mark.parametrize("host", ["192.0.2.77", "no-such-name.invalid"])
def test_an_address_that_is_not_here(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["signal", "--port", "0", "--host", host]) == 1
    assert "Name an address of this machine: 127.0.0.1, or 0.0.0.0" in capsys.readouterr().err


async def test_a_port_for_administrators(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test may run as one: the system's answer is given here."""

    def refuse(*args: object, **options: object) -> list[socket.socket]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pooled_nb.mesh.signalserver.bind_sockets", refuse)
    with pytest.raises(SignalingDown) as error:
        await SignalServer.start(port=80)
    assert error.value.next_step == (
        "Ports below 1024 need an administrator's rights: name another one, like 9000."
    )


@pytest.mark.parametrize("port", ["x", "-1", "65536", "9000.5", "٤"])
def test_a_port_that_is_none(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["signal", f"--port={port}"])
    assert ended.value.code == 2
    assert "is no port; use a number from 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "whole"), [("", "/"), ("/", "/"), ("a", "/a/"), ("/a/b/", "/a/b/"), ("///", "/")]
)
def test_paths(path: str, whole: str) -> None:
    assert checked_path(path) == whole


@pytest.mark.parametrize("path", ["/a?b", "/a b", "/../x", "/é", "/#k=1"])
def test_a_path_that_is_none(path: str) -> None:
    with pytest.raises(BadOption, match="not plain"):
        checked_path(path)


@pytest.mark.parametrize("key", ["", "a b", "x" * 65, "é"])
def test_a_key_that_is_none(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["signal", "--port", "0", f"--key={key}"]) == 1
    assert "A key has letters and digits only." in capsys.readouterr().err


def test_what_it_says() -> None:
    """The exact value to type elsewhere, for each way it may listen."""
    here = told(reachable("127.0.0.1", "127.0.0.1", ["10.0.0.4"]), 9000, "/", "peerjs")
    assert here[:3] == [
        "A signaling server runs at ws://127.0.0.1:9000/",
        "On this machine: pooled-nb host MODEL --signal ws://127.0.0.1:9000/",
        "                 pooled-nb join CODE --signal ws://127.0.0.1:9000/",
    ]
    assert "Other machines do not reach it; --host 0.0.0.0" in here[3]
    wide = told(reachable("0.0.0.0", "0.0.0.0", ["10.0.0.4", "192.168.1.5"]), 9000, "/x/", "peerjs")
    assert wide[1] == "On each device: pooled-nb host MODEL --signal ws://10.0.0.4:9000/x/"
    assert "It also answers at ws://192.168.1.5:9000/x/, ws://127.0.0.1:9000/x/" in wide
    assert not any("do not reach" in line for line in wide)
    assert reachable("::", "::", []) == ["127.0.0.1"]
    assert reachable("localhost", "127.0.0.1", ["10.0.0.4"]) == ["127.0.0.1"]
    assert reachable("myhost.lan", "10.0.0.4", ["10.0.0.4"]) == ["myhost.lan"]
    assert told(["fd00::1"], 9000, "/", "peerjs")[0].endswith("ws://[fd00::1]:9000/")


def test_another_key_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """pooled_nb's own devices name one key: whoever chooses another one hears what that means."""
    said = "\n".join(told(["127.0.0.1"], 9000, "/", "class7"))
    assert "Its key is class7" in said
    assert "only other PeerJS clients get in" in said


def test_own_addresses_are_no_loopback() -> None:
    assert not [address for address in own_addresses() if address.startswith("127.")]
