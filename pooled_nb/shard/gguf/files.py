"""GGUF files on this device: what a person names, and what a room calls ``local/NAME.gguf``."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from pooled_nb.errors import ModelNotFound, ModelNotSupported
from pooled_nb.shard.door import FileFact, LoadSpec
from pooled_nb.shard.found import Found, folder_revision
from pooled_nb.shard.gguf.choosing import is_gguf, listed
from pooled_nb.shard.gguf.layout import SUFFIX, header_of, layout_of
from pooled_nb.shard.gguf.reader import Header
from pooled_nb.shard.gguf.small import small_folder
from pooled_nb.shard.headers import unread
from pooled_nb.shard.layout import Layout
from pooled_nb.shard.prints import file_sha256, known_sha256, weights_sample
from pooled_nb.shard.tensormap import TensorMap, look, tensor_map, whole


def file_of(files: Mapping[str, FileFact]) -> str:
    """The file that a model consists of, where it is one of this format; else empty."""
    names = list(files)
    return names[0] if len(names) == 1 and is_gguf(names[0]) else ""


def need_library(name: str) -> None:
    """Refuse a file that this device lacks the library for.

    Raises
    ------
    ModelNotSupported
    """
    if importlib.util.find_spec("gguf") is None:
        raise ModelNotSupported(
            f"Reading {name} needs the gguf library.", "Run: pip install 'pooled-nb[gguf]'"
        )


def find_file(path: Path, revision: str | None, repo: str) -> Found:
    """Read what lies in a file on this device.

    Parameters
    ----------
    revision
        The state that is wanted, where a room said one.
    repo
        What a room calls it.

    Raises
    ------
    ModelNotFound
        It is damaged, or in another state.
    ModelNotSupported
        It is a model that is not read; says why.
    """
    folder, layout = read_file(path)
    files = {path.name: _fact(path, layout)}
    state = folder_revision(files, "")
    if revision is not None and revision != state:
        raise ModelNotFound(
            f"{path.name} holds another state of the model than the room's.",
            "Copy the host's file, or let this device be a guest.",
        )
    return Found(
        repo=repo,
        revision=state,
        folder=folder,
        home=path,
        label=path.stem,
        files=files,
        layouts={path.name: layout},
        local=True,
    )


def _fact(path: Path, layout: Layout) -> FileFact:
    return FileFact(size=layout.size, sample=weights_sample(path) or None, header=layout.header)


def read_file(path: Path, *, tokenizer: bool = True) -> tuple[Path, Layout]:
    """A folder with a file's small files, and where its tensors lie.

    Raises
    ------
    ModelNotFound, ModelNotSupported
    """
    need_library(path.name)
    header, size = header_of(path)
    try:
        with path.open("rb") as stream:
            head = stream.read(header.end)
    except OSError as error:
        raise unread(path.name, error) from error
    return open_header(header, head, size, path.name, tokenizer=tokenizer)


def open_header(header: Header, head: bytes, size: int, name: str, *, tokenizer: bool) -> tuple[Path, Layout]:
    """See `read_file`; of a header that was read already.

    Raises
    ------
    ModelNotFound, ModelNotSupported
    """
    layout = layout_of(header, size, name)
    return small_folder(header, head, name, tokenizer=tokenizer), layout


def load_file(path: Path, spec: LoadSpec) -> tuple[Path, TensorMap]:
    """The same for a load: a folder with small files, and where each tensor lies.

    Raises
    ------
    ModelNotFound
        It is not the room's model.
    ModelNotSupported
        It is a model that is not read; says why.
    """
    try:
        seen = look(path)  # before the header is read: a file that changes since is refused
    except OSError as error:
        raise unread(path.name, error) from error
    folder, layout = read_file(path, tokenizer=spec.ends)
    refuse_config(folder, path.name, spec)
    return folder, tensor_map({path.name: (layout, whole(path))}, seen={path: seen})


def refuse_config(folder: Path, name: str, spec: LoadSpec) -> None:
    """Refuse a config that is not the room's.

    Raises
    ------
    ModelNotFound
    """
    if spec.config_sha256 and file_sha256(folder / "config.json") != spec.config_sha256:
        raise ModelNotFound(
            f"This device reads another config out of {name} than the room's host.",
            "Use the same version of pooled-nb on both, and the same file.",
        )


def file_difference(path: Path, spec: LoadSpec) -> str:
    """Say in words how a file differs from the room's; empty when it does not."""
    if not path.is_file():
        return "it is gone"
    fact = spec.files.get(path.name)
    if spec.files and fact is None:
        return "it is none of its files"
    if fact is not None and path.stat().st_size != fact.size:
        return "it has another size"
    if fact is not None and fact.sample:
        return "" if weights_sample(path) == fact.sample else "it holds other weights"
    if fact is not None and fact.sha256:
        return "" if known_sha256(path) == fact.sha256 else "it has another hash"
    header, size = header_of(path)
    own = {path.name: _fact(path, layout_of(header, size, path.name))}
    return "" if folder_revision(own, "") == spec.revision else "it is in another state"


def only_file(folder: Path) -> Path | None:
    """The GGUF file of a folder; None where it holds none.

    Raises
    ------
    ModelNotSupported
        It holds several: which one is meant?
    """
    found = sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_file())
    if len(found) > 1:
        raise ModelNotSupported(
            f"The folder {folder.name} holds {len(found)} GGUF files: {listed(p.name for p in found)}.",
            f"Name one of them, like {found[0]}.",
        )
    return found[0] if found else None


def named_file(name: str, differs_by: Callable[[Path], str] = lambda path: "") -> Path | None:
    """Find the file that a room names among the places of ``POOLED_MODELS``; None: no such file is there.

    Each entry of the list is the file, the folder around it, or the one around a folder of its name.

    Parameters
    ----------
    name
        A plain name, which comes from a room.
    differs_by
        Says in words how a file of that name differs from the room's; empty when it does not.

    Raises
    ------
    ModelNotFound
        What is there differs.
    """
    differs = ""
    for entry in os.environ.get("POOLED_MODELS", "").split(os.pathsep):
        base = Path(entry).expanduser() if entry.strip() else None
        if base is None:
            continue
        for path in (base, base / name, base / name.removesuffix(SUFFIX) / name):
            if path.name == name and path.is_file():
                differs = differs_by(path)
                if not differs:
                    return path.absolute()  # a link keeps its name, by which it is told
    if differs:
        raise ModelNotFound(
            f"The file {name} on this device is not the room's: {differs}.", "Copy the host's file."
        )
    return None
