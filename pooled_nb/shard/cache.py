"""The slab: keys and values of a range of layers, allocated once; taking columns back moves a length.

A `transformers.DynamicCache` copies everything for each token (85 ms at 8k context); writing into a slab
takes 0.14 ms and gives the same bits (DESIGN section 5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from pooled_nb.shard.frames import Placed
from pooled_nb.shard.kv import PlainStore, Scratch, Store, open_store
from pooled_nb.shard.state import KEYS, Slot, StateLayer


class SlabLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # their __init_subclass__ is untyped
    """Keys and values of one layer: ``[1, heads, capacity, dim]`` each, their own head and dim.

    ``lasting``: what is returned is read by later layers too, so it has memory of its own.
    """

    is_sliding = False
    is_croppable = True

    def __init__(self, slab: Slab, *, lasting: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped there
        self.slab = slab
        self.store: Store | None = None
        self.index: PlainStore | None = None
        self._scratch = Scratch() if lasting else None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate, in the shape, dtype and place that the layer itself showed in its first run."""
        slab = self.slab
        self.store = open_store(
            slab.kv, key_states, value_states, slab.columns, self._scratch or slab.scratch
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the frame's real columns; return all columns that are attended over."""
        if self.store is None:
            SlabLayer.lazy_initialization(self, key_states, value_states)
        assert self.store is not None
        frame = self.slab.frame
        if (targets := self.slab.targets) is not None:
            self.store.scatter(targets, key_states, value_states)
            return self.store.read(frame.length)
        n = frame.n
        if key_states.shape[2] != n:  # padded columns are never written
            key_states, value_states = key_states.narrow(2, 0, n), value_states.narrow(2, 0, n)
        self.store.write(frame.pos, key_states, value_states)
        return self.store.read(frame.length)

    def update_indexer(self, indexer_key_states: torch.Tensor) -> torch.Tensor:
        """Write what a layer chooses by which columns it attends to (sparse attention).

        Parameters
        ----------
        indexer_key_states
            ``[1, rows, dim]``; in every form of room they are kept as they are.

        Returns
        -------
        Tensor
            ``[1, length, dim]``: of all columns that may be attended over.
        """
        keys = indexer_key_states[:, None]
        if self.index is None:
            self.index = PlainStore(keys, keys[..., :0], self.slab.columns)
        frame = self.slab.frame
        if (targets := self.slab.targets) is not None:
            self.index.scatter(targets, keys, keys[..., :0])
            return self.index.read(frame.length)[0][:, 0]
        keys = keys.narrow(2, 0, frame.n)
        self.index.write(frame.pos, keys, keys[..., :0])
        return self.index.read(frame.length)[0][:, 0]

    @property
    def _stores(self) -> list[Store]:
        return [store for store in (self.store, self.index) if store is not None]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset that a mask would have; masks of exact mode are ours (`masks`)."""
        return self.slab.frame.length, 0

    def get_seq_length(self) -> int:
        """Columns before this frame."""
        return self.slab.frame.pos

    def get_max_length(self) -> int:
        """Columns that fit."""
        return self.slab.capacity

    def reset(self) -> None:
        """Forget everything, NaN included."""
        for store in self._stores:
            store.zero()

    def restart(self) -> None:
        """Begin a conversation: nothing to do, its columns are written over."""

    def rollback(self, column: int) -> None:
        """Take columns of a draft back: nothing to do, the lane's length moves."""

    def copies(self, length: int, start: int = 0) -> list[torch.Tensor]:
        """Copy columns ``[start, length)`` in the form they are kept in."""
        return [copy for store in self._stores for copy in store.copies(length, start)]

    def paste(self, tensors: list[torch.Tensor], length: int, start: int = 0) -> None:
        """Put back what `copies` gave."""
        split = len(tensors) - 2 if self.index is not None else len(tensors)
        if self.index is not None:
            self.index.paste(tensors[split:], length, start)
        if self.store is not None:
            self.store.paste(tensors[:split], length, start)

    @property
    def nbytes(self) -> int:
        """Bytes allocated for this layer alone."""
        own = self._scratch.nbytes if self._scratch else 0
        return own + sum(store.nbytes for store in self._stores)


class BothLayer(SlabLayer, StateLayer):  # type: ignore[misc, no-untyped-call]  # their two interfaces differ
    """Keys, values and running states: what a layer gets until it has shown what it keeps."""

    def __init__(self, slab: Slab, *, lasting: bool = False) -> None:
        SlabLayer.__init__(self, slab, lasting=lasting)
        StateLayer.__init__(self, slab)

    def narrow(self) -> SlabLayer | StateLayer:
        """The layer without what it has no use for; one that keeps nothing has a state of no parts."""
        if self.store is not None and self.slots:
            narrow: SlabLayer | StateLayer = self
        elif self.store is not None:
            narrow = SlabLayer(self.slab)
            narrow.store, narrow._scratch, narrow.is_initialized = self.store, self._scratch, True
            narrow.index = self.index
        else:
            narrow = StateLayer(self.slab)
            narrow.conv_states, narrow.recurrent_states = self.conv_states, self.recurrent_states
        if isinstance(narrow, StateLayer):
            narrow.begin()
        return narrow

    def reset(self) -> None:
        """Forget everything, NaN included."""
        SlabLayer.reset(self)
        StateLayer.reset(self)

    def restart(self) -> None:
        """Begin a conversation: nothing came before."""
        StateLayer.restart(self)

    def rollback(self, column: int) -> None:
        """Put states back to their snapshot after this column of the last ``spec`` frame."""
        StateLayer.rollback(self, column)

    def copies(self, length: int, start: int = 0) -> list[torch.Tensor]:
        """Copy columns ``[start, length)``, and then the states."""
        return [*SlabLayer.copies(self, length, start), *StateLayer.copies(self, length)]

    def paste(self, tensors: list[torch.Tensor], length: int, start: int = 0) -> None:
        """Put back what `copies` gave."""
        split = len(tensors) - len(self.slots)
        SlabLayer.paste(self, tensors[:split], length, start)
        StateLayer.paste(self, tensors[split:], length)

    @property
    def nbytes(self) -> int:
        """Bytes allocated for this layer alone, snapshots included."""
        return super().nbytes + super(SlabLayer, self).nbytes


class Slab(Cache):
    """The caches of all layers of a range.

    Until `settle` it learns what each layer keeps.

    Parameters
    ----------
    layers
        How many.
    capacity
        Columns each holds, a multiple of 256.
    kv
        The form keys and values are kept in: see `footprint.KV_FORMS`.
    lasting
        Numbers of layers whose columns later layers attend over too.
    spare
        Columns beyond the capacity, which are written and never read: pads go there.

    Attributes
    ----------
    frame
        The frame that runs now: where its columns go and how far it sees.
    targets
        ``[rows]`` int64, on the device: where each row of the frame is written, pads too. None: the frame's
        real columns go to its place.
    watch
        Called with a layer's number and what was written of its cache.
    """

    def __init__(
        self,
        layers: int,
        capacity: int,
        kv: str = "f16",
        lasting: frozenset[int] = frozenset(),
        *,
        spare: int = 0,
    ) -> None:
        self.capacity, self.columns, self.kv, self.scratch = capacity, capacity + spare, kv, Scratch()
        self.frame = Placed(0, 1, 1, 1)
        self.targets: torch.Tensor | None = None
        self.watch: Callable[[int, Slot], None] | None = None
        self.slabs: list[SlabLayer | StateLayer] = [
            BothLayer(self, lasting=i in lasting) for i in range(layers)
        ]
        super().__init__(layers=list(self.slabs))

    def settle(self) -> None:
        """Every layer has run: from now on each has the caches that it showed it needs."""
        self.slabs = [layer.narrow() if isinstance(layer, BothLayer) else layer for layer in self.slabs]
        self.layers = list(self.slabs)

    def attends(self, number: int) -> bool:
        """Whether a layer keeps keys and values of its own."""
        layer = self.slabs[number]
        return isinstance(layer, SlabLayer) and layer.store is not None

    def touched(self, layer: SlabLayer | StateLayer, slot: Slot) -> None:
        """A layer's cache was written."""
        if self.watch is not None:
            self.watch(self.slabs.index(layer), slot)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What a layer calls: see `SlabLayer.update`."""
        layer = self.slabs[layer_idx]
        if not isinstance(layer, SlabLayer):
            raise TypeError(f"layer {layer_idx + 1} kept no keys when it first ran")
        self.touched(layer, KEYS)
        return layer.update(key_states, value_states)

    def nbytes(self) -> int:
        """Bytes allocated."""
        return self.scratch.nbytes + sum(layer.nbytes for layer in self.slabs)

    @torch.inference_mode()
    def restart(self) -> None:
        """Begin a conversation: running states are cleared; keys and values are written over."""
        for layer in self.slabs:
            layer.restart()

    @torch.inference_mode()
    def rollback(self, column: int) -> None:
        """Put running states back to their snapshot after this column of the last ``spec`` frame."""
        for layer in self.slabs:
            layer.rollback(column)

    @torch.inference_mode()
    def copies(self, length: int, start: int = 0) -> list[list[torch.Tensor]]:
        """Copy what columns ``[start, length)`` need, by layer.

        Keys and values are copied as they are kept, with columns along dimension 2; of no columns
        (``length == start``) their copies are empty. Running states are copied whole, whatever the columns.
        """
        return [layer.copies(length, start) for layer in self.slabs]

    @torch.inference_mode()
    def paste(self, tensors: list[list[torch.Tensor]], length: int, start: int = 0) -> None:
        """Put back what `copies` gave for these columns."""
        for layer, given in zip(self.slabs, tensors, strict=True):
            layer.paste(given, length, start)

    @torch.inference_mode()
    def clear(self) -> None:
        """Zero everything: after a wrong number nothing of it may be read again."""
        for layer in self.slabs:
            layer.reset()
