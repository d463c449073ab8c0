"""Rooms over a relay: coturn from the distribution, in a network of the test's own (PROTOCOL section 2, ICE).

Real processes: coturn, ``pooled-nb signal`` with ``/api/turn``, and a worker; the host runs here, in a thread
that is inside of that network. Every device uses nothing but the relay.
"""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from aioice.stun import TransactionFailed
from aioice.turn import TurnTransport

from pooled_nb.doctor.relay import try_out
from pooled_nb.errors import LinkFailed, PooledError
from pooled_nb.mesh import codes, descriptions, relay
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.ice import IcePolicy, TurnServer
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages.link import DeviceMeta
from pooled_nb.mesh.messages.weights import Wget, Wpart
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from pooled_nb.mesh.rtcnetwork import RtcNetwork
from pooled_nb.room.core import RoomCore
from pooled_nb.room.doorfacts import NetworkChoice
from pooled_nb.room.opening import host, join
from pooled_nb.room.ways import Ways
from pooled_nb.room.weights.supply import RELAYED
from tests.e2e import netns
from tests.e2e.netns import RELAY, SIGNAL, Net
from tests.mesh.recorder import Recorder
from tests.mesh.rtctools import STACKS, HandClock, linked, nothing_left
from tests.room.rooms import ask
from tests.shard.tinychat import write_model

pytestmark = pytest.mark.timeout(240)

PORT, OWN_PORT, TLS_PORT, SIGNAL_PORT = 3478, 3479, 5349, 9000
SERVER = f"ws://{SIGNAL}:{SIGNAL_PORT}/"
ALICE = f"turn:alice:sesame@{RELAY}:{OWN_PORT}"
GB = 0.2


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RUNTIME", "DATA", "CONFIG"):
        monkeypatch.setenv(f"POOLED_{variable}_DIR", str(tmp_path / variable))
    monkeypatch.setenv("POOLED_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    """A relay that shares a secret with the signaling server, and one with a user of its own."""
    turnserver = netns.need()
    folder = tmp_path_factory.mktemp("relay")
    secret = secrets.token_urlsafe(24)
    secret_file = folder / "secret"
    secret_file.write_text(secret)
    secret_file.chmod(0o600)
    certificate(folder)
    with netns.made(folder) as made:
        shared = netns.relay_config(folder, PORT, ["use-auth-secret", f"static-auth-secret={secret}"])
        own = netns.relay_config(
            folder,
            OWN_PORT,
            [
                "lt-cred-mech",
                "user=alice:sesame",
                "user-quota=1",
                f"tls-listening-port={TLS_PORT}",
                f"cert={folder / 'cert.pem'}",
                f"pkey={folder / 'key.pem'}",
            ],
        )
        made.start(turnserver, "-c", str(shared), name="coturn")
        made.start(turnserver, "-c", str(own), name="coturn")
        where = ("--host", SIGNAL, "--port", str(SIGNAL_PORT))
        mints = ("--turn-uri", f"turn:{RELAY}:{PORT}", "--turn-secret-file", str(secret_file))
        made.start(
            sys.executable, "-m", "pooled_nb.cli", "signal", *where, *mints, "--turn-ttl", "60", name="signal"
        )
        made.run(answering)
        yield made
        assert secret not in made.said()


def certificate(folder: Path) -> None:
    """A certificate for the relay's address, that nobody but the test trusts."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"), "-days", "2"),
            *("-subj", "/CN=relay", "-addext", f"subjectAltName=IP:{RELAY}"),
        ],
        check=True,
        capture_output=True,
    )


async def answering() -> None:
    """Wait until relays and signaling server take connections."""
    for place in ((RELAY, PORT), (RELAY, OWN_PORT), (RELAY, TLS_PORT), (SIGNAL, SIGNAL_PORT)):
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection(*place)
                except OSError:
                    await asyncio.sleep(0.1)
                else:
                    writer.close()
                    break


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny") / "talker", layers=3)


@pytest.fixture
def signaled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every description that this process sends or takes."""
    seen: list[str] = []
    outgoing, take = descriptions.outgoing, descriptions.take

    def sends(sdp: str, *, relay_only: bool = False) -> str:
        seen.append(outgoing(sdp, relay_only=relay_only))
        return seen[-1]

    def takes(sdp: str) -> descriptions.Taken:
        seen.append(sdp)
        return take(sdp)

    monkeypatch.setattr(descriptions, "outgoing", sends)
    monkeypatch.setattr(descriptions, "take", takes)
    return seen


async def until(done: Callable[[], object], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not done():  # noqa: ASYNC110  # many things, no one event
            await asyncio.sleep(0.05)


@asynccontextmanager
async def hosted(model: Path) -> AsyncIterator[RoomCore]:
    """A room whose host uses nothing but the relay that the signaling server names."""
    room = await host(
        str(model),
        servers=[SERVER],
        split="memory",
        lend=GB,
        ctx=256,
        dtype="float32",
        draft="off",
        process=False,
        network=NetworkChoice(relay_only=True),
    )
    try:
        yield room
    finally:
        await room.leave()


def test_a_relayed_room_answers_and_no_weights_cross_it(net: Net, model: Path, signaled: list[str]) -> None:
    """PROTOCOL section 2: "relay-only is a setting"; `POST /api/turn` gives credentials that the relay takes.

    PROTOCOL section 2: "Model weights never cross a relayed link: the serving side answers" `ai-wpart` with
    miss.
    """

    async def scenario() -> None:
        async with hosted(model) as room:
            worker = net.start(
                *(sys.executable, "-m", "pooled_nb.cli", "join", "--role", "worker", "--name", "mira"),
                *("--lend", f"{GB}GB", "--folder", str(model)),
                env={"POOLED_LINK": room.invite().link, "POOLED_RELAY_ONLY": "1"},
                name="worker",
            )
            await until(lambda: len(room.status().devices) == 2 or worker.poll() is not None)
            assert worker.poll() is None, net.said()[-3000:]
            await room.start()
            answer = await ask(room, "Why is the sky blue?", max_tokens=8)  # type: ignore[arg-type]
            assert answer.done.stats.tokens == 8
            status = room.status()
            assert all(device.layers for device in status.devices)
            assert [device.path for device in status.devices[1:]] == ["relayed"]
            facts = status.network
            assert (facts.relay, facts.relay_from, facts.relay_only) == (f"{RELAY}:{PORT}", "server", True)
            assert await missed(room) == Wpart(id=7, miss=True)
        worker.wait(30)

    net.run(scenario)
    lines = [line for sdp in signaled for line in sdp.splitlines() if line.startswith("a=candidate:")]
    assert len(lines) >= 4
    assert all(" typ relay raddr 0.0.0.0 rport 9" in line for line in lines)
    assert not any(SIGNAL in sdp or netns.OTHER in sdp for sdp in signaled)


def test_who_has_only_a_relay_gets_no_weights(net: Net, model: Path, tmp_path: Path) -> None:
    """PROTOCOL section 2: "Model weights never cross a relayed link": the room answers without who lacks
    them, and it is said why.
    """
    own = {f"POOLED_{what}": str(tmp_path / "mira" / what) for what in ("RUNTIME_DIR", "CACHE")}

    async def scenario() -> None:
        async with hosted(model) as room:
            notices: list[str] = []
            room.on_notice = notices.append
            worker = net.start(
                *(sys.executable, "-m", "pooled_nb.cli", "join", "--role", "worker", "--name", "mira"),
                *("--lend", f"{GB}GB"),
                env={**own, "POOLED_LINK": room.invite().link, "POOLED_RELAY_ONLY": "1"},
                name="worker",
            )
            await until(lambda: len(room.status().devices) == 2 or worker.poll() is not None)
            assert worker.poll() is None, net.said()[-3000:]
            await room.start()
            answer = await ask(room, "Why is the sky blue?", max_tokens=8)  # type: ignore[arg-type]
            assert answer.done.stats.tokens == 8
            assert [device.layers for device in room.status().devices] == [(0, 3), None]
            assert any(RELAYED in notice for notice in notices), notices
        worker.wait(30)

    net.run(scenario)
    assert not [path for path in tmp_path.glob("mira/CACHE/ranges/**/*") if path.suffix in (".room", ".json")]


async def missed(room: RoomCore) -> object:
    """What the host says to a device that asks it for weights over a relayed link."""
    invite = codes.parse(room.invite().link)
    clock = LoopClock()
    ways = Ways(clock, NetworkChoice(relay_only=True))
    recorder = Recorder()
    recorder.mesh = Mesh(
        network=RtcNetwork(clock, ways.policy, ways.ready),
        clock=clock,
        name="asker",
        meta=DeviceMeta(),
        listener=recorder,
        gates=Newcomer(Credentials(key=invite.key)),
    )
    await recorder.mesh.join(invite.code, [SERVER])
    try:
        facts = recorder.mesh.facts(recorder.mesh.creator)
        assert facts is not None
        assert facts.path == "relayed"
        recorder.mesh.send(recorder.mesh.creator, Wget(id=7, url="x@y/model.safetensors", lo=0, hi=100))
        await until(lambda: any(m.t == "ai-wpart" for _, m in recorder.messages))
        return next(m for _, m in recorder.messages if m.t == "ai-wpart")
    finally:
        await recorder.mesh.leave()
        await ways.close()


def test_credentials_are_refreshed(net: Net) -> None:
    """PROTOCOL section 2: "short-lived credentials", "refreshed at 3/4 of their lifetime": coturn takes the
    first and the next ones.
    """

    async def scenario() -> None:
        clock = HandClock()
        ways = Ways(clock, env={})
        await ways.ready(SERVER)
        first = ways.policy(SERVER).relays
        assert [one.place for one in first] == [f"{RELAY}:{PORT}"]
        clock.advance(44)
        await asyncio.sleep(0.5)
        assert ways.policy(SERVER).relays == first
        clock.advance(1)
        await until(lambda: ways.policy(SERVER).relays != first)
        fresh = ways.policy(SERVER).relays
        for server in (*first, *fresh):
            transport, _ = await relay.allocate(server, asyncio.DatagramProtocol)
            transport.close()
        until_s = int(fresh[0].username.partition(":")[0])
        assert 0 < until_s - time.time() <= 61
        await ways.close()

    net.run(scenario)


async def let_in(server: TurnServer) -> TurnTransport:
    """A place there; one that was given back is free a moment later."""
    async with asyncio.timeout(20):
        while True:
            try:
                transport, _ = await relay.allocate(server, asyncio.DatagramProtocol)
            except TransactionFailed:
                await asyncio.sleep(0.2)
            else:
                return cast(TurnTransport, transport)


def test_a_wrong_password_is_said_in_words(net: Net, model: Path) -> None:
    """The join ends at once, and names the relay, not the password."""
    wrong = f"turn:mallory:hunter2hunter2@{RELAY}:{PORT}"

    async def scenario() -> None:
        async with hosted(model) as room:
            with pytest.raises(LinkFailed, match="it refuses this user or password") as error:
                await join(
                    room.invite().link, role="guest", network=NetworkChoice(turn=wrong, relay_only=True)
                )
            told = f"{error.value} {error.value.args!r}"
            assert f"{RELAY}:{PORT}" in told
            assert "hunter2" not in told
            assert "mallory" not in told
            # Where a direct path may be used, too, the relay's trouble is nobody's.
            guest = await join(room.invite().link, role="guest", network=NetworkChoice(turn=wrong))
            await guest.leave()

    net.run(scenario)


def test_without_a_relay_relay_only_joins_nowhere(net: Net, model: Path) -> None:
    """No address of this device is offered instead."""

    async def scenario() -> None:
        async with hosted(model) as room:
            with pytest.raises(PooledError, match="relay"):
                await join(
                    room.invite().link, role="guest", network=NetworkChoice(turn="off", relay_only=True)
                )

    net.run(scenario)


OVER_TCP = f"turn:{RELAY}:{OWN_PORT}?transport=tcp"


@pytest.mark.parametrize("transport", STACKS)
@pytest.mark.parametrize("url", [OVER_TCP, f"turns:{RELAY}:{TLS_PORT}"])
def test_over_tcp_and_tls(net: Net, url: str, transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay where UDP is blocked: a link over it carries bytes, and leaves nothing behind."""
    if transport == "wrtc" and url != OVER_TCP:
        pytest.skip("libwebrtc trusts a relay by the certificates built into it")
    monkeypatch.setenv("SSL_CERT_FILE", str(net.folder / "cert.pem"))
    setting = url.replace(":", ":alice:sesame@", 1)
    ours = IcePolicy(relays=(turn_of(setting),), relay_only=True)

    async def scenario() -> None:
        async with nothing_left():
            near = await RtcNetwork(LoopClock(), ours, transport=transport).register("near", [SERVER])
            far = await RtcNetwork(LoopClock(), IcePolicy()).register("far", [SERVER])
            one, other = await linked(near, far)
            assert (one.path, other.path) == ("relayed", "relayed")
            await asyncio.gather(one.close(), other.close(), near.close(), far.close())

    net.run(scenario)


def turn_of(setting: str) -> TurnServer:
    from pooled_nb.mesh.turn import parse

    found = parse(setting)
    assert found is not None
    return found


def test_what_the_doctor_says(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong password, quota, a certificate that nobody trusts: each in its own words."""

    async def scenario() -> None:
        async def problem(setting: str) -> str:
            seen = await try_out(turn_of(setting), source="POOLED_TURN")
            assert "sesame" not in repr(seen)
            return seen.problem

        assert await problem(ALICE.replace("sesame", "wrong")) == "it refuses this user or password"
        over = f"turn:1700000000:ana:old@{RELAY}:{PORT}"
        assert await problem(over) == "this password was for a limited time, and that is over"
        assert await problem(f"turns:alice:sesame@{RELAY}:{TLS_PORT}") == (
            "its certificate does not prove its name"
        )
        held = await let_in(turn_of(ALICE))
        assert "quota" in await problem(ALICE)
        held.close()
        async with asyncio.timeout(20):
            while await problem(ALICE):  # noqa: ASYNC110  # the relay tells nobody
                await asyncio.sleep(0.2)

    net.run(scenario)
