"""Disk copies of checkpoints: whole or missing, for one key, within bounds (PROTOCOL section 7)."""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.shard import copyfile, diskfolder
from pooled_nb.shard.copyfile import Form, Head, form_of
from pooled_nb.shard.disk import RoomCopies, SpilledCopies, copy_key, forget, open_copies
from pooled_nb.shard.door import LoadSpec

KEY, OTHER = "a" * 40, "b" * 40
Layers = list[list[torch.Tensor]]


def numbers(seed: int = 1, columns: int = 5) -> Layers:
    """Keys, values and a state, of several dtypes."""
    ramp = torch.arange(columns * 8, dtype=torch.float32).view(1, 2, columns, 4) * seed
    state = torch.linspace(-1, 1, 6).view(1, 2, 3) / seed
    return [[ramp, ramp.to(torch.bfloat16)], [], [state, ramp.to(torch.int8), torch.tensor(seed)]]


def forms(layers: Layers) -> list[list[Form]]:
    return [[form_of(tensor) for tensor in layer] for layer in layers]


def same(one: Layers, other: Layers) -> bool:
    return forms(one) == forms(other) and all(
        a.equal(b) for mine, theirs in zip(one, other, strict=True) for a, b in zip(mine, theirs, strict=True)
    )


def put(copies: RoomCopies | SpilledCopies, slot: int, layers: Layers, length: int = 5) -> bool:
    return copies.write(slot, copies.begin(slot), length, forms(layers), layers)


def room(folder: Path, key: str = KEY, most: int = diskfolder.MOST) -> RoomCopies:
    opened = RoomCopies.open(folder, key, most)
    assert opened is not None
    return opened


def files(folder: Path) -> list[str]:
    """Names of copies, and of parts of copies."""
    return sorted(f"{path.parent.name[0]}/{path.name}" for path in folder.glob("*/*") if path.name != "lock")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "checkpoints"


def packed(layers: Layers, key: str = KEY, slot: int = 3) -> bytes:
    class File(io.BytesIO):
        def fileno(self) -> int:
            return os.open(os.devnull, os.O_RDONLY)

    file = File()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.close)
        copyfile.write(file, Head(key, slot, 5, forms(layers)), layers)
    return file.getvalue()


def test_what_is_written_is_read() -> None:
    """PROTOCOL section 7: a disk copy is the slot, bit for bit, with its dtypes and shapes."""
    data = packed(numbers())
    head = Head(KEY, 3, 5, forms(numbers()))
    assert len(data) == copyfile.size_of(head)
    read = copyfile.read(io.BytesIO(data), KEY, 3)
    assert read is not None
    assert read[0] == head
    assert same(read[1], numbers())
    checked = copyfile.read(io.BytesIO(data), KEY, 3, keep=False)
    assert checked == (head, [[], [], []])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_copy_that_is_not_whole_reads_as_missing(data: st.DataObject) -> None:
    """PROTOCOL section 7: torn at any byte, longer, or altered anywhere: missing, and no error."""
    whole = packed(numbers())
    at = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(["cut", "flip", "longer", "moved"]))
    if kind == "cut":
        broken = whole[:at]
    elif kind == "flip":
        broken = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    elif kind == "longer":
        broken = whole + data.draw(st.binary(min_size=1, max_size=40))
    else:  # as long as before, with a hole
        broken = whole[:at] + bytes(len(whole) - at)
    if broken != whole:
        assert copyfile.read(io.BytesIO(broken), KEY, 3) is None


@pytest.mark.parametrize(
    "forms",
    [
        [[Form("float32", (1 << 40, 1 << 20))]],
        [[Form("float32", (-1, -64))]],
        [[Form("complex64", (1,))]],
        [[Form("object", (1,))]],
    ],
)
def test_a_head_that_lies_allocates_nothing(forms: list[list[Form]]) -> None:
    """PROTOCOL section 7: sizes are checked against the file before memory is taken."""
    head = msgspec.msgpack.encode(Head(KEY, 3, 5, forms))
    data = copyfile.MAGIC + len(head).to_bytes(4, "little") + head + bytes(300)
    assert copyfile.read(io.BytesIO(data), KEY, 3) is None


def test_a_copy_for_anything_else_reads_as_missing(folder: Path) -> None:
    """PROTOCOL section 7: another key, or another slot's file under this one's name."""
    assert copyfile.read(io.BytesIO(packed(numbers())), OTHER, 3) is None
    assert copyfile.read(io.BytesIO(packed(numbers())), KEY, 4) is None
    mine, theirs = room(folder), room(folder, OTHER)
    assert put(mine, 3, numbers())
    assert theirs.read(3) is None
    assert mine.read(4) is None
    os.replace(folder / KEY / "3", folder / OTHER / "3")
    assert theirs.read(3) is None
    assert theirs.found(512) == {}
    assert files(folder) == []


SPEC = LoadSpec(
    repo="a/b", revision="1", folder=None, config_sha256="c", lo=0, hi=4, ends=True, ctx=512, dtype="float32",
    room="4TKG9P",
)  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"room": "4TKG9Q"}, {"repo": "a/c"}, {"revision": "2"}, {"config_sha256": "d"}, {"lo": 1}, {"hi": 5},
        {"ends": False}, {"dtype": "bfloat16"}, {"kv": "q8"}, {"width": 8}, {"cols": 64}, {"attn": "eager"},
        {"experts": "eager"}, {"exact": False}, {"device": "cpu"},
    ],
)  # fmt: skip
def test_the_key_holds_all_that_bits_depend_on(change: dict[str, Any]) -> None:
    """PROTOCOL section 7: keyed by room and a hash of model, layers, dtype, KV format and sig."""
    key = copy_key(SPEC, "sig")
    assert copy_key(msgspec.structs.replace(SPEC, **change), "sig") != key
    assert copy_key(SPEC, "another") != key
    # Where the files lie and what is lent decide no bits.
    assert copy_key(msgspec.structs.replace(SPEC, folder="/x", max_gb=3.0, ctx=1024), "sig") == key
    assert "4TKG9P" not in key


def test_only_the_user_may_read_them(folder: Path) -> None:
    """PROTOCOL section 7: a room is in there: 0600 files in 0700 folders, whose names say nothing."""
    mine = room(folder)
    assert put(mine, 3, numbers())
    assert [path.name for path in folder.iterdir()] == [KEY]
    if sys.platform != "win32":
        for path, mode in ((folder, 0o700), (folder / KEY, 0o700), (folder / KEY / "3", 0o600)):
            assert stat.S_IMODE(path.stat().st_mode) == mode, path


def test_a_spilled_copy_has_no_name(folder: Path) -> None:
    """PROTOCOL section 7: what memory did not hold ends with the process: no other can open it."""
    copies = SpilledCopies(folder)
    assert put(copies, 3, numbers())
    assert put(copies, 4, numbers(2))
    if sys.platform != "win32":
        assert list(folder.iterdir()) == []
    read = copies.read(3)
    assert read is not None
    assert same(read[1], numbers())
    copies.remove(3)
    assert copies.read(3) is None
    assert copies.read(4) is not None
    copies.close(keep=True)
    assert copies.read(4) is None


def _fails(number: int) -> Callable[..., NoReturn]:
    def fail(*args: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("kind", [RoomCopies, SpilledCopies])
@pytest.mark.parametrize(
    ("what", "number"),
    [("fsync", errno.ENOSPC), ("fsync", errno.EIO), ("open", errno.EACCES), ("replace", errno.EPERM)],
)
def test_a_failed_write_leaves_the_slot_missing(
    kind: type, what: str, number: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROTOCOL section 7: a failed write leaves a slot missing, never stale; what was begun is removed."""
    copies: RoomCopies | SpilledCopies = room(folder) if kind is RoomCopies else SpilledCopies(folder)
    assert put(copies, 3, numbers())
    monkeypatch.setattr(os, what, _fails(number))
    wrote = put(copies, 3, numbers(2))
    monkeypatch.undo()
    # A file without a name is never renamed, and opened by Python itself.
    if kind is RoomCopies or what == "fsync":
        assert not wrote
        assert copies.read(3) is None
        assert files(folder) == []


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory"), KeyError("bug")])
def test_tensors_that_cannot_be_had_leave_the_slot_missing(
    error: Exception, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PROTOCOL section 7: the frame goes on, whatever fails while a copy is made."""

    def layers() -> Iterator[list[torch.Tensor]]:
        yield numbers()[0]
        raise error

    for copies in (room(folder), SpilledCopies(folder)):
        assert not copies.write(3, copies.begin(3), 5, forms(numbers()), layers())
        assert copies.read(3) is None
    assert files(folder) == []
    assert ("bug" in capsys.readouterr().err) == isinstance(error, KeyError)


def test_a_full_disk_is_not_filled_to_the_brim(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 7: copies leave room for what people do with their disk."""
    usage = type("Usage", (), {"free": diskfolder.FREE + 100})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert not put(room(folder), 3, numbers())
    assert not put(SpilledCopies(folder), 3, numbers())
    assert files(folder) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """PROTOCOL section 7: without a disk slots are missing, and nothing else fails."""
    (tmp_path / "cache").write_text("a file", encoding="utf-8")
    folder = tmp_path / "cache" / "checkpoints"
    copies, found = open_copies(folder, KEY, 512)
    assert found == {}
    assert isinstance(copies, SpilledCopies)
    assert not put(copies, 3, numbers())
    diskfolder.clean(folder, 1e12)
    forget(folder, KEY)


def test_the_oldest_copies_make_way(folder: Path) -> None:
    """PROTOCOL section 7: 4 GiB in all, over all rooms; the oldest are removed first."""
    size = len(packed(numbers()))
    mine, theirs = room(folder, KEY, 3 * size + 10), room(folder, OTHER, 3 * size + 10)
    for i, (copies, slot) in enumerate([(mine, 1), (theirs, 2), (mine, 3)]):
        assert put(copies, slot, numbers())
        os.utime(folder / copies.key / str(slot), (i, i))
    assert put(theirs, 4, numbers())
    assert files(folder) == ["a/3", "b/2", "b/4"]
    assert mine.read(1) is None
    assert not put(mine, 5, numbers(columns=500)), "it alone is more than all may be"
    assert files(folder) == ["a/3", "b/2", "b/4"]
    # What memory spills takes part in the same bound, and removes nobody's copies.
    assert not put(SpilledCopies(folder, 3 * size + 99), 1, numbers())
    assert put(SpilledCopies(folder, 4 * size), 1, numbers())


def test_slots_are_found_again(folder: Path) -> None:
    """PROTOCOL sections 6 and 7: ``slots`` read back from disk; what is not whole is missing, and removed."""
    mine = room(folder)
    for slot, length in ((1, 5), (65534, 9), (7, 600), (8, 5)):
        assert put(mine, slot, numbers(), length)
    torn = folder / KEY / "8"
    torn.write_bytes(torn.read_bytes()[:-1])
    for name in ("0", "65535", "x", "\u0661"):
        (folder / KEY / name).write_bytes(b"stray")
    mine.close(keep=True)
    copies, found = open_copies(folder, KEY, 512)
    assert found == {1: 5, 65534: 9}
    assert not torn.exists()
    read = copies.read(65534)
    assert read is not None
    assert read[0] == 9
    assert same(read[1], numbers())
    copies.close(keep=False)
    assert list(folder.iterdir()) == []


def test_a_dropped_slot_does_not_come_back(folder: Path) -> None:
    """PROTOCOL section 7: never stale, also where the slot is dropped or saved anew while it is written."""
    mine = room(folder)
    begun, go = threading.Event(), threading.Event()

    def slowly() -> Iterator[list[torch.Tensor]]:
        for layer in numbers():
            begun.set()
            assert go.wait(20)
            yield layer

    wrote: list[bool] = []
    ticket = mine.begin(3)
    writer = threading.Thread(
        target=lambda: wrote.append(mine.write(3, ticket, 5, forms(numbers()), slowly()))
    )
    writer.start()
    assert begun.wait(20)
    assert put(mine, 3, numbers(2)), "the host dropped the slot, and saves it again"
    go.set()
    writer.join()
    assert wrote == [False]
    read = mine.read(3)
    assert read is not None
    assert same(read[1], numbers(2))
    assert files(folder) == ["a/3"]
    mine.remove(3)
    assert not mine.write(3, ticket, 5, forms(numbers()), numbers())
    assert files(folder) == []


def test_old_copies_and_parts_are_cleaned(folder: Path) -> None:
    """PROTOCOL section 7: what a process left that died goes after a while; what is in use does not."""
    mine, theirs = room(folder), room(folder, OTHER)
    for copies in (mine, theirs):
        assert put(copies, 1, numbers())
    theirs.close(keep=True)
    now = (folder / KEY / "1").stat().st_mtime
    (folder / KEY / "2.00.part").write_bytes(b"begun")
    (folder / "stray").write_bytes(b"")
    diskfolder.clean(folder, now + 3600)
    assert files(folder) == ["a/1", "a/2.00.part", "b/1"]
    diskfolder.clean(folder, now + diskfolder.PART_AGE_S + 3600)
    assert files(folder) == ["a/1", "b/1"]
    late = now + diskfolder.AGE_S + 3600
    diskfolder.clean(folder, late)
    diskfolder.clean(folder, late)
    assert files(folder) == []
    assert (folder / KEY).is_dir(), "an engine holds its lock"
    assert not (folder / OTHER).exists()
    assert put(mine, 1, numbers())


def test_forgetting_a_key(folder: Path) -> None:
    """PROTOCOL section 7: what no load will come back for is removed, but never what an engine uses."""
    mine, theirs = room(folder), room(folder, OTHER)
    assert put(mine, 1, numbers())
    assert put(theirs, 1, numbers())
    theirs.close(keep=True)
    forget(folder, KEY)
    forget(folder, OTHER)
    forget(folder, "c" * 40)
    assert files(folder) == ["a/1"]
    assert [path.name for path in folder.iterdir()] == [KEY]


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be removed there")
def test_a_key_that_is_taken_as_it_is_let_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 7: one engine at a time holds a key, also where two meet at its end."""
    mine = room(folder)
    release, taken = mine._lock.release, []

    def and_taken() -> None:
        release()
        taken.append(RoomCopies.open(folder, KEY))

    monkeypatch.setattr(mine._lock, "release", and_taken)
    mine.close(keep=False)
    assert taken[0] is not None
    assert RoomCopies.open(folder, KEY) is None
    assert put(taken[0], 1, numbers())


_OTHER_PROCESS = """
import sys
from pathlib import Path
import torch
from pooled_nb.shard.copyfile import form_of
from pooled_nb.shard.disk import RoomCopies
mine = RoomCopies.open(Path(sys.argv[1]), sys.argv[2])
numbers = [[torch.arange(4096.0)]]
for slot in (3, 4):
    assert mine.write(slot, mine.begin(slot), 9, [[form_of(numbers[0][0])]], numbers)
print("ready", flush=True)
def endless():
    yield from numbers
    print("writing", flush=True)
    sys.stdin.read()
mine.write(4, mine.begin(4), 9, [[form_of(numbers[0][0])], []], endless())
"""


def test_two_processes(folder: Path) -> None:
    """PROTOCOL section 7: kernels do not touch each other's copies; one that is killed leaves whole ones."""
    child = subprocess.Popen(
        [sys.executable, "-c", _OTHER_PROCESS, str(folder), KEY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready" + os.linesep.encode()
        assert child.stdout.readline() == b"writing" + os.linesep.encode()
        copies, found = open_copies(folder, KEY, 512)
        assert isinstance(copies, SpilledCopies), "the same room's device in another kernel goes without"
        assert found == {}
        assert put(copies, 3, numbers())
        assert put(room(folder, OTHER), 3, numbers())
        forget(folder, KEY)
        diskfolder.clean(folder, 1.0)
    finally:
        child.kill()
        child.communicate()
    back, found = open_copies(folder, KEY, 512)
    assert found == {3: 9}, "slot 4 was being written anew"
    read = back.read(3)
    assert read is not None
    assert read[1][0][0].equal(torch.arange(4096.0))
