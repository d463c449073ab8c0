"""Models of the hub, through huggingface_hub: what it has of them, or its cache."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import (
    constants,
    try_to_load_from_cache,
)
from msgspec import structs

from pooled_nb.errors import ModelNotFound, ModelNotSupported
from pooled_nb.shard.door import FileFact, Progress
from pooled_nb.shard.found import SMALL, Found, is_safetensors, is_weights, pickled
from pooled_nb.shard.gguf.choosing import choose, is_gguf
from pooled_nb.shard.headers import INDEX, SINGLE, read_index
from pooled_nb.shard.prints import file_sha256, known_sha256, weights_sample
from pooled_nb.shard.ranges import Ranges
from pooled_nb.shard.sources.smallfile import ASK_S, download
from pooled_nb.shard.sources.words import HubUnreachable, said
from pooled_nb.shard.stopping import Stop, never

_SHA256 = re.compile(r"[0-9a-f]{64}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")


def find_hub(
    repo: str, revision: str | None, progress: Progress, stop: Stop = never, *, wanted: str = ""
) -> Found:
    """Find a model by hub id; where the hub cannot be reached, in its cache.

    Parameters
    ----------
    wanted
        A GGUF file of it, by name or tag. Such a model has no small files before its header was read.

    Raises
    ------
    HubUnreachable
        And the cache does not have it.
    ModelNotFound, ModelNotSupported
        The hub says so.
    """
    check_revision(revision)
    progress(2, f"asking the hub for {repo}")
    try:
        info = info_of(repo, revision)
    except HubUnreachable:
        if (cached := _cached_gguf(repo, revision, wanted)) is not None:
            return cached
        if not wanted and (cached := _cached(repo, revision)) is not None:
            return cached
        raise
    names = [sibling.rfilename for sibling in info.siblings or []]
    if wanted or _only_gguf(names):
        return _of_gguf(repo, info, choose(names, wanted, repo))
    _check_names(repo, names)
    files = {
        sibling.rfilename: _listed(sibling)
        for sibling in info.siblings or []
        if sibling.rfilename in SMALL or is_safetensors(sibling.rfilename)
    }
    commit = str(info.sha)
    small = [name for name in SMALL if name in files]
    folder = Path()
    for i, name in enumerate(small):
        stop()
        progress(5 + 60 * i // len(small), f"fetching {name}")
        path = download(repo, name, commit, files[name], stop=stop)
        folder = path.parent
        # Those that have none on the hub get one here, so that another device can take them from the room.
        files[name] = structs.replace(files[name], sha256=files[name].sha256 or file_sha256(path))
    return Found(
        repo=repo,
        revision=commit,
        folder=folder,
        label=repo.rsplit("/", 1)[-1],
        files=files,
        open=is_open(info),
    )


def _only_gguf(names: list[str]) -> bool:
    return not any(map(is_safetensors, names)) and any(is_gguf(name) for name in names)


def _of_gguf(repo: str, info: Any, name: str) -> Found:
    file = next(sibling for sibling in info.siblings if sibling.rfilename == name)
    return Found(
        repo=repo,
        revision=str(info.sha),
        folder=Path(),
        label=Path(name).stem,
        files={name: _listed(file)},
        open=is_open(info),
    )


def info_of(repo: str, revision: str | None) -> Any:
    """What the hub says of a model.

    Raises
    ------
    HubUnreachable, ModelNotFound
    """

    def ask() -> Any:
        if constants.HF_HUB_OFFLINE:
            raise HubUnreachable("HF_HUB_OFFLINE is set")
        return huggingface_hub.HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=ASK_S)

    return said(repo, lambda: _within(ASK_S, ask))


def is_open(info: Any) -> bool:
    """Whether everybody may read a model: only then this device gives of it to others."""
    return not info.private and not info.gated


def check_revision(revision: str | None) -> None:
    """A revision becomes part of a path in the cache, and it may come from a room.

    Raises
    ------
    ModelNotFound
    """
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise ModelNotFound(
            "The model's revision is none that a hub has.", "Give a commit, a tag or a branch."
        )


def _check_names(repo: str, names: list[str]) -> None:
    if "config.json" not in names:
        raise ModelNotSupported(f"{repo} has no config.json.", "Choose a model that transformers can load.")
    if not any(is_safetensors(name) for name in names):
        other = pickled(names)
        raise ModelNotSupported(
            f"{repo} has no safetensors file" + (f", only {other}." if other else "."),
            "Choose a model that is published as safetensors: other formats are never read.",
        )


def _cached(repo: str, revision: str | None) -> Found | None:
    """Return the model as the hub's cache has it: its small files, and all weights or some."""
    config = said(repo, lambda: try_to_load_from_cache(repo, "config.json", revision=revision))
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    files = {
        path.name: _cached_fact(path)
        for path in sorted(folder.iterdir())
        if path.is_file() and (path.name in SMALL or is_safetensors(path.name))
    }
    kept = Ranges().model(repo, folder.name)
    index = folder / INDEX
    named = set(read_index(index.read_bytes()).values()) if index.is_file() else {SINGLE}
    for name in sorted(named - set(files)):
        if is_weights(name) and (file := kept.known(name)) is not None:
            files[name] = FileFact(size=file.size)
    return Found(
        repo=repo,
        revision=folder.name,
        folder=folder,
        label=repo.rsplit("/", 1)[-1],
        files=files,
        note="The hub cannot be reached: this device's cached copy is used.",
    )


def _cached_gguf(repo: str, revision: str | None, wanted: str) -> Found | None:
    """Return a GGUF model as the range cache has it: its header at least, of the state used last."""
    known = [kept for kept in Ranges().models() if kept.repo == repo and revision in (None, kept.revision)]
    for kept in sorted(known, key=lambda kept: kept.used, reverse=True):
        files = {file.name: file.size for file in kept.files if is_gguf(file.name)}
        if not files:
            continue
        try:
            name = choose(files, wanted, repo)
        except ModelNotFound:  # the hub may have it
            continue
        return Found(
            repo=repo,
            revision=kept.revision,
            folder=Path(),
            label=Path(name).stem,
            files={name: FileFact(size=files[name])},
            note="The hub cannot be reached: this device's cached copy is used.",
        )
    return None


def _listed(file: Any) -> FileFact:
    """What the hub's list says of a file; a mirror may have hashes of another kind there, or none."""
    said = str(file.lfs.sha256) if file.lfs else ""
    return FileFact(size=file.size or 0, sha256=said if _SHA256.fullmatch(said) else None)


def _cached_fact(path: Path) -> FileFact:
    size = path.stat().st_size
    if not is_weights(path.name):
        return FileFact(size=size, sha256=file_sha256(path))
    if path.is_symlink():  # to a blob, which is named by its hash: nothing is read
        return FileFact(size=size, sha256=known_sha256(path))
    return FileFact(size=size, sample=weights_sample(path) or None)


def _within(seconds: float, ask: Callable[[], Any]) -> Any:
    """Give a call this long: name resolution blocks for as long as it likes, and heeds no time-out."""
    box: list[Any] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            box.append(ask())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="pooled-hub", daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not box:
        raise HubUnreachable(f"no answer within {seconds:g} s")
    return box[0]
