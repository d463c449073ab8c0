"""Models in the person's own folders. A name that came from a room is looked for by name, never as a path."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pooled_nb.errors import ModelNotFound, ModelNotSupported
from pooled_nb.shard.door import FileFact
from pooled_nb.shard.found import (
    Found,
    folder_files,
    folder_layouts,
    folder_revision,
    is_safetensors,
    is_weights,
    pickled,
    plain_name,
)
from pooled_nb.shard.gguf.choosing import is_gguf
from pooled_nb.shard.gguf.files import find_file, named_file, only_file
from pooled_nb.shard.prints import file_sha256, known_sha256, weights_sample

LOCAL = "local/"
"""Under ``local/NAME`` a room knows a model that lies in its host's folder."""


def as_folder(text: str) -> Path | None:
    """Return the folder or GGUF file a person's own words name. Never for words that came from a room."""
    try:
        path = Path(text).expanduser()
        is_file = is_gguf(path.name) and path.is_file()
        if is_file:
            return path.absolute()  # a link keeps its name, by which it is told
        return path.resolve() if path.is_dir() else None
    except (OSError, RuntimeError, ValueError):
        return None


def looks_like_path(text: str) -> bool:
    """Whether a person means a folder rather than a hub id."""
    return text.startswith(("/", "./", "../", "~", ".\\", "..\\")) or "\\" in text or text[1:3] == ":/"


def holds_model(folder: Path) -> bool:
    """Whether a folder is a model's: ``gpt2`` may be a hub id, and a folder of something else here.

    A GGUF file is one, too.
    """
    if folder.is_file():
        return True
    names = [path.name for path in folder.iterdir()]
    return "config.json" in names or any(is_weights(name) for name in names)


def find_folder(folder: Path, revision: str | None = None) -> Found:
    """Read what lies in a folder; its only GGUF file, or such a file itself, where it holds no safetensors.

    Parameters
    ----------
    revision
        The state that is wanted, where a room said one.

    Raises
    ------
    ModelNotFound
        There is no config, no safetensors file, or another state.
    ModelNotSupported
        There are weights, but only in formats that are never read.
    """
    if is_gguf(folder.name) and folder.is_file():
        return find_file(folder, revision, f"{LOCAL}{folder.name}")
    if not folder.is_dir():
        raise ModelNotFound(f"There is no folder {folder.name!r}.", "Check its path.")
    names = [path.name for path in folder.iterdir() if path.is_file()]
    if not any(is_safetensors(name) for name in names):
        if (only := only_file(folder)) is not None:
            return find_file(only.absolute(), revision, f"{LOCAL}{only.name}")
        if other := pickled(names):
            raise ModelNotSupported(
                f"The folder {folder.name} holds {other}, but no safetensors file.",
                "Use a model that is published as safetensors: other formats are never read.",
            )
        raise ModelNotFound(
            f"The folder {folder.name} holds no safetensors file.",
            "Give the folder that holds config.json and *.safetensors.",
        )
    if "config.json" not in names:
        raise ModelNotFound(f"The folder {folder.name} holds no config.json.", "Fetch the whole model again.")
    files = folder_files(folder)
    state = folder_revision(files, files["config.json"].sha256 or "")
    if revision is not None and revision != state:
        raise ModelNotFound(
            f"The folder {folder.name} holds another state of the model than the room's.",
            "Copy the host's folder, or let this device be a guest.",
        )
    return Found(
        repo=f"{LOCAL}{folder.name}",
        revision=state,
        folder=folder,
        label=folder.name,
        files=files,
        layouts=folder_layouts(folder),
        local=True,
    )


def find_named(repo: str, differs_by: Callable[[Path], str] = lambda folder: "") -> Path:
    """Find the folder that a room calls ``local/NAME`` among those that ``POOLED_MODELS`` names.

    Each entry of the list is the model's folder, or the one around it.

    Parameters
    ----------
    differs_by
        Says in words how a folder of that name differs from the room's model; empty when it does not.

    Raises
    ------
    ModelNotFound
        None is there, or what is there differs.
    """
    name = repo.removeprefix(LOCAL)
    if not plain_name(name):
        raise ModelNotFound("The room's model has a name that no folder can have.", "Tell the host.")
    if is_gguf(name) and (file := named_file(name, differs_by)) is not None:
        return file
    differs = ""
    for entry in os.environ.get("POOLED_MODELS", "").split(os.pathsep):
        base = Path(entry).expanduser() if entry.strip() else None
        if base is None:
            continue
        for folder in (base, base / name):
            if folder.name != name or not (folder / "config.json").is_file():
                continue
            differs = differs_by(folder)
            if not differs:
                return folder.resolve()
    if differs:
        raise ModelNotFound(
            f"The model {name} in this device's folder is not the room's: {differs}.",
            "Copy the host's folder.",
        )
    raise ModelNotFound(
        f"The room's model {name} exists only in the host's folder.",
        f"Copy it to this device as {name}, and name the folder around it in POOLED_MODELS.",
    )


def difference(folder: Path, files: dict[str, FileFact], config_sha256: str | None) -> str:
    """Say in words how a folder differs from what the room said; empty when it does not.

    Files that this folder lacks are no difference: a device may keep only its own range.
    """
    if config_sha256 and file_sha256(folder / "config.json") != config_sha256:
        return "config.json differs"
    for name, fact in sorted(files.items()):
        path = folder / name
        if not plain_name(name) or not path.is_file():
            continue
        if path.stat().st_size != fact.size:
            return f"{name} has another size"
        if fact.sample:
            if weights_sample(path) != fact.sample:
                return f"{name} holds other weights"
        elif fact.sha256:
            known = known_sha256 if is_weights(name) else file_sha256
            if known(path) != fact.sha256:
                return f"{name} has another hash"
    return ""
