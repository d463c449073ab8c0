"""PROTOCOL section 2, ICE: `POST /api/turn`, short-lived credentials of a relay from the deployment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.mesh import turnapi
from pooled_nb.mesh.ice import TurnServer
from pooled_nb.mesh.turnapi import Given, NoSuchServiceError, TurnApi, ask, read, urls_of
from tests.mesh.rtctools import HandClock, nothing_left, until

GIVEN = {
    "iceServers": [
        {"urls": "stun:relay.example.org:3478"},
        {
            "urls": [
                "turns:relay.example.org:443",
                "turn:relay.example.org",
                "turn:relay.example.org?transport=tcp",
            ],
            "username": "1700000000:ana",
            "credential": "s3cret",
        },
    ],
    "ttl": 600,
}


@asynccontextmanager
async def serving(answer: bytes, *, wait: float = 0.0) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A real HTTP server on loopback that says these bytes; yields its URL and what it was asked."""
    asked: list[bytes] = []
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked.append(await reader.readuntil(b"{}"))
            if wait:
                await asyncio.wait_for(gone.wait(), wait)
            writer.write(answer)
            await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/api/turn", asked
    finally:
        gone.set()
        server.close()
        await server.wait_closed()


def http(body: bytes | str, status: str = "200 OK", *more: str) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(data)}", "Connection: close", *more]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + data


async def test_what_a_deployment_gives() -> None:
    """It is asked by POST; UDP goes before TCP, that before TLS; STUN servers of its list are no relays."""
    async with nothing_left(), serving(http(json.dumps(GIVEN))) as (url, asked):
        given = await ask(url)
    assert given is not None
    assert [relay.url for relay in given.relays] == [
        "turn:relay.example.org:3478?transport=udp",
        "turn:relay.example.org:3478?transport=tcp",
        "turns:relay.example.org:443?transport=tcp",
    ]
    assert {(r.username, r.credential) for r in given.relays} == {("1700000000:ana", "s3cret")}
    assert given.life_s == 600
    assert "s3cret" not in repr(given)
    assert asked[0].startswith(b"POST /api/turn HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        http("", "500 Internal Server Error"),
        http("", "429 Too Many Requests"),
        http("[]"),
        http("\xff"),
        http("x" * 20_000),
        http(b"", "200 OK", "Content-Encoding: gzip"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n" + b"x" * 30_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"4000\r\n" + b"x" * 0x4000 + b"\r\n" * 2,
        b"HTTP/1.1 200 OK\r\n" + b"A: " + b"x" * 40_000 + b"\r\n\r\n",
    ],
)
async def test_what_makes_no_sense_gives_nothing(answer: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Typed and bounded; what fails now is tried again later, without noise."""
    async with nothing_left(), serving(answer) as (url, _):
        assert await ask(url) is None
    assert [record for record in caplog.records if record.levelname not in ("DEBUG", "INFO")] == []


@pytest.mark.parametrize(
    "answer",
    [
        http("no", "404 Not Found"),
        http("", "302 Found", "Location: http://127.0.0.1:9/"),
        http("", "403 Forbidden"),
    ],
)
async def test_where_there_is_none(answer: bytes) -> None:
    """No redirect is followed: a password is taken from the server that was asked, or not at all."""
    async with nothing_left(), serving(answer) as (url, asked):
        with pytest.raises(NoSuchServiceError):
            await ask(url)
        assert len(asked) == 1


async def test_a_slow_one_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that never comes is given up."""
    monkeypatch.setattr(turnapi, "ANSWER_S", 0.2)
    async with nothing_left(), serving(http(json.dumps(GIVEN)), wait=20) as (url, _):
        assert await asyncio.wait_for(ask(url), 5) is None


async def test_a_question_that_is_given_up_leaves_no_task() -> None:
    """A device leaves while a slow server still sends."""
    async with serving(b"", wait=20) as (url, asked):
        before = asyncio.all_tasks()
        asking = asyncio.ensure_future(ask(url))
        await until(lambda: asked)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await settle()
        assert {task for task in asyncio.all_tasks() - before if "HTTPConnection" in repr(task)} == set()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"iceServers": 1},
        {"iceServers": [{"urls": 3}]},
        {"iceServers": [{"username": "x"}]},
        {"iceServers": [{"urls": ["turn:a", 1]}]},
        {"iceServers": [{"urls": "turn:a", "credential": 1}]},
        {"iceServers": [{"urls": "turn:a"}] * 9},
        {"iceServers": [{"urls": ["turn:a"] * 9}]},
        {"iceServers": [{"urls": "turn:" + "a" * 600}]},
        {"iceServers": [{"urls": "turn:a"}], "ttl": "600"},
        {"iceServers": [{"urls": "turn:a"}], "ttl": True},
        {"iceServers": [{"urls": "turn:a"}], "ttl": 0},
        {"iceServers": [{"urls": "turn:a"}], "ttl": -1},
        [],
        None,
    ],
)
def test_wrong_types(body: object) -> None:
    assert read(json.dumps(body).encode()) is None


@pytest.mark.parametrize(("ttl", "life"), [(1, 1), (10**9, 86_400), (61.5, 61.5), (None, 600)])
def test_lives_are_bounded(ttl: float | None, life: float) -> None:
    """No credential is for ever."""
    given = read(json.dumps({"iceServers": [{"urls": "turn:a"}], "ttl": ttl}).encode())
    assert given is not None
    assert given.life_s == life


@pytest.mark.parametrize(
    "url",
    [
        "turn:",
        "turn:a:0",
        "turn:a:70000",
        "turns:a?transport=udp",
        "turn:a?transport=sctp",
        "http://a",
        "turn:a b",
    ],
)
def test_relays_that_cannot_be_used_are_left_out(url: str) -> None:
    given = read(json.dumps({"iceServers": [{"urls": [url, "turn:fine"]}]}).encode())
    assert given is not None
    assert [relay.place for relay in given.relays] == ["fine:3478"]


@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: json.dumps({"iceServers": text}).encode())
)
def test_any_bytes(data: bytes) -> None:
    """Whatever is answered: nothing, or something that is bounded."""
    given = read(data)
    assert given is None or (len(given.relays) <= 4 and 0 < given.life_s <= 86_400)


@pytest.mark.parametrize(
    ("base", "urls"),
    [
        ("wss://rooms.example.org:443/", ("https://rooms.example.org:443/api/turn",)),
        (
            "wss://example.org:443/peer/",
            ("https://example.org:443/peer/api/turn", "https://example.org:443/api/turn"),
        ),
        ("ws://127.0.0.1:9000/", ("http://127.0.0.1:9000/api/turn",)),
        ("ws://192.168.1.5:9000/", ("http://192.168.1.5:9000/api/turn",)),
        ("ws://[fd00::1]:9000/", ("http://[fd00::1]:9000/api/turn",)),
        ("ws://rooms.example.org:80/", ()),
        ("ws://8.8.8.8:80/", ()),
    ],
)
def test_whom_it_asks(base: str, urls: tuple[str, ...]) -> None:
    """Over TLS, or within a private network: a password does not cross a public one in the clear."""
    assert urls_of(base) == urls


RELAY = TurnServer(url="turn:relay.example.org:3478?transport=udp", username="u", credential="c")
FRESH = TurnServer(url="turn:relay.example.org:3478?transport=udp", username="u2", credential="c2")
BASE = "wss://rooms.example.org:443/"


class Deployment:
    """Answers in turn; the last one for ever."""

    def __init__(self, *answers: Given | Exception | None) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, url: str) -> Given | None:
        self.asked.append(url)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_refreshed_at_three_quarters_of_their_life() -> None:
    """PROTOCOL section 2: "refreshed at 3/4 of their lifetime"; new connections get the new ones."""
    clock, there = HandClock(), Deployment(Given((RELAY,), 600), Given((FRESH,), 600))
    api = TurnApi(clock, BASE, there)
    await api.ready()
    assert api.relays == (RELAY,)
    clock.advance(449)
    await settle()
    assert len(there.asked) == 1
    clock.advance(1)
    await settle()
    assert api.relays == (FRESH,)
    assert len(there.asked) == 2
    await api.close()
    clock.advance(10_000)
    await settle()
    assert len(there.asked) == 2


async def test_a_refresh_that_fails_is_tried_again_and_the_old_ones_end() -> None:
    """With growing pauses; credentials are used until they end, and not after."""
    clock, there = HandClock(), Deployment(Given((RELAY,), 100), None)
    api = TurnApi(clock, BASE, there)
    await api.ready()
    clock.advance(75)
    await settle()
    assert (api.relays, len(there.asked)) == ((RELAY,), 2)
    for pause, asked in ((5, 3), (10, 4), (20, 5), (40, 6), (80, 7), (160, 8), (300, 9), (300, 10)):
        clock.advance(pause - 1)
        await settle()
        assert len(there.asked) == asked - 1
        clock.advance(1)
        await settle()
        assert len(there.asked) == asked
    assert api.relays == ()
    await api.close()


async def test_without_the_service_nobody_is_asked_again() -> None:
    """A PeerJS server of another kind: beside it, at its root, and then no more."""
    clock, there = HandClock(), Deployment(NoSuchServiceError())
    api = TurnApi(clock, "wss://example.org:443/peer/", there)
    await api.ready()
    await settle()
    assert there.asked == ["https://example.org:443/peer/api/turn", "https://example.org:443/api/turn"]
    clock.advance(10_000)
    await settle()
    assert (api.relays, len(there.asked)) == ((), 2)
    await api.close()


async def test_what_it_raises_is_no_ones_trouble() -> None:
    clock, there = HandClock(), Deployment(ValueError("boom"), Given((RELAY,), 600))
    api = TurnApi(clock, BASE, there)
    await api.ready()
    assert list(api.relays) == []
    clock.advance(5)
    await settle()
    assert list(api.relays) == [RELAY]
    await api.close()


async def test_who_named_a_relay_stays_with_it() -> None:
    """It decides where the relay may lead (tests of `gathering`)."""
    async with nothing_left(), serving(http(json.dumps(GIVEN))) as (url, _):
        given = await ask(url)
    assert given is not None
    assert {relay.named_by for relay in given.relays} == {"127.0.0.1"}


async def test_a_late_answer_counts_from_the_next_connection_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2: "2.5 s wait", of all places that are asked together."""
    assert turnapi.WAIT_S == 2.5 < turnapi.ANSWER_S
    monkeypatch.setattr(turnapi, "WAIT_S", 0.05)
    answer = asyncio.Event()

    async def slow(url: str) -> Given | None:
        await answer.wait()
        if url.endswith("/peer/api/turn"):
            raise NoSuchServiceError
        return Given((RELAY,), 600)

    async with nothing_left():
        api = TurnApi(HandClock(), "wss://example.org:443/peer/", slow)
        await api.ready()
        assert api.relays == ()
        answer.set()
        await settle()
        assert list(api.relays) == [RELAY]
        await api.close()
        answer.clear()
        api = TurnApi(HandClock(), BASE, slow)
        await api.ready()
        await api.close()  # while it is asked


async def test_credentials_of_a_second() -> None:
    """They are used no longer than they are good, and asked for no more often than every 5 s."""
    clock, there = HandClock(), Deployment(Given((RELAY,), 1))
    api = TurnApi(clock, BASE, there)
    await api.ready()
    await settle()
    assert list(api.relays) == [RELAY]
    clock.advance(1)
    assert list(api.relays) == []
    clock.advance(3.9)
    await settle()
    assert len(there.asked) == 1
    clock.advance(0.1)
    await settle()
    assert (len(there.asked), list(api.relays)) == (2, [RELAY])
    await api.close()
