"""Where hosts and joiners meet (PROTOCOL section 2)."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from pooled_nb.errors import BadOption, ModelNotFound, RoomError, RoomNotFound, SignalingDown
from pooled_nb.mesh import codes, lan, runtime, specs
from pooled_nb.mesh.proofs import new_mesh_key, new_nonce
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.room import keeping, meeting, opening
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.keeping import SavedGate
from pooled_nb.room.meeting import Place, place_of, register, where
from tests.room.toy import ToyShard

CODE = "4TKG9P"


@pytest.fixture(autouse=True)
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("POOLED_DATA_DIR", str(tmp_path / "data"))
    for name in ("POOLED_SIGNAL", "POOLED_KEEP_SECRETS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(opening, "open_shard", lambda process: ToyShard())


def saved_at(server: str, *, embedded: bool = False) -> SavedGate:
    return SavedGate(
        code=CODE,
        server=server,
        token="the-token",
        key=new_nonce(),
        mesh_key=new_mesh_key(),
        embedded=embedded,
    )


class Door:
    """A room that opens at the servers that answer."""

    def __init__(self, *answering: str) -> None:
        self.answering = answering
        self.tried: list[tuple[list[str], str | None]] = []

    async def open(self, servers: list[str], token: str | None = None) -> None:
        self.tried.append((servers, token))
        if not set(servers) & set(self.answering):
            raise SignalingDown("No server answers.")


@pytest.mark.parametrize(
    ("listed", "answering", "tried", "back"),
    [
        (["a", "b"], ["a", "b"], [(["b"], "the-token")], True),
        (["a", "b"], ["a"], [(["b"], "the-token"), (["a"], None)], False),
        (["a"], ["a"], [(["a"], None)], False),
    ],
)
async def test_a_token_goes_to_its_own_server_and_to_no_other(
    listed: list[str], answering: list[str], tried: list[tuple[list[str], str | None]], back: bool
) -> None:
    """PROTOCOL section 2: its server first, with the token; whoever runs another one never sees it."""
    door = Door(*answering)
    assert await register(door, Place(listed), saved_at("b")) == back
    assert door.tried == tried


async def test_only_its_own_server_and_that_is_down() -> None:
    """PROTOCOL section 2: asked once, and said."""
    door = Door()
    with pytest.raises(SignalingDown):
        await register(door, Place(["b"]), saved_at("b"))
    assert len(door.tried) == 1


async def test_an_embedded_server_takes_its_port_again_where_it_is_free() -> None:
    """CASES: links that were given out still lead there; where another program has it, the room opens."""
    first = await place_of(["local"], to_lan=False, saved=None)
    url = first.url
    await first.close()
    second = await place_of(["local"], to_lan=False, saved=saved_at(url, embedded=True))
    assert second.url == url
    third = await place_of(["local"], to_lan=False, saved=saved_at(url, embedded=True))
    assert third.server is not None
    assert third.url != url
    for place in (second, third):
        await place.close()
    named = await place_of(["wss://a.example"], to_lan=False, saved=saved_at(url, embedded=True))
    assert (named.specs, named.server) == (["wss://a.example"], None)


async def test_the_local_network_is_asked_between_link_and_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2: the runtime file, then the local network, before the list; off by default."""
    asked: list[str] = []

    async def find(code: str) -> list[str]:
        asked.append(code)
        return ["ws://192.168.1.9:9000/"]

    monkeypatch.setattr(lan, "find", find)
    invite = codes.parse(f"https://h/r/{CODE}?signal=wss://there.example")
    assert (await where(invite, ["cloud"]))[0] == ["wss://there.example", "cloud"]
    assert asked == []
    found, _ = await where(invite, ["cloud"], on_lan=True)
    assert found == ["wss://there.example", "ws://192.168.1.9:9000/", "cloud"]
    runtime.write(runtime.RoomFile(code=CODE, server="ws://127.0.0.1:9/"))
    assert (await where(invite, None, on_lan=True))[0][0] == "ws://127.0.0.1:9/"
    assert asked == [CODE], "a room of this machine needs no network"


async def test_a_network_that_cannot_be_asked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2: with nowhere else to look it is the answer, else a word by the way."""

    async def find(code: str) -> list[str]:
        raise BadOption("The package zeroconf is needed.", "Install it.")

    monkeypatch.setattr(lan, "find", find)
    with pytest.raises(BadOption, match="zeroconf"):
        await where(codes.parse(CODE), None, on_lan=True)
    told: list[str] = []
    assert (await where(codes.parse(CODE), ["cloud"], on_lan=True, tell=told.append))[0] == ["cloud"]
    assert told == ["The package zeroconf is needed. Install it."]

    async def nobody(code: str) -> list[str]:
        return []

    monkeypatch.setattr(lan, "find", nobody)
    with pytest.raises(RoomNotFound, match="on this machine or its network"):
        await where(codes.parse(CODE), None, on_lan=True)


async def test_a_room_for_the_network_is_announced_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2, zeroconf: on with ``lan``, off else; without the extra it says what to install."""
    events: list[str] = []

    class Announced:
        async def aclose(self) -> None:
            events.append("over")

    async def announce(code: str, url: str) -> Announced:
        events.append(f"{code} {specs.parse(url).kind}")
        return Announced()

    monkeypatch.setattr(lan, "announce", announce)
    room = await opening.host("toy/model", code=CODE)
    await room.leave()
    assert events == []
    room = await opening.host("toy/model", code=CODE, lan=True)
    assert events == [f"{CODE} url"]
    await room.leave()
    assert events[1:] == ["over"]

    async def missing(code: str, url: str) -> Announced:
        raise BadOption("The package zeroconf is needed.", 'Install it: pip install "pooled-nb[lan]".')

    monkeypatch.setattr(lan, "announce", missing)
    room = await opening.host("toy/model", code=CODE, lan=True)
    heard = await _notices(room)
    assert [text for text in heard if "is not announced" in text and 'pip install "pooled-nb[lan]"' in text]
    await room.leave()


async def test_a_host_that_cannot_save_says_so_and_hosts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """DESIGN section 7: no folder of this user's own, no secrets in it; the room works."""
    (tmp_path / "data").write_text("")
    room = await opening.host("toy/model")
    heard = await _notices(room)
    assert [text for text in heard if text.startswith("Nothing of this room is saved here (")]
    await room.leave()


async def test_a_start_that_fails_forgets_nothing(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    """CASES: what was saved stays for the next try: no such model, a server that is down."""
    claim = keeping.claim_gate(CODE)
    assert claim.slot
    claim.slot.write(saved_at(f"ws://127.0.0.1:{unused_tcp_port}/"))
    claim.slot.release()

    class NoModel(ToyShard):
        async def inspect(self, *_: Any, **__: Any) -> Any:
            raise ModelNotFound("There is no such model.")

    with monkeypatch.context() as patch:
        patch.setattr(opening, "open_shard", lambda process: NoModel())
        with pytest.raises(ModelNotFound):
            await opening.host("toy/none", code=CODE)
    with pytest.raises(SignalingDown):
        await opening.host("toy/model", code=CODE, servers=[f"ws://127.0.0.1:{unused_tcp_port}/"])
    kept = keeping.claim_gate(CODE)
    assert kept.saved
    assert kept.slot
    kept.slot.release()


async def test_a_number_of_a_process_that_is_anothers_now_keeps_no_code() -> None:
    """CASES: after a restart of the machine, or of a container, the dead host's number is soon another's."""
    runtime.write(runtime.RoomFile(code=CODE, server="ws://127.0.0.1:9/"))
    claim = keeping.claim_gate(CODE)
    assert claim.slot
    claim.slot.write(saved_at("ws://127.0.0.1:9/"))
    with pytest.raises(RoomError, match="open on this machine already"):  # as long as its process lives
        await opening.host("toy/model", code=CODE)
    claim.slot.release()
    room = await opening.host("toy/model", code=CODE)
    assert isinstance(room, HostRoom)
    found = runtime.find(CODE)
    assert found
    assert found.server == room.mesh.server
    heard = await _notices(room)
    assert opening.MOVED in heard, "its old link names a server where it is no more"
    assert opening.RECLAIMED not in heard
    await room.leave()
    assert runtime.find(CODE) is None


async def test_opening_that_is_broken_off_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 3: an interrupt at its last step: no file, no server, no lock, and the code is free."""
    urls: list[str] = []

    async def announce(code: str, url: str) -> None:
        urls.append(url)
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(lan, "announce", announce)
        opens = asyncio.create_task(opening.host("toy/model", code=CODE, lan=True))
        while not urls:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        opens.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opens
    assert runtime.find(CODE) is None
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", specs.parse(urls[0]).port)
    room = await opening.host("toy/model", code=CODE)
    assert not [text for text in await _notices(room) if "saved" in text]
    await room.leave()


async def test_a_code_that_lives_elsewhere_is_refused_with_a_wrong_token() -> None:
    """PROTOCOL section 2: another's room keeps its code, whatever was saved here."""
    server = await SignalServer.start()
    room = await opening.host("toy/model", code=CODE, servers=[server.url])
    try:
        runtime.remove(CODE)
        with pytest.raises(RoomError, match="taken"):
            await opening.host("toy/model", code=CODE, servers=[server.url])
        assert room.status().state == "open"
    finally:
        await room.leave()
        await server.close()


async def test_the_link_of_a_room_leads_to_its_server() -> None:
    """PROTOCOL section 2: the embedded server's address, as others on this machine reach it."""
    room = await opening.host("toy/model", code=CODE)
    assert isinstance(room, HostRoom)
    read = codes.parse(room.invite().link)
    assert (read.code, read.signal) == (CODE, room.mesh.server)
    assert read.key == room._gate.keeper.key
    assert meeting.wiring([room.mesh.server]).keepalive_ms == 0
    await room.leave()


@pytest.fixture
def unused_tcp_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def _notices(room: Any) -> list[str]:
    heard: list[str] = []
    room.on_notice = heard.append
    await asyncio.sleep(0.05)
    return heard
