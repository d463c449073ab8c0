"""PROTOCOL section 2, ICE: TURN from the user's settings."""

from __future__ import annotations

import pytest

from pooled_nb.errors import BadOption
from pooled_nb.mesh.ice import PUBLIC_STUN, TurnServer
from pooled_nb.mesh.turn import in_order, parse, server, stun


@pytest.mark.parametrize(
    ("text", "url", "user", "password"),
    [
        ("turn:ana:pw@relay.example.org", "turn:relay.example.org:3478?transport=udp", "ana", "pw"),
        ("turn://ana:pw@10.0.0.4:80?transport=tcp", "turn:10.0.0.4:80?transport=tcp", "ana", "pw"),
        ("turns:ana:pw@relay", "turns:relay:5349?transport=tcp", "ana", "pw"),
        ("TURN:a%40b:p%3Aw%2F%40@relay:1", "turn:relay:1?transport=udp", "a@b", "p:w/@"),
        ("turn:1700000000:ana:aB+/=@relay", "turn:relay:3478?transport=udp", "1700000000:ana", "aB+/="),
        ("turn:ana:p@w@relay", "turn:relay:3478?transport=udp", "ana", "p@w"),
        ("turn:ana:pw@[2001:db8::1]:80", "turn:[2001:db8::1]:80?transport=udp", "ana", "pw"),
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
        "turn:ana:hunter2@[1::2::3]",
    ],
)
def test_what_is_none_is_not_repeated(text: str) -> None:
    """DESIGN section 7: a TURN password never stands in an exception."""
    with pytest.raises(BadOption) as error:
        parse(text)
    assert "hunter2" not in f"{error.value} {error.value.args}"
    assert "turn:USER:PASSWORD@HOST:PORT" in error.value.next_step


def test_the_secret_is_in_no_text_of_a_relay() -> None:
    """DESIGN section 7: user and password reach no log and no exception."""
    relay = parse("turn:ana:hunter2@relay.example.org:80")
    assert relay is not None
    assert "hunter2" not in f"{relay!r} {relay}"
    assert "ana" not in f"{relay!r} {relay}"
    assert relay.place == "relay.example.org:80"


def test_the_order_of_several() -> None:
    """UDP before TCP before TLS; each once; a few."""
    urls = ["turns:a", "turn:a?transport=tcp", "turn:a", "turn:a:3478", "turn:b", "turn:c", "turns:d"]
    relays = in_order(found for url in urls if (found := server(url, "u", "p")) is not None)
    assert [(relay.place, relay.transport) for relay in relays] == [
        ("a:3478", "udp"),
        ("b:3478", "udp"),
        ("c:3478", "udp"),
        ("a:3478", "tcp"),
    ]
    assert TurnServer(url="turns:a:5349?transport=tcp").transport == "tls"


@pytest.mark.parametrize(
    ("texts", "urls"),
    [
        (["stun:a:1", "b", " STUN:c "], ("stun:a:1", "stun:b:3478", "stun:c:3478")),
        (["a", "stun:a:3478"], ("stun:a:3478",)),
        ([], ()),
        ([" "], ()),
        (["off"], ()),
        (["Default"], PUBLIC_STUN),
    ],
)
def test_stun_servers(texts: list[str], urls: tuple[str, ...]) -> None:
    """PROTOCOL section 2, ICE: the STUN list is a setting; empty: none."""
    assert stun(texts) == urls


@pytest.mark.parametrize(
    "texts", [["turn:ana:hunter2@a"], ["hunter2 x"], ["a:0"], ["a:99999"], ["a"] * 9, ["x" * 2000]]
)
def test_what_is_no_stun_list(texts: list[str]) -> None:
    with pytest.raises(BadOption) as error:
        stun(texts)
    assert "hunter2" not in str(error.value)
    assert "stun:HOST:PORT" in error.value.next_step
