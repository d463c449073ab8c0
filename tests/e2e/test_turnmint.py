"""PROTOCOL section 2, ICE: a real coturn takes the credentials that our server gives, and no others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aioice import turn
from aioice.stun import TransactionFailed
from tornado.httpclient import AsyncHTTPClient

from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.turnmint import TurnMint
from tests.e2e.needs import bound, lacks
from tests.mesh.rtctools import nothing_left, until
from tools import coturn as program

SECRET = b"a-secret-of-both"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="coturn is set up for Linux here")


@contextlib.asynccontextmanager
async def coturn(folder: Path) -> AsyncIterator[int]:
    """A relay on loopback whose secret stands in a file: nobody sees it in a list of processes."""
    found = program.find() or lacks(program.MISSING)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "listening-ip": "127.0.0.1",
        "relay-ip": "127.0.0.1",
        "listening-port": port,
        "realm": "test",
        "static-auth-secret": SECRET.decode(),
        "pidfile": folder / "pid",
        "userdb": folder / "db",
        "log-file": "stdout",
    }
    flags = ("use-auth-secret", "no-tls", "no-dtls", "no-cli", "simple-log")
    config = folder / "turn.conf"
    config.write_text("\n".join([*flags, *(f"{key}={value}" for key, value in settings.items())]))
    relay = await asyncio.create_subprocess_exec(
        *bound(found, "-c", str(config)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield port
    finally:
        with contextlib.suppress(ProcessLookupError):
            relay.kill()
        await relay.wait()


async def allocate(port: int, name: str, password: str) -> None:
    """Ask for a relayed address, and give it back."""
    transport, _ = await turn.create_turn_endpoint(
        asyncio.DatagramProtocol,
        server_addr=("127.0.0.1", port),
        username=name,
        password=password,
        transport="tcp",
    )
    transport.close()


async def refused(port: int, name: str, password: str) -> int:
    with pytest.raises(TransactionFailed) as caught:
        await allocate(port, name, password)
    code: int = caught.value.response.attributes["ERROR-CODE"][0]
    return code


@LINUX
async def test_a_real_relay_takes_them(tmp_path: Path) -> None:
    """PROTOCOL section 2, ICE: "``POST /api/turn``: short-lived credentials": asked over HTTP and used; one
    that has ended, one of another secret and one whose name was changed are refused.
    """
    async with coturn(tmp_path) as port:
        mint = TurnMint(uris=(f"turn:127.0.0.1:{port}?transport=tcp",), secret=SECRET, ttl_s=60)
        await until(lambda: _listens(port))
        async with nothing_left(), contextlib.AsyncExitStack() as stack:
            server = await SignalServer.start(mint=mint)
            stack.push_async_callback(server.close)
            http = AsyncHTTPClient(force_instance=True)
            stack.callback(http.close)
            url = server.url.replace("ws://", "http://") + "api/turn"
            [relay] = json.loads((await http.fetch(url, method="POST", body=b"")).body)["iceServers"]
            name, password = relay["username"], relay["credential"]
            await allocate(port, name, password)
            assert await refused(port, *mint.credentials("late", time.time() - 3_600)) == 401
            other = TurnMint(uris=mint.uris, secret=b"another", ttl_s=60)
            assert await refused(port, *other.credentials("x", time.time())) == 401
            longer = f"{int(name.partition(':')[0]) + 9_999}:{name.partition(':')[2]}"
            assert await refused(port, longer, password) == 401


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
