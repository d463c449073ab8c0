"""The parts of layers that keep a running state: found by what they do, and run so that bits hold.

A mixer is the module that writes a state of the cache. It gets columns one by one, padded ones never, through
its own kernel for one token: exact for any mixer. Where its kernels are known (`scans`), projections run for
the whole frame, as all other matrix products do, and only convolution and recurrence go column by column.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from pooled_nb.errors import ModelNotSupported
from pooled_nb.shard.arch import OTHER_MODEL
from pooled_nb.shard.scans import SCANS, convolve, padded
from pooled_nb.shard.state import CONV, KEYS, RECURRENT, Slot, StateLayer

_CONVOLVE = "causal_conv1d_fn"


class Found:
    """What modules did to the caches while they were watched."""

    def __init__(self) -> None:
        self.wrote: dict[nn.Module, dict[Slot, set[int]]] = {}
        self.inside: list[nn.Module] = []

    def note(self, number: int, slot: Slot) -> None:
        """The innermost module that runs wrote this, of this layer's cache."""
        if self.inside:
            self.wrote.setdefault(self.inside[-1], {}).setdefault(slot, set()).add(number)


@contextmanager
def watching(layers: nn.ModuleList, slab: Any) -> Iterator[Found]:
    """Note which modules write states while the model runs."""
    found = Found()

    def enter(module: nn.Module, args: Any) -> None:
        found.inside.append(module)

    def leave(module: nn.Module, args: Any, out: Any) -> None:
        found.inside.pop()

    with ExitStack() as stack:
        for module in {id(m): m for layer in layers for m in layer.modules()}.values():
            for other in (module.__dict__.get(name) for name in ("forward", "_old_forward")):
                if isinstance(other, Mixer):
                    other.detach()  # of a stage that had these layers before
            stack.callback(module.register_forward_pre_hook(enter).remove)
            stack.callback(module.register_forward_hook(leave, always_call=True).remove)
        slab.watch = found.note
        try:
            yield found
        finally:
            slab.watch = None


def attach(found: Found, slab: Any, name: str) -> list[Mixer]:
    """Stand before every mixer.

    Parameters
    ----------
    found
        What `watching` gave.
    slab
        The caches, settled.
    name
        The model's class, for words.

    Raises
    ------
    ModelNotSupported
        A module keeps the states of several layers, or attends too: its columns cannot come one by one.
    """
    plans = []
    for module, wrote in found.wrote.items():
        slots = {slot: numbers for slot, numbers in wrote.items() if slot != KEYS}
        layers = {number for numbers in slots.values() for number in numbers}
        if slots and (KEYS in wrote or len(layers) > 1):
            raise ModelNotSupported(
                f"{name} has a {type(module).__name__} that keeps more than the running state of one layer.",
                OTHER_MODEL,
            )
        if slots:
            plans.append((module, layers.pop(), list(slots)))
    return [Mixer(module, slab.slabs[number], slots) for module, number, slots in plans]


def go_slowly(mixers: list[Mixer]) -> bool:
    """Let no frame go through a mixer whole any more. False if none did."""
    fast = [mixer for mixer in mixers if mixer.whole is not None]
    for mixer in fast:
        mixer.whole = None
    return bool(fast)


class Mixer:
    """Stands in for the forward of a module that keeps a state.

    Parameters
    ----------
    module
        The mixer; others of its class, in other models, stay as they are.
    layer
        Where it keeps its states.
    slots
        Which they are.
    """

    def __init__(self, module: nn.Module, layer: StateLayer, slots: list[Slot]) -> None:
        self.module = module
        self.layer = layer
        self.slots = slots
        # Under accelerate's hooks, so that they fetch weights once for all columns.
        self._name = "_old_forward" if "_old_forward" in module.__dict__ else "forward"
        self._before = module.__dict__.get(self._name)
        self.plain: Callable[..., Any] = getattr(module, self._name)
        self.whole = _whole(module, layer, slots)
        module.__dict__[self._name] = self

    def detach(self) -> None:
        """Leave the module as it was."""
        if self._before is None:
            self.module.__dict__.pop(self._name, None)
        else:
            self.module.__dict__[self._name] = self._before

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a frame's columns; a call with another cache than ours is the module's own affair."""
        if not any(value is self.layer.slab for value in (*args, *kwargs.values())):
            return self.plain(*args, **kwargs)
        frame = self.layer.slab.frame
        if self.whole is not None and frame.rows > 1:
            self.layer.whole = True
            try:
                return self.whole(*args, **kwargs)
            finally:
                self.layer.whole = False
        outs = []
        for i in range(frame.n):
            if i == 0 or frame.spec:
                self.layer.renew(self.slots)
            column = _column((args, kwargs), frame.rows, i)
            outs.append(self.plain(*column[0], **column[1]))
            if frame.spec:
                self.layer.keep(self.slots, first=i == 0)
        return _join(outs, frame.rows)


def _column(value: Any, rows: int, i: int) -> Any:
    """Column ``i`` of whatever holds a frame's columns, in memory of its own; the rest as it is."""
    if isinstance(value, torch.Tensor):
        if rows > 1 and value.ndim >= 2 and value.shape[:2] == (1, rows):
            return value[:, i : i + 1].clone(memory_format=torch.contiguous_format)
        return value
    if type(value) in (tuple, list):
        return type(value)(_column(part, rows, i) for part in value)
    if type(value) is dict:
        return {key: _column(part, rows, i) for key, part in value.items()}
    return value


def _join(outs: list[Any], rows: int) -> Any:
    """Put the results for single columns together as the module would have given them for the frame."""
    first = outs[0]
    if isinstance(first, torch.Tensor):
        return padded(outs, rows, 1)
    if type(first) in (tuple, list):
        return type(first)(_join(list(parts), rows) for parts in zip(*outs, strict=True))
    return first


def _whole(module: nn.Module, layer: StateLayer, slots: list[Slot]) -> Callable[..., Any] | None:
    """The module's forward with our convolution and recurrence in it; None if it calls others.

    It is the module's own code with other names bound, for this one module: nothing that other models in the
    same process use is touched.
    """
    forward = type(module).forward
    plain = inspect.unwrap(forward)
    called: set[str] = set(plain.__code__.co_names)
    others: dict[str, Any] = {}
    if any(kind == CONV for kind, _ in slots):
        if _CONVOLVE not in called:
            return None
        others[_CONVOLVE] = convolve
    states = [number for kind, number in slots if kind == RECURRENT]
    if states:
        scans = [name for name in SCANS if name in called]
        step = plain.__globals__.get(SCANS[scans[0]][0]) if scans else None
        if len(states) != 1 or len(scans) != 1 or step is None:
            return None
        others[scans[0]] = SCANS[scans[0]][1](step, layer, states[0])
    return MethodType(_bound(forward, others), module)


def _bound(function: Any, others: dict[str, Any]) -> Any:
    """A copy of a function, decorators included, whose innermost code sees other globals."""
    inner = getattr(function, "__wrapped__", None)
    cells, space = function.__closure__, function.__globals__
    if inner is None:
        space = {**space, **others}
    else:
        mine = _bound(inner, others)
        cells = tuple(CellType(mine) if _holds(cell, inner) else cell for cell in cells or ())
    copy = FunctionType(function.__code__, space, function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _holds(cell: CellType, function: Any) -> bool:
    try:
        return cell.cell_contents is function
    except ValueError:  # empty
        return False
