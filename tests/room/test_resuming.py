"""Taking a room back in another process (PROTOCOL section 8, host resume; DESIGN section 7)."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pooled_nb.errors import BadCode, ModelNotFound, NotReady, RoomError, SignalingDown
from pooled_nb.mesh import ownfiles, runtime
from pooled_nb.room import keeping, meeting, opening, resumable, resuming, roomfile
from pooled_nb.room.core import ChatSettings
from pooled_nb.room.doorfacts import GateChoices, NetworkChoice
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.keeping import claim_gate
from pooled_nb.room.memory import Memory, SavedSeat
from pooled_nb.room.roomfile import SavedRoom, SavedWays
from tests.mesh.rtctools import until
from tests.room.rooms import ask, open_rooms
from tests.room.toy import MODEL, ToyShard
from tests.sim.clock import simulate

CODE = "4TKG9P"


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POOLED_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path / "run"))
    for name in ("POOLED_SIGNAL", "POOLED_KEEP_SECRETS", "POOLED_TURN", "POOLED_STUN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POOLED_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setattr(opening, "open_shard", lambda process: ToyShard())
    return tmp_path / "data"


def files(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "rooms").iterdir() if path.suffix == ".json")


async def host(**options: Any) -> HostRoom:
    room = await opening.host("toy/model", code=options.pop("code", CODE), **options)
    assert isinstance(room, HostRoom)
    return room


async def heard(room: HostRoom) -> list[str]:
    """What its person is told at first."""
    said: list[str] = []
    room.on_notice = said.append
    await asyncio.sleep(0.05)
    return said


async def taken_back(**options: Any) -> HostRoom:
    room = await resuming.resume(**options)
    assert isinstance(room, HostRoom)
    return room


async def test_settings_of_its_creator_hold(data: Path) -> None:
    """PROTOCOL section 8, host resume: settings, gate, ways and chat are as before, under the same code."""
    room = await host(
        name="ana",
        ctx=512,
        exact=False,
        kv="q8",
        quant="int8",
        draft="off",
        split="memory",
        lend=1.5,
        gate=GateChoices(ask=False, starts="host"),
        network=NetworkChoice(stun=["stun:h:1"], relay_only=True),
    )
    await room.configure(ChatSettings(style="creative", visibility="host", system="Be brief.", redeal=False))
    await room.set_gate(GateChoices(ask=False, starts="host", older=True))
    await room.start()
    first = await ask(room, "why?", seed=3)
    server, link, before = room.mesh.server, room.invite().link, room.status()
    await room.abandon()
    assert files(data) == [f"{CODE}.json", f"{CODE}.room.json"]
    assert runtime.find(CODE) is None
    back = await taken_back()
    assert (back.mesh.server, back.invite().link) == (server, link)
    await until(lambda: back.status().state == "online")
    now = back.status()
    same = ("code", "settings", "ctx", "exact", "kv", "quant", "drafts", "gate", "dtype", "newest", "label")
    assert [getattr(now, one) for one in same] == [getattr(before, one) for one in same]
    assert [(d.name, d.lends_gb, d.layers) for d in now.devices] == [("ana", 1.5, (0, 6))]
    assert back._settings.split == "memory"
    assert back._ways is not None
    assert (back._ways.choice.stun, back._ways.choice.relay_only) == (["stun:h:1"], True)
    assert [item.reply for item in back.answering.conversation.exchanges] == [first.text]
    # The chat goes on: the next answer is that of the same conversation on one device.
    second = await ask(back, "and?", seed=4)
    assert [(turn.role, turn.text) for turn in back._dealer.shard.asked[-1][0]][1:] == [  # type: ignore[attr-defined]
        ("user", "why?"),
        ("assistant", first.text),
        ("user", "and?"),
    ]
    assert second.done.reason == "stop"
    await back.leave()
    assert files(data) == []


def test_where_its_drafts_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 8, host resume: a folder by its whole path, and nothing else for one: not ``off``."""
    monkeypatch.chdir(tmp_path)
    for name in ("small", "off"):
        (tmp_path / name).mkdir()
    assert [opening._whole(draft) for draft in ("off", "org/small", None)] == ["off", "org/small", None]
    assert opening._whole("small") == str(tmp_path / "small")


async def test_a_room_that_was_never_started_waits_again(data: Path) -> None:
    """PROTOCOL section 8: there is nothing to deal again; its code and gate are back."""
    room = await host()
    await room.abandon()
    back = await taken_back(code="4tk-g9p", name="bea")
    assert opening.RECLAIMED in await heard(back)
    assert (back.status().state, back.status().devices[0].name) == ("open", "bea")
    await back.leave()


async def test_closed_on_purpose_it_is_over(data: Path) -> None:
    """PROTOCOL section 8: nothing is left to go on with, and that is one sentence."""
    room = await host()
    await room.start()
    await ask(room, "why?")
    await room.leave()
    assert files(data) == []
    with pytest.raises(NotReady, match=r"^There is no room here that can go on\. Host a new one\.$"):
        await resuming.resume()


async def test_a_living_room_is_not_taken(data: Path) -> None:
    """CASES: two kernels of one user; the room stays where it is."""
    room = await host()
    with pytest.raises(NotReady, match="no room here"):
        await resuming.resume()
    with pytest.raises(RoomError, match="4TK-G9P is open already in another process of this machine"):
        await resuming.resume("4TK-G9P")
    assert room.status().state == "open"
    await room.leave()


async def test_another_room_that_is_opened_is_told_of_it(data: Path) -> None:
    """PROTOCOL section 8: offered by %pooled host, once, where no code was asked for."""
    room = await host()
    await room.start()
    await room.abandon()
    other = await opening.host("toy/model")
    assert isinstance(other, HostRoom)
    offer = "Room 4TK-G9P (Toy, just now) can go on: %pooled resume takes it back."
    assert [text for text in await heard(other) if "can go on" in text] == [offer]
    await other.leave()
    named = await host(code="ABCDEF")
    assert not [text for text in await heard(named) if "can go on" in text]
    await named.leave()
    assert files(data) == [f"{CODE}.json", f"{CODE}.room.json"], "it can still go on"


async def test_a_model_that_is_gone_is_one_sentence_and_the_room_stays(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CASES: the folder was moved: put back, the room goes on."""
    room = await host()
    await room.abandon()
    asked: list[dict[str, Any]] = []

    class Gone(ToyShard):
        async def inspect(self, model: str, **options: Any) -> Any:
            asked.append({"model": model, **options})
            raise ModelNotFound("There is no folder 'm'.", "Check its path.")

    with monkeypatch.context() as patch:
        patch.setattr(opening, "open_shard", lambda process: Gone())
        with pytest.raises(ModelNotFound) as failed:
            await resuming.resume()
    assert str(failed.value) == (
        "Room 4TK-G9P cannot go on without its model: There is no folder 'm'. "
        "What is saved of it stays: put the model back, then resume it."
    )
    assert asked[0]["revision"] == MODEL.revision, "the very files, not newer ones"
    assert files(data) == [f"{CODE}.json", f"{CODE}.room.json"]
    back = await taken_back()
    await back.leave()


async def test_a_server_that_is_down_leaves_the_room_to_the_next_try(data: Path) -> None:
    """CASES: the room's server is down: said, nothing is lost, and nobody holds the room."""
    save(room_of(), server="ws://127.0.0.1:9/")
    with pytest.raises(SignalingDown):
        await resuming.resume()
    assert not keeping.is_held(CODE)
    assert len(roomfile.resumable()) == 1


async def test_less_memory_than_before_is_said(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CASES: what it lent is not free any more, as right after a crash: it goes on with what is."""
    room = await host(lend=4)
    await room.abandon()

    class Full(ToyShard):
        async def device(self) -> Any:
            return msgspec.structs.replace(await super().device(), free_gb=1.5)

    monkeypatch.setattr(opening, "open_shard", lambda process: Full())
    back = await taken_back()
    assert "This device lends 1.5 GB now, and lent 4.0 GB before." in await heard(back)
    assert back.status().devices[0].lends_gb == 1.5
    await back.leave()


def room_of(**more: Any) -> SavedRoom:
    return SavedRoom(code=CODE, memory=Memory(model="toy/model", revision="1", label="Toy", ctx=64, **more))


def save(room: SavedRoom, *, server: str = "", ago: float = 0.0) -> None:
    claim = claim_gate(CODE)
    beside = roomfile.slot_of(claim.slot)
    assert claim.slot
    assert beside
    if server:
        claim.slot.write(
            keeping.SavedGate(code=CODE, server=server, token="t" * 9, key="k" * 22, mesh_key="m" * 43)
        )
    beside.write(room)
    os.utime(beside.path, (time.time() - ago, time.time() - ago))
    claim.slot.release()


@pytest.mark.parametrize(
    ("seats", "ago", "about"),
    [
        (0, 0, "Toy, just now"),
        (1, 70, "Toy, 1 other device, 1 min ago"),
        (2, 200, "Toy, 2 other devices, 3 min ago"),
    ],
)
def test_what_is_offered(seats: int, ago: float, about: str) -> None:
    """PROTOCOL section 8: which room, of what model, with whom, and since when."""
    save(room_of(seats=[SavedSeat(seat="5" * 32, name="x", lo=0, hi=1)] * seats), ago=ago)
    assert resumable.offer() == [f"Room 4TK-G9P ({about}) can go on: %pooled resume takes it back."]


def test_where_it_registers() -> None:
    """PROTOCOL section 2: where it was, since its devices knock there; its own server was in its process."""
    gate = keeping.SavedGate(code=CODE, server="wss://a/", token="t", key="k" * 22, mesh_key="m" * 43)
    assert resumable.servers(gate, "wss://b/, wss://a/") == ["wss://a/", "wss://b/"]
    assert resumable.servers(msgspec.structs.replace(gate, embedded=True), "wss://b/") == [meeting.LOCAL]
    assert resumable.servers(None, "") == [meeting.LOCAL]
    assert resumable.servers(None, "wss://b/") == ["wss://b/"]


def test_what_is_not_as_before_is_said() -> None:
    """PROTOCOL section 8: a chat that was too long, a relay that is a secret."""
    room = msgspec.structs.replace(room_of(lends_gb=2.0), cut=True, ways=SavedWays(relay=True))
    assert resumable.notes(room, 2.0) == [resumable.CUT, resumable.RELAY]
    assert resumable.notes(room_of(lends_gb=2.0), 2.0) == []


def test_a_code_that_is_none_is_refused() -> None:
    """PROTOCOL section 2: as everywhere."""
    with pytest.raises(BadCode):
        resumable.look("no code")


async def test_hosted_anew_under_its_code_it_says_that_its_chat_is_not_taken_along(data: Path) -> None:
    """PROTOCOL section 8: a cell that is run again takes the code back, and not what `resume` would have."""
    room = await host()
    await room.start()
    await room.abandon()
    room = await host()
    assert resumable.ANEW not in await heard(room), "there was no chat"
    await room.start()
    await ask(room, "why?")
    await room.abandon()
    room = await host()
    assert resumable.ANEW in await heard(room)
    assert room.answering.conversation.exchanges == []
    await room.leave()


# -- what is saved, and when -----------------------------------------------------------------------


def test_it_is_saved_after_every_answer_and_only_what_all_may_see(data: Path) -> None:
    """PROTOCOL section 8: after every answer; what others asked while not everyone might see it is in no
    file, and what this device's person asked is: it is their own.
    """
    path = data / "rooms" / f"{CODE}.room.json"

    async def scenario() -> None:
        rooms = await open_rooms()
        rooms.host.keep(claim_gate(CODE).slot, embedded=True)
        mira = await rooms.add(gb=0.0, name="mira")
        await rooms.host.start()
        await ask(mira, "seen by all")
        await asyncio.sleep(1)
        assert "seen by all" in path.read_text()
        for mode in ("host", "asker"):
            await rooms.host.configure(ChatSettings(visibility=mode))  # type: ignore[arg-type]  # of these
            theirs = await ask(mira, f"theirs for {mode}")
            mine = await ask(rooms.host, f"mine for {mode}")
            await asyncio.sleep(1)
            saved = path.read_text()
            assert f"theirs for {mode}" not in saved
            assert f"mine for {mode}" in saved
            assert mine.text in msgspec.json.decode(saved)["memory"]["chat"]["exchanges"][-1]["reply"]
            assert not theirs.text or msgspec.json.encode(theirs.text).decode() not in saved
        rooms.host.answering.reset()
        await asyncio.sleep(1)
        await rooms.close()
        assert not path.exists()

    simulate(scenario)


def test_a_full_disk_is_said_once_and_the_room_goes_on(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 7: gate and chat cannot be saved: one sentence, and nothing old that says otherwise."""
    path = data / "rooms" / f"{CODE}.room.json"
    write = ownfiles.write
    full = False

    def writes(where: Path, what: bytes) -> None:
        if full:
            raise OSError(28, "No space left on device")
        write(where, what)

    async def scenario() -> None:
        nonlocal full
        rooms = await open_rooms()
        rooms.host.keep(claim_gate(CODE).slot, embedded=True)
        await rooms.host.start()
        await ask(rooms.host, "one")
        await asyncio.sleep(1)
        assert "one" in path.read_text()
        full = True
        await rooms.host.renew_invite()
        for text in ("two", "three"):
            assert (await ask(rooms.host, text)).done.reason == "stop"
            await asyncio.sleep(1)
        assert not path.exists(), "a chat without its newest answers is another one"
        assert len([text for text in rooms.notices if "could not be saved" in text]) == 1
        full = False
        await ask(rooms.host, "four")
        await asyncio.sleep(1)
        assert "two" in path.read_text()
        await rooms.close()

    monkeypatch.setattr(ownfiles, "write", writes)
    simulate(scenario)


async def test_a_question_of_ones_own_is_saved_until_it_is_answered(data: Path) -> None:
    """PROTOCOL section 8: queued questions survive: as they were asked, with the seed that was drawn."""
    room = await host()
    await room.configure(ChatSettings(style="creative"))
    await room.start()
    room._dealer.shard.delay = 0.02  # type: ignore[attr-defined]
    answers = [asyncio.create_task(ask(room, text)) for text in ("first", "second")]
    path = data / "rooms" / f"{CODE}.room.json"
    await until(lambda: path.exists() and "second" in path.read_text())
    await room.abandon()
    await asyncio.gather(*answers, return_exceptions=True)
    found = roomfile.find(CODE)
    assert found is not None
    kept = found.room.memory
    assert [(q.text, q.begun) for q in kept.asked] == [("first", True), ("second", False)]
    assert all(q.options.seed is not None for q in kept.asked)
    assert kept.chat.exchanges == [], "an answer that was cut off by the restart is none"
    back = await taken_back()
    assert back.asked == kept.asked
    memory = back.memory()
    assert memory is not None
    assert memory.asked == kept.asked, "until they are asked again"
    await back.leave()
