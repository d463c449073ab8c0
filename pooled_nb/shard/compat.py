"""What differs between the supported versions of torch and transformers, in one place (DESIGN section 5).

Supported: torch 2.9 and newer, transformers 5.17 and newer (both within their major version).
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pooled_nb.errors import ModelNotSupported

ALONE = threading.RLock()
"""Held while what all models of a process share is ours: stages in several threads take turns."""
TORCH = ((2, 9), (3, 0))
TRANSFORMERS = ((5, 17), (6, 0))


def _number(version: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def check_versions(torch: str, transformers: str) -> None:
    """Refuse versions that were never tried.

    Parameters
    ----------
    torch, transformers
        Version texts as the packages say them.

    Raises
    ------
    ModelNotSupported
        One line that names both versions, and what would do.
    """
    for have, (low, high) in ((torch, TORCH), (transformers, TRANSFORMERS)):
        if not low <= _number(have) < high:
            raise ModelNotSupported(
                f"pooled_nb runs with torch 2.9 to 2.x and transformers 5.17 to 5.x; here are torch {torch} "
                f"and transformers {transformers}.",
                'Install them with: pip install "torch>=2.9,<3" "transformers>=5.17,<6"',
            )


def cache_keyword(module: Any) -> str:
    """Name under which a model's ``forward`` takes its cache: one for all since transformers 5.24."""
    names = inspect.signature(inspect.unwrap(type(module).forward)).parameters
    return next((name for name in ("cache", "cache_params") if name in names), "past_key_values")


def slice_per_layer(config: Any, lo: int, hi: int) -> None:
    """Cut what a config says of single layers (its ``per_layer_config``)."""
    spec = vars(config).get("_heterogeneity_spec")
    if spec is not None:
        overrides = {i - lo: entry for i, entry in spec.per_layer_overrides.items() if lo <= i < hi}
        config.__dict__["_heterogeneity_spec"] = dataclasses.replace(spec, per_layer_overrides=overrides)


@contextmanager
def quiet() -> Iterator[None]:
    """No bars and no reports from transformers: we tell progress, and missing weights are errors."""
    from transformers import utils

    logging: Any = utils.logging
    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def one_tensor_at_a_time() -> Iterator[None]:
    """Read weights one after the other: the loader's threads would hold a mixture's experts twice."""
    with environ("HF_DEACTIVATE_ASYNC_LOAD", "1"):
        yield


@contextmanager
def environ(name: str, value: str) -> Iterator[None]:
    """Set a variable that transformers reads, and put it back."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def draft_cache() -> Any:
    """A cache for a model's own draft layers, which grows, and can be cut."""
    from transformers.cache_utils import MtpCache

    return MtpCache()


def draft_step(model: Any, depth: int, hidden: Any, positions: Any, cache: Any, tokens: Any) -> Any:
    """Run one layer of an ``MtpModel``: hidden states ``[1, n, dim]``; a method of its own since 5.24."""
    if hasattr(model, "forward_layer"):
        return model.forward_layer(depth, hidden, positions, cache, input_ids=tokens)
    embedded = model.embed_tokens(tokens).to(hidden.device)
    places = model.rotary_emb(embedded, position_ids=positions) if model.rotary_emb is not None else None
    masks = model.create_masks_for_mtp_layer(depth, embedded, cache, positions)
    out = model.layers[depth](
        embedded,
        hidden,
        position_embeddings=places,
        position_ids=positions,
        past_key_values=cache,
        **masks,
    )
    return model.shared_post_norm(out) if model.use_shared_post_norm else out


def draft_logits(model: Any, hidden: Any) -> Any:
    """Logits of an ``MtpModel``: the main model's head, scaled as that scales it."""
    return model._project_to_logits(hidden)
