"""What a model's files say about it, and where the parts of any causal language model are found.

One generic path for every architecture (DESIGN section 5): nothing here knows a model by name.
"""

from __future__ import annotations

import copy
import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch import nn
from transformers import AutoConfig, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from pooled_nb.errors import ModelNotFound, ModelNotSupported
from pooled_nb.shard import compat

MAX_LAYERS = 1000
OTHER_MODEL = "Choose another model: pooled_nb runs text models that are one chain of layers."
EXACT_EXPERTS = "batched_mm"
"""Mixtures computed so that a column's bits do not depend on its frame's other columns (DESIGN section 5)."""


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
    except (ValueError, RecursionError) as error:
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
            text = config.get_text_config()
    except Exception as error:
        raise ModelNotSupported(
            f"The config of this {kind[:60]} model cannot be read: {_brief(error)}.", OTHER_MODEL
        ) from (error)
    _refuse(config, text, kind)
    return text


def own(config: Any, name: str) -> Any:
    """A field of a config; None where it has none, or where its layers differ in it."""
    try:
        return getattr(config, name, None)
    except RuntimeError:  # transformers refuses to say one value for all layers
        return None


def _brief(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200].rstrip(".")


def _refuse(config: Any, text: Any, kind: str) -> None:
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
    if own(text, "hidden_size_per_layer_input"):
        raise ModelNotSupported(
            f"In {kind} every layer takes an embedding of its own of each token, which only the host has.",
            OTHER_MODEL,
        )
    if _class_of(type(text)) is None:
        raise ModelNotSupported(
            f"{kind} is no model that writes text, or transformers has no text model of it by itself.",
            OTHER_MODEL,
        )


def model_class(config: Any) -> type[Any]:
    """The model's own class for causal text."""
    found = _class_of(type(config))
    assert found is not None, "read_config refuses these"
    return found


def _class_of(kind: type[Any]) -> type[Any] | None:
    """The class for causal text of a config's class; None where transformers has none."""
    if kind in MODEL_FOR_CAUSAL_LM_MAPPING:
        return cast("type[Any]", MODEL_FOR_CAUSAL_LM_MAPPING[kind])
    # transformers lists some text models only with the multimodal ones; they are where their config says.
    try:
        module = importlib.import_module(kind.__module__.replace(".configuration_", ".modeling_"))
    except ImportError:
        return None
    classes = [
        value
        for name, value in vars(module).items()
        if name.endswith("ForCausalLM") and isinstance(value, type) and issubclass(value, PreTrainedModel)
    ]
    return next((value for value in classes if value.config_class is kind), None)


def find_parts(model: Any) -> Parts:
    """Find the layers and the final norm of a model.

    Raises
    ------
    ModelNotSupported
        There is no single list of layers, or no single norm after it.
    """
    for base in model.modules():
        # Outermost first; a part of a model that has a config of its own runs by itself.
        if base is model or not isinstance(base, PreTrainedModel):
            continue
        count = base.config.num_hidden_layers
        lists = [k for k, v in base.named_children() if isinstance(v, nn.ModuleList) and len(v) == count]
        if len(lists) > 1:  # rotary embeddings, say, may be as many
            lists = [
                k for k in lists if any(isinstance(v, GradientCheckpointingLayer) for v in getattr(base, k))
            ]
        if not lists:
            continue
        if next(base.parameters(recurse=False), None) is not None:
            raise ModelNotSupported(
                f"{type(base).__name__} has weights beside its layers, which only the host would have.",
                OTHER_MODEL,
            )
        norm = _norm_after(base, lists[0])
        if len(lists) == 1 and norm:
            return Parts(base, lists[0], norm)
        break
    raise ModelNotSupported(
        f"{type(model).__name__} is not one list of layers with one norm after it.", OTHER_MODEL
    )


def _norm_after(base: nn.Module, layers: str) -> str | None:
    """Name of the final norm: the only one there is, those of embeddings left out."""
    names = [name for name, _ in base.named_children()]
    norms = [name for name in names if "norm" in name.lower() or name.lower() == "ln_f"]
    own = [name for name in norms if "emb" not in name.lower()]
    # A norm that is called after the embeddings and made after the layers is theirs all the same.
    own = own or [name for name in norms if names.index(name) > names.index(layers)]
    return own[0] if len(own) == 1 else None


def where(module: nn.Module) -> torch.device:
    """The device on which a module computes: that of its weights, unless accelerate fetches them there."""
    for part in module.modules():
        device = getattr(getattr(part, "_hf_hook", None), "execution_device", None)
        if device is not None:
            # accelerate numbers the GPUs; torch takes a number as one of the accelerator it was built for.
            return torch.device(device)
    first = next(module.parameters(), None)
    return first.device if first is not None else torch.device("cpu")


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


def skeleton(config: Any, dtype: torch.dtype = torch.float32) -> Any:
    """The whole model without memory: every tensor is on the meta device.

    Raises
    ------
    ModelNotSupported
        The config contradicts itself.
    """
    try:
        with compat.quiet(), torch.device("meta"):
            return model_class(config)._from_config(
                copy.deepcopy(config),
                dtype=dtype,
                attn_implementation=attention(config, "sdpa"),
                experts_implementation=EXACT_EXPERTS,
            )
    except Exception as error:
        raise ModelNotSupported(
            f"No {config.model_type} model can be built from this config: {_brief(error)}.", OTHER_MODEL
        ) from error


def _always(entries: list[Any]) -> property:
    return property(lambda self: entries)


LISTED = ("layer_types", "layers_block_type")
"""What a config says of the kinds of its layers, in order."""


def slice_config(config: Any, lo: int, hi: int) -> Any:
    """The config of a short model of layers ``[lo, hi)``: what has one entry per layer is cut too."""
    short = copy.deepcopy(config)
    full = config.num_hidden_layers
    compat.slice_per_layer(short, lo, hi)
    for name, entries in vars(config).items():
        if isinstance(entries, list | tuple) and len(entries) == full and not name.endswith("token_id"):
            setattr(short, name, list(entries)[lo:hi])
    fixed: dict[str, Any] = {}
    for name in LISTED:
        if isinstance(getattr(type(config), name, None), property):
            # Worked out from a layer's number in the whole model: a short one has other numbers.
            fixed[name] = _always(list(getattr(config, name))[lo:hi])
    if fixed:
        kind = type(config)
        short.__class__ = type(kind.__name__, (kind,), {**fixed, "__module__": kind.__module__})
    if shared := own(config, "num_kv_shared_layers"):
        # Counted from the end: these attend over the caches of layers before them.
        short.num_kv_shared_layers = max(0, hi - max(lo, full - shared))
    short.num_hidden_layers = hi - lo
    return short
