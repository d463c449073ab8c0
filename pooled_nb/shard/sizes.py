"""How large a model's parts are: weights, caches and states of each layer, and which layers share a cache.

Asked of the model itself, run without memory: what is kept is its own choice (latents or whole heads, say),
and changes between versions. So these numbers are those of what a device allocates (PROTOCOL section 6).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pooled_nb.errors import ModelNotSupported
from pooled_nb.shard import compat
from pooled_nb.shard.arch import OTHER_MODEL, Parts, find_parts, max_ctx, own, read_config, skeleton
from pooled_nb.shard.cache import Slab, SlabLayer
from pooled_nb.shard.frames import Placed
from pooled_nb.shard.headers import INDEX
from pooled_nb.shard.kv import PlainStore
from pooled_nb.shard.layout import Layout
from pooled_nb.shard.quant.forms import Linears
from pooled_nb.shard.quant.loading import layer_linears
from pooled_nb.shard.state import StateLayer
from pooled_nb.shard.tensormap import main_dtype, read_map

_FORM = "_pooled_form"


@dataclass(frozen=True, slots=True)
class Kept:
    """What each layer keeps.

    Attributes
    ----------
    numbers, rows
        Of one token: numbers, in so many rows (one of keys and one of values for each head).
    state
        Bytes of the running state.
    glued
        Ranges ``[lo, hi)`` of layers that attend over each other's columns: one device holds them whole.
    """

    numbers: list[int]
    rows: list[int]
    state: list[int]
    glued: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ArchFacts:
    """What a model is, from its config and headers; the fields are those of `ModelFacts`.

    Attributes
    ----------
    layer_bytes, ends_bytes
        Bytes in ``dtype``; tied weights are counted once.
    kv_bytes
        Bytes one token takes in each layer's cache, 16-bit.
    kv_rows
        Rows (one of keys and one of values for each head) of one token in each layer's cache.
    state_bytes
        Bytes of each layer's running state.
    glued
        See `Kept`.
    linears
        What decides how much each layer's linear weights take in another form.
    """

    arch: str
    layers: int
    dim: int
    vocab: int
    dtype: str
    max_ctx: int
    layer_bytes: list[int]
    ends_bytes: int
    kv_bytes: list[int]
    kv_rows: list[int]
    state_bytes: list[int]
    glued: list[tuple[int, int]]
    linears: list[Linears]


def facts(config_folder: Path, layouts: Iterable[Layout] = ()) -> ArchFacts:
    """What the model in a folder is, from ``config.json`` and headers: no weights are read.

    Parameters
    ----------
    config_folder
        Holds ``config.json``; safetensors files and their index may lie beside it.
    layouts
        Headers of the model's weights files, where they were read already. They tell the dtype.

    Raises
    ------
    ModelNotFound
        No readable config, or weights in another format only.
    ModelNotSupported
        This build cannot run the model; says why.
    """
    config = read_config(config_folder)
    tensors = [(t.name, t.kind, t.hi - t.lo) for layout in layouts for t in layout.tensors]
    dtype = (main_dtype(tensors) if tensors else _held_dtype(config_folder)) or _said_dtype(config)
    kind = getattr(torch, dtype, torch.float32)
    model = skeleton(config, dtype=kind)
    parts = find_parts(model)
    sizes = _weights(model, kind)
    layers = [sum(sizes[id(p)] for p in layer.parameters()) for layer in parts.list()]
    # A tied tensor is one parameter, so whatever is outside the layers is the ends, counted once.
    ends = sum(sizes.values()) - sum(layers)
    if getattr(config, "tie_word_embeddings", False):
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
        if head is not None and head.weight is not embedding.weight:
            ends -= sizes[id(head.weight)]
    key = _key(config, kind)
    keeps = _known[key] = _known.get(key) or _measure(model, parts)
    return ArchFacts(
        arch=type(model).__name__,
        layers=len(layers),
        dim=config.hidden_size,
        vocab=config.vocab_size,
        dtype=dtype,
        max_ctx=max_ctx(config),
        layer_bytes=layers,
        ends_bytes=ends,
        kv_bytes=[2 * numbers for numbers in keeps.numbers],
        kv_rows=keeps.rows,
        state_bytes=keeps.state,
        glued=keeps.glued,
        linears=layer_linears(model, parts.list()),
    )


def _weights(model: Any, dtype: torch.dtype) -> dict[int, int]:
    """Bytes of each parameter, by its id, as it is held in a room of this dtype."""
    patterns = float32_patterns(model, dtype)
    return {
        id(p): p.numel() * (4 if any(re.search(x, name) for x in patterns) else dtype.itemsize)
        for name, p in model.named_parameters()
    }


def float32_patterns(model: Any, dtype: torch.dtype) -> list[str]:
    """Return patterns of the weights that a model keeps in float32 in a room of this dtype."""
    names: set[str] = set()
    if dtype in (torch.float16, torch.bfloat16):
        names |= set(model._keep_in_fp32_modules_strict or ())
    if dtype == torch.float16:
        names |= set(model._keep_in_fp32_modules or ())
    return sorted(name.replace("*", ".*") for name in names)


def _said_dtype(config: Any) -> str:
    return str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")


def _held_dtype(folder: Path) -> str | None:
    """The dtype of most weights of a folder; None without any."""
    present = any(folder.glob("*.safetensors")) or (folder / INDEX).exists()
    weights = {file.suffix for file in folder.iterdir()} & {".bin", ".pt", ".pth", ".gguf", ".h5"}
    return read_map(folder).dtype() if present or weights else None


_known: dict[str, Kept] = {}
"""What was measured, by config and dtype: a device that is dealt another range need not measure again."""


def kept(config: Any, dtype: torch.dtype = torch.float32) -> Kept:
    """What each layer of a model keeps.

    Parameters
    ----------
    config
        What `arch.read_config` gave.
    dtype
        Of hidden states: running states may be kept in it, or in one of their own.

    Raises
    ------
    ModelNotSupported
        No model of layers can be built from this config.
    """
    key = _key(config, dtype)
    if key not in _known:
        model = skeleton(config, dtype=dtype)
        _known[key] = _measure(model, find_parts(model))
    return _known[key]


def _key(config: Any, dtype: torch.dtype) -> str:
    if len(_known) > 8:
        _known.clear()
    return f"{config.to_json_string(use_diff=False)} {dtype}"


def _measure(model: Any, parts: Parts) -> Kept:
    norms: list[int] = []
    entered: list[torch.Size] = []

    def leave(layer: nn.Module, args: Any, out: Any) -> None:
        setattr(layer, _FORM, len(out) if isinstance(out, tuple) else 0)

    def enter(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states = args[0] if args else kwargs.get("hidden_states")
        if isinstance(states, torch.Tensor):
            entered.append(states.shape)

    hooks = [
        getattr(parts.base, parts.norm).register_forward_pre_hook(lambda *args: norms.append(1)),
        parts.list()[0].register_forward_pre_hook(enter, with_kwargs=True),
        *(layer.register_forward_hook(leave) for layer in parts.list()),
    ]
    slab, failed = _run(parts)
    for hook in hooks:
        hook.remove()
    base: Any = parts.base
    name = type(model).__name__
    if entered and entered[0] != (1, 1, base.config.hidden_size):
        raise ModelNotSupported(
            f"{name} hands several states from layer to layer, {list(entered[0][2:])} for each token, and a "
            "frame carries one.",
            OTHER_MODEL,
        )
    if len(norms) > 1:
        # The norm stays on the host, after the last device; it is no part of what the layers do.
        raise ModelNotSupported(f"{name} uses its final norm before its layers too.", OTHER_MODEL)
    shown = [_shown(layer) for layer in slab.layers]
    if failed is not None:
        # Without memory there are no numbers, which a layer may look at: those it did not get to are like
        # the last that ran, or like plain attention.
        usual = next((s for s in reversed(shown) if any(s)), None) or _usual(base.config)
        shown = [s if any(s) else usual for s in shown]
    numbers, rows, state = (list(column) for column in zip(*shown, strict=True))
    return Kept(numbers, rows, state, _glued(parts) if failed is None else [])


def _run(parts: Parts, lo: int = 0, hi: int | None = None) -> tuple[Slab, Exception | None]:
    """Run one token without memory; gives the caches, and what went wrong.

    Layers outside ``[lo, hi)`` hand on what they get, as if another device had them.
    """
    base: Any = parts.base
    slab = Slab(len(parts.list()), 1)
    slab.frame = Placed(0, 1, 1, 1)
    token = torch.zeros((1, 1), dtype=torch.int64, device="meta")
    keep = {compat.cache_keyword(base): slab, "use_cache": True}
    with contextlib.ExitStack() as stack:
        for i, layer in enumerate(parts.list()):
            if not lo <= i < (len(parts.list()) if hi is None else hi):
                stack.enter_context(_elsewhere(layer))
        stack.enter_context(torch.inference_mode())
        stack.enter_context(compat.quiet())
        try:
            base(input_ids=token, position_ids=token, **keep)
        except Exception as error:
            return slab, error
    return slab, None


@contextlib.contextmanager
def _elsewhere(layer: nn.Module) -> Iterator[None]:
    """Let a layer hand on its states, in the form in which it returned them before."""
    plain = layer.forward
    form = getattr(layer, _FORM, 0)

    def forward(*args: Any, **kwargs: Any) -> Any:
        states = args[0] if args else kwargs["hidden_states"]
        return (states, *[None] * (form - 1)) if form else states

    layer.forward = forward
    try:
        yield
    finally:
        layer.forward = plain


def _shown(layer: Any) -> tuple[int, int, int]:
    """Numbers and rows of one token, and bytes of a running state, that a layer's cache was given."""
    numbers = rows = state = 0
    if isinstance(layer, SlabLayer) and isinstance(layer.store, PlainStore):
        pair = (layer.store.keys, layer.store.values)
        numbers = sum(t.numel() for t in pair)
        rows = sum(t.numel() // t.shape[-1] for t in pair)
        if layer.index is not None:
            # These are kept as they are where keys and values are kept as one byte and a scale a row.
            numbers += layer.index.keys.numel()
            rows += layer.index.keys.numel() // 2
    if isinstance(layer, StateLayer):
        states = [*layer.conv_states.values(), *layer.recurrent_states.values()]
        state = sum(tensor.nbytes for tensor in states if tensor is not None)
    return numbers, rows, state


def _usual(config: Any) -> tuple[int, int, int]:
    heads = own(config, "num_attention_heads") or 1
    dim = own(config, "head_dim") or config.hidden_size // heads
    groups = own(config, "num_key_value_heads") or heads
    return 2 * groups * dim, 2 * groups, 0


def _glued(parts: Parts) -> list[tuple[int, int]]:
    """Ranges that cannot be cut: layers that do not run without some before them."""

    def runs(lo: int, hi: int) -> bool:
        return _run(parts, lo, hi)[1] is None

    ranges: list[tuple[int, int]] = []
    for number in range(1, len(parts.list())):
        if runs(number, number + 1):
            continue
        lo = number
        if ranges and ranges[-1][1] == number:
            lo = ranges.pop()[0]  # it needs something before it, so the cut between them is none either
        else:
            lo -= 1
        while lo > 0 and not runs(lo, number + 1):
            lo -= 1
        while ranges and ranges[-1][1] > lo:
            lo = min(lo, ranges.pop()[0])
        ranges.append((lo, number + 1))
    return ranges
