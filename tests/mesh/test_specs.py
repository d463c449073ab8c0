"""PROTOCOL section 2: specs of signaling servers; DESIGN section 4: their WebSocket."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.errors import SignalingDown
from pooled_nb.mesh.specs import parse


@pytest.mark.parametrize(
    ("spec", "base"),
    [
        ("cloud", "wss://0.peerjs.com:443/"),
        ("signal.example.org", "wss://signal.example.org:443/"),
        ("signal.example.org:8443/room", "wss://signal.example.org:8443/room/"),
        ("192.168.1.20:9123", "ws://192.168.1.20:9123/"),
        ("192.168.1.20", "ws://192.168.1.20:9000/"),
        ("localhost:9123", "ws://localhost:9123/"),
        ("teacher-pc.local:9123/a/b/", "ws://teacher-pc.local:9123/a/b/"),
        ("lab7", "ws://lab7:9000/"),
        ("8.8.8.8:443", "wss://8.8.8.8:443/"),
        ("ws://example.org", "ws://example.org:80/"),
        ("WS://Example.org:1234", "ws://example.org:1234/"),
        ("wss://example.org/peer", "wss://example.org:443/peer/"),
        ("http://127.0.0.1:9000/myapp", "ws://127.0.0.1:9000/myapp/"),
        ("https://example.org", "wss://example.org:443/"),
        ("[::1]:9000", "ws://[::1]:9000/"),
        ("ws://[fe80:0::1]:9000/x", "ws://[fe80::1]:9000/x/"),
        ("  127.0.0.1:9000\n", "ws://127.0.0.1:9000/"),
    ],
)
def test_specs(spec: str, base: str) -> None:
    """PROTOCOL section 2: "Specs: ``local`` … ``cloud`` … ``host``, ``host:port[/path]``, ``ws://…`` …"."""
    server = parse(spec)
    assert server.base == base
    assert server.shown == spec.strip()
    assert server.http == base.replace("ws", "http", 1)


def test_local() -> None:
    """PROTOCOL section 2: ``local`` is the embedded server; its port comes from elsewhere."""
    server = parse("local")
    assert (server.kind, server.host, server.port, server.secure) == ("local", "127.0.0.1", 0, False)


def test_the_socket() -> None:
    """DESIGN section 4: "``{path}peerjs?key=peerjs&id=ID&token=RANDOM&version=1.5.5``"."""
    server = parse("ws://127.0.0.1:9000/app")
    url = server.socket_url("pooled-room-4TKG9P", "t0k")
    assert url == "ws://127.0.0.1:9000/app/peerjs?key=peerjs&id=pooled-room-4TKG9P&token=t0k&version=1.5.5"
    assert "id=a%26b&" in server.socket_url("a&b", "t")


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "   ",
        "ftp://example.org",
        "javascript://x",
        "ws://",
        "ws:///path",
        "host:0",
        "host:99999",
        "host:port",
        "ho st",
        "-host-",
        "a..b",
        "host/../x",
        "host/?key=1",
        "ws://host/p#f",
        "ws://user:secret@host",
        "ws://user:secret@host:99999",
        "turn:user:secret@host",
        "redis://user:secret@host",
        "ws://host/?token=secret",
        "ws://host/#k=secret",
        "ws://user:secret?secret@host",
        "host:port/?mail=a@secret",
        "ws://[::1",
        "[host]:1",
        "ws://[v1.x]:1",
        "hösting.example",
        "host/<script>",
        "x" * 400,
        "a:b:c",
    ],
)
def test_bad_specs(spec: str) -> None:
    """PROTOCOL section 2: what names no server is refused in words, with how to write one."""
    with pytest.raises(SignalingDown) as caught:
        parse(spec)
    assert "HOST:PORT" in caught.value.next_step
    assert "secret" not in str(caught.value)
    assert len(str(caught.value)) < 300


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=50) | st.text(alphabet="ws:/.@[]?#%0a9-", max_size=30))
def test_any_text(text: str) -> None:
    """PROTOCOL section 2: any text is a server or one clear error."""
    try:
        server = parse(text)
    except SignalingDown:
        return
    assert server.path.startswith("/")
    assert server.path.endswith("/")
    assert 0 <= server.port < 65536
    assert parse(server.base).base == server.base or server.kind == "local"


PIECE = st.sampled_from(
    [
        "ws://",
        "wss:",
        "//",
        "[",
        "]",
        "[::1]",
        "::",
        "fe80::1%25x",
        "%",
        "@",
        ":",
        "/",
        "..",
        "?",
        "#",
        "host",
        "127.0.0.1",
        "9000",
        "99999",
        "-1",
        "local",
        "cloud",
        "v1.x",
        "\u2100",
        "\\",
        "\x00",
        "\n",
        " ",
        "é",
        "0x1",
    ]
)


@settings(deadline=None, max_examples=600)
@given(st.lists(PIECE | st.text(max_size=2), max_size=8).map("".join))
def test_any_pieces(text: str) -> None:
    """PROTOCOL section 2: pieces of addresses in any order are a server or one clear error; a server's own
    addresses can be read again, by us and by any other reader.
    """
    try:
        server = parse(text)
    except SignalingDown:
        return
    for url in (server.base, server.http, server.socket_url("id", "token")):
        assert urlsplit(url).hostname
    if server.kind != "local":
        assert parse(server.base).base == server.base
