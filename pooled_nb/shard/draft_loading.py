"""Load what drafts beside a model. Whatever fails here, the room goes on without it, and says so."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable

from msgspec import structs

from pooled_nb.errors import ModelTooBig
from pooled_nb.shard.chat import Chat
from pooled_nb.shard.door import Loaded, LoadSpec, Progress
from pooled_nb.shard.draft_model import load_model
from pooled_nb.shard.draft_weights import attach_layers
from pooled_nb.shard.drafter import Drafter
from pooled_nb.shard.engine import Engine
from pooled_nb.shard.faults import as_pooled_error
from pooled_nb.shard.sources import Located, fetch
from pooled_nb.shard.stopping import Stop, never


def load_drafter(
    spec: LoadSpec,
    loaded: Loaded,
    engine: Engine,
    located: Located,
    chat: Chat,
    progress: Progress,
    stop: Stop = never,
) -> tuple[Drafter | None, Loaded]:
    """Load what a spec names to draft: a small model, else the model's own draft layers.

    Parameters
    ----------
    loaded, engine, located, chat
        The room's model, loaded.
    stop
        Called often; what it raises ends the whole load.

    Returns
    -------
    drafter, loaded
        None where nothing drafts; what both take, and a sentence for the person where something failed.
    """

    def model(small: LoadSpec) -> Drafter:
        with contextlib.closing(fetch(small, progress=progress, stop=stop)) as found:
            return load_model(small, found.folder, chat.tokenizer, progress, tensors=found.tensors, stop=stop)

    ways: list[Callable[[], Drafter]] = []
    if spec.draft is not None:
        ways.append(functools.partial(model, spec.draft))
    if spec.draft_layers:
        ways.append(lambda: attach_layers(engine, located.folder, located.tensors, progress, stop))
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
