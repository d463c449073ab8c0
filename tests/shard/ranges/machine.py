"""What happens to a range cache, beside a dict that says what must be in it."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pooled_nb.shard.ranges import Incoming, RangeFile, Ranges
from pooled_nb.shard.ranges.incoming import JOURNAL

SIZE = 400
CONTENT = random.Random(8).randbytes(SIZE)
Block = tuple[int, int]


def crash(incoming: Incoming) -> Path:
    """End as a killed process does: nothing more is written, the locks are free. Return the part."""
    incoming._close()
    incoming.held.close()
    return incoming._part


class CacheMachine(RuleBasedStateMachine):
    """One file of one model; blocks that overlap too, as an older rule of cutting leaves them."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.held: set[Block] = set()
        self.coming: dict[Block, Incoming] = {}
        self.sure: dict[Block, int] = {}
        """Bytes of a piece that nothing took away since they were kept."""
        self.most: dict[Block, int] = {}
        """Bytes of a piece that may count: what came after was damaged, or never written."""
        self.file = self.another_kernel()

    def another_kernel(self) -> RangeFile:
        return Ranges(self.root).model("org/model", "main").file("model.safetensors", SIZE)

    def teardown(self) -> None:
        for incoming in self.coming.values():
            incoming.drop()
        shutil.rmtree(self.root)

    @initialize(lo=st.integers(0, SIZE - 2))
    def something(self, lo: int) -> None:
        self.begin(lo, SIZE)

    @rule(lo=st.integers(0, SIZE - 1), length=st.integers(1, 120))
    def begin(self, lo: int, length: int) -> None:
        block = lo, min(SIZE, lo + length)
        incoming = self.file.begin(*block)
        if block in self.coming or any(a <= block[0] and block[1] <= b for a, b in self.held):
            assert incoming is None
            return
        assert incoming is not None
        covered = block[0]
        while (more := max((b for a, b in self.held if a <= covered < b), default=covered)) > covered:
            covered = more
        prefix = min(block[1], covered) - block[0]
        assert self.sure.pop(block, 0) <= incoming.at <= max(self.most.pop(block, 0), prefix)
        assert incoming.at >= prefix
        self.coming[block] = incoming

    def some(self, data: st.DataObject) -> tuple[Block, Incoming]:
        block = data.draw(st.sampled_from(sorted(self.coming)))
        return block, self.coming[block]

    @precondition(lambda self: self.coming)
    @rule(data=st.data(), length=st.integers(0, 60))
    def write(self, data: st.DataObject, length: int) -> None:
        (lo, hi), incoming = self.some(data)
        at = lo + incoming.at
        incoming.write(CONTENT[at : min(hi, at + length)])

    @precondition(lambda self: self.coming)
    @rule(data=st.data(), right=st.booleans())
    def finish(self, data: st.DataObject, right: bool) -> None:
        block, incoming = self.some(data)
        lo, hi = block
        incoming.write(CONTENT[lo + incoming.at : hi])
        sha256 = hashlib.sha256(CONTENT[lo:hi]).hexdigest()
        del self.coming[block]
        if right:
            assert incoming.finish(sha256) == sha256
            self.held.add(block)
            assert self.file.sha256(lo, hi) == sha256
        else:
            assert incoming.finish("0" * 64) == ""

    @precondition(lambda self: self.coming)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        block, incoming = self.some(data)
        incoming.keep()
        del self.coming[block]
        self.sure[block] = self.most[block] = incoming.at

    @precondition(lambda self: self.coming)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        block, incoming = self.some(data)
        incoming.drop()
        del self.coming[block]

    @precondition(lambda self: self.coming)
    @rule(data=st.data())
    def begin_again(self, data: st.DataObject) -> None:
        _, incoming = self.some(data)
        incoming.begin_again()
        assert incoming.at == 0

    @precondition(lambda self: self.coming)
    @rule(data=st.data(), where=st.integers(0, 150), how=st.sampled_from(["cut", "zeros", "journal", ""]))
    def die(self, data: st.DataObject, where: int, how: str) -> None:
        """A kill, or a loss of power that took something of what was written last."""
        block, incoming = self.some(data)
        part = crash(incoming)
        del self.coming[block]
        size = part.stat().st_size
        where = min(where, size)
        self.most[block] = size
        if how == "cut":
            os.truncate(part, where)
            self.most[block] = where
        elif how == "zeros":
            os.truncate(part, where)
            os.truncate(part, size)
            self.most[block] = where if any(CONTENT[block[0] + where : block[0] + size]) else size
        elif how == "journal":
            journal = part.with_name(part.name + JOURNAL)
            os.truncate(journal, min(where, journal.stat().st_size))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def tear(self, data: st.DataObject) -> None:
        """A segment that is not whole counts for nothing."""
        block = data.draw(st.sampled_from(sorted(self.held)))
        path = self.file.find(*block)
        assert path is not None
        if path[1] or path[0].stat().st_size != block[1] - block[0]:  # in another
            return
        os.truncate(path[0], block[1] - block[0] - 1)
        self.held.discard(block)
        self.file = self.another_kernel()

    @rule()
    def delete(self) -> None:
        freed = Ranges(self.root).delete("org/model")
        if self.coming:
            assert freed == 0
        else:
            self.held, self.sure, self.most = set(), {}, {}

    @rule()
    def restart(self) -> None:
        self.file = self.another_kernel()

    @rule(lo=st.integers(0, SIZE - 1), length=st.integers(1, SIZE))
    def read(self, lo: int, length: int) -> None:
        hi = min(SIZE, lo + length)
        here = all(any(a <= i < b for a, b in self.held) for i in range(lo, hi))
        assert self.file.read(lo, hi) == (CONTENT[lo:hi] if here else None)
        found = self.file.find(lo, hi)
        assert (found is not None) == any(a <= lo and hi <= b for a, b in self.held)
        if found is not None:
            assert found[0].read_bytes()[found[1] :][: hi - lo] == CONTENT[lo:hi]

    @invariant()
    def what_is_held(self) -> None:
        assert self.file.held() == sorted(self.held)
