"""Which columns each layer may attend to: learned from the model's own code, then made by us for each frame.

transformers makes its masks anew for each call, for a buffer that is exactly as long as what it holds. Ours
reach to the end of a position bucket (DESIGN section 5, rule 2), shared by all layers. Which layer wants
which is not guessed from the config: the model runs once while its own mask functions are watched.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from pooled_nb.errors import ModelNotSupported
from pooled_nb.shard.arch import OTHER_MODEL
from pooled_nb.shard.faults import no_memory

_FULL = "create_causal_mask"
_SLIDING = "create_sliding_window_causal_mask"
_MAKERS = "create_"
_MARK = "pooled_sign"
_EXTRAS = ("or_mask_function", "and_mask_function", "block_sequence_ids", "packed_sequence_mask")


@dataclass(frozen=True, slots=True)
class Plan:
    """Which masks a range of layers wants.

    Attributes
    ----------
    windows
        For each layer: None for full causal attention, else how many columns it sees, its own included.
    keys
        Names under which the model's forward takes them, with their window; None: it takes a single mask.
    """

    windows: tuple[int | None, ...]
    keys: tuple[tuple[str, int | None], ...] | None

    def prepare(self, position_ids: torch.Tensor, length: int, dtype: torch.dtype) -> Any:
        """The masks of one frame, in the form the model's forward takes.

        Parameters
        ----------
        position_ids
            ``[rows]``, of padded columns too.
        length
            Cached columns attended over.
        dtype
            Of the hidden states: masks are added to the scores.

        Returns
        -------
        Tensor or dict of Tensor
            ``[1, 1, rows, length]``: 0 where a column may look, the dtype's minimum elsewhere.
        """
        made = {window: _mask(position_ids, length, window, dtype) for window in set(self.windows)}
        if self.keys is None:
            return made[self.windows[0]]
        return {key: made[window] for key, window in self.keys}

    def alone(self, length: int) -> Any:
        """The masks of one column that sees all ``length`` columns: False if a window hides some of them."""
        if any(window is not None and window < length for window in self.windows):
            return False
        return None if self.keys is None else dict.fromkeys(key for key, _ in self.keys)


def _mask(position_ids: torch.Tensor, length: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    columns = torch.arange(length, device=position_ids.device)
    rows = position_ids[:, None]
    hidden = columns > rows
    if window is not None:
        hidden |= columns <= rows - window
    mask = torch.zeros((1, 1, *hidden.shape), dtype=dtype, device=position_ids.device)
    return mask.masked_fill_(hidden, torch.finfo(dtype).min)


def _signed(value: float, rows: int, dtype: torch.dtype, device: Any) -> torch.Tensor:
    """A mask that says by its value where it comes from; on the meta device, without values, by a mark."""
    mask = torch.full((1, 1, rows, rows), value, dtype=dtype, device=device)
    setattr(mask, _MARK, value)
    return mask


def _sign_of(mask: torch.Tensor) -> float | None:
    return getattr(mask, _MARK, None) if mask.device.type == "meta" else float(mask.flatten()[0])


class _Watch:
    """Stands in for a model's mask functions; what it returns says by its value which call made it."""

    def __init__(self) -> None:
        self.calls: list[int | None] = []
        self.why = ""

    def sign(self, index: int, rows: int, dtype: torch.dtype, device: Any) -> torch.Tensor:
        return _signed(float(-1 - index), rows, dtype, device)

    def stand_in(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            config = kwargs.get("config", args[0] if args else None)
            states = kwargs.get("inputs_embeds", args[1] if len(args) > 1 else None)
            extra = [key for key in _EXTRAS if kwargs.get(key) is not None]
            window = getattr(config, "sliding_window", None) if name == _SLIDING else None
            if name not in (_FULL, _SLIDING) or extra or states is None or (name == _SLIDING and not window):
                self.why = self.why or f"it uses {extra[0] if extra else name}"
                return original(*args, **kwargs)
            self.calls.append(window)
            return self.sign(len(self.calls) - 1, states.shape[1], states.dtype, states.device)

        return made


@contextmanager
def _standing_in(module: Any, watch: _Watch) -> Iterator[None]:
    originals = {
        name: value
        for name, value in vars(module).items()
        if name.startswith(_MAKERS) and "mask" in name and callable(value)
    }
    for name, value in originals.items():
        setattr(module, name, watch.stand_in(name, value))
    try:
        yield
    finally:
        for name, value in originals.items():
            setattr(module, name, value)


@contextmanager
def _arrivals(layers: nn.ModuleList, seen: list[float | None]) -> Iterator[None]:
    """Note the first number of the mask that reaches each layer."""

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = [kwargs.get("attention_mask"), *args[1:]]
        masks = [t for t in given if isinstance(t, torch.Tensor) and t.ndim == 4 and t.is_floating_point()]
        seen.append(_sign_of(masks[0]) if masks else None)

    hooks = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def learn(base: Any, layers: nn.ModuleList, run: Callable[[Any], Any], rows: int, like: torch.Tensor) -> Plan:
    """Find which mask each layer wants, and how the model's forward takes prepared ones.

    Parameters
    ----------
    base
        The module whose ``forward`` makes the masks.
    run
        Runs ``rows`` columns through it with this ``attention_mask``.
    like
        A hidden state: its dtype and device are those of the masks.

    Raises
    ------
    ModelNotSupported
        The model masks in a way we do not make, or does not take prepared masks.
    """
    name = type(base).__name__
    watch, seen = _Watch(), []  # type: _Watch, list[float | None]
    with _standing_in(sys.modules[type(base).__module__], watch), _arrivals(layers, seen):
        run(None)
    if (
        watch.why
        or len(seen) != len(layers)
        or not all(s is not None and -len(watch.calls) <= s <= -1 for s in seen)
    ):
        why = watch.why or "its layers get no causal mask"
        raise ModelNotSupported(
            f"{name} attends in a way that cannot be cut into frames: {why}.", OTHER_MODEL
        )
    windows = tuple(watch.calls[round(-s) - 1] for s in seen if s is not None)

    types = [str(t) for t in getattr(base.config, "layer_types", None) or ()]
    plans = [Plan(windows, None)] if len(set(windows)) == 1 else []
    if len(types) == len(windows):
        # A forward may ask for the mask of a kind that no layer of this range has: give it one all the same.
        keys: dict[str, int | None] = {"full_attention": None, "sliding_attention": None}
        keys.update(zip(types, windows, strict=True))
        plans.append(Plan(windows, tuple(keys.items())))
    for plan in plans:
        if _takes(plan, watch, layers, run, rows, like):
            return plan
    raise ModelNotSupported(f"{name} does not take prepared attention masks.", OTHER_MODEL)


def _takes(
    plan: Plan, watch: _Watch, layers: nn.ModuleList, run: Callable[[Any], Any], rows: int, like: Any
) -> bool:
    """Whether each layer really gets the prepared mask meant for it."""
    order = sorted(set(plan.windows), key=lambda w: (w is None, w or 0))
    signs = {window: watch.sign(i, rows, like.dtype, like.device) for i, window in enumerate(order)}
    if plan.keys is None:
        given: Any = signs[plan.windows[0]]
    else:
        given = {key: signs.get(window, signs[order[0]]) for key, window in plan.keys}
    seen: list[float | None] = []
    try:
        with _arrivals(layers, seen):
            run(given)
    except (AttributeError, TypeError, KeyError, ValueError, RuntimeError) as error:
        if no_memory(error):
            raise
        return False
    return seen == [float(-1 - order.index(window)) for window in plan.windows]
