"""PROTOCOL section 2, ICE: ``POST /api/turn`` gives credentials of a relay that end soon."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import logging
from collections.abc import AsyncIterator

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPResponse

from pooled_nb.errors import BadOption
from pooled_nb.mesh import signalserver, turnapi
from pooled_nb.mesh.signalhttp import Turn
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.turnmint import TurnMint, secret_of
from tests.mesh.rtctools import nothing_left

SECRET = b"open-sesame-9f2c"
URIS = ("turn:relay.example:3478", "turns:relay.example:5349?transport=tcp")


def test_the_arithmetic():
    """PROTOCOL section 2, ICE: the TURN REST way, as coturn's ``use-auth-secret`` computes it."""
    mint = TurnMint(uris=URIS, secret=SECRET, ttl_s=600)
    name, password = mint.credentials("ab12", 1_700_000_000.9)
    assert name == "1700000600:ab12"
    # openssl dgst -sha1 -hmac open-sesame-9f2c over the name
    assert password == base64.b64encode(hmac.digest(SECRET, name.encode(), hashlib.sha1)).decode()
    assert mint.credentials("ab12", 1_700_000_001) != (name, password)
    assert mint.answer("ab12", 1_700_000_000) == {
        "iceServers": [{"urls": list(URIS), "username": name, "credential": password}],
        "ttl": 600,
    }


def test_a_known_answer():
    """PROTOCOL section 2, ICE: one pair, computed with openssl."""
    mint = TurnMint(uris=URIS, secret=b"north", ttl_s=3_600)
    assert mint.credentials("x", 0.0) == ("3600:x", "y0o8TxPX+mitpxjctHWtnyYhm1M=")


@pytest.mark.parametrize("label", ["", "a:b", "a b", "x" * 41, "ż", "a\n"])
def test_a_label_is_nobodys_name(label: str):
    with pytest.raises(ValueError, match="label"):
        TurnMint(uris=URIS, secret=SECRET).credentials(label, 0.0)


@pytest.mark.parametrize(
    "uri",
    ["", "relay.example", "stun:relay.example", "turn:", "turn:a b", "turn:relay.example:0", "turn:x:99999",
     "turn:user:sesame@relay.example:3478", "turn:x?transport=sctp", "turn:x\n", "http://x/"],
)  # fmt: skip
def test_what_is_no_relay(uri: str):
    """DESIGN section 7: a refusal repeats no password."""
    with pytest.raises(BadOption) as caught:
        TurnMint(uris=(uri,), secret=SECRET)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("uri", ["turn:relay", "turns:relay.example:443", "turn:[2001:db8::1]:3478"])
def test_what_is_a_relay(uri: str):
    assert TurnMint(uris=(uri,), secret=SECRET).uris == (uri,)


def test_what_makes_no_sense():
    for more in ({"uris": ()}, {"uris": URIS * 5}, {"secret": b""}, {"secret": b"x" * 2_000}, {"ttl_s": 5}):
        with pytest.raises(BadOption):
            TurnMint(**{"uris": URIS, "secret": SECRET, **more})  # type: ignore[arg-type]  # bad on purpose
    assert secret_of(b" abc \r\n") == b"abc"
    for text in (b"", b" \n", b"a\nb", b"x" * 2_000):
        with pytest.raises(BadOption):
            secret_of(text)


def test_the_secret_is_in_no_text_form():
    """DESIGN section 7: secrets never reach reprs."""
    assert "sesame" not in repr(TurnMint(uris=URIS, secret=SECRET))


@contextlib.asynccontextmanager
async def serving(mint: TurnMint | None, **more) -> AsyncIterator[tuple[SignalServer, AsyncHTTPClient]]:
    server = await SignalServer.start(mint=mint, path="/rooms", **more)
    http = AsyncHTTPClient(force_instance=True)
    try:
        yield server, http
    finally:
        http.close()
        await server.close()


async def ask(
    server: SignalServer, http: AsyncHTTPClient, method: str = "POST", **headers: str
) -> HTTPResponse:
    url = server.url.replace("ws://", "http://") + "api/turn"
    return await http.fetch(
        url, method=method, body=b"" if method == "POST" else None, headers=headers, raise_error=False
    )


async def test_over_http(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    """PROTOCOL section 2, ICE: the answer, for pages of any origin and for no cache; labels differ."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(Turn, "wall", staticmethod(lambda: 1_700_000_000.0))
    async with nothing_left(), serving(TurnMint(uris=URIS, secret=SECRET, ttl_s=600)) as (server, http):
        first, second = [await ask(server, http, Origin="https://room.example") for _ in range(2)]
        assert first.code == 200
        assert first.headers["Content-Type"] == "application/json"
        assert first.headers["Cache-Control"] == "no-store"
        assert first.headers["Access-Control-Allow-Origin"] == "*"
        said = json.loads(first.body)
        [relay] = said["iceServers"]
        assert said == {"iceServers": [relay], "ttl": 600}
        assert relay["urls"] == list(URIS)
        end, _, label = relay["username"].partition(":")
        assert end == "1700000600"
        assert len(label) == 16
        code = hmac.digest(SECRET, relay["username"].encode(), hashlib.sha1)
        assert relay["credential"] == base64.b64encode(code).decode()
        assert json.loads(second.body)["iceServers"][0]["username"] != relay["username"]
        given = await turnapi.ask(server.url.replace("ws://", "http://") + "api/turn")
        assert given is not None
        assert given.life_s == 600
        assert len(given.relays) == 2
        before = await ask(server, http, "OPTIONS", Origin="https://room.example")
        assert before.code == 204
        assert "POST" in before.headers["Access-Control-Allow-Methods"]
        assert before.headers["Access-Control-Allow-Headers"] == "Content-Type"
        assert (await ask(server, http, "GET")).code == 404
    assert "sesame" not in caplog.text
    assert relay["credential"] not in caplog.text


async def test_not_configured():
    """PROTOCOL section 2, ICE: "else none": a server without a relay says 404."""
    async with nothing_left(), serving(None) as (server, http):
        assert (await ask(server, http)).code == 404


async def test_too_often(monkeypatch: pytest.MonkeyPatch):
    """PROTOCOL section 2, ICE: one address gets some a minute; another one notices nothing."""
    async with (
        nothing_left(),
        serving(TurnMint(uris=URIS, secret=SECRET), trusts_proxy=True) as (server, http),
    ):
        monkeypatch.setattr(server._board.quota, "_minted", (0.0, 3.0))
        headers = {"X-Forwarded-For": "203.0.113.9"}
        codes = [(await ask(server, http, **headers)).code for _ in range(5)]
        assert codes == [200] * 3 + [429] * 2
        assert (await ask(server, http, **{"X-Forwarded-For": "203.0.113.8"})).code == 200


async def test_a_large_body_is_not_read():
    """PROTOCOL section 2: a request of a megabyte is cut off."""
    async with nothing_left(), serving(TurnMint(uris=URIS, secret=SECRET)) as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        size = 64 * signalserver.MAX_BODY
        writer.write(f"POST /rooms/api/turn HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
        assert b"200" not in await asyncio.wait_for(reader.read(-1), 20)
        writer.close()
