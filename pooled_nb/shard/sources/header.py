"""Headers of weights files, by range requests into the range cache."""

from __future__ import annotations

from collections.abc import Iterable

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.gguf.choosing import is_gguf
from pooled_nb.shard.gguf.layout import layout_of
from pooled_nb.shard.gguf.reader import read_header
from pooled_nb.shard.headers import PREFIX, header_end, safetensors_layout
from pooled_nb.shard.layout import Layout
from pooled_nb.shard.sources.crew import Crew
from pooled_nb.shard.sources.here import Here
from pooled_nb.shard.sources.http import Remote

FIRST = 64 << 10
"""Bytes asked for first: most headers are shorter."""


def bring_layouts(
    here: Here, remotes: dict[str, Remote], names: Iterable[str], crew: Crew
) -> dict[str, Layout]:
    """Fetch the headers of some files, a few at once.

    Parameters
    ----------
    remotes
        Files that were asked for are added.

    Raises
    ------
    HubUnreachable, ModelNotFound
    """
    found: dict[str, Layout] = {}
    names = list(names)
    for name in names:
        fact = here.files.get(name)
        remotes[name] = Remote(
            here.repo, here.revision, name, fact.size if fact else None, fact.sha256 if fact else None
        )

    def bring(name: str) -> None:
        found[name] = _bring(here, remotes[name], crew)

    crew.run([lambda name=name: bring(name) for name in names])  # type: ignore[misc]
    return found


def _bring(here: Here, remote: Remote, crew: Crew) -> Layout:
    name, head = remote.name, b""
    file = here.file(name)
    if file is None:  # nobody says how large it is: the hub does
        head = remote.read(0, FIRST, crew)
        file = here.kept.file(name, remote.size or 0)
        here.keep_file(file)
    if file.size <= PREFIX:
        raise ModelNotFound(f"{name} has only {file.size} bytes: it holds no weights.", "Choose another.")
    # Where a header ends is in its first bytes: who holds their lock reads it, for all kernels that want it.
    first = file.begin(0, PREFIX, wait=crew.check)
    try:
        if (layout := here.layout(name)) is not None:
            return layout
        head = head or remote.read(0, min(FIRST, file.size), crew)
        head, layout = _rest_of(head, file.size, remote, crew)
        end = len(head)
        incoming = file.begin(0, end, wait=crew.check)
        if incoming is not None:
            if incoming.at:
                incoming.begin_again()
            incoming.write(head)
            incoming.finish()
        return layout
    finally:
        if first is not None:
            first.drop()


def _rest_of(head: bytes, size: int, remote: Remote, crew: Crew) -> tuple[bytes, Layout]:
    """Read a header to its end, of which the beginning is here; return its bytes, and what it says."""
    name = remote.name
    if not is_gguf(name):
        end = header_end(head, size, name)
        if end > len(head):
            head += remote.read(len(head), end, crew)
        return head[:end], safetensors_layout(head[:end], size, name)
    while (header := read_header(head, size, name)) is None:  # how long it is, is said nowhere
        head += remote.read(len(head), min(size, 4 * len(head)), crew)
    if header.end > len(head):
        head += remote.read(len(head), header.end, crew)
    return head[: header.end], layout_of(header, size, name)
