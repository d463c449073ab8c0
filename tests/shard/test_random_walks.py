"""Random walks: whatever frames and control come, every column has the bits of a fresh run.

A walk is a conversation that is driven about: prompts, answers, drafts taken back, states saved, loaded and
dropped, resets, and frames that must be refused. Every column it computes is a node of a tree (its token, its
class, what came before); at the end each branch is run again from its start, in the longest frames there are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pooled_nb.errors import FrameRefused
from pooled_nb.shard.disk import Copies, RoomCopies, SpilledCopies
from pooled_nb.shard.door import Columns, Control
from tests.shard import tiny
from tests.shard.conftest import Make
from tests.shard.runs import BUCKET, COLS, WIDTH, Chain, load

CTX = 320
SLOTS = (1, 2, 3, 65534)


@dataclass(eq=False, repr=False)
class Node:
    """One column: its token, its class, its place after another."""

    token: int
    generated: bool
    before: Node | None
    bits: torch.Tensor | None = None
    after: dict[tuple[int, bool], Node] = field(default_factory=dict)

    def next(self, token: int, generated: bool) -> Node:
        return self.after.setdefault((token, generated), Node(token, generated, self))

    def path(self) -> list[Node]:
        """The columns up to this one, without the root, which is none."""
        path, node = [], self
        while node.before:
            path.append(node)
            node = node.before
        return path[::-1]


@dataclass
class Walk:
    """What a room and its devices should hold: the same by the rules of PROTOCOL section 5, in nodes."""

    chain: Chain
    root: Node = field(default_factory=lambda: Node(0, False, None))
    path: list[Node] = field(default_factory=list)
    draft: tuple[int, list[Node]] = (0, [])
    slots: dict[int, list[Node]] = field(default_factory=dict)
    old: set[int] = field(default_factory=set)
    """Slots that came from a disk: a host that does not know of them may save over them."""

    def frame(self, tokens: Sequence[int], *, wide: bool, **control: Any) -> None:
        """Send a frame where control leads; it must run, and columns that were computed before must agree."""
        done = Control(**control)
        path, slots, draft = list(self.path), dict(self.slots), self.draft
        if done.rb is not None:
            path = path[: draft[0]] + draft[1][: done.rb + 1]
        if done.sv:
            slots[done.sv] = list(path)
        slots = {} if done.dp == (0xFFFF,) else {k: v for k, v in slots.items() if k not in done.dp}
        if done.reset:
            path, draft = [], (0, [])
        if done.ld:
            path, draft = list(slots[done.ld]), (0, [])
        pos = len(path)
        data = self.chain.lap(list(tokens), pos, wide=wide, control=done)
        for token, bits in zip(tokens, self.chain.states(data), strict=True):
            node = (path[-1] if path else self.root).next(token, not wide)
            assert node.bits is None or torch.equal(node.bits, bits), f"column {len(path)} has other bits"
            node.bits = bits
            path.append(node)
        base, drafted = draft
        draft = (pos, path[pos:]) if done.spec else (base, drafted[: max(0, pos - base)])
        self.path, self.slots, self.draft = path, slots, draft
        self.old = {slot for slot in self.old & slots.keys() if slot != done.sv}

    def refused(self, pos: int, **control: Any) -> None:
        """Send a frame that must be refused; what follows shows that it changed nothing."""
        for i, engine in enumerate(self.chain.engines):
            data = bytes(engine._need().dim * engine.dtype.itemsize) if i else None
            columns = Columns(pos=pos, n=1, wide=False)
            with pytest.raises(FrameRefused) as caught:
                engine.forward(columns, Control(**control), tokens=None if i else [5], data=data, last=False)
            assert "reset" in caught.value.next_step

    def check(self) -> None:
        """Every branch again, alone and from its start."""
        tips = [self.root]
        while tips:
            node = tips.pop()
            tips += node.after.values()
            if node.after or node is self.root:
                continue
            path = node.path()
            fresh = self.chain.run([n.token for n in path], [n.generated for n in path])
            for i, (one, bits) in enumerate(zip(path, fresh, strict=True)):
                assert one.bits is not None
                assert torch.equal(one.bits, bits), f"column {i} of {len(path)} has other bits than alone"


PLACES: dict[str, Callable[[Path, str], tuple[int | None, Copies | None]]] = {
    "memory": lambda folder, key: (None, None),
    "disk": lambda folder, key: (0, SpilledCopies(folder)),
    "some of both": lambda folder, key: (60_000, SpilledCopies(folder)),
    "nowhere else": lambda folder, key: (60_000, None),
    "a room's disk": lambda folder, key: (60_000, RoomCopies.open(folder, key)),
}
"""Where slots go: bytes of memory, and the disk."""
WALKS = [
    ("llama", 1, "memory", {}),
    ("llama", 2, "a room's disk", {"kv": "q8"}),
    ("llama", 1, "nowhere else", {"attn": "eager"}),
    ("mistral", 2, "some of both", {}),
    ("qwen3_moe", 1, "disk", {"dtype": "bfloat16"}),
    ("qwen3_next", 2, "some of both", {}),
    ("lfm2", 1, "a room's disk", {"dtype": "bfloat16"}),
    ("lfm2", 2, "memory", {"kv": "q8"}),
    ("falcon_h1", 1, "disk", {}),
]


class Rooms:
    """Chains of one model, whose slots go somewhere."""

    def __init__(self, folder: Path, shards: int, place: str, disk: Path, changes: dict[str, Any]) -> None:
        cuts = [0, *(tiny.LAYERS * i // shards for i in range(1, shards)), tiny.LAYERS]
        engines = [load(folder, lo, hi, ctx=CTX, **changes) for lo, hi in itertools.pairwise(cuts)]
        self.chain = Chain(engines, changes.get("dtype", "float32"))
        self._place, self._disk, self._count = place, disk, itertools.count()

    def fresh(self) -> Walk:
        """Devices that hold nothing."""
        self._key = str(next(self._count))
        for engine in self.chain.engines:
            engine._need().checkpoints.close(keep=False)
        self._open()
        return Walk(self.chain)

    def come_back(self, walk: Walk) -> None:
        """The devices end and load again: what they have is what the disk kept (PROTOCOL section 7)."""
        for engine in self.chain.engines:
            engine._need().checkpoints.close(keep=True)
        self._open()
        walk.path, walk.draft, walk.old = [], (0, []), set(walk.slots)

    def _open(self) -> None:
        for i, engine in enumerate(self.chain.engines):
            stage = engine._need()
            stage.clear()
            budget, copies = PLACES[self._place](self._disk, f"{self._key}-{i}")
            found = copies.found(CTX) if isinstance(copies, RoomCopies) else {}
            stage.keep(budget, copies, found)

    def agree(self, walk: Walk) -> None:
        """Every device keeps the slots that the walk knows; without a disk some may be missing."""
        for engine in self.chain.engines:
            held = engine._need().lane.slots
            if self._place == "nowhere else":
                walk.slots = {k: v for k, v in walk.slots.items() if k in held}
            assert held == {k: len(v) for k, v in walk.slots.items()}


def text(pos: int, n: int, salt: int = 0) -> list[int]:
    """Tokens at these positions: few conversations, so that walks cross their own ways."""
    return [3 + (7 * i + 31 * salt) % 250 for i in range(pos, pos + n)]


def step(draw: Callable[[Any], Any], walk: Walk) -> None:
    """One frame, with any control, that the rules of PROTOCOL section 5 allow."""
    control: dict[str, Any] = {}
    base, drafted = walk.draft
    pos = len(walk.path)
    if drafted and draw(st.integers(0, 2)):
        control["rb"] = draw(st.integers(0, len(drafted) - 1))
        pos = base + control["rb"] + 1
    slots = {k: len(v) for k, v in walk.slots.items()}
    free = [slot for slot in SLOTS if slot not in slots or slot in walk.old]
    if free and not draw(st.integers(0, 2)):
        control["sv"] = draw(st.sampled_from(free))
        slots[control["sv"]] = pos
    if slots and not draw(st.integers(0, 5)):
        everything = "sv" not in control and not draw(st.integers(0, 3))
        control["dp"] = (0xFFFF,) if everything else (draw(st.sampled_from(sorted(slots))), 999)
        slots = {k: v for k, v in slots.items() if not everything and k not in control["dp"]}
    if not draw(st.integers(0, 7)):
        control["reset"], pos = True, 0
    if slots and not draw(st.integers(0, 2)):
        control["ld"] = draw(st.sampled_from(sorted(slots)))
        pos = slots[control["ld"]]
    if pos >= CTX:
        control, pos = {"reset": True}, 0
    wide = draw(st.booleans())
    control["spec"] = not wide and draw(st.booleans())
    grid = COLS if wide else BUCKET
    most = min((pos // grid + 1) * grid - pos, CTX - pos, COLS if wide else WIDTH)
    n = draw(st.sampled_from([most, 1]) | st.integers(1, most))
    salt = draw(st.integers(0, 1))
    walk.frame(text(pos, n, salt), wide=wide, **control)


def stray(draw: Callable[[Any], Any], walk: Walk) -> None:
    """One frame that must be refused."""
    pos, kept = len(walk.path), len(walk.draft[1])
    empty = next(slot for slot in range(1, 9) if slot not in walk.slots)
    bad: list[tuple[int, dict[str, Any]]] = [
        (pos + 1, {}),
        (pos, {"rb": kept}),
        (pos, {"ld": empty}),
        (pos, {"sv": 0xFFFF}),
        (pos, {"sv": empty, "dp": (0xFFFF,)}),
        (1, {"reset": True, "dp": (0xFFFF,)}),
        *((pos, {"sv": slot}) for slot in walk.slots.keys() - walk.old),
        *((pos + 1, {"ld": slot, "reset": True}) for slot in walk.slots if len(walk.slots[slot]) != pos + 1),
    ]
    at, control = draw(st.sampled_from(bad))
    walk.refused(at, **control)


@pytest.mark.parametrize(("name", "shards", "place", "changes"), WALKS)
def test_walks(
    name: str, shards: int, place: str, changes: dict[str, Any], tiny_model: Make, tmp_path: Path
) -> None:
    """PROTOCOL section 5, DESIGN section 5: cut, taken back, saved, loaded, reset: the bits stay the same."""
    rooms = Rooms(tiny_model(name), shards, place, tmp_path / "copies", changes)

    # Not shrunk: each try would be a walk, on a model.
    @settings(
        max_examples=8 if name in tiny.HYBRID else 12,
        deadline=None,
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data: st.DataObject) -> None:
        walk = rooms.fresh()
        if not data.draw(st.integers(0, 2)):  # near the end of a bucket
            for pos in range(0, 240, COLS):
                walk.frame(text(pos, min(COLS, 240 - pos)), wide=True)
        for _ in range(data.draw(st.integers(4, 16))):
            kind = data.draw(st.integers(0, 9))
            if kind == 0:
                stray(data.draw, walk)
            elif kind == 1 and place == "a room's disk":
                rooms.come_back(walk)
            else:
                step(data.draw, walk)
            rooms.agree(walk)
        for slot in sorted(walk.slots) * 2:
            if slot in walk.slots and (pos := len(walk.slots[slot])) < CTX:
                walk.frame(text(pos, 1, 1), wide=False, ld=slot)
                rooms.agree(walk)
        walk.check()

    check()
    for engine in rooms.chain.engines:
        engine.unload()
