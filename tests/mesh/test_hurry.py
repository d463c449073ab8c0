"""A signaling server that is needed now is not waited for (PROTOCOL sections 2 and 3)."""

from __future__ import annotations

from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.peerjs import client, shapes
from pooled_nb.mesh.peerjs.client import Client, Dial, Hang, Outage, Registered, Write
from pooled_nb.mesh.peerjs.session import Session
from pooled_nb.mesh.specs import parse
from tests.mesh.rtctools import FastClock, nothing_left, served, until

OPEN = '{"type":"OPEN"}'


def registered() -> Client:
    one = Client(1, id="me")
    assert one.start(0.0) == [Dial(1, 0, client.LAST_ANSWER_S)]
    one.opened(1, 0.1)
    assert one.received(1, OPEN, 0.2) == [Registered(0)]
    return one


def test_who_knocks_waits_for_no_reconnection() -> None:
    """PROTOCOL section 2: "reconnect after 2, 4, 8, 16, 30, 30 … s": those times stay; a knock tries at once,
    once at a time.
    """
    one = registered()
    assert one.hurry(1.0) == []  # it is up
    assert one.lost(1, "socket-closed", 10.0) == [Hang(1), Outage(True, "socket-closed")]
    assert one.hurry(10.1) == [Dial(2, 0, client.ANSWER_S)]
    assert one.hurry(10.2) == []  # it is being tried
    assert one.lost(2, "network", 10.3) == [Hang(2)]
    assert one.wake == 14.3
    assert one.hurry(13.0) == [Dial(3, 0, client.ANSWER_S)]
    assert one.opened(3, 13.1) == [Write(shapes.to_self("me"))]
    assert one.hurry(13.2) == []  # it is open, and has not said yet that it has our id
    assert one.received(3, OPEN, 13.3) == [Outage(False)]
    one.lost(3, "socket-closed", 20.0)
    assert one.wake == 22.0
    one.close()
    assert one.hurry(21.0) == []


def session(url: str, clock: Clock, outages: list[bool]) -> Session:
    server = parse(url)
    return Session(
        clock,
        [server.socket_url("alpha", "token")],
        [server.shown],
        id="alpha",
        on_message=lambda message: None,
        on_outage=outages.append,
    )


async def test_a_session_is_back_the_moment_it_is_wanted() -> None:
    """PROTOCOL section 3: a device that knocks reaches a server that is there again without its 30 s; with
    the same id and token. While it is up nothing happens.
    """
    outages: list[bool] = []
    async with nothing_left():
        clock = Slow()
        async with served() as server:
            one = session(server.url, clock, outages)
            await one.register()
            one.hurry()
            assert one.is_up
            assert len(server) == 1
            port = server.port
        await until(lambda: outages == [True])
        one.hurry()  # nobody is there: it waits again
        await until(lambda: one._client.state is client.State.WAITING)
        async with served(port=port) as server:
            one.hurry()
            one.hurry()
            await until(lambda: outages == [True, False])
            assert len(server) == 1
            await one.close()
            one.hurry()
            assert not one.is_up
            await until(lambda: len(server) == 0)


class Slow(FastClock):
    """On which a reconnection never comes by itself."""

    def __init__(self) -> None:
        super().__init__(1e-3)
