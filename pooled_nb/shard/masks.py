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
from transformers.masking_utils import LAYER_PATTERN_TO_MASK_FUNCTION_MAPPING, create_recurrent_attention_mask

from pooled_nb.errors import ModelNotSupported
from pooled_nb.shard import compat
from pooled_nb.shard.arch import OTHER_MODEL
from pooled_nb.shard.faults import no_memory

_FULL = "create_causal_mask"
_SLIDING = "create_sliding_window_causal_mask"
_CHUNKED = "create_chunked_causal_mask"
_RECURRENT = create_recurrent_attention_mask.__name__
"""Makes the padding mask of layers with a running state: none, where nothing is padded."""
_MAKERS = "create_"
_MARK = "pooled_sign"
NO_MASK = 0
"""The window of a layer that does not attend."""
_KINDS = {
    "full_attention": None,
    "sliding_attention": None,
    **{
        k: NO_MASK
        for k, v in LAYER_PATTERN_TO_MASK_FUNCTION_MAPPING.items()
        if v is create_recurrent_attention_mask
    },
}
"""A forward may ask for the mask of a kind that no layer of its range has: it gets one all the same."""
_WINDOWS = {_FULL: ("", 0), _SLIDING: ("sliding_window", 1), _CHUNKED: ("attention_chunk_size", -1)}
_EXTRAS = ("or_mask_function", "and_mask_function", "block_sequence_ids", "packed_sequence_mask")


@dataclass(frozen=True, slots=True)
class Plan:
    """Which masks a range of layers wants.

    Attributes
    ----------
    windows
        For each layer: None for full causal attention, else how many columns it sees, its own included;
        below 0 where it sees those of its own chunk of so many columns; `NO_MASK` where it does not attend.
    keys
        Names under which the model's forward takes them, with their window; None: it takes a single mask.
    """

    windows: tuple[int | None, ...]
    keys: tuple[tuple[str, int | None], ...] | None

    @property
    def wanted(self) -> list[int | None]:
        """The masks there are: each window once."""
        return sorted(set(self.windows) - {NO_MASK}, key=lambda window: (window is None, window or 0))

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
        Tensor, None, or dict of them
            ``[1, 1, rows, length]``: 0 where a column may look, the dtype's minimum elsewhere. None where
            nothing attends.
        """
        made: dict[int | None, torch.Tensor | None] = {
            window: _mask(position_ids, length, window, dtype) for window in self.wanted
        }
        if self.keys is None:
            return next(iter(made.values()), None)
        # A kind that no layer of the range has needs no mask of its own.
        return {key: made.get(window) for key, window in self.keys}

    def alone(self, length: int) -> Any:
        """The masks of one column that sees all ``length`` columns: False if a window hides some of them."""
        if any(window is not None and window < length for window in self.wanted):
            return False
        return None if self.keys is None else dict.fromkeys(key for key, _ in self.keys)


def _mask(position_ids: torch.Tensor, length: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    columns = torch.arange(length, device=position_ids.device)
    rows = position_ids[:, None]
    hidden = columns > rows
    if window is not None:
        hidden |= columns <= rows - window if window > 0 else columns < rows // -window * -window
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
        self.odd: set[int] = set()
        """Calls for a window of no columns: models make that mask and give it to no layer."""
        self.why = ""

    def made(self, sign: float) -> bool:
        """Whether a mask with this sign is one of ours."""
        return -len(self.calls) <= sign <= -1 and -sign - 1 not in self.odd

    def sign(self, index: int, rows: int, dtype: torch.dtype, device: Any) -> torch.Tensor:
        return _signed(float(-1 - index), rows, dtype, device)

    def stand_in(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            if name == _RECURRENT:
                return original(*args, **kwargs)
            config = kwargs.get("config", args[0] if args else None)
            states = kwargs.get("inputs_embeds", args[1] if len(args) > 1 else None)
            extra = [key for key in _EXTRAS if kwargs.get(key) is not None]
            if name not in _WINDOWS or extra or states is None:
                self.why = self.why or f"it uses {extra[0] if extra else name}"
                return original(*args, **kwargs)
            if not getattr(config, "is_causal", True):
                self.why = self.why or "it looks at later tokens"
            window = _window(config, name)
            if window == NO_MASK:
                self.odd.add(len(self.calls))
            self.calls.append(window)
            return self.sign(len(self.calls) - 1, states.shape[1], states.dtype, states.device)

        return made


def _window(config: Any, maker: str) -> int | None:
    """What a mask function makes of a config, as `Plan.windows` has it."""
    field, sign = _WINDOWS[maker]
    return sign * (getattr(config, field, None) or 0) if field else None


@contextmanager
def _standing_in(module: Any, watch: _Watch) -> Iterator[None]:
    with compat.ALONE:
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
    """Note the first number of the mask that reaches each layer, by whatever name."""

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = [*args[1:], *kwargs.values()]
        given += [part for value in given if isinstance(value, dict) for part in value.values()]
        masks = [t for t in given if isinstance(t, torch.Tensor) and t.ndim == 4 and t.is_floating_point()]
        seen.append(_sign_of(masks[0]) if masks else None)

    hooks = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def learn(
    base: Any,
    layers: nn.ModuleList,
    run: Callable[[Any], Any],
    rows: int,
    like: torch.Tensor,
    attends: Callable[[int], bool] = lambda number: True,
) -> Plan:
    """Find which mask each layer wants, and how the model's forward takes prepared ones.

    Parameters
    ----------
    base
        The module whose ``forward`` makes the masks.
    run
        Runs ``rows`` columns through it with this ``attention_mask``.
    like
        A hidden state: its dtype and device are those of the masks.
    attends
        Whether a layer, by its number, kept keys in the first run: one that did needs a mask.

    Raises
    ------
    ModelNotSupported
        The model masks in a way we do not make, or does not take prepared masks.
    """
    name = type(base).__name__
    watch, seen = _Watch(), []  # type: _Watch, list[float | None]
    with _standing_in(sys.modules[type(base).__module__], watch), _arrivals(layers, seen):
        run(None)
    known = len(seen) == len(layers) and all(
        watch.made(s) if s is not None else not attends(i) for i, s in enumerate(seen)
    )
    if watch.why or not known:
        why = watch.why or "its layers get no causal mask"
        raise ModelNotSupported(
            f"{name} attends in a way that cannot be cut into frames: {why}.", OTHER_MODEL
        )
    windows = tuple(NO_MASK if s is None else watch.calls[round(-s) - 1] for s in seen)

    types = [str(t) for t in getattr(base.config, "layer_types", None) or ()]
    keys = dict(_KINDS)
    if len(types) == len(windows):
        keys.update(zip(types, windows, strict=True))
    plans = [Plan(windows, tuple(keys.items()))] if len(types) == len(windows) or NO_MASK in windows else []
    single = Plan(windows, None)
    if len(single.wanted) <= 1:
        # Where layers do without a mask, the forward makes several, and is saved from it by getting them all.
        plans.insert(len(plans) if NO_MASK in windows else 0, single)
    for plan in plans:
        if _takes(plan, watch, layers, run, rows, like):
            return plan
    raise ModelNotSupported(f"{name} does not take prepared attention masks.", OTHER_MODEL)


def _takes(
    plan: Plan, watch: _Watch, layers: nn.ModuleList, run: Callable[[Any], Any], rows: int, like: Any
) -> bool:
    """Whether each layer that attends really gets the prepared mask meant for it."""
    order = plan.wanted
    signs = {window: watch.sign(i, rows, like.dtype, like.device) for i, window in enumerate(order)}
    given: Any = next(iter(signs.values()), None)
    if plan.keys is not None:
        given = {key: signs.get(window) for key, window in plan.keys}
    seen: list[float | None] = []
    try:
        with _arrivals(layers, seen):
            run(given)
    except (AttributeError, TypeError, KeyError, ValueError, RuntimeError) as error:
        if no_memory(error):
            raise
        return False
    return len(seen) == len(plan.windows) and all(
        window == NO_MASK or sign == float(-1 - order.index(window))
        for window, sign in zip(plan.windows, seen, strict=True)
    )
