"""What slots keep: the state of a conversation after some of its columns (PROTOCOL section 5).

Keys and values are copied when they are about to be written over, never before: a slot whose columns the
slab still holds costs nothing, and to load it moves a length. Running states are copied at once. What memory
does not hold goes to disk, the oldest slot first; what neither holds is missing, and the frame goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import torch

from pooled_nb.shard.cache import Slab
from pooled_nb.shard.copyfile import Form, form_of
from pooled_nb.shard.disk import Copies
from pooled_nb.shard.faults import no_memory

Layers = list[list[torch.Tensor]]


@dataclass(slots=True)
class _Piece:
    """Copies of columns ``[start, end)``: by layer, keys and values only."""

    start: int
    end: int
    rows: Layers


@dataclass(slots=True)
class _Slot:
    """One slot.

    ``states``: copies of running states, by layer, with keys and values of no columns between them; None
    where only the disk has the slot. ``there``: so many of its first columns are still in the slab; the
    others are in ``pieces``, which follow each other. ``written`` is done when the disk has it or has not.
    """

    length: int
    ticket: object = None
    states: Layers | None = None
    there: int = 0
    pieces: list[_Piece] = field(default_factory=list)
    written: Future[bool] | None = None


class Checkpoints:
    """The slots of one lane over one slab.

    Parameters
    ----------
    slab
        Holds the columns; its layers have run at least once.
    lost
        Called with a slot that is missing from now on.
    budget
        Bytes that copies may take in memory; None for any number.
    copies
        The disk; None for none.
    found
        Slots that the disk has, with their columns.
    """

    def __init__(
        self,
        slab: Slab,
        lost: Callable[[int], None],
        *,
        budget: int | None = None,
        copies: Copies | None = None,
        found: dict[int, int] | None = None,
    ) -> None:
        self._slab, self._lost, self._budget, self._copies = slab, lost, budget, copies
        self._none = [[_shell(one) for one in layer] for layer in slab.copies(0)]
        self._slots: dict[int, _Slot] = {}
        self._wanted = 0
        self._reading = threading.Lock()
        """Held while the thread that writes copies reads a layer, and while columns are moved out."""
        self._writer = ThreadPoolExecutor(1, "pooled-copies") if copies and copies.stays else None
        for slot, length in (found or {}).items():
            self._slots[slot] = _Slot(length, written=_done(True))

    @property
    def nbytes(self) -> int:
        """Bytes of memory that slots take beside the slab."""
        held: dict[int, int] = {}
        for slot in self._slots.values():
            for tensor in _tensors(slot):
                storage = tensor.untyped_storage()
                held[storage.data_ptr()] = storage.nbytes()
        return sum(held.values())

    def shrink(self, nbytes: int) -> None:
        """From now on copies may take so many bytes less."""
        if self._budget is not None:
            self._budget = max(0, self._budget - nbytes)

    def save(self, slot: int, length: int) -> None:
        """Keep the state after ``length`` columns, which is the slab's now."""
        ticket = self._copies.begin(slot) if self._copies else None
        try:
            states = self._slab.copies(0)
        except (RuntimeError, MemoryError) as error:
            if not no_memory(error):
                raise
            self._lost(slot)
            return
        self._slots[slot] = kept = _Slot(length, ticket, states, length)
        while not self._fits(0) and self._evict():
            pass
        if self._writer is not None and kept.states is not None and (source := self._source(kept)):
            kept.written = self._writer.submit(self._write, slot, kept, source)

    def drop(self, slots: Iterable[int]) -> None:
        """Forget slots."""
        for slot in slots:
            self._slots.pop(slot, None)
            if self._copies:
                self._copies.remove(slot)

    def bring(self, slot: int) -> None:
        """Have a slot in memory before a frame that may load it is decided on; a broken copy is missing.

        It stays there until the next call; 0 is none.
        """
        self._wanted = slot
        kept = self._slots.get(slot)
        if kept is None or kept.states is not None or self._copies is None:
            return
        read = self._copies.read(slot)
        if read is None or read[0] != kept.length or _described(read[1]) != self._forms(kept.length):
            self._lose(slot)
            return
        kept.states = [
            [none if _is_rows(none) else one for one, none in zip(layer, nones, strict=True)]
            for layer, nones in zip(read[1], self._none, strict=True)
        ]
        rows = [_only_rows(*pair) for pair in zip(read[1], self._none, strict=True)]
        kept.there, kept.pieces = 0, [_Piece(0, kept.length, rows)]

    def load(self, slot: int) -> None:
        """Put a slot's state into the slab. `bring` came before."""
        kept = self._slots[slot]
        assert kept.states is not None
        if kept.pieces:
            self.before_write(kept.there)
        with self._reading:
            for piece in kept.pieces:
                self._slab.paste(_joined(kept.states, piece.rows), piece.end, piece.start)
            if not kept.pieces:
                self._slab.paste(kept.states, 0)
            kept.there, kept.pieces = kept.length, []

    def before_write(self, pos: int) -> None:
        """Copy what slots still have in the slab from column ``pos`` on: it is about to be written over."""
        touched = [n for n, kept in self._slots.items() if kept.there > pos]
        while touched:
            end = max(self._slots[n].there for n in touched)
            if self._fits(self._bytes(end - pos)) or not self._evict(touched):
                break
            # What went to disk needs no copy in memory.
            touched = [n for n in touched if n in self._slots and self._slots[n].states is not None]
        if not touched:
            return
        try:
            self._copy_out(pos, [self._slots[n] for n in touched])
        except (RuntimeError, MemoryError) as error:
            if not no_memory(error):
                raise
            for n in touched:
                self._to_disk(n)

    def clear(self) -> None:
        """Forget all slots, on disk too."""
        self.drop(list(self._slots))

    def close(self, *, keep: bool) -> None:
        """End, and let the disk's copies stay or not."""
        if not keep:
            self.clear()
        if self._writer is not None:
            self._writer.shutdown()
        if self._copies:
            self._copies.close(keep=keep)
        self._slots.clear()

    def _copy_out(self, pos: int, slots: list[_Slot]) -> None:
        """Copy columns from ``pos`` on once; all these slots agree on the columns that they share."""
        end = max(kept.there for kept in slots)
        rows = [self._layer_rows(i, pos, end) for i in range(len(self._none))]
        with self._reading:
            for kept in slots:
                mine = [[one.narrow(2, 0, kept.there - pos) for one in layer] for layer in rows]
                kept.pieces.insert(0, _Piece(pos, kept.there, mine))
                kept.there = pos

    def _layer_rows(self, number: int, start: int, end: int) -> list[torch.Tensor]:
        nones = self._none[number]
        if not any(map(_is_rows, nones)):
            return []
        return _only_rows(self._slab.slabs[number].copies(end, start), nones)

    def _layers(self, kept: _Slot) -> Iterator[list[torch.Tensor]]:
        """All a slot keeps, layer by layer, from wherever it is now; the slot may move meanwhile."""
        assert kept.states is not None
        for i, states in enumerate(kept.states):
            with self._reading:
                parts = [self._layer_rows(i, 0, kept.there), *(piece.rows[i] for piece in kept.pieces)]
            rows = [torch.cat(same, 2) if len(same) > 1 else same[0] for same in zip(*parts, strict=True)]
            yield _joined([states], [rows])[0]

    def _source(self, kept: _Slot) -> Iterator[list[torch.Tensor]] | None:
        """What another thread may read: it could meet an accelerator in the middle of a recording."""
        if all(one.device.type == "cpu" for one in _tensors(kept)):
            return self._layers(kept)
        try:
            return iter([[one.cpu() for one in layer] for layer in self._layers(kept)])
        except (RuntimeError, MemoryError) as error:
            if not no_memory(error):
                raise
            return None

    def _write(self, slot: int, kept: _Slot, layers: Iterator[list[torch.Tensor]]) -> bool:
        assert self._copies is not None
        return self._copies.write(slot, kept.ticket, kept.length, self._forms(kept.length), layers)

    def _fits(self, more: int) -> bool:
        return self._budget is None or self.nbytes + more <= self._budget

    def _evict(self, touched: Sequence[int] = ()) -> bool:
        """Move the oldest slot that takes memory, or is about to, to disk; whether there was one."""
        for slot, kept in self._slots.items():
            if slot != self._wanted and (slot in touched or any(t.nbytes for t in _tensors(kept))):
                self._to_disk(slot)
                return True
        return False

    def _to_disk(self, slot: int) -> None:
        kept = self._slots[slot]
        if kept.written is None:
            there = self._copies is not None and self._write(slot, kept, self._layers(kept))
            kept.written = _done(there)
        if kept.written.exception() is not None or not kept.written.result():
            self._lose(slot)
            return
        kept.states, kept.there, kept.pieces = None, 0, []

    def _lose(self, slot: int) -> None:
        self.drop([slot])
        self._lost(slot)

    def _forms(self, length: int) -> list[list[Form]]:
        """What a slot of so many columns looks like on disk."""

        def form(none: torch.Tensor) -> Form:
            plain = form_of(none)
            shape = (*plain.shape[:2], length, *plain.shape[3:])
            return Form(plain.dtype, shape) if _is_rows(none) else plain

        return [[form(none) for none in layer] for layer in self._none]

    def _bytes(self, columns: int) -> int:
        """Bytes of the keys and values of so many columns."""
        forms = zip(self._forms(columns), self._none, strict=True)
        return sum(
            form.nbytes for layer in forms for form, none in zip(*layer, strict=True) if _is_rows(none)
        )


def _is_rows(none: torch.Tensor) -> bool:
    """Whether a copy of no columns is one of keys or values; a state is there whole."""
    return none.ndim > 2 and none.shape[2] == 0


def _shell(one: torch.Tensor) -> torch.Tensor:
    """A copy of no columns, or of a state its dtype and shape without memory."""
    return one if _is_rows(one) else torch.empty_like(one, device="meta")


def _only_rows(layer: list[torch.Tensor], nones: list[torch.Tensor]) -> list[torch.Tensor]:
    return [one for one, none in zip(layer, nones, strict=True) if _is_rows(none)]


def _joined(states: Layers, rows: Layers) -> Layers:
    """States, with keys and values in their places."""
    layers = []
    for layer, given in zip(states, rows, strict=True):
        rest = iter(given)
        layers.append([next(rest) if _is_rows(one) else one for one in layer])
    return layers


def _described(layers: Layers) -> list[list[Form]]:
    return [[form_of(tensor) for tensor in layer] for layer in layers]


def _tensors(kept: _Slot) -> Iterator[torch.Tensor]:
    for layers in (kept.states or [], *(piece.rows for piece in kept.pieces)):
        for layer in layers:
            yield from layer


def _done(result: bool) -> Future[bool]:
    future: Future[bool] = Future()
    future.set_result(result)
    return future
