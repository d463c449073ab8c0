"""Gates and passes that outlive their process (PROTOCOL sections 3 and 4, DESIGN section 7)."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pooled_nb.mesh import ownfiles
from pooled_nb.mesh.gatekeeper import GateSecrets
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from pooled_nb.mesh.proofs import new_mesh_key, new_nonce, pass_id, pass_secret
from pooled_nb.room import keeping
from pooled_nb.room.keeping import SavedGate, SavedPass, claim_gate, claim_pass
from pooled_nb.room.saver import AGAIN_S
from tests.room.rooms import CODE, open_rooms
from tests.sim.clock import simulate

posix = pytest.mark.skipif(sys.platform == "win32", reason="such bits, links and locks are elsewhere")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POOLED_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("POOLED_KEEP_SECRETS", raising=False)
    return tmp_path / "data"


def gate(**more: object) -> SavedGate:
    secret = pass_secret(new_nonce())
    facts: dict[str, object] = {
        "code": CODE,
        "server": "ws://127.0.0.1:9000/",
        "token": "token-1",
        "key": new_nonce(),
        "mesh_key": new_mesh_key(),
        "passes": [(pass_id(secret), secret, "mira")],
    }
    return SavedGate(**{**facts, **more})  # type: ignore[arg-type]  # by keyword


def a_pass(name: str = "mira") -> SavedPass:
    return SavedPass(code=CODE, name=name, pass_=new_nonce(), met="proved")


def saved_gate() -> SavedGate | None:
    claim = claim_gate(CODE)
    if claim.slot:
        claim.slot.release()
    return claim.saved


def test_what_is_written_is_read_and_lies_where_nobody_else_reads(data: Path) -> None:
    """DESIGN section 7: 0600 in a 0700 folder; the next process of this user goes on with it."""
    first = claim_gate(CODE)
    assert first.slot
    assert (first.saved, first.why) == (None, "")
    written = gate()
    first.slot.write(written)
    first.slot.release()
    read = saved_gate()
    assert read is not None
    assert msgspec.structs.replace(read, saved=0.0) == written
    assert read.secrets == GateSecrets(
        key=written.key, mesh_key=written.mesh_key, passes=tuple(written.passes)
    )
    if sys.platform != "win32":
        assert stat.S_IMODE((data / "rooms").stat().st_mode) == 0o700
        files = [path for path in (data / "rooms").iterdir() if path.suffix == ".json"]
        assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600]


def test_a_living_process_keeps_its_place() -> None:
    """PROTOCOL section 4: two processes never use one pass, and none writes over another's gate."""
    host = claim_gate(CODE)
    assert host.slot
    host.slot.write(gate())
    held = claim_gate(CODE)
    assert (held.slot, held.saved) == (None, None)
    assert held.why.startswith("Another process of this user holds")
    one, two = claim_pass(CODE, "mira"), claim_pass(CODE, "mira")
    assert one.slot
    assert two.slot
    passes = a_pass(), a_pass()
    one.slot.write(passes[0])
    two.slot.write(passes[1])
    assert claim_pass(CODE, "mira").saved is None
    two.slot.release()
    again = claim_pass(CODE, "mira")
    assert again.saved
    assert again.saved.pass_ == passes[1].pass_
    assert again.slot
    for slot in (one.slot, again.slot, host.slot):
        slot.release()


@posix
def test_a_killed_process_gives_its_place_back(data: Path) -> None:
    """CASES: killed and started again, it is known at once: the lock ends with the process, the file does
    not.
    """
    code = (
        "import sys, time; from pooled_nb.room.keeping import *; c = claim_pass('4TKG9P', 'mira');"
        "c.slot.write(SavedPass(code='4TKG9P', name='mira', pass_='p' * 22, met='first'));"
        "print('ready', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert child.stdout
        assert child.stdout.readline() == b"ready\n"
        other = claim_pass(CODE, "mira")
        assert other.saved is None
        assert other.slot
        other.slot.release()
    finally:
        child.kill()
        child.communicate()
    back = claim_pass(CODE, "mira")
    assert back.saved
    assert (back.saved.pass_, back.saved.met) == ("p" * 22, "first")
    assert back.slot
    back.slot.release()


def test_a_pass_is_for_its_name() -> None:
    """PROTOCOL section 3: a pass keeps a place and its name, so another name is another device."""
    first = claim_pass(CODE, "mira")
    assert first.slot
    first.slot.write(a_pass("mira"))
    first.slot.release()
    other = claim_pass(CODE, "leo")
    assert other.slot
    assert other.saved is None
    other.slot.write(a_pass("leo"))
    other.slot.release()
    for name in ("mira", "leo"):
        claim = claim_pass(CODE, name)
        assert claim.saved
        assert claim.saved.name == name
        assert claim.slot
        claim.slot.release()
    assert claim_pass("ABCDEF", "mira").saved is None


def test_what_is_old_counts_no_more_and_goes(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day after its room lived last it is not read, and removed; a clock set back loses nothing."""
    claim = claim_gate(CODE)
    assert claim.slot
    claim.slot.write(gate())
    claim.slot.release()
    now = time.time()
    for later, counts in ((23, True), (-2, True), (25, False), (-25, False)):
        monkeypatch.setattr(time, "time", lambda later=later: now + later * 3600)
        assert (saved_gate() is not None) == counts
        if later == 25:
            assert not (data / "rooms" / f"{CODE}.json").exists()
            monkeypatch.undo()
            monkeypatch.setenv("POOLED_DATA_DIR", str(data))
            fresh = claim_gate(CODE)
            assert fresh.slot
            fresh.slot.write(gate())
            fresh.slot.release()


def test_old_leftovers_are_cleared_and_fresh_ones_stay(data: Path) -> None:
    """Half-written files and locks of processes that were killed do not gather."""
    where = data / "rooms"
    where.mkdir(parents=True, mode=0o700)
    for name in (".ABCDEF.12345678", "ABCDEF.json", "ABCDEF.lock", "notes.txt"):
        (where / name).write_text("x")
        os.utime(where / name, (1, 1))
    (where / ".GHJKMN.12345678").write_text("x")
    slept = claim_gate("GHJKMN")
    assert slept.slot
    slept.slot.write(gate(code="GHJKMN"))
    for kind in ("json", "lock"):
        os.utime(where / f"GHJKMN.{kind}", (1, 1))
    claim = claim_gate(CODE)
    assert claim.slot
    left = {path.name for path in where.iterdir() if not path.name.startswith(CODE)}
    assert left == {".GHJKMN.12345678", "GHJKMN.json", "GHJKMN.lock"}, "and what a living process has"
    for slot in (claim.slot, slept.slot):
        slot.release()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 10_000), noise=st.binary(max_size=64), where=st.integers(0, 10_000))
def test_torn_and_hostile_files_are_no_files(data: Path, cut: int, noise: bytes, where: int) -> None:
    """Typed and bounded: whatever lies there, reading it never raises, and what is no gate is none."""
    whole = msgspec.json.encode(msgspec.structs.replace(gate(), saved=time.time()))
    (data / "rooms").mkdir(parents=True, exist_ok=True, mode=0o700)
    at = where % (len(whole) + 1)
    torn = whole[: cut % len(whole)]
    for data_ in (torn, whole[:at] + noise + whole[at:], noise):
        (data / "rooms" / f"{CODE}.json").write_bytes(data_)
        found = saved_gate()
        if found is not None:  # noise within a text, or none at all
            assert found.code == CODE
            assert len(found.passes) <= 500


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"code": "ABCDEF"},
        {"key": "short"},
        {"token": ""},
        {"passes": [["x", "y", "mira"]]},
        {"passes": [[pass_id("a"), pass_secret("a"), "mira"]] * 501},
        {"mesh_key": 7},
    ],
)
def test_a_file_of_another_form_counts_not(data: Path, change: dict[str, object]) -> None:
    """Another version, another room, or what is no secret: it opens nothing."""
    whole = msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(gate(), saved=time.time())))
    (data / "rooms").mkdir(parents=True, mode=0o700)
    (data / "rooms" / f"{CODE}.json").write_bytes(msgspec.json.encode({**whole, **change}))
    assert saved_gate() is None
    (data / "rooms" / f"{CODE}.json").write_bytes(msgspec.json.encode(whole))
    assert saved_gate() is not None


@posix
def test_no_link_pipe_or_foreign_folder_is_followed(data: Path, tmp_path: Path) -> None:
    """DESIGN section 7: what others could have put there is neither read nor written through."""
    rooms = data / "rooms"
    rooms.mkdir(parents=True, mode=0o700)
    real = tmp_path / "real.json"
    real.write_bytes(msgspec.json.encode(msgspec.structs.replace(gate(), saved=time.time())))
    (rooms / f"{CODE}.json").symlink_to(real)
    claim = claim_gate(CODE)
    assert claim.saved is None
    assert claim.slot
    before = real.read_bytes()
    claim.slot.write(gate())
    claim.slot.release()
    assert real.read_bytes() == before
    assert not (rooms / f"{CODE}.json").is_symlink()
    (rooms / f"{CODE}.json").unlink()
    os.mkfifo(rooms / f"{CODE}.json")
    assert saved_gate() is None
    (rooms / f"{CODE}.json").unlink()
    rooms.chmod(0o777)
    refused = claim_gate(CODE)
    assert refused.slot is None
    assert f"{rooms} is not a folder of this user alone" in refused.why
    assert refused.why.endswith("POOLED_DATA_DIR.")
    assert not list(rooms.glob("*.json"))


def test_no_folder_is_said_in_words(data: Path) -> None:
    """A file in the folder's place, or nowhere to write: the room works without."""
    data.write_text("")
    for claim in (claim_gate(CODE), claim_pass(CODE, "mira")):
        assert claim.slot is None
        assert claim.why.startswith("Nothing of this room is saved here (")


def test_a_switch_turns_it_off(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared accounts: nothing is written, nothing is read, and nothing is said about it."""
    claim = claim_gate(CODE)
    assert claim.slot
    claim.slot.write(gate())
    claim.slot.release()
    monkeypatch.setenv("POOLED_KEEP_SECRETS", "0")
    assert claim_gate(CODE) == keeping.Claim()
    assert claim_pass(CODE, "mira") == keeping.Claim()
    assert not (data / "passes").exists()


@pytest.mark.parametrize("code", ["../../x", "", "4tkg9p", "A/B"])
def test_only_a_code_becomes_a_files_name(data: Path, code: str) -> None:
    """PROTOCOL section 2: a code's letters, nothing else."""
    assert claim_pass(code, "mira") == keeping.Claim()
    assert not data.exists()


# -- in a room -------------------------------------------------------------------------------------


def test_a_room_saves_each_change_and_forgets_itself_when_it_is_closed(data: Path) -> None:
    """PROTOCOL section 4: passes, a renewed key; closed on purpose, nothing is left."""
    path = data / "rooms" / f"{CODE}.json"

    def now() -> SavedGate:
        return msgspec.json.decode(path.read_bytes(), type=SavedGate)

    async def scenario() -> None:
        rooms = await open_rooms()
        rooms.host.keep(claim_gate(CODE).slot, embedded=True)
        await asyncio.sleep(1)
        first = now()
        keeper = rooms.host._gate.keeper
        assert first.secrets == keeper.secrets
        assert (first.server, first.token, first.embedded) == ("sim", rooms.host.mesh.token, True)
        mira = await rooms.add(gb=0.0, name="mira")
        await asyncio.sleep(1)
        assert [name for _, _, name in now().passes] == ["mira"]
        await rooms.host.kick(mira.mesh.id)
        await asyncio.sleep(1)
        assert now().passes == []
        assert now().key == keeper.key != first.key
        os.utime(path, (1, 1))
        await asyncio.sleep(AGAIN_S)
        assert path.stat().st_mtime > 1, "by its age a file says when its room lived last"
        await rooms.close()
        assert not path.exists()

    simulate(scenario, limit=2 * AGAIN_S)


def test_a_pass_is_saved_used_again_and_forgotten(data: Path) -> None:
    """PROTOCOL section 3: kept when the device leaves or its host is lost; not when it is thrown out, nor
    when the room is closed.
    """

    async def scenario() -> None:
        rooms = await open_rooms()

        async def come() -> tuple[object, str, str]:
            claim = await asyncio.to_thread(claim_pass, CODE, "mira")
            known = Newcomer(Credentials(pass_=claim.saved.pass_)) if claim.saved else None
            mira = await rooms.add(gb=0.0, name="mira", newcomer=known, slot=claim.slot)
            await asyncio.sleep(1)
            return mira, claim.saved.pass_ if claim.saved else "", mira.status().trust

        mira, held, trust = await come()
        assert (held, trust) == ("", "first")
        await mira.leave()  # type: ignore[attr-defined]
        mira, held, trust = await come()
        assert held
        assert trust == "proved"
        seats = [name for _, _, name in rooms.host._gate.keeper.secrets.passes]
        assert seats == ["mira"], "the same seat, not a second one"
        await rooms.host.kick(mira.mesh.id)  # type: ignore[attr-defined]
        await asyncio.sleep(1)
        mira, held, _ = await come()
        assert held == ""
        await rooms.host.leave()
        await asyncio.sleep(1)
        assert not list((data / "passes").glob("*.json"))

    simulate(scenario)


def test_what_could_not_be_saved_leaves_nothing_old(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 3: a device thrown out loses its pass, also where a crash follows on a full disk."""
    path, write, fails = data / "rooms" / f"{CODE}.json", ownfiles.write, False

    def full(*args: Path) -> None:
        if fails:
            raise OSError(28, "No space left on device")
        write(*args)  # type: ignore[arg-type]  # passed on

    async def scenario() -> None:
        nonlocal fails
        rooms = await open_rooms()
        rooms.host.keep(claim_gate(CODE).slot, embedded=False)
        mira = await rooms.add(gb=0.0, name="mira")
        await asyncio.sleep(1)
        assert b"mira" in path.read_bytes()
        fails = True
        await asyncio.sleep(AGAIN_S)
        assert path.exists(), "what it says still counts"
        await rooms.host.kick(mira.mesh.id)
        await asyncio.sleep(1)
        assert not path.exists()
        fails = False
        await rooms.host.renew_invite()
        await asyncio.sleep(1)
        assert b"mira" not in path.read_bytes()
        await rooms.close()

    monkeypatch.setattr(ownfiles, "write", full)
    simulate(scenario, limit=2 * AGAIN_S)


def test_saving_that_fails_is_said_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: the room goes on, its person hears it once, in words without a secret."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def scenario() -> None:
        rooms = await open_rooms()
        slot = claim_gate(CODE).slot
        monkeypatch.setattr(ownfiles, "write", full)
        rooms.host.keep(slot, embedded=False)
        await asyncio.sleep(1)
        for name in ("mira", "leo"):
            await rooms.add(gb=0.0, name=name)
            await asyncio.sleep(1)
        said = [text for text in rooms.notices if "could not be saved" in text]
        assert len(said) == 1
        assert "(No space left on device)" in said[0]
        await rooms.close()

    simulate(scenario)
