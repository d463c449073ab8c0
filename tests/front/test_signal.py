"""``pooled-nb signal``: our signaling server as a program of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pooled_nb.cli import main
from pooled_nb.errors import BadOption, RoomError, SignalingDown
from pooled_nb.mesh import turnapi
from pooled_nb.mesh.addresses import own_addresses
from pooled_nb.mesh.loop import new_loop
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.tls import Certificate
from pooled_nb.terminal import serving
from pooled_nb.terminal.serving import checked_path, reachable, relay, told
from tests.mesh import certificates
from tests.mesh.rtctools import Inbox, linked, registered, until

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


@POSIX
def test_under_nohup_it_outlives_its_terminal() -> None:
    """Who starts it so wants it to stay: what is ignored when it starts stays ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does: a child inherits it
    try:
        with running() as (program, value):
            program.send_signal(signal.SIGHUP)
            for _ in range(5):
                with urllib.request.urlopen(value.replace("ws://", "http://"), timeout=20) as page:
                    assert page.status == 200
            program.terminate()
            program.communicate(timeout=20)
            assert program.returncode == 0
    finally:
        signal.signal(signal.SIGHUP, before)


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


async def test_over_tls(tmp_path: Path) -> None:
    """PROTOCOL section 2: with a certificate it says ``wss://``, and the name that stands in it."""
    cert, key = certificates.make(tmp_path, "localhost")
    with running("--certfile", cert, "--keyfile", key) as (_, value):
        assert value.startswith("wss://localhost:")
        with certificates.trusted(cert):
            async with registered(value, id="alpha") as device:
                assert device.server == value


async def test_a_renewed_certificate_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PROTOCOL section 2: while it runs, the files of the certificate change: new clients see the new one."""
    monkeypatch.setattr(serving, "RENEW_S", 0.02)
    files = certificates.make(tmp_path, "localhost")
    certificate = Certificate(*files)
    server = await SignalServer.start(tls=certificate.context)
    over = asyncio.Event()
    waiting = asyncio.create_task(serving._until(over, server, certificate))
    (tmp_path / "key.pem").write_text("half")
    await until(lambda: "The one before stays in use." in capsys.readouterr().err)
    certificates.make(tmp_path, "localhost")
    await until(lambda: "The certificate was renewed" in capsys.readouterr().err)
    trusts = ssl.create_default_context(cafile=files[0])  # the new one alone
    _, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=trusts, server_hostname="localhost"
    )
    writer.close()
    over.set()
    await waiting
    await server.close()


def test_a_certificate_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, and the next step, before anything listens."""
    _, key = certificates.make(tmp_path / "a", "localhost")
    other, _ = certificates.make(tmp_path / "b", "localhost")
    for options, why in (
        (["--keyfile", key], "--keyfile needs the certificate"),
        (["--certfile", str(tmp_path / "none")], "cannot be read"),
        (["--certfile", other, "--keyfile", key], "is not that of the certificate"),
    ):
        assert main(["signal", "--port", "0", *options]) == 1
        assert why in capsys.readouterr().err


async def test_it_gives_credentials_of_a_relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2, ICE: ``POST /api/turn``; the secret comes from a file or the environment alone."""
    file = tmp_path / "secret"
    file.write_text("open-sesame\n")
    file.chmod(0o600)
    options = ["--turn-uri", "turn:relay.example:3478", "--turn-ttl", "300", "--path", "rooms"]
    monkeypatch.delenv("POOLED_TURN_SECRET", raising=False)
    for more, secret in ((["--turn-secret-file", str(file)], ""), ([], "open-sesame")):
        if secret:
            monkeypatch.setenv("POOLED_TURN_SECRET", secret)
        with running(*options, *more) as (program, value):
            assert "sesame" not in " ".join(map(str, program.args))  # type: ignore[arg-type]  # a list here
            given = await turnapi.ask(value.replace("ws://", "http://") + "api/turn")
            assert given is not None
            assert given.life_s == 300
            assert given.relays[0].url.startswith("turn:relay.example:3478")
            program.terminate()
            said, wrong = program.communicate(timeout=20)
            assert "sesame" not in said + wrong


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--turn-uri", "turn:relay.example:3478"], "without the secret"),
        (
            ["--turn-uri", "turn:u:sesame@relay.example", "--turn-secret-file", "{good}"],
            "A relay holds a password",
        ),
        (["--turn-uri", "turn:relay.example", "--turn-secret-file", "{none}"], "cannot be read"),
        (["--turn-uri", "turn:relay.example", "--turn-secret-file", "{empty}"], "not one line"),
        (["--turn-secret-file", "{good}"], "and no relay"),
        (
            ["--turn-uri", "turn:relay.example", "--turn-secret-file", "{good}", "--turn-ttl", "1"],
            "for 1 seconds",
        ),
    ],
)
def test_a_relay_that_makes_no_sense(
    options: list[str],
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One sentence each, and none repeats a secret."""
    monkeypatch.delenv("POOLED_TURN_SECRET", raising=False)
    files = {"good": "sesame", "empty": "\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    words = [word.format(**{name: tmp_path / name for name in (*files, "none")}) for word in options]
    assert main(["signal", "--port", "0", *words]) == 1
    said = capsys.readouterr()
    assert why in said.err
    assert "sesame" not in said.err + said.out


@POSIX
def test_a_secret_that_everybody_can_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """DESIGN section 7: a secret in a file that others read is none."""
    file = tmp_path / "secret"
    file.write_text("sesame")
    file.chmod(0o644)
    assert relay(["turn:relay.example"], str(file), 600) is not None
    assert "chmod o-r" in capsys.readouterr().err
