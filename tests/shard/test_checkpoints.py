"""Slots over a slab: copied when they are written over, spilled when memory is short (PROTOCOL section 5)."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from pooled_nb.errors import FrameRefused, WrongNumbers
from pooled_nb.shard.cache import Slab
from pooled_nb.shard.checkpoints import Checkpoints
from pooled_nb.shard.copyfile import Form
from pooled_nb.shard.disk import Copies, RoomCopies, SpilledCopies
from pooled_nb.shard.door import Columns, Control
from pooled_nb.shard.engine import Engine
from pooled_nb.shard.frames import Placed
from tests.shard.conftest import Make
from tests.shard.runs import Chain, load, roles, some_tokens, spec

ROW = 2 * 4 * 4
"""Bytes of a column's keys, and of its values: 2 heads, 4 numbers, float32."""
STATE = 3 * 2 * 4
KEY = "k" * 40


class Toy:
    """A slab of two layers, one with a running state: column ``c`` of text ``t`` is the number ``t + c``."""

    def __init__(self, **places: Any) -> None:
        self.slab = Slab(2, 256)
        self.write(0, 1, 0.0)
        self.slab.settle()
        self.slab.clear()
        self.lost: list[int] = []
        self.slots = Checkpoints(self.slab, self.lost.append, **places)

    def write(self, pos: int, n: int, text: float) -> None:
        """A frame."""
        self.slab.frame = Placed(pos, n, n, 256)
        columns = torch.arange(pos, pos + n) + text
        rows = columns.view(1, 1, n, 1).expand(1, 2, n, 4).contiguous()
        for layer in (0, 1):
            self.slab.update(rows, -rows, layer)
        self.slab.update_conv_state(columns.view(1, 1, n).expand(1, 3, n).contiguous(), 1, conv_kernel_size=2)

    def frame(self, pos: int, n: int, text: float) -> None:
        self.slots.before_write(pos)
        self.write(pos, n, text)

    def load(self, slot: int) -> bool:
        """Load a slot as a frame does; false where it is missing."""
        self.slots.bring(slot)
        if slot in self.lost:
            return False
        self.slots.load(slot)
        return True

    def holds(self, length: int, text: float, *, first: int = 0, other: float = 0.0) -> bool:
        """Whether the slab is the state after so many columns of a text; the ``first`` are of another."""
        columns = torch.arange(length, dtype=torch.float32) + text
        columns[:first] += other - text
        state = torch.cat((torch.zeros(2), columns))[-2:]
        keys_0, values_0 = self.slab.slabs[0].copies(length)
        keys_1, values_1, conv = self.slab.slabs[1].copies(length)
        wanted = columns.view(1, 1, length, 1)
        rows = all(bool((one == wanted).all()) for one in (keys_0, keys_1, -values_0, -values_1))
        return rows and bool((conv == state).all())


def test_a_save_copies_no_column_until_it_is_written_over() -> None:
    """PROTOCOL section 5: ``sv``; only running states are copied at once, and columns from the frame's on."""
    toy = Toy()
    toy.frame(0, 40, 1000)
    toy.slots.save(7, 40)
    assert toy.slots.nbytes == STATE
    toy.frame(40, 20, 1000)
    assert toy.slots.nbytes == STATE
    toy.frame(30, 5, 2000)
    assert toy.slots.nbytes == STATE + 10 * ROW * 4
    assert toy.load(7)
    assert toy.holds(40, 1000)
    assert toy.slots.nbytes == STATE, "its columns are in the slab again"
    assert toy.lost == []


def test_loading_what_the_slab_still_holds_moves_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 5: ``ld``; DESIGN section 5: taking columns back moves a length."""
    toy = Toy()
    toy.frame(0, 40, 1000)
    toy.slots.save(7, 40)
    toy.frame(40, 60, 2000)
    pasted: list[tuple[int, int]] = []
    paste = toy.slab.paste

    def watch(tensors: list[list[torch.Tensor]], length: int, start: int = 0) -> None:
        pasted.append((start, length))
        paste(tensors, length, start)

    monkeypatch.setattr(toy.slab, "paste", watch)
    assert toy.load(7)
    assert pasted == [(0, 0)]
    assert toy.holds(40, 1000)


def test_slots_that_share_columns_share_copies() -> None:
    """PROTOCOL section 7: the last two answers and the system prompt: what they share is copied once."""
    toy = Toy()
    for slot, (start, end) in enumerate([(0, 10), (10, 30), (30, 60)], start=1):
        toy.frame(start, end - start, 1000)
        toy.slots.save(slot, end)
    toy.frame(20, 4, 2000)  # a rollback
    assert toy.slots.nbytes == 3 * STATE + 40 * ROW * 4
    toy.frame(0, 24, 3000)  # a reset
    assert toy.slots.nbytes == 3 * STATE + 60 * ROW * 4
    toy.slots.save(4, 24)
    for slot, length, text in ((3, 60, 1000), (4, 24, 3000), (1, 10, 1000), (2, 30, 1000), (3, 60, 1000)):
        assert toy.load(slot)
        assert toy.holds(length, text), slot
    toy.slots.drop([1, 2, 3, 4, 5])
    assert toy.slots.nbytes == 0


def test_the_oldest_goes_to_disk_when_memory_is_short(tmp_path: Path) -> None:
    """PROTOCOL section 7: memory is bounded; what goes to disk comes back on load."""
    budget = 3 * STATE + 30 * ROW * 4
    toy = Toy(budget=budget, copies=SpilledCopies(tmp_path))
    for slot in (1, 2, 3):
        toy.frame(0, 20, 1000 * slot)
        toy.slots.save(slot, 20)
        assert toy.slots.nbytes <= budget
    toy.frame(0, 20, 9000)
    assert toy.slots.nbytes == STATE + 20 * ROW * 4, "slots 1 and 2 are on disk"
    for slot in (2, 1, 3, 2):
        assert toy.load(slot)
        assert toy.holds(20, 1000 * slot), slot
        toy.frame(20, 3, 1000 * slot)
        assert toy.slots.nbytes <= budget
    assert toy.lost == []


@pytest.mark.parametrize("budget", [0, STATE, 2 * STATE + 19 * ROW * 4])
def test_without_a_disk_a_slot_is_missing(budget: int) -> None:
    """PROTOCOL section 7: where neither memory nor disk holds a slot it is missing; the frame goes on."""
    toy = Toy(budget=budget)
    toy.frame(0, 20, 1000)
    toy.slots.save(1, 20)
    toy.frame(0, 20, 2000)
    assert toy.lost == [1]
    assert not toy.load(1)
    toy.slots.save(2, 20)
    assert toy.lost == ([1, 2] if budget == 0 else [1])
    assert toy.slots.nbytes <= budget
    assert toy.holds(20, 2000)


@pytest.mark.parametrize("spills", [True, False])
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory. Tried …")])
def test_memory_that_runs_out_while_columns_are_copied(
    error: Exception, spills: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROTOCOL section 7: the slot goes to disk or is missing; the frame goes on."""
    toy = Toy(copies=SpilledCopies(tmp_path) if spills else None)
    toy.frame(0, 20, 1000)
    toy.slots.save(1, 20)
    copies, calls = toy.slab.slabs[1].copies, iter([error])

    def once(length: int, start: int = 0) -> list[torch.Tensor]:
        if failure := next(calls, None):
            raise failure
        return copies(length, start)

    monkeypatch.setattr(toy.slab.slabs[1], "copies", once)
    toy.frame(0, 20, 2000)
    assert toy.holds(20, 2000)
    assert toy.slots.nbytes == 0
    assert toy.load(1) == spills
    if spills:
        assert toy.holds(20, 1000)
    calls = iter([error])
    toy.slots.save(2, 20)
    assert toy.lost == ([2] if spills else [1, 2])


def test_another_error_is_no_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5: a bug fails the frame and is not taken for a full device."""
    toy = Toy()
    toy.frame(0, 20, 1000)
    toy.slots.save(1, 20)

    def fail(length: int, start: int = 0) -> list[torch.Tensor]:
        raise RuntimeError("a bug")

    monkeypatch.setattr(toy.slab.slabs[1], "copies", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        toy.slots.save(2, 20)
    with pytest.raises(RuntimeError, match="a bug"):
        toy.slots.before_write(0)


def test_a_copy_that_broke_is_missing(tmp_path: Path) -> None:
    """PROTOCOL section 7: never stale: a slot whose copy is torn, or of another shape, cannot be loaded."""
    copies = room(tmp_path)
    toy = Toy(budget=0, copies=copies)
    toy.frame(0, 20, 1000)
    toy.slots.save(1, 20)
    toy.slots.save(2, 20)
    file = tmp_path / KEY / "1"
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    assert not toy.load(1)
    # A copy that is whole, of a slot of another length.
    assert copies.write(2, copies.begin(2), 19, [[Form("float32", (1,))]], [[torch.zeros(1)]])
    assert not toy.load(2)
    assert toy.lost == [1, 2]
    assert not file.exists()


class Slow:
    """A disk whose writes wait; the rest is the disk's."""

    stays = True

    def __init__(self, copies: RoomCopies) -> None:
        self.go = threading.Event()
        self._copies = copies
        self.begin, self.read, self.remove = copies.begin, copies.read, copies.remove

    def write(
        self, slot: int, ticket: object, length: int, forms: list[list[Form]], layers: Iterable[Any]
    ) -> bool:
        assert self.go.wait(20)
        return self._copies.write(slot, ticket, length, forms, layers)

    def close(self, *, keep: bool) -> None:
        self._copies.close(keep=keep)


def room(folder: Path) -> RoomCopies:
    copies = RoomCopies.open(folder, KEY)
    assert copies is not None
    return copies


def test_a_room_s_slots_are_written_beside_the_frames(tmp_path: Path) -> None:
    """PROTOCOL section 7: a slow disk holds no frame up, and frames do not change what it writes."""
    slow = Slow(room(tmp_path))
    typed: Copies = slow
    toy = Toy(copies=typed)
    toy.frame(0, 20, 1000)
    toy.slots.save(1, 20)
    toy.frame(15, 10, 2000)
    toy.slots.save(2, 25)
    toy.slots.save(3, 25)
    toy.frame(0, 25, 3000)
    toy.slots.drop([3])
    assert not list((tmp_path / KEY).glob("[0-9]*"))
    slow.go.set()
    toy.slots.close(keep=True)
    back = room(tmp_path)
    found = back.found(256)
    assert found == {1: 20, 2: 25}
    again = Toy(copies=back, found=found)
    assert again.load(1)
    assert again.holds(20, 1000)
    assert again.load(2)
    assert again.holds(25, 2000, first=15, other=1000)
    again.slots.close(keep=False)
    assert list(tmp_path.iterdir()) == []


# -- engines ----------------------------------------------------------------------------------------

TOKENS = some_tokens(80)
ROLES = roles(40, 40)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POOLED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "checkpoints"


@pytest.mark.parametrize("name", ["llama", "lfm2"])
@pytest.mark.parametrize(
    ("pos", "control", "words"),
    [
        (41, Control(), "position 41, and the caches hold 40"),
        (40, Control(rb=0), "rolls back to column 0, and the last draft kept 0"),
        (40, Control(ld=5), "loads slot 5, which this device does not hold"),
        (0, Control(reset=True, ld=5), "loads slot 5, which this device does not hold"),
        (40, Control(sv=4, dp=(0xFFFF,)), "saves slot 4 and drops all slots"),
        (40, Control(sv=3), "saves slot 3, which is kept already"),
        (40, Control(sv=0xFFFF), "names slot 65535"),
        (40, Control(ld=0xFFFF), "names slot 65535"),
        (40, Control(sv=-3), "names slot -3"),
        (40, Control(dp=(3, 0xFFFF)), "names slot 65535"),
        (0, Control(sv=9, dp=(3,), reset=True, ld=3), "slot 3, which this device does not hold"),
    ],
)
def test_control_that_cannot_be_leaves_the_engine_as_it_was(
    name: str, pos: int, control: Control, words: str, tiny_model: Make
) -> None:
    """PROTOCOL section 5: refused in words, nothing changed; the next frame runs, and so does a reset."""
    chain = chain_of(name, tiny_model)
    whole = chain.run(TOKENS[:60], ROLES[:60])
    chain.run(TOKENS[:32], ROLES[:32])
    chain.lap(TOKENS[32:40], 32, wide=True, control=Control(sv=3))
    with pytest.raises(FrameRefused, match=words) as caught:
        chain.lap([5], pos, wide=False, control=control)
    assert "reset" in caught.value.next_step
    assert chain.states(chain.lap(TOKENS[40:44], 40, wide=False)).equal(whole[40:44])
    assert chain.states(chain.lap(TOKENS[32:40], 32, wide=True, control=Control(ld=3))).equal(whole[32:40])
    chain.lap([5], 0, wide=False, control=Control(reset=True, dp=(0xFFFF,)))
    assert chain.run(TOKENS[:60], ROLES[:60]).equal(whole)


_chains: dict[str, Chain] = {}


def chain_of(name: str, tiny_model: Make) -> Chain:
    """One engine for all tests that leave it fit to be used."""
    if name not in _chains:
        _chains[name] = Chain([load(tiny_model(name), lo=0, ctx=128)])
    chain = _chains[name]
    chain.lap([5], 0, wide=False, control=Control(reset=True, dp=(0xFFFF,)))
    return chain


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_wrong_numbers_take_all_slots_along(wrong: float, tiny_model: Make) -> None:
    """PROTOCOL section 7: any failed lap drops all checkpoints, as on the host."""
    worker = load(tiny_model("llama"), 2, 4)
    good = torch.ones(2, 64)
    columns = Columns(pos=0, n=2, wide=False)
    worker.forward(columns, Control(sv=3), tokens=None, data=good.numpy().tobytes(), last=False)
    with pytest.raises(WrongNumbers):
        worker.forward(
            Columns(pos=2, n=2, wide=False), Control(), tokens=None, data=(good * wrong).numpy().tobytes(),
            last=False,
        )  # fmt: skip
    with pytest.raises(FrameRefused, match="slot 3"):
        worker.forward(columns, Control(ld=3), tokens=None, data=good.numpy().tobytes(), last=False)
    worker.forward(columns, Control(reset=True), tokens=None, data=good.numpy().tobytes(), last=False)


def again(engine: Engine, folder: Path, **changes: Any) -> list[int]:
    return engine.load(spec(folder, ctx=128, **changes), folder, lambda pct, words: None).slots


@pytest.mark.parametrize("name", ["llama", "lfm2"])
def test_a_device_that_comes_back_has_its_slots(name: str, tiny_model: Make, own_cache: Path) -> None:
    """PROTOCOL sections 6 and 7: ``ai-ready.slots``: read back from disk, for the same key only."""
    folder = tiny_model(name)
    engine = Engine()
    chain = Chain([engine])
    assert again(engine, folder, room="one") == []
    whole = chain.run(TOKENS, ROLES)
    chain.run(TOKENS[:40], ROLES[:40])
    chain.lap(TOKENS[40:50], 40, wide=False, control=Control(sv=3))
    chain.lap(TOKENS[50:60], 50, wide=False, control=Control(sv=9))
    chain.lap(TOKENS[:10], 0, wide=True, control=Control(reset=True, dp=(9,)))
    assert again(engine, folder, room="one") == [3]
    rest = chain.lap(TOKENS[40:50], 40, wide=False, control=Control(ld=3))
    assert chain.states(rest).equal(whole[40:50])
    # What a host may do that knows nothing of slot 3.
    chain.lap(TOKENS[50:52], 50, wide=False, control=Control(sv=3))
    assert again(engine, folder, room="one") == [3]
    assert chain.states(chain.lap(TOKENS[50:60], 50, wide=False, control=Control(ld=3))).equal(whole[50:60])
    assert again(engine, folder, room="another") == []
    assert again(engine, folder, room="one") == [], "layers of another key came between"
    chain.lap(TOKENS[:10], 0, wide=True, control=Control(sv=4))
    engine.unload()
    assert list(own_cache.iterdir()) == []


def test_without_a_room_nothing_stays_on_disk(tiny_model: Make, own_cache: Path) -> None:
    """PROTOCOL section 7: disk copies are a room's; what memory does not hold is on disk without a name."""
    folder = tiny_model("llama")
    engine = Engine()
    chain = Chain([engine])
    loaded = engine.load(spec(folder, ctx=128), folder, lambda pct, words: None)
    again(engine, folder, max_gb=(loaded.weights + loaded.cache + 1000) / 1e9)
    whole = chain.run(TOKENS[:50], ROLES[:50])
    chain.lap(TOKENS[:10], 0, wide=True, control=Control(reset=True))
    chain.lap(TOKENS[10:20], 10, wide=True, control=Control(sv=3))
    chain.lap(TOKENS[40:50], 0, wide=True, control=Control(reset=True))
    assert engine._need().checkpoints.nbytes == 0
    assert not [path for path in own_cache.rglob("*") if path.is_file()]
    assert chain.states(chain.lap(TOKENS[10:20], 10, wide=True, control=Control(ld=3))).equal(whole[10:20])
    engine.unload(keep=True)
    assert again(engine, folder) == []
