"""Load a model's own draft layers from its files into transformers' ``MtpModel``."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from pooled_nb.errors import ModelNotSupported
from pooled_nb.shard import compat
from pooled_nb.shard.arch import attention, read_config, skeleton
from pooled_nb.shard.door import Progress
from pooled_nb.shard.draft_layers import DraftLayers
from pooled_nb.shard.draft_names import MOST, draft_count, draft_name
from pooled_nb.shard.engine import Engine
from pooled_nb.shard.eos import read_json
from pooled_nb.shard.faults import no_memory
from pooled_nb.shard.headers import INDEX
from pooled_nb.shard.lazy import DTYPES, LazyTensor
from pooled_nb.shard.packed import pack_all
from pooled_nb.shard.stopping import Stop, never
from pooled_nb.shard.tensormap import TensorMap, read_map

_SHARED = re.compile(r"^(?:embed_tokens|shared_head|rotary_emb)\.")
WITHOUT = "The room goes on without them; nothing is to be done."


def draft_facts(folder: Path, dtype: str, names: Iterable[str] = ()) -> tuple[int, int]:
    """How many draft layers a model's files carry that can be run, and their bytes in ``dtype``.

    Told from the names in headers, or those of the folder's files and index. Where neither are here yet, its
    config says it.

    Parameters
    ----------
    names
        Of all tensors, where the headers were read already.
    """
    config = read_config(folder)
    names = list(names)
    if not names and (any(folder.glob("*.safetensors")) or (folder / INDEX).exists()):
        held = read_map(folder)
        names = [*held.entries, *held.absent]
    count = draft_count(names, config.num_hidden_layers) if names else _claimed(folder)
    if not count:
        return 0, 0
    try:
        model, _ = _empty(config, count, names)
    except ModelNotSupported:
        return 0, 0
    numbers = sum(p.numel() for name, p in model.named_parameters() if not _SHARED.search(name))
    return count, numbers * getattr(torch, dtype).itemsize


def attach_layers(
    engine: Engine, folder: Path, tensors: TensorMap, progress: Progress, stop: Stop = never
) -> DraftLayers:
    """Load the draft layers of an engine's model, and try them once.

    Parameters
    ----------
    folder
        Holds the model's config.
    tensors
        Where the layers lie.

    Raises
    ------
    ModelNotFound, ModelNotSupported
        See `load_layers`; or they do not run.
    """

    def read(size: int, total: int) -> None:
        stop()
        progress(size * 100 // max(1, total), "reading draft layers")

    model = load_layers(
        folder,
        base=engine.base,
        head=engine.ends.head,
        dtype=engine.dtype,
        device=engine.ends.device,
        progress=read,
        tensors=tensors,
    )
    weights = sum(p.nbytes for p in model.layers.parameters())
    pack_all(model.layers)
    drafter = DraftLayers(model, engine.ends.norm, engine.dtype, weights)
    try:
        drafter.try_out()
    except Exception as error:
        if no_memory(error):
            raise
        raise ModelNotSupported(
            f"The draft layers of {folder.name} do not run here: {type(error).__name__}.", WITHOUT
        ) from error
    return drafter


def load_layers(
    folder: Path,
    *,
    base: Any,
    head: nn.Module,
    dtype: torch.dtype,
    device: torch.device,
    progress: Callable[[int, int], None] = lambda read, total: None,
    tensors: TensorMap | None = None,
) -> Any:
    """An ``MtpModel`` with the draft layers of a folder.

    Parameters
    ----------
    base, head
        The loaded model's body and head: its embedding, its positions and its head are used, not copied.
    progress
        Called with bytes read so far, and how many they will be; what it raises ends the reading.
    tensors
        Where they lie; None: in the folder.

    Raises
    ------
    ModelNotFound
        A file ends while it is read.
    ModelNotSupported
        There are none, or transformers does not know this kind.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import convert_and_load_state_dict_in_model
    from transformers.modeling_utils import LoadStateDictConfig

    config, held = read_config(folder), read_map(folder) if tensors is None else tensors
    layers, read = config.num_hidden_layers, 0
    named = {name: draft_name(name, layers) for name in held.entries}
    count = draft_count(held.entries, layers)
    total = sum(held.entries[name].end - held.entries[name].start for name, own in named.items() if own)
    if not count:
        raise ModelNotSupported(f"The folder {folder.name} holds no draft layers.", WITHOUT)

    def done(size: int) -> None:
        nonlocal read
        read += size
        progress(read, total)

    weights = {
        own: LazyTensor(name, held.entries[name], done)
        for name, own in named.items()
        if own and held.entries[name].dtype in DTYPES
    }
    model, main = _empty(config, count, held.entries)
    model.to(dtype)  # weights are read in the dtype of the empty ones, whatever the load asks for
    with compat.quiet(), compat.one_tensor_at_a_time():
        info, _ = convert_and_load_state_dict_in_model(
            model=model,
            state_dict=weights,
            load_config=LoadStateDictConfig(
                weight_mapping=cast(Any, get_model_conversion_mapping(main)),  # typed narrower there
                device_map={"": device},
                dtype=dtype,
            ),
        )
    missing = sorted(key for key in info.missing_keys if not _SHARED.search(key))
    wrong = [*missing, *sorted(info.unexpected_keys), *sorted(str(key) for key in info.mismatched_keys)]
    if wrong or info.conversion_errors:
        raise ModelNotSupported(
            f"The draft layers of {folder.name} are of a kind that is not known here: {(wrong or ['?'])[0]}.",
            WITHOUT,
        )
    model.embed_tokens, model.shared_head = base.get_input_embeddings(), head
    model.rotary_emb = getattr(base, "rotary_emb", None)
    return model.eval().requires_grad_(False)


def _claimed(folder: Path) -> int:
    """Draft layers that a config names in so many words: its class may have a default that is not true."""
    raw = read_json(folder / "config.json")
    inner = raw.get("text_config")
    for said in (inner if isinstance(inner, dict) else {}, raw):
        for key in ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"):
            if isinstance(said.get(key), int):
                return min(max(0, int(said[key])), MOST)
    return 0


def _empty(config: Any, count: int, names: Iterable[str]) -> tuple[Any, Any]:
    """The draft layers without memory, and a model of the same layers, for the names of its weights.

    Raises
    ------
    ModelNotSupported
    """
    from transformers.modeling_layers import MtpModel

    config = copy.deepcopy(config)
    config.num_mtp_layers = count
    if getattr(config, "layer_types", None) and not getattr(config, "mtp_layer_types", None):
        config.mtp_layer_types = ["full_attention"] * count
    if getattr(config, "mlp_layer_types", None) and not getattr(config, "mtp_mlp_layer_types", None):
        mixture = any(".experts." in name for name in names if draft_name(name, config.num_hidden_layers))
        config.mtp_mlp_layer_types = ["sparse" if mixture else "dense"] * count
    try:
        # A short model of these layers alone: which norm they use is asked of its last one.
        short = config.get_mtp_config()
        short._attn_implementation = attention(config, "sdpa")
        main = skeleton(short)
        with compat.quiet(), torch.device("meta"):
            return MtpModel(main, count), main
    except Exception as error:
        raise ModelNotSupported(
            f"The draft layers of this {config.model_type} model cannot be built: {type(error).__name__}.",
            WITHOUT,
        ) from error
