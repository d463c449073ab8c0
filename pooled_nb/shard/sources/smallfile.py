"""Small files of the hub, each whole, through huggingface_hub: into the cache that all programs share.

How large one is gets asked, and bounded, before its first byte comes.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub.utils.tqdm import disable_progress_bars, tqdm

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.door import FileFact
from pooled_nb.shard.ranges import hub_file
from pooled_nb.shard.sources.words import said
from pooled_nb.shard.stopping import Stop, never

ASK_S = 8.0
"""Seconds the hub has for saying what a file is; a dead resolver alone may take longer."""
MAX_SMALL = 128 << 20
"""Bytes of a small file; the largest tokenizers known have 35 MB."""


def download(
    repo: str, name: str, revision: str, fact: FileFact | None = None, *, stop: Stop = never
) -> Path:
    """Return a small file of the hub's cache, fetched first if need be: never more bytes than announced.

    Raises
    ------
    HubUnreachable, ModelNotFound
    """
    if (found := hub_file(repo, revision, name)) is not None:
        return found
    disable_progress_bars()
    size = _size(repo, name, revision, fact)
    more: dict[str, Any] = {}
    if "tqdm_class" in inspect.signature(hf_hub_download).parameters:
        more["tqdm_class"] = _bar(stop, size)  # older versions tell nothing
    return Path(said(repo, lambda: hf_hub_download(repo, name, revision=revision, **more)))


def _size(repo: str, name: str, revision: str, fact: FileFact | None) -> int:
    """Ask how large a file is, and refuse what is not the file that was meant.

    Raises
    ------
    ModelNotFound
        It has another size than the room says, none at all, or one that no such file has.
    """
    url = said(repo, lambda: hf_hub_url(repo, name, revision=revision))
    size = said(repo, lambda: get_hf_file_metadata(url, timeout=ASK_S).size)
    if size is None or size > MAX_SMALL:
        how = "does not say how large it is" if size is None else f"would bring {size / 1e9:.2g} GB"
        raise ModelNotFound(f"{name} of {repo} is not fetched: the hub {how}.", "Choose another model.")
    if fact is not None and fact.size != size:
        raise ModelNotFound(
            f"{name} of {repo} has {size} bytes on the hub, and {fact.size} in the room.",
            "Start the room again, so that it uses the hub's files.",
        )
    return size


def _bar(stop: Stop, most: int) -> Any:
    """Make a bar that draws nothing, hears whether to stop, and ends what brings more than announced."""

    class Bar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._done = float(kwargs.get("initial") or 0)
            super().__init__(*args, **(kwargs | {"disable": True}))  # type: ignore[no-untyped-call]  # tqdm has no types

        def update(self, n: float | None = 1) -> bool | None:
            self._done += n or 0
            if self._done > most:
                raise ModelNotFound(
                    "The hub sends more of a file than it announced.", "Try again later, or tell the hub."
                )
            stop()
            return None

    return Bar
