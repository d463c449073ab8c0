"""What a model's files say about it, and where the parts of any causal language model are found.

One generic path for every architecture (DESIGN section 5): nothing here knows a model by name.
"""

from __future__ import annotations

import contextlib
import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch import nn
from transformers import AutoConfig
from transformers.cache_utils import Cache
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from pooled_nb.errors import ModelNotFound, ModelNotSupported
from pooled_nb.shard import compat
from pooled_nb.shard.headers import INDEX, read_map

MAX_LAYERS = 1000
PER_LAYER = (
    "layer_types",
    "mlp_layer_types",
    "layers_block_type",
    "no_rope_layers",
    "no_rope_layer_interval_types",
)
OTHER_MODEL = "Choose another model: pooled_nb runs text models of plain attention layers."
_KEEPS_STATE = ("linear_attention", "conv", "mamba", "recurrent", "hybrid", "linear", "moe_mamba")


@dataclass(frozen=True, slots=True)
class ArchFacts:
    """What a model is, from its config and headers; the fields are those of `ModelFacts`.

    Attributes
    ----------
    layer_bytes, ends_bytes
        Bytes in ``dtype``; tied weights are counted once.
    kv_bytes
        Bytes one token takes in each layer's cache, 16-bit.
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


@dataclass(slots=True)
class Parts:
    """The parts of a model that the range loader and the stage work with.

    Attributes
    ----------
    base
        The module that runs embedding, layers and norm.
    layers, norm
        Names of its children: the list of layers, the final norm.
    """

    base: nn.Module
    layers: str
    norm: str

    def list(self) -> nn.ModuleList:
        """The layers."""
        return cast(nn.ModuleList, getattr(self.base, self.layers))


def read_config(folder: Path) -> Any:
    """The text model's config of a folder.

    Raises
    ------
    ModelNotFound
        There is no readable ``config.json``.
    ModelNotSupported
        This transformers does not know the architecture, or this build cannot run it; says why.
    """
    compat.check_versions(torch.__version__, transformers.__version__)
    file = folder / "config.json"
    try:
        raw = json.loads(file.read_bytes())
    except OSError as error:
        raise ModelNotFound(
            f"The folder {folder.name} holds no config.json.", "Check the model's folder."
        ) from error
    except ValueError as error:
        raise ModelNotFound("The model's config.json is damaged.", "Fetch the model again.") from error
    kind = raw.get("model_type") if isinstance(raw, dict) else None
    if not isinstance(kind, str) or not kind:
        raise ModelNotSupported("The model's config.json names no architecture (model_type).", OTHER_MODEL)
    if kind not in transformers.CONFIG_MAPPING:
        raise ModelNotSupported(
            f"The architecture {kind[:60]!r} is not one that transformers {transformers.__version__} knows.",
            "Update transformers, or choose another model; code that comes with a model is never run.",
        )
    try:
        with compat.quiet():
            # The folder is read here and now: no hub, and never code from the folder.
            config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except Exception as error:
        raise ModelNotSupported(
            f"The config of this {kind[:60]} model cannot be read: {_brief(error)}.", OTHER_MODEL
        ) from (error)
    _refuse(config, kind)
    return config.get_text_config()


def _brief(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200].rstrip(".")


def _refuse(config: Any, kind: str) -> None:
    text = config.get_text_config()
    if getattr(config, "quantization_config", None) or getattr(text, "quantization_config", None):
        raise ModelNotSupported(
            "The model's weights are quantized, which this version does not read.",
            "Use its unquantized version.",
        )
    if getattr(config, "is_encoder_decoder", False):
        raise ModelNotSupported(f"{kind} is an encoder and a decoder, not one chain of layers.", OTHER_MODEL)
    layers = getattr(text, "num_hidden_layers", None)
    if not isinstance(layers, int) or not 1 <= layers <= MAX_LAYERS:
        raise ModelNotSupported(
            f"The config names {layers!r:.40} layers.", f"Use a model of 1 to {MAX_LAYERS} layers."
        )
    types = [
        str(t) for t in getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None) or ()
    ]
    state = sorted({t for t in types if any(word in t for word in _KEEPS_STATE)})
    if state:
        raise ModelNotSupported(
            f"{kind} has layers with a running state ({', '.join(state)}), which cannot be taken back yet.",
            OTHER_MODEL,
        )
    if getattr(text, "num_kv_shared_layers", 0):
        raise ModelNotSupported(
            f"{kind} has layers that share one cache, so it cannot be split between them.", OTHER_MODEL
        )
    if type(text) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelNotSupported(f"{kind} is no model that writes text.", OTHER_MODEL)


def model_class(config: Any) -> type[Any]:
    """The model's own class for causal text."""
    return cast("type[Any]", MODEL_FOR_CAUSAL_LM_MAPPING[type(config)])


def find_parts(model: Any) -> Parts:
    """Find the layers and the final norm of a model.

    Raises
    ------
    ModelNotSupported
        There is no single list of layers, or no single norm after it.
    """
    base = model.base_model
    count = base.config.num_hidden_layers
    lists = [k for k, v in base.named_children() if isinstance(v, nn.ModuleList) and len(v) == count]
    norms = [k for k, _ in base.named_children() if _is_norm(k)]
    if base is model or len(lists) != 1 or len(norms) != 1:
        raise ModelNotSupported(
            f"{type(model).__name__} is not one list of layers with one norm after it.", OTHER_MODEL
        )
    return Parts(base, lists[0], norms[0])


def where(module: nn.Module) -> torch.device:
    """The device on which a module computes: that of its weights, unless accelerate fetches them there."""
    for part in module.modules():
        device = getattr(getattr(part, "_hf_hook", None), "execution_device", None)
        if device is not None:
            return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    first = next(module.parameters(), None)
    return first.device if first is not None else torch.device("cpu")


def _is_norm(name: str) -> bool:
    low = name.lower()
    return ("norm" in low or low == "ln_f") and "emb" not in low


def max_ctx(config: Any) -> int:
    """Tokens the model can hold in one conversation."""
    known = int(getattr(config, "max_position_embeddings", None) or 2048)
    rope = getattr(config, "rope_parameters", None) or {}
    if isinstance(rope, dict) and rope.get("rope_type") == "longrope":
        # Beyond this, positions change their scale, and what is cached already would have the old one.
        known = int(rope.get("original_max_position_embeddings") or known)
    return known


def attention(config: Any, wanted: str) -> str:
    """How attention is computed: as wanted, but ``eager`` where SDPA cannot (soft caps, sinks)."""
    caps = getattr(config, "attn_logit_softcapping", None)
    if wanted == "sdpa" and (caps or not getattr(model_class(config), "_supports_sdpa", False)):
        return "eager"
    return wanted


def skeleton(config: Any) -> Any:
    """The whole model without memory: every tensor is on the meta device.

    Raises
    ------
    ModelNotSupported
        The config contradicts itself.
    """
    try:
        with compat.quiet(), torch.device("meta"):
            return model_class(config)(copy.deepcopy(config))
    except Exception as error:
        raise ModelNotSupported(
            f"No {config.model_type} model can be built from this config: {_brief(error)}.", OTHER_MODEL
        ) from error


def facts(config_folder: Path) -> ArchFacts:
    """What the model in a folder is, from ``config.json`` and headers: no weights are read.

    Parameters
    ----------
    config_folder
        Holds ``config.json``; safetensors files and their index may lie beside it (they tell the dtype).

    Raises
    ------
    ModelNotFound
        No readable config, or weights in another format only.
    ModelNotSupported
        This build cannot run the model; says why.
    """
    config = read_config(config_folder)
    present = any(config_folder.glob("*.safetensors")) or (config_folder / INDEX).exists()
    weights = {file.suffix for file in config_folder.iterdir()} & {".bin", ".pt", ".pth", ".gguf", ".h5"}
    dtype = read_map(config_folder).dtype() if present or weights else None
    if dtype is None:
        dtype = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    item = 8 if dtype == "float64" else 4 if dtype == "float32" else 2
    model = skeleton(config)
    parts = find_parts(model)
    layers = [sum(p.numel() for p in layer.parameters()) for layer in parts.list()]
    # parameters() gives a tied tensor once, so whatever is outside the layers is the ends, counted once.
    ends = sum(p.numel() for p in model.parameters()) - sum(layers)
    if getattr(config, "tie_word_embeddings", False):
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
        if head is not None and head.weight is not embedding.weight:
            ends -= head.weight.numel()
    return ArchFacts(
        arch=type(model).__name__,
        layers=len(layers),
        dim=config.hidden_size,
        vocab=config.vocab_size,
        dtype=dtype,
        max_ctx=max_ctx(config),
        layer_bytes=[n * item for n in layers],
        ends_bytes=ends * item,
        kv_bytes=[2 * numbers for numbers in _cache_numbers(model, parts)],
    )


class _Shapes(Cache):
    """Notes how many numbers each layer caches for a token."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.numbers: dict[int, int] = {}

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.numbers[layer_idx] = key_states.numel() + value_states.numel()
        return key_states, value_states


def cache_numbers(config: Any) -> list[int]:
    """Numbers that one token adds to each layer's cache.

    Raises
    ------
    ModelNotSupported
        No model of layers can be built from this config.
    """
    model = skeleton(config)
    return _cache_numbers(model, find_parts(model))


def _cache_numbers(model: Any, parts: Parts) -> list[int]:
    """See `cache_numbers`: asked of the model itself, run without memory.

    What is cached is the model's own choice (latents or whole heads, say), and changes between versions.
    """
    shapes = _Shapes()
    token = torch.zeros((1, 1), dtype=torch.int64, device="meta")
    with contextlib.suppress(Exception), torch.inference_mode(), compat.quiet():
        # A mixture may look at numbers, and without memory there are none: the layers before it will do.
        parts.base(input_ids=token, use_cache=True, **{compat.cache_keyword(parts.base): shapes})
    config: Any = parts.base.config
    heads = config.num_attention_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    usual = 2 * (getattr(config, "num_key_value_heads", None) or heads) * dim
    reached = max(shapes.numbers.values(), default=usual)
    return [shapes.numbers.get(i, reached) for i in range(len(parts.list()))]


def slice_config(config: Any, lo: int, hi: int) -> Any:
    """The config of a short model of layers ``[lo, hi)``: lists with one entry per layer are cut too."""
    short = copy.deepcopy(config)
    full = config.num_hidden_layers
    short.num_hidden_layers = hi - lo
    for name in PER_LAYER:
        entries = getattr(config, name, None)
        if isinstance(entries, list | tuple) and len(entries) == full:
            setattr(short, name, list(entries)[lo:hi])
    return short
