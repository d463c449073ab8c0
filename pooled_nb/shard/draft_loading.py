"""Load what drafts beside a model. Whatever fails here, the room goes on without it, and says so."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from pooled_nb.errors import ModelTooBig
from pooled_nb.shard.chat import Chat
from pooled_nb.shard.door import Loaded, LoadSpec, Progress
from pooled_nb.shard.draft_model import load_model
from pooled_nb.shard.draft_weights import attach_layers
from pooled_nb.shard.drafter import Drafter
from pooled_nb.shard.engine import Engine
from pooled_nb.shard.faults import as_pooled_error
from pooled_nb.shard.sources import fetch


def load_drafter(
    spec: LoadSpec, loaded: Loaded, engine: Engine, folder: Path, chat: Chat, progress: Progress
) -> tuple[Drafter | None, Loaded]:
    """Load what a spec names to draft: a small model, else the model's own draft layers.

    Parameters
    ----------
    loaded, engine, folder, chat
        The room's model, loaded.

    Returns
    -------
    drafter, loaded
        None where nothing drafts; what both take, and a sentence for the person where something failed.
    """
    ways: list[Callable[[], Drafter]] = []
    if (small := spec.draft) is not None:
        ways.append(lambda: load_model(small, fetch(small, progress=progress), chat.tokenizer, progress))
    if spec.draft_layers:
        ways.append(lambda: attach_layers(engine, folder, progress))
    note = ""
    for way in ways:
        try:
            drafter = way()
        except Exception as error:
            note = note or _words(error)
            gc.collect()  # what was loaded in part
            continue
        return drafter, structs.replace(
            loaded,
            weights=loaded.weights + drafter.weights,
            cache=loaded.cache + drafter.cache,
            drafts=drafter.kind,
            note=note,
        )
    return None, structs.replace(loaded, note=note)


def _words(error: Exception) -> str:
    """What the person is told: why nothing drafts, or something else than was asked for."""
    known = as_pooled_error(error)
    if isinstance(known, ModelTooBig):
        return (
            "This device's memory does not hold what drafts beside the model. "
            "Answers come without it; lend more, or choose a smaller draft model."
        )
    if known is not error:
        return f"What was to draft cannot be loaded here ({type(error).__name__}). Answers come without it."
    return str(known)
