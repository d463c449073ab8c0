"""PROTOCOL section 2, ICE: TURN from the user's settings."""

from __future__ import annotations

import pytest

from pooled_nb.errors import BadOption
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.turn import parse
from pooled_nb.room.opening import ice_for


@pytest.mark.parametrize(
    ("text", "url", "user", "password"),
    [
        ("turn:ana:pw@relay.example.org", "turn:relay.example.org:3478?transport=udp", "ana", "pw"),
        ("turn://ana:pw@10.0.0.4:80?transport=tcp", "turn:10.0.0.4:80?transport=tcp", "ana", "pw"),
        ("turns:ana:pw@relay", "turns:relay:5349?transport=tcp", "ana", "pw"),
        ("TURN:a%40b:p%3Aw%2F%40@relay:1", "turn:relay:1?transport=udp", "a@b", "p:w/@"),
        ("turn:1700000000:ana:aB+/=@relay", "turn:relay:3478?transport=udp", "1700000000:ana", "aB+/="),
        ("turn:ana:p@w@relay", "turn:relay:3478?transport=udp", "ana", "p@w"),
        ("turn:relay:3478", "turn:relay:3478?transport=udp", "", ""),
        (" turn:ana:@relay \n", "turn:relay:3478?transport=udp", "ana", ""),
    ],
)
def test_a_relay(text: str, url: str, user: str, password: str) -> None:
    server = parse(text)
    assert server is not None
    assert (server.url, server.username, server.credential) == (url, user, password)
    assert "pw" not in repr(server)


@pytest.mark.parametrize(
    "text",
    [
        "http://ana:hunter2@relay",
        "turn:",
        "turn:ana:hunter2@",
        "turn:relay:99999",
        "turn:relay:0",
        "hunter2",
        "turn:ana:hunter2@re lay",
        "turn:hunter2@relay",
        "turn:ana:hunter2 x@relay",
        "turn:ana:hunter2@relay?transport=sctp",
        "turn:ana:hunter2@" + "x" * 2000,
    ],
)
def test_what_is_none_is_not_repeated(text: str) -> None:
    """DESIGN section 7: a TURN password never stands in an exception."""
    with pytest.raises(BadOption) as error:
        parse(text)
    assert "hunter2" not in f"{error.value} {error.value.args}"
    assert "turn:USER:PASSWORD@HOST:PORT" in error.value.next_step


def test_rooms_with_devices_elsewhere_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaches aiortc for a server in the open, and never a room on one machine or local network."""
    monkeypatch.setenv("POOLED_TURN", "turn:ana:pw@relay")
    policy = ice_for("wss://rooms.example.org:443/")
    assert policy.turn == parse("turn:ana:pw@relay")
    servers = policy.configuration().iceServers
    assert [(s.urls, s.username, s.credential) for s in servers[-1:]] == [
        ("turn:relay:3478?transport=udp", "ana", "pw")
    ]
    assert ice_for("ws://127.0.0.1:9000/") == IcePolicy.local()
    assert ice_for("ws://192.168.1.5:9000/").turn is None
    monkeypatch.delenv("POOLED_TURN")
    assert ice_for("wss://rooms.example.org:443/").turn is None
