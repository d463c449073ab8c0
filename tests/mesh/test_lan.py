"""PROTOCOL section 2: rooms on the local network, found by zeroconf (real, on one interface)."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import sys
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.errors import BadOption, SignalingDown
from pooled_nb.mesh import lan, specs
from tests.mesh.rtctools import nothing_left

try:
    from zeroconf import Zeroconf
    from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf
except ImportError:
    AsyncServiceInfo = AsyncZeroconf = Zeroconf = None

CODE = "4TKG9P"
HERE = ["127.0.0.1"]
LONG_S = 30.0
"""A search ends with its first answer. Who announced something a moment ago answers a second later than else
(RFC 6762, 6: a record is sent to all once a second), and a busy machine later still."""
URL = "ws://10.1.2.3:9000/x/"


@pytest.fixture(autouse=True, scope="module")
def package() -> None:
    """The extra is there. ``make setup-test`` installs it."""
    if AsyncZeroconf is None:
        pytest.fail("The package zeroconf is not installed. Run make setup-test.", pytrace=False)


@contextlib.asynccontextmanager
async def announced(code: str = CODE, url: str = URL) -> AsyncIterator[None]:
    announcement = await lan.announce(code, url, interfaces=HERE)
    try:
        yield
    finally:
        await announcement.aclose()
        await announcement.aclose()


@contextlib.asynccontextmanager
async def liars(*facts: tuple[dict[str, str | bytes], list[str], int]) -> AsyncIterator[None]:
    """Somebody on the network who announces what he likes, many times over."""
    zeroconf = AsyncZeroconf(interfaces=HERE)
    try:
        for properties, addresses, port in facts:
            name = secrets.token_hex(4)
            info = AsyncServiceInfo(
                lan.SERVICE,
                f"{name}.{lan.SERVICE}",
                port=port,
                properties=properties,
                server=f"{name}.local.",
                parsed_addresses=addresses,
            )
            await zeroconf.async_register_service(info, cooperating_responders=True)
        yield
    finally:
        await zeroconf.async_close()


async def test_a_room_is_found_by_its_code() -> None:
    """PROTOCOL section 2: the local network finds a room by its code, and only by that; after it is over
    nothing is found.
    """
    async with nothing_left():
        async with announced(), announced("AAAAAA", "wss://192.168.7.7:443/"):
            assert await lan.find(CODE, LONG_S, interfaces=HERE) == [URL]
            assert await lan.find("AAAAAA", LONG_S, interfaces=HERE) == ["wss://192.168.7.7:443/"]
            assert await lan.find("BBBBBB", 0.5, interfaces=HERE) == []
        assert await lan.find(CODE, 0.5, interfaces=HERE) == []


async def test_the_code_is_not_on_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 7: an announcement tells neither the code, nor this machine's name."""
    sent: list[bytes] = []
    real = AsyncZeroconf.async_register_service

    async def watched(self, info, *args, **options):
        sent.append(
            b"|".join([info.name.encode(), info.server.encode(), info.text, str(info.properties).encode()])
        )
        return await real(self, info, *args, **options)

    monkeypatch.setattr(AsyncZeroconf, "async_register_service", watched)
    async with announced():
        [text] = sent
    assert lan.tag_of(CODE).encode() in text
    for word in (CODE, "4TK-G9P", socket.gethostname()):
        assert word.lower().encode() not in text.lower()


async def test_answers_are_wanted_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2: a room is found though another program of this machine listens for mDNS: an answer
    to this address alone would be handed to one of the two, and it need not be us.
    """
    asked: list[bool] = []
    real = Zeroconf.async_send

    def watched(self, out, *args, **options):
        asked.extend(question.unicast for question in out.questions)
        return real(self, out, *args, **options)

    monkeypatch.setattr(Zeroconf, "async_send", watched)
    assert await lan.find("BBBBBB", 0.5, interfaces=HERE) == []
    assert asked
    zeroconf = AsyncZeroconf(interfaces=HERE)
    before = len(asked)
    await lan._Search(zeroconf, "tag")._ask(AsyncServiceInfo(lan.SERVICE, f"nobody.{lan.SERVICE}"))
    await zeroconf.async_close()
    assert len(asked) > before
    assert not any(asked)


async def test_lies_are_bounded() -> None:
    """PROTOCOL section 2, "What answers is believed no more than any signaling server": of many liars who
    say they have the room few are believed, none elsewhere, and the true one can be among them.
    """
    tag = lan.tag_of(CODE)
    good = {"h": tag, "v": "1", "p": "/", "s": "ws"}
    lies = [(good, [f"10.9.{n}.1"], 9_000) for n in range(24)]
    lies += [(good, ["93.184.215.14"], 80), (good, ["127.0.0.1"], 8_888), (good, ["0.0.0.0"], 1)]
    lies += [({**good, "p": "/../x"}, ["10.8.0.1"], 80), ({**good, "p": "/?k=1"}, ["10.8.0.2"], 80)]
    async with nothing_left(), liars(*lies), announced():
        seen: set[str] = set()
        for _ in range(10):  # how many answer in time is the machine's affair
            found = await lan.find(CODE, LONG_S, interfaces=HERE)
            assert 0 < len(found) <= lan.MAX_FOUND
            seen |= set(found)
            if len(seen) > lan.MAX_FOUND:
                break
        assert len(seen) > lan.MAX_FOUND  # others each time
        assert all(spec == URL or spec.startswith("ws://10.9.") for spec in seen)


@pytest.mark.parametrize(
    ("address", "near"),
    [
        ("10.0.0.1", True),
        ("172.16.0.1", True),
        ("172.32.0.1", False),
        ("192.168.255.1", True),
        ("169.254.1.1", True),
        ("fd00::1", True),
        ("fe80::1", False),
        ("::1", False),
        ("::ffff:10.0.0.1", False),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.251", False),
        ("192.0.2.1", False),
        ("8.8.8.8", False),
        ("10.0.0.1%eth0", False),
        ("host", False),
        ("", False),
    ],
)
def test_which_addresses_are_believed(address: str, near: bool) -> None:
    """PROTOCOL section 2: an answer may name a private or link-local address, and nobody's loopback."""
    assert lan.is_near(address) is near


values = st.none() | st.binary(max_size=120) | st.sampled_from([b"1", b"ws", b"wss", b"/", b"/a", b"tag"])


@settings(deadline=None, max_examples=200)
@given(
    st.dictionaries(st.sampled_from([b"h", b"v", b"p", b"s"]) | st.binary(max_size=4), values, max_size=6),
    st.lists(st.sampled_from(["10.0.0.1", "fd00::1", "8.8.8.8", "127.0.0.1"]) | st.text(max_size=8)),
    st.none() | st.integers(-5, 70_000),
)
def test_any_answer(properties: dict, addresses: list[str], port: int | None) -> None:
    """PROTOCOL section 2: any answer is some good specs or none."""
    for spec in lan.read("tag", properties, addresses, port):
        server = specs.parse(spec)
        assert lan.is_near(server.host)
        assert properties[b"h"] == b"tag"


def test_a_good_answer_is_read() -> None:
    """Without this the test above could be empty."""
    facts = {b"h": b"tag", b"v": b"1", b"p": b"/a", b"s": b"ws"}
    assert lan.read("tag", facts, ["8.8.8.8", "10.0.0.1", "fd00::1"], 9_000) == [
        "ws://10.0.0.1:9000/a/",
        "ws://[fd00::1]:9000/a/",
    ]
    assert lan.read("other", facts, ["10.0.0.1"], 9_000) == []
    for bad in ({b"v": b"2"}, {b"s": b"http"}, {b"p": b"a"}, {b"p": b"/" + b"a" * 100}, {b"h": None}):
        assert lan.read("tag", facts | bad, ["10.0.0.1"], 9_000) == []
    for port in (None, 0, 65_536):
        assert lan.read("tag", facts, ["10.0.0.1"], port) == []


@pytest.mark.parametrize(
    "url", ["local", "cloud", "ws://127.0.0.1:9000", "ws://[::1]:9000", "ws://8.8.8.8:1"]
)
async def test_what_cannot_be_announced(url: str) -> None:
    """PROTOCOL section 2: a server that others cannot reach, or that is not near, is not announced."""
    with pytest.raises(BadOption):
        await lan.announce(CODE, url, interfaces=HERE)


async def test_listening_everywhere_gives_this_machines_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2: ``0.0.0.0``, or a name, means nothing to others: they get addresses."""
    monkeypatch.setattr(lan, "own_addresses", lambda: ["93.184.215.14", "192.168.4.4"])
    for url in ("ws://0.0.0.0:9000/", "ws://this-one.lan:9000/"):
        async with announced(url=url):
            assert await lan.find(CODE, LONG_S, interfaces=HERE) == ["ws://192.168.4.4:9000/"]
    monkeypatch.setattr(lan, "own_addresses", list)
    with pytest.raises(BadOption, match="no address on a local network"):
        await lan.announce(CODE, "ws://0.0.0.0:9000/", interfaces=HERE)


async def test_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ``lan`` extra is one sentence away."""
    monkeypatch.setitem(sys.modules, "zeroconf.asyncio", None)
    for asked in (lan.find(CODE, interfaces=HERE), lan.announce(CODE, URL, interfaces=HERE)):
        with pytest.raises(BadOption, match="zeroconf is needed") as caught:
            await asked
        assert "pooled-nb[lan]" in caught.value.next_step


async def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2: where no such message can be sent, it is said in words, with another way."""
    with pytest.raises(SignalingDown, match="cannot be asked") as caught:
        await lan.find(CODE, interfaces=["192.0.2.77"])
    assert "--signal" in caught.value.next_step


async def test_hashing_leaves_the_loop_free() -> None:
    """DESIGN section 3: the slow hash runs off the loop, so a room on it goes on."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.002)

    task = asyncio.create_task(tick())
    tags = {await lan._tag(code) for code in (CODE, CODE, "AAAAAA")}
    task.cancel()
    assert ticks > 5
    assert len(tags) == 2
    assert all(len(tag) == 32 for tag in tags)


def test_nothing_of_it_is_imported_unasked() -> None:
    """PROTOCOL section 2: off by default; who does not use it does not load it."""
    import subprocess

    script = "import sys, pooled_nb.mesh.lan, pooled_nb.room.opening; assert 'zeroconf' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
