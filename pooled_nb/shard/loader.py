"""Load layers ``[lo, hi)`` of any causal language model, and nothing else of it.

The trick (DESIGN section 5): a dynamic subclass of the model's own class whose other layers have no
parameters, then the ordinary ``from_pretrained``. The weights are handed over as slices that read their own
bytes when asked, so that memory holds one copy of this range, and no page of the rest.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from pooled_nb.errors import ModelNotFound, ModelNotSupported, ModelTooBig
from pooled_nb.shard import compat
from pooled_nb.shard.arch import OTHER_MODEL, Parts, find_parts, model_class, skeleton, slice_config
from pooled_nb.shard.faults import no_memory
from pooled_nb.shard.fusing import experts_in_place
from pooled_nb.shard.gguf.numbers import WidenedTensor, is_widened, refuse_rotary, widened_bytes
from pooled_nb.shard.lazy import AGAIN, DTYPES, LazyTensor
from pooled_nb.shard.quant.forms import saved_bytes
from pooled_nb.shard.quant.loading import await_weights, finish, layer_linears
from pooled_nb.shard.sizes import float32_patterns
from pooled_nb.shard.stopping import Stop, never
from pooled_nb.shard.tensormap import Entry, TensorMap, read_map
from pooled_nb.shard.tensors import in_range

_INSIDE_MULTIMODAL = re.compile(r"^(?:model\.)?language_model\.(?:model\.)?")
_OLD_BUFFERS = re.compile(r"\.(?:inv_freq|masked_bias)$")
"""What old checkpoints saved of positions and masks: made anew by the model's class."""
_TURNS = threading.Lock()
"""transformers loads one model of a process at a time: it switches what all share."""


class Gone(nn.Module):
    """A part that another device holds: no parameters, and running it is a bug."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Never runs."""
        raise RuntimeError("this part of the model is on another device")


class Nothing(nn.Module):
    """In place of an embedding on a device without one: what it adds is dropped at the first layer anyway.

    It is no number, so that a model which uses it between its layers too is seen (`trial`).
    """

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """NaN, in the shape of the states it is given, if any."""
        given = (value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
        like = next((t for t in given if t.ndim == 3 and t.is_floating_point()), torch.zeros(()))
        return torch.full_like(like, torch.nan)


def pruned_class(
    cls: type[Any], lo: int, hi: int, ends: bool, made: Callable[[Any], None] = lambda model: None
) -> type[Any]:
    """The model's own class, whose parts outside the range have no parameters.

    Parameters
    ----------
    made
        Called with each model of it, before it has weights.
    """

    def init(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__(self, config, *args, **kwargs)
        _prune(self, lo, hi, ends)
        made(self)

    # Without the module's name, transformers would silently not rename this model's weights.
    space = {"__init__": init, "__module__": cls.__module__, "_keys_to_ignore_on_load_missing": None}
    return type(cls.__name__, (cls,), space)


def _prune(model: Any, lo: int, hi: int, ends: bool) -> None:
    parts = find_parts(model)
    layers = parts.list()
    for i in range(len(layers)):
        if not lo <= i < hi:
            layers[i] = Gone()
    _fill_held(parts, lo, hi)
    if ends:
        return
    head = model.get_output_embeddings()
    for name, child in list(model.named_children()):
        if child is head:
            setattr(model, name, Gone())
    for name, child in list(parts.base.named_children()):
        if name == parts.norm:
            setattr(parts.base, name, nn.Identity())
        elif name != parts.layers and any(True for _ in child.parameters()):
            setattr(parts.base, name, Nothing())
    # Its own way to fill missing weights would look for those parts.
    model._is_hf_initialized = cast(Any, True)
    # Nothing is tied any more: both ends of every tie are gone.
    model._tied_weights_keys = {}
    model.all_tied_weights_keys = {}


def _fill_held(parts: Parts, lo: int, hi: int) -> None:
    """Let a body's own way to fill what no file holds go through the layers of this range only."""
    base: Any = parts.base
    plain = base._init_weights

    def fill(module: nn.Module) -> None:
        if module is not base:
            plain(module)
            return
        layers = parts.list()
        setattr(base, parts.layers, nn.ModuleList(list(layers)[lo:hi]))
        try:
            plain(module)
        except AttributeError:
            pass  # it looks for a part that another device holds, and would fill that
        finally:
            setattr(base, parts.layers, layers)

    base._init_weights = fill


def load_range(
    folder: Path,
    config: Any,
    lo: int,
    hi: int,
    *,
    ends: bool,
    dtype: torch.dtype,
    attn: str,
    experts: str | None,
    device: str,
    max_gb: float | None,
    quant: str = "",
    cache_bytes: int = 0,
    progress: Callable[[int, int], None],
    tensors: TensorMap | None = None,
    stop: Stop = never,
) -> tuple[Any, Parts]:
    """Load the range as a short model with layers numbered from 0.

    Parameters
    ----------
    folder
        The model's, for the sentences.
    config
        What `arch.read_config` gave.
    ends
        Also embedding, final norm and head.
    experts
        How a mixture's experts are computed; None for the model's default.
    device
        ``cpu`` or an accelerator's torch name; accelerate places the range within ``max_gb``.
    quant
        How the weights of linear layers are kept: one of `QUANT_FORMS`. They are rounded on the CPU as they
        are read, and all lie on one device: memory holds one of them in ``dtype`` at a time.
    cache_bytes
        What the caches of the range will take: weights and caches together stay within ``max_gb``.
    progress
        Called with bytes read so far, and how many they will be.
    tensors
        Where the weights lie; None: in the folder.

    Returns
    -------
    model, parts
        In evaluation mode; the final norm is where it was when ``ends``, else the identity.

    Raises
    ------
    ModelNotFound
        A tensor of the range is in no file, or its file changed since its header was read; it is named.
    ModelNotSupported
        A tensor has a shape the config does not explain or is none of its own, or the model cannot be built.
    ModelTooBig
        The range does not fit into ``max_gb``, or memory ran out.
    """
    held = read_map(folder) if tensors is None else tensors
    total = _size(held, lo, hi, ends)
    budget = None if device == "cpu" else _budget(max_gb)
    if budget is not None and quant:
        budget = dict(list(budget.items())[:1])
    lent = max_gb if budget is None else sum(budget.values()) / 1e9
    numbers = _size(held, lo, hi, ends, dtype) - _saved(config, lo, hi, quant, dtype)
    if lent is not None:
        _fits(numbers + cache_bytes, lent, lo, hi)
    if budget is not None:
        budget = _without(budget, cache_bytes)
    read = 0

    def done(size: int) -> None:
        nonlocal read
        read += size
        stop()
        progress(min(read, total), total)

    refuse_rotary(held, config)
    exact: list[str] = []

    def into(name: str) -> torch.dtype | None:
        return None if any(re.search(pattern, name) for pattern in exact) else dtype

    weights = {
        _plain_name(name): (WidenedTensor if is_widened(entry) else LazyTensor)(
            name, entry, done, functools.partial(into, _plain_name(name))
        )
        for name, entry in held.entries.items()
        if entry.dtype in DTYPES or is_widened(entry)
    }

    def made(model: Any) -> None:
        exact.extend(float32_patterns(model, dtype))
        if quant:
            await_weights(model, find_parts(model).list(), quant, device)

    cls = pruned_class(model_class(config), lo, hi, ends, made)
    placing: dict[str, Any] = {}
    if budget is not None and not quant:
        placing = _placing(budget, numbers)
    if experts is not None:
        placing["experts_implementation"] = experts
    try:
        with _TURNS, compat.quiet(), compat.one_tensor_at_a_time(), experts_in_place():
            model, info = cls.from_pretrained(
                None,
                config=config,
                state_dict=weights,
                dtype=dtype,
                attn_implementation=attn,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # so that they come back by name: `_check` refuses them
                use_safetensors=True,
                **placing,
            )
    except (RuntimeError, ValueError, ImportError, KeyError, AttributeError) as error:
        if no_memory(error):
            raise  # the engine puts it into words
        text = str(error).strip().splitlines()
        raise ModelNotSupported(
            f"The model cannot be loaded: {(text or [type(error).__name__])[0][:200]}.", OTHER_MODEL
        ) from (error)
    parts = find_parts(model)
    _check(model, info, held, folder)
    _refuse_unexpected(info, lo, hi)
    if quant:
        finish(parts.list())
        model.to(device)
    renumber(parts, lo, hi)
    return model.eval().requires_grad_(False), parts


def _plain_name(name: str) -> str:
    """A text model inside a multimodal one goes by its plain names."""
    return _INSIDE_MULTIMODAL.sub(
        lambda found: "" if name[found.end() :].startswith("lm_head") else "model.", name
    )


def _size(held: TensorMap, lo: int, hi: int, ends: bool, dtype: torch.dtype | None = None) -> int:
    """Bytes of the range in the files; with a dtype, of its numbers in that one."""
    entries = (e for name, e in held.entries.items() if in_range(name, lo, hi, ends))
    return max(1, sum(_bytes_of(entry, dtype) for entry in entries))


def _saved(config: Any, lo: int, hi: int, quant: str, dtype: torch.dtype) -> int:
    """Bytes that the range takes less than in the dtype."""
    if not quant:
        return 0
    model = skeleton(config, dtype=dtype)
    linears = layer_linears(model, find_parts(model).list())
    return sum(saved_bytes(layer, quant, dtype.itemsize) for layer in linears[lo:hi])


def _bytes_of(entry: Entry, dtype: torch.dtype | None) -> int:
    if dtype is not None and is_widened(entry):
        return widened_bytes(entry, dtype)
    there = DTYPES.get(entry.dtype)
    if dtype is None or there is None or not there.is_floating_point:
        return entry.end - entry.start
    return (entry.end - entry.start) // there.itemsize * dtype.itemsize


def _placing(budget: dict[int | str, int], numbers: float) -> dict[str, Any]:
    """Where accelerate puts the range: all on the first accelerator, where that holds it.

    By itself it would leave room there for the largest layer once more, and put what is too much on the disk.
    """
    first = next(iter(budget))
    if first not in ("cpu", "disk") and numbers <= budget[first]:
        return {"device_map": {"": first}}
    return {"device_map": "auto", "max_memory": budget}


def _fits(size: float, lent: float, lo: int, hi: int) -> None:
    need = size / 1e9
    if need > lent:
        raise ModelTooBig(
            f"Layers {lo + 1} to {hi} need {need:.2f} GB with their caches, and this device lends "
            f"{lent:.2f} GB: {need - lent:.2f} GB short.",
            "Lend more, let another device take some layers, or use a shorter context.",
        )


def _budget(max_gb: float | None) -> dict[int | str, int]:
    """Bytes that accelerate may use: accelerators first, then the CPU, together at most what is lent."""
    from accelerate.utils import get_max_memory

    free: dict[int | str, int] = get_max_memory()
    if max_gb is None:
        return free
    left = int(max_gb * 1e9)
    room: dict[int | str, int] = {}
    for place, size in free.items():
        room[place] = min(size, left)
        left -= room[place]
    return room


def _without(room: dict[int | str, int], cache_bytes: int) -> dict[int | str, int]:
    """Take the caches out of the room for weights, each place by its share: they lie with their layers."""
    total = max(1, sum(room.values()))
    return {place: max(0, size - cache_bytes * size // total) for place, size in room.items()}


def _check(model: Any, info: dict[str, Any], held: TensorMap, folder: Path) -> None:
    """Refuse what transformers would fill with random numbers."""
    for key, there, wanted in sorted(info.get("mismatched_keys") or ()):
        raise ModelNotSupported(
            f"{key} has the shape {list(there)} in {folder.name}, and its config asks for {list(wanted)}.",
            "The config and the weights do not belong together: fetch the model again.",
        )
    if errors := info.get("conversion_errors") or info.get("error_msgs"):
        raise ModelNotSupported(f"A weight cannot be converted: {str(errors)[:200]}.", OTHER_MODEL)
    # Parameters and persistent buffers: a router's correction is a buffer, and decides as much as a weight.
    stored = model.state_dict(keep_vars=True)
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    missing = sorted(key for key in info["missing_keys"] if key in stored and key not in tied)
    # Fused experts that stayed on meta would have no memory at all. What accelerate offloads lies there too.
    away = [
        k for k, place in (getattr(model, "hf_device_map", None) or {}).items() if place in ("cpu", "disk")
    ]
    meta = [key for key, tensor in stored.items() if tensor.device.type == "meta"]
    offloaded = {key for key in meta for part in away if not part or f"{key}.".startswith(f"{part}.")}
    missing += sorted(set(meta) - offloaded - set(missing))
    if missing:
        key = missing[0]
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise ModelNotFound(f"The weight {key}{more} is missing: {_why(key, held, folder)}.", AGAIN)


def _why(key: str, held: TensorMap, folder: Path) -> str:
    """Say why a weight is missing."""
    for name, why in held.absent.items():
        if key in (name, _plain_name(name)):
            return why
    for name, entry in held.entries.items():
        if key in (name, _plain_name(name)):
            return f"{entry.source} holds it as {entry.dtype}, which is not read"
    return f"no file in {folder.name} holds it"


def _refuse_unexpected(info: dict[str, Any], lo: int, hi: int) -> None:
    """Refuse tensors of this range that the model's class has no place for: it is not this model then."""
    own = [
        key
        for key in info.get("unexpected_keys") or ()
        if in_range(key, lo, hi, ends=False) and not _OLD_BUFFERS.search(key)
    ]
    if own:
        key = min(own)
        more = f" (and {len(own) - 1} more)" if len(own) > 1 else ""
        raise ModelNotSupported(
            f"The files hold {key}{more}, for which the config's architecture has no place.",
            "The config and the weights do not belong together: fetch the model again, or choose another.",
        )


def renumber(parts: Parts, lo: int, hi: int) -> None:
    """Make the slice a short model: layers from 0, a config of its length."""
    base = cast(Any, parts.base)
    keep = nn.ModuleList(list(parts.list())[lo:hi])
    for layer in keep:
        for module in layer.modules():
            if isinstance(getattr(module, "layer_idx", None), int):
                cast(Any, module).layer_idx -= lo
    setattr(base, parts.layers, keep)
    base.config = slice_config(base.config, lo, hi)
