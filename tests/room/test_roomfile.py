"""What a host's room leaves for a resume, as a file (PROTOCOL section 8, host resume)."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pooled_nb.mesh import ownfiles
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.proofs import new_mesh_key, new_nonce
from pooled_nb.room import keeping, roomfile
from pooled_nb.room.core import AskOptions, ChatSettings
from pooled_nb.room.doorfacts import GateChoices, NetworkChoice
from pooled_nb.room.keeping import SavedGate, claim_gate
from pooled_nb.room.memory import Memory, SavedChat, SavedExchange, SavedLast, SavedQuestion, SavedSeat
from pooled_nb.room.roomfile import MAX_BYTES, RESUME_S, TOUCH_S, SavedRoom, SavedWays, find, resumable, take
from pooled_nb.room.saver import Saver
from pooled_nb.shard import Sampling, Turn
from tests.sim.clock import simulate

CODE = "4TKG9P"
posix = pytest.mark.skipif(sys.platform == "win32", reason="such bits and links are elsewhere")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POOLED_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("POOLED_KEEP_SECRETS", raising=False)
    return tmp_path / "data"


def exchange(n: int, text: str = "why", reply: str = "so") -> SavedExchange:
    return SavedExchange(name="mira", text=text, reply=reply, mid=n, seat="5" * 32, rid=f"r{n}")


def chat(n: int = 2, size: int = 10) -> SavedChat:
    turns = [
        turn
        for i in range(n)
        for turn in (Turn(role="user", text=f"q{i}"), Turn(role="assistant", text="x" * size, ids=[1, 2, i]))
    ]
    last = SavedLast(
        turns=turns[:-1],
        options=AskOptions(temperature=0.5, logit_bias={7: -1.5}, stop=["END"]),
        how=Sampling(temperature=0.5, top_k=3, seed=9, logit_bias={7: -1.5}),
        thinking=None,
        ids=[1, 2, 3],
        used=30,
    )
    shown = [exchange(i + 1, reply="x" * size) for i in range(n)]
    return SavedChat(exchanges=shown, turns=turns, last=last, turns_of_last=2, newest=n)


def room(code: str = CODE, **more: object) -> SavedRoom:
    memory = Memory(
        model="toy/model",
        revision="abc",
        label="model",
        name="host",
        ctx=1024,
        lends_gb=1.5,
        settings=ChatSettings(style="creative", system="Be brief.", redeal=False),
        started=True,
        fixed_dtype="float32",
        fixed_cols=16,
        seats=[SavedSeat(seat="5" * 32, name="mira", lo=2, hi=4)],
        chat=chat(),
        asked=[SavedQuestion(text="and then?", options=AskOptions(seed=4))],
    )
    return SavedRoom(code=code, memory=msgspec.structs.replace(memory, **more))


def save(saved: SavedRoom, *, ago: float = 0.0) -> Path:
    """A room whose process died so long ago."""
    slot = claim_gate(saved.code).slot
    assert slot
    beside = roomfile.slot_of(slot)
    assert beside
    slot.write(
        SavedGate(code=saved.code, server="ws://127.0.0.1:9/", token="t" * 8, key=new_nonce(),
                  mesh_key=new_mesh_key())
    )  # fmt: skip
    beside.write(saved)
    slot.release()
    then = time.time() - ago
    os.utime(beside.path, (then, then))
    return beside.path


def test_a_transport_that_is_gone_keeps_no_room_from_going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 8, host resume: `resume` takes no transport, so it could not be told another."""
    saved = SavedWays.of(NetworkChoice(transport="wrtc"))
    monkeypatch.setattr(roomfile.stacks, "available", lambda: ("aiortc",))
    assert saved.choice.transport is None
    monkeypatch.setattr(roomfile.stacks, "available", lambda: ("aiortc", "wrtc"))
    assert saved.choice.transport == "wrtc"


def test_what_is_written_is_read(data: Path) -> None:
    """PROTOCOL section 8: conversation, settings, layers by name, questions; 0600 beside the gate."""
    written = msgspec.structs.replace(
        room(),
        gate=GateChoices(ask=False, older=True, starts="host"),
        ways=SavedWays.of(
            NetworkChoice(
                turn="turn:me:hunter2hunter2@h", stun=["stun:h:1"], relay_only=True, transport="aiortc"
            )
        ),
    )
    path = save(written)
    taken = take(CODE)
    assert taken is not None
    assert taken.claim.slot
    assert taken.claim.saved
    assert msgspec.structs.replace(taken.room, saved=0.0) == written
    assert b"hunter2" not in path.read_bytes(), "a relay's password is not kept"
    assert taken.room.ways.relay
    chosen = NetworkChoice(stun=["stun:h:1"], relay_only=True, transport="aiortc")
    assert taken.room.ways.choice == chosen
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert roomfile.slot_of(taken.claim.slot)
    taken.claim.slot.end(keep=False)
    assert not list((data / "rooms").glob("*.json")), "a room that is closed leaves neither"


def test_its_15_minutes_are_those_since_it_lived() -> None:
    """PROTOCOL section 8, host resume: 15 min; a clock that was set back meanwhile loses nothing."""
    for ago, counts in ((0, True), (RESUME_S - 5, True), (RESUME_S + 5, False), (-3 * 3600, True)):
        save(room(), ago=ago)
        found = resumable()
        assert [one.room.code for one in found] == [CODE] * counts, ago
        known = find(CODE)
        assert known is not None
        assert known.ago_s == pytest.approx(max(0, ago), abs=3)


def test_the_newest_is_first_and_a_living_one_is_none() -> None:
    """PROTOCOL section 8: what a person is offered; two kernels never host one room."""
    for code, ago in (("AAAAAA", 100), ("BBBBBB", 10), ("CCCCCC", 50)):
        save(room(code), ago=ago)
    assert [one.room.code for one in resumable()] == ["BBBBBB", "CCCCCC", "AAAAAA"]
    mine = take("BBBBBB")
    assert mine is not None
    assert [one.room.code for one in resumable()] == ["CCCCCC", "AAAAAA"]
    assert take("BBBBBB") is None
    assert mine.claim.slot
    mine.claim.slot.release()
    assert len(resumable()) == 3


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 100_000), noise=st.binary(max_size=64), where=st.integers(0, 100_000))
def test_torn_and_hostile_files_are_no_rooms(cut: int, noise: bytes, where: int) -> None:
    """Typed and bounded: whatever lies there, reading it never raises."""
    path = save(room())
    whole = path.read_bytes()
    at = where % (len(whole) + 1)
    for data_ in (whole[: cut % len(whole)], whole[:at] + noise + whole[at:], noise):
        path.write_bytes(data_)
        for found in resumable():  # noise within a text, or none at all
            assert found.room.code == CODE
        taken = take(CODE)
        if taken is not None:
            assert taken.claim.slot
            taken.claim.slot.release()


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"code": "ABCDEF"},
        {"memory": {"model": "m"}},
        {"memory": {"model": "m", "ctx": 0}},
        {"memory": {"model": "m", "ctx": 64, "split": "by magic"}},
        {"memory": {"model": "m", "ctx": 64, "chat": {"exchanges": [{"name": "x"}]}}},
        {"memory": {"model": "m", "ctx": 64, "asked": [{"text": "x", "options": {}}] * 4}},
        {"gate": {"starts": "nobody"}},
    ],
)
def test_a_file_of_another_form_is_no_room(change: dict[str, object]) -> None:
    """Another version, another room, settings that there are not: nothing goes on by it."""
    path = save(room())
    whole = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**whole, **change}))
    assert (resumable(), find(CODE), take(CODE)) == ([], None, None)
    path.write_bytes(msgspec.json.encode(whole))
    assert len(resumable()) == 1


def test_a_sampler_that_there_is_not_is_no_room() -> None:
    """A file can name numbers that no token can be drawn with, which is an error of another kind."""
    path = save(room())
    whole = msgspec.json.decode(path.read_bytes())
    whole["memory"]["chat"]["last"]["how"]["temperature"] = -1
    path.write_bytes(msgspec.json.encode(whole))
    assert resumable() == []


@posix
def test_no_link_pipe_or_large_file_is_read(data: Path, tmp_path: Path) -> None:
    """DESIGN section 7: what others could have put there, or what is no file of ours."""
    path = save(room())
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b" " * (MAX_BYTES + 1 - len(whole)) + whole[-1:])
    assert (resumable(), take(CODE)) == ([], None)
    path.unlink()
    real = tmp_path / "real.json"
    real.write_bytes(whole)
    path.symlink_to(real)
    assert (resumable(), take(CODE)) == ([], None)
    path.unlink()
    os.mkfifo(path)
    assert (resumable(), take(CODE)) == ([], None)
    path.unlink()
    path.write_bytes(whole)
    assert len(resumable()) == 1
    (data / "rooms").chmod(0o777)
    assert resumable() == [], "others may write there"


def test_a_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared accounts: nothing is read, and nothing is written."""
    save(room())
    monkeypatch.setenv("POOLED_KEEP_SECRETS", "0")
    assert (resumable(), find(CODE), take(CODE)) == ([], None, None)
    assert roomfile.slot_of(claim_gate(CODE).slot) is None


@pytest.mark.parametrize("code", ["../../x", "", "4tkg9p", "A/B"])
def test_only_a_code_becomes_a_files_name(code: str, data: Path) -> None:
    """PROTOCOL section 2: a code's letters, nothing else."""
    assert (find(code), take(code)) == (None, None)
    assert not data.exists()


def test_a_chat_that_is_too_long_goes_from_what_is_only_shown() -> None:
    """PROTOCOL section 8: oldest exchanges go first; what the model reads is kept whole, or not at all."""
    many = msgspec.structs.replace(chat(15), exchanges=[exchange(i, reply="y" * 400_000) for i in range(15)])
    saved = msgspec.json.decode(room(chat=many).packed(), type=SavedRoom)
    kept = saved.memory.chat
    assert [one.mid for one in kept.exchanges] == list(range(15 - len(kept.exchanges), 15))
    assert 1 < len(kept.exchanges) < 15
    assert (kept.turns, kept.last, kept.newest, saved.cut) == (many.turns, many.last, 15, False)
    # What continues the newest answer holds the conversation once more.
    twice = chat(3, size=700_000)
    saved = msgspec.json.decode(room(chat=twice).packed(), type=SavedRoom)
    assert (saved.memory.chat.last, saved.memory.chat.turns_of_last, saved.cut) == (None, 0, False)
    assert saved.memory.chat.turns == twice.turns
    huge = chat(6, size=900_000)
    saved = msgspec.json.decode(room(chat=huge).packed(), type=SavedRoom)
    assert saved.cut
    assert saved.memory.chat == SavedChat(newest=6), "the counter of answers goes on"
    assert saved.memory.asked == room().memory.asked


def test_what_is_old_is_removed_though_its_gate_still_counts(data: Path) -> None:
    """What others said does not lie about: an hour after its room lived last, at the next look."""
    for code, ago in ((CODE, 4_000), ("ABCDEF", 3_000)):
        save(room(code), ago=ago)
    other = claim_gate("GHJKMN")
    assert other.slot
    left = {path.name for path in (data / "rooms").iterdir() if path.suffix == ".json"}
    assert left == {f"{CODE}.json", "ABCDEF.json", "ABCDEF.room.json"}
    other.slot.release()
    kept = claim_gate(CODE)
    assert kept.saved
    assert kept.slot
    kept.slot.release()


# -- while a room lives ----------------------------------------------------------------------------


def test_a_living_room_says_so_each_minute(data: Path) -> None:
    """PROTOCOL section 8: 15 min since it lived, whenever the last answer was; by the file's time alone."""

    async def scenario() -> None:
        slot = claim_gate(CODE).slot
        beside = roomfile.slot_of(slot)
        assert slot
        assert beside
        now = room()
        saver = Saver(
            beside, clock=LoopClock(), what=lambda: now, say=pytest.fail, again_s=TOUCH_S, touches=True
        )
        saver.changed()
        await asyncio.sleep(1)
        first = beside.path.read_bytes()
        for _ in range(3):
            os.utime(beside.path, (1, 1))
            await asyncio.sleep(TOUCH_S)
            assert beside.path.stat().st_mtime > 1
            assert beside.path.read_bytes() == first, "nothing was written anew"
        now = room(started=False)
        saver.changed()
        await saver.close(keep=True)
        assert b'"started":false' in beside.path.read_bytes(), "as it is at its end"
        slot.release()
        assert len(resumable()) == 1

    simulate(scenario, limit=10 * TOUCH_S)


@pytest.mark.parametrize("cut_off", [False, True])
def test_a_write_under_way_leaves_nothing_of_a_closed_room(
    data: Path, monkeypatch: pytest.MonkeyPatch, cut_off: bool
) -> None:
    """PROTOCOL section 8: closed on purpose, no file is left, also where a slow disk is writing just then
    and whoever closes has no time for it.
    """
    writes, let = threading.Event(), threading.Event()
    write = ownfiles.write

    def slow(path: Path, bytes_: bytes) -> None:
        writes.set()
        assert let.wait(10)
        write(path, bytes_)

    async def scenario() -> None:
        slot = claim_gate(CODE).slot
        beside = roomfile.slot_of(slot)
        assert slot
        assert beside
        monkeypatch.setattr(ownfiles, "write", slow)
        saver = Saver(beside, clock=LoopClock(), what=room, say=pytest.fail)
        saver.changed()
        await asyncio.to_thread(writes.wait, 10)
        closing = asyncio.ensure_future(saver.close(keep=False))
        await asyncio.sleep(0)
        if cut_off:
            closing.cancel()
        let.set()
        await asyncio.gather(closing, return_exceptions=True)
        await asyncio.to_thread(slot.end, keep=False)

    asyncio.run(scenario())  # leaving it waits for its threads
    assert writes.is_set()
    assert not list((data / "rooms").glob("*.json"))
    assert not keeping.is_held(CODE)


@pytest.mark.parametrize("keep", [False, True])
def test_a_script_that_ends_begins_no_thread_any_more(data: Path, keep: bool) -> None:
    """PROTOCOL section 8: its room is closed as it exits (`atexit`), and is none that could go on."""

    async def scenario() -> None:
        beside = roomfile.slot_of(slot := claim_gate(CODE).slot)
        assert slot
        saver = Saver(beside, clock=LoopClock(), what=room, say=pytest.fail)
        saver.changed()
        async with asyncio.timeout(10):
            while not find(CODE):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        over = ThreadPoolExecutor()
        over.shutdown()  # what the interpreter does first
        asyncio.get_running_loop().set_default_executor(over)
        await saver.close(keep=keep)
        slot.end(keep=keep)

    asyncio.run(scenario())
    assert (find(CODE) is not None) == keep
    assert not keeping.is_held(CODE)


def test_two_processes_that_take_one_room_back(data: Path) -> None:
    """CASES: two kernels of one user resume at once: one has it, the other hears that."""
    save(room())
    got: list[object] = []
    threads = [threading.Thread(target=lambda: got.append(take(CODE))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([one for one in got if one is not None]) == 1
    assert keeping.is_held(CODE)
    [mine] = [one for one in got if isinstance(one, roomfile.Taken)]
    assert mine.claim.slot
    mine.claim.slot.release()
