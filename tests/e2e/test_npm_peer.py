"""PROTOCOL section 2: the real PeerJS server and client understand us, and we them (DESIGN section 9).

The client runs over libwebrtc, the code of a browser.
"""

import asyncio

import pytest

from pooled_nb.errors import RoomError, RoomNotFound
from pooled_nb.mesh import binarypack
from pooled_nb.mesh.chunks import Assembler, Chunker
from pooled_nb.mesh.network import Connection
from tests.e2e.node import need_packages, peer_client, peer_server
from tests.mesh.rtctools import FastClock, Inbox, linked, nothing_left, opened, registered, served, until

ROOM = "pooled-room-4TKG9P"


@pytest.fixture(autouse=True, scope="module")
def packages():
    need_packages()


async def test_our_client_with_the_real_server():
    """PROTOCOL section 2: register, dial, answer, ID-TAKEN, EXPIRE, over npm peer under a path."""
    async with (
        nothing_left(),
        peer_server("/signal/") as (_, url),
        registered(url, id=ROOM) as host,
        registered(url) as guest,
    ):
        near, far = await linked(guest, host)
        box = Inbox(far.control)
        near.control.send(b"hello")
        assert await box.get() == b"hello"
        with pytest.raises(RoomError, match="ID is taken"):
            async with registered(url, id=ROOM):
                pass
        with pytest.raises(RoomNotFound):
            await guest.dial("pooled-room-AAAAAA")


async def test_the_real_server_lets_a_kept_token_take_over():
    """PROTOCOL section 2: the same id and token take over without a second OPEN, on npm peer as on ours."""
    async with nothing_left(), peer_server() as (_, url), registered(url, id=ROOM) as old:
        async with (
            registered(url, id=ROOM, token=old.token, clock=FastClock(5)) as new,
            registered(url) as guest,
        ):
            await linked(guest, new)
        await old.close()


async def test_the_real_server_is_killed_and_started_again():
    """PROTOCOL section 2: links live on; both are registered again, and a new device joins."""
    clock = FastClock(10)
    async with nothing_left(), peer_server() as (server, url):
        port = int(url.rsplit(":", 1)[1].rstrip("/"))
        async with registered(url, id=ROOM, clock=clock) as host, registered(url, clock=clock) as guest:
            near, far = await linked(guest, host)
            server.kill()
            await until(lambda: not host.is_up and not guest.is_up)
            box = Inbox(far.control)
            near.control.send(b"still here")
            assert await box.get() == b"still here"
            async with peer_server(port=port):
                await until(lambda: host.is_up and guest.is_up)
                async with registered(url) as late:
                    await linked(late, host)


@pytest.mark.parametrize("ours", [True, False], ids=["our server", "npm server"])
async def test_the_real_client_dials_us(ours: bool):
    """PROTOCOL section 2: a browser's OFFER, trickled candidates and all; BinaryPack and chunks both ways."""
    async with nothing_left(), served() as server, peer_server() as (_, npm):
        url = server.url if ours else npm
        async with registered(url, id=ROOM) as host, peer_client(url, "tab") as tab:
            incoming: asyncio.Queue[Connection] = asyncio.Queue()
            host.on_connection = incoming.put_nowait
            tab.tell("dial", remote=ROOM, options={"serialization": "binary", "reliable": True})
            far = await asyncio.wait_for(incoming.get(), 20)
            await talk(far, tab)
            said = far.fingerprints()
            assert said is not None
            assert all(f.startswith("sha-256 ") for f in said)
            tab.tell("close")
            await until(lambda: far.state == "closed")


@pytest.mark.parametrize("ours", [True, False], ids=["our server", "npm server"])
async def test_we_dial_the_real_client(ours: bool):
    """PROTOCOL section 2: a browser takes our OFFER as PeerJS's own, and a stripe by its label."""
    async with nothing_left(), served() as server, peer_server() as (_, npm):
        url = server.url if ours else npm
        async with registered(url, id=ROOM) as host, peer_client(url, "tab") as tab:
            near = await host.dial("tab")
            seen = await talk(near, tab)
            assert seen == {
                "event": "connection-open",
                "remote": ROOM,
                "label": near.connection_id,
                "id": near.connection_id,
                "reliable": True,
                "serialization": "binary",
            }
            stripe = await host.dial("tab", label="stripe")
            assert (await talk(stripe, tab))["label"] == "stripe"
            await stripe.close()
            await tab.event("connection-close")


async def talk(connection: Connection, tab) -> dict:
    """Speak over control and wire, both ways; returns what the real client said of the connection."""
    box, wire = Inbox(connection.control), Inbox(connection.wire)
    seen = await tab.event("connection-open")
    await opened(connection)
    connection.control.send(binarypack.pack({"t": "hello", "name": "żółw"}))
    assert (await tab.event("data"))["value"] == {"t": "hello", "name": "żółw"}
    tab.tell("send", value={"t": "ping", "ts": 12.5})
    assembler = Assembler()
    assert assembler.feed(await box.get()) == {"t": "ping", "ts": 12.5}
    # above 16,300 bytes both sides cut into chunks
    for chunk in Chunker().split(binarypack.pack({"t": "x", "data": bytes(50_000)})):
        connection.control.send(chunk)
    assert (await tab.event("data"))["value"] == {"t": "x", "data": {"bytes": 50_000}}
    tab.tell("bytes", size=40_000)
    whole = None
    while whole is None:
        whole = assembler.feed(await box.get())
    assert whole == b"\x07" * 40_000
    connection.wire.send(bytes(4_600))
    assert (await tab.event("wire"))["size"] == 4_600
    assert await wire.get() == bytes(4_600)
    return seen


async def test_a_killed_client_is_noticed_by_nobody_but_its_link():
    """PROTOCOL section 2: disconnects are not announced; closing such a link is quick and clean."""
    async with nothing_left(), served() as server, registered(server.url, id=ROOM) as host:
        async with peer_client(server.url, "tab") as tab:
            near = await host.dial("tab")
            await tab.event("connection-open")
            await opened(near)
        await until(lambda: len(server) == 1)
        assert near.state == "connected"
        await asyncio.wait_for(near.close(), 5)
