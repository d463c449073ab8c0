import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pooled_nb.errors import BadOption, RoomError, RoomNotFound
from pooled_nb.mesh import codes, runtime
from pooled_nb.mesh.wiresettings import DEFAULT, ONE_MACHINE
from pooled_nb.room import opening
from pooled_nb.room.doorfacts import GateChoices
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.meeting import where, wiring
from pooled_nb.room.opening import host
from pooled_nb.room.thisdevice import context, on_colab
from tests.room.toy import ToyShard


@pytest.fixture(autouse=True)
def _own_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("POOLED_SIGNAL", raising=False)


async def test_this_machines_rooms_come_first() -> None:
    """PROTOCOL section 2: the runtime file for this code, then the link's server, then the list."""
    runtime.write(runtime.RoomFile(code="4TKG9P", server="ws://127.0.0.1:9/", folder="/models/x"))
    invite = codes.parse("https://example.org/r/4TKG9P?signal=wss://there.example")
    specs, folder = await where(invite, ["cloud", "local"])
    assert specs == ["ws://127.0.0.1:9/", "wss://there.example", "cloud"]
    assert folder == "/models/x"


async def test_nowhere_to_look_is_one_sentence_with_the_next_step() -> None:
    """PROTOCOL section 2: no such room here, and no server to ask."""
    with pytest.raises(RoomNotFound, match=r"No room ABC-DEF .* --signal"):
        await where(codes.parse("ABCDEF"), None)


async def test_servers_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2: the list of servers is a setting."""
    monkeypatch.setenv("POOLED_SIGNAL", "wss://a.example, wss://b.example")
    assert (await where(codes.parse("ABCDEF"), None))[0] == ["wss://a.example", "wss://b.example"]


def test_no_keep_alives_on_one_machine() -> None:
    """PROTOCOL section 5, keep-alive: a setting; loopback has nothing that naps."""
    assert wiring(["ws://127.0.0.1:9/"]) == ONE_MACHINE
    assert wiring(["ws://127.0.0.1:9/", "cloud"]) == DEFAULT


def test_the_context_is_bounded() -> None:
    """DESIGN section 5: caches are allocated for the whole context at once."""
    assert context(None, 131_072) == 4096
    assert context(None, 2048) == 2048
    assert context(64, 2048) == 64
    for wrong in (0, 63, 2049):
        with pytest.raises(BadOption, match="64 to 2,048"):
            context(wrong, 2048)


def test_colab_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 7: its runtimes forbid to compute for others, so join defaults to guest there."""
    monkeypatch.delenv("COLAB_GPU", raising=False)
    monkeypatch.delenv("COLAB_RELEASE_TAG", raising=False)
    assert not on_colab()
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release")
    assert on_colab()


async def test_a_code_in_use_on_this_machine_is_refused() -> None:
    """PROTOCOL section 2: a second room would hide the first from who joins by its code."""
    runtime.write(runtime.RoomFile(code="4TKG9P", server="ws://127.0.0.1:9/"))
    with pytest.raises(RoomError, match="4TK-G9P is open on this machine already"):
        await host("any/model", code="4TK-G9P")
    found = runtime.find("4TKG9P")
    assert found
    assert found.server == "ws://127.0.0.1:9/"


async def test_an_embedded_server_ends_with_its_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """DESIGN section 1: the host embeds it; after the room nothing listens, and the file is gone."""
    monkeypatch.setattr(opening, "open_shard", lambda process: ToyShard())
    room = await host("toy/model")
    assert isinstance(room, HostRoom)
    where = urlsplit(room.mesh.server)
    assert runtime.find(room.code)
    _, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.close()
    await writer.wait_closed()
    await room.leave()
    assert runtime.find(room.code) is None
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(where.hostname, where.port)


async def test_a_room_that_no_file_names_says_how_to_join(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PROTOCOL section 2: without the runtime file joiners must name the server, so the host says it."""
    monkeypatch.setattr(opening, "open_shard", lambda process: ToyShard())
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(blocked))
    room = await host("toy/model")
    heard: list[str] = []
    room.on_notice = heard.append
    await asyncio.sleep(0.05)
    assert len(heard) == 1
    assert heard[0].endswith(f"--signal {room.status().signaling}")
    await room.leave()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"dtype": "int4"}, "'int4' is no dtype of a room"),
        ({"kv": "q4"}, "'q4' is no way to keep caches. Choose one of f16, q8"),
        ({"draft": "toy/small", "speculate": False}, "nothing is to be guessed ahead. Leave one of them out"),
    ],
)
async def test_what_no_room_can_be_is_refused_before_it_opens(wrong: dict[str, Any], words: str) -> None:
    """DESIGN section 5: caches and drafts are chosen when the room opens, in words where they cannot be."""
    with pytest.raises(BadOption, match=words):
        await host("toy/model", code="4TK-G9P", **wrong)
    assert runtime.find("4TKG9P") is None


async def test_caches_and_guesses_are_the_hosts_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5: int8 caches are said from the start; without speculation nothing drafts."""
    monkeypatch.setattr(opening, "open_shard", lambda process: ToyShard(drafter=0.9))
    for kv, speculate in (("f16", True), ("q8", False)):
        room = await host("toy/model", kv=kv, draft="off", speculate=speculate)
        assert isinstance(room, HostRoom)
        assert room.status().kv == kv
        assert room._settings.speculate is speculate
        assert room.status().drafts == ""
        await room.leave()


@pytest.mark.parametrize("wish", ["", "0", "1"])
async def test_checkpoints_are_kept_on_disk_where_a_person_asks_for_it(
    wish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROTOCOL section 7: disk copies are keyed by room, by a hash; without consent there are none."""
    monkeypatch.setenv("POOLED_KEEP_CHECKPOINTS", wish)
    shards: list[ToyShard] = []

    def open_shard(process: bool) -> ToyShard:
        shards.append(ToyShard())
        return shards[-1]

    monkeypatch.setattr(opening, "open_shard", open_shard)
    room = await host("toy/model", gate=GateChoices(ask=False), split="memory")
    worker = await opening.join(room.code, role="worker")
    await room.start()
    keys = [shard.spec.room for shard in shards if shard.spec]
    assert len(keys) == 2
    assert keys[0] == keys[1]
    assert len(keys[0]) == (32 if wish == "1" else 0)
    assert room.code not in keys[0]
    await worker.leave()
    await room.leave()
