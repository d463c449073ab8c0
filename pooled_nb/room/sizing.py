"""What a model takes in memory as the room would run it (PROTOCOL section 6). Decides only."""

from __future__ import annotations

from dataclasses import dataclass

from pooled_nb.shard import Linears, ModelFacts, ModelSize, cache_sizes, saved_bytes

ITEMSIZE = {"bfloat16": 2, "float16": 2, "float32": 4}
DRAFT_COLUMNS = 1024
"""Tokens that a model's own draft layers look back over."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a room keeps numbers: weights in ``dtype``, caches as ``kv`` says, linear weights as ``quant``."""

    dtype: str
    kv: str = "f16"
    quant: str = ""


@dataclass(frozen=True, slots=True)
class Drafts:
    """What drafts on the host besides prompt lookup: a small model, or the model's own draft layers."""

    model: ModelFacts | None = None
    layers: int = 0


def size_of(model: ModelFacts, form: Form, ctx: int, drafts: Drafts | None = None) -> ModelSize:
    """What has to fit; what drafts is a part of the host's ends."""
    item = ITEMSIZE[form.dtype]
    caches = cache_sizes(
        model.kv_bytes, model.kv_rows, model.state_bytes, kv=form.kv, itemsize=item, glued=model.glued
    )
    return ModelSize(
        label=f"{model.label} with {drafts.model.label}" if drafts and drafts.model else model.label,
        layer_bytes=[_layer(i, model, form) for i in range(len(model.layer_bytes))],
        kv_bytes=caches.token,
        ends_bytes=_scaled(model.ends_bytes, model, form) + draft_bytes(model, form, ctx, drafts or Drafts()),
        ctx=ctx,
        state_bytes=caches.state,
        scratch_bytes=caches.scratch,
        glued=model.glued,
    )


def need_gb(model: ModelFacts, form: Form, ctx: int, drafts: Drafts | None = None) -> float:
    """GB that one device would hold: weights, and caches in whole buckets."""
    return size_of(model, form, ctx, drafts).total / 1e9


def draft_bytes(model: ModelFacts, form: Form, ctx: int, drafts: Drafts) -> int:
    """Bytes of what drafts on the host, weights and caches."""
    total = 0
    if small := drafts.model:
        # Its caches are its own affair, and no part of the room's class.
        total += size_of(small, Form(form.dtype), min(ctx, small.max_ctx)).total
    if drafts.layers and model.draft_layers:
        part = min(1.0, drafts.layers / model.draft_layers)
        numbers = max(model.kv_bytes, default=0) // 2
        caches = drafts.layers * numbers * ITEMSIZE[form.dtype] * min(ctx, DRAFT_COLUMNS)
        total += round(_scaled(model.draft_bytes, model, form) * part) + caches
    return total


def _layer(number: int, model: ModelFacts, form: Form) -> int:
    """Bytes of a layer's weights as the room keeps them."""
    linears = model.linears[number] if number < len(model.linears) else Linears()
    return _scaled(model.layer_bytes[number], model, form) - saved_bytes(
        linears, form.quant, ITEMSIZE[form.dtype]
    )


def _scaled(size: int, model: ModelFacts, form: Form) -> int:
    """Bytes in the room's dtype of what the files hold in the model's own."""
    return round(size * ITEMSIZE[form.dtype] / ITEMSIZE.get(model.dtype, 2))
