"""Models of the hub, through huggingface_hub: its cache, its tokens, its resuming.

Only the files a device needs are fetched, each of them whole: the small ones, then the safetensors files that
hold its range. How large a file is gets asked, and bounded, before its first byte comes.
"""

from __future__ import annotations

import inspect
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import huggingface_hub
from huggingface_hub import (
    constants,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    try_to_load_from_cache,
)
from huggingface_hub import errors as hub_errors
from huggingface_hub.utils.tqdm import disable_progress_bars, tqdm

from pooled_nb.errors import ModelNotFound, ModelNotSupported, ModelTooBig
from pooled_nb.shard.door import FileFact, LoadSpec, Progress
from pooled_nb.shard.found import SMALL, Found, is_weights, needed_files, pickled
from pooled_nb.shard.headers import INDEX, SINGLE
from pooled_nb.shard.prints import known_sha256, weights_sample

_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
_ASK_S = 8.0
"""Seconds the hub has for saying what a model is; a dead resolver alone may take longer."""

_MAX_SMALL = 128 << 20
"""Bytes of a small file; the largest tokenizers known have 35 MB."""
_COMMIT = re.compile(r"[0-9a-f]{40}")

T = TypeVar("T")


class HubUnreachable(Exception):
    """The hub does not answer, or must not be asked; ``why`` in a few words."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def find_hub(repo: str, revision: str | None, progress: Progress) -> Found:
    """Find a model by hub id; where the hub cannot be reached, in its cache.

    Raises
    ------
    HubUnreachable
        And the cache does not have it.
    ModelNotFound, ModelNotSupported
        The hub says so.
    """
    _check_revision(revision)
    disable_progress_bars()
    progress(2, f"asking the hub for {repo}")
    try:
        info = _said(repo, lambda: _within(_ASK_S, lambda: _info(repo, revision)))
    except HubUnreachable:
        if (cached := _cached(repo, revision)) is not None:
            return cached
        raise
    names = [sibling.rfilename for sibling in info.siblings or []]
    _check_names(repo, names)
    files = {
        sibling.rfilename: FileFact(
            size=sibling.size or 0, sha256=sibling.lfs.sha256 if sibling.lfs else None
        )
        for sibling in info.siblings or []
        if sibling.rfilename in SMALL or is_weights(sibling.rfilename)
    }
    commit = str(info.sha)
    small = [name for name in SMALL if name in files]
    folder = Path()
    for i, name in enumerate(small):
        progress(5 + 90 * i // len(small), f"fetching {name}")
        folder = _download(repo, name, commit, files[name]).parent
    return Found(repo=repo, revision=commit, folder=folder, label=repo.rsplit("/", 1)[-1], files=files)


def fetch_hub(spec: LoadSpec, progress: Progress) -> Path:
    """Fetch the files of a range; those that the cache has cost no request.

    Raises
    ------
    HubUnreachable, ModelNotFound
    ModelTooBig
        More would be fetched than ``max_download_gb`` allows; nothing of the weights is.
    """
    _check_revision(spec.revision)
    disable_progress_bars()
    progress(1, f"fetching {spec.repo}")
    folder = _of_spec(spec, "config.json").parent
    for name in ("generation_config.json", *(SMALL if spec.ends else ())):
        if name in spec.files:
            _of_spec(spec, name)
    wanted = _weights(spec)
    sizes = [max(1, size) for size in _allowed(spec, wanted)]
    for i, name in enumerate(wanted):
        words = f"fetching {name} ({i + 1} of {len(wanted)})"
        base, share = sum(sizes[:i]) / sum(sizes), sizes[i] / sum(sizes)

        def part(done: float, words: str = words, base: float = base, share: float = share) -> None:
            progress(2 + int(97 * (base + share * min(1.0, done))), words)

        part(0.0)
        _of_spec(spec, name, part)
    return folder


def _allowed(spec: LoadSpec, names: list[str]) -> list[int]:
    """Return the bytes each file still has to bring (0: it is here), if all of them may be fetched."""
    sizes = [
        0
        if _here(spec.repo, name, spec.revision) is not None
        else _size(spec.repo, name, spec.revision, spec.files.get(name))
        for name in names
    ]
    need = sum(sizes) / 1e9
    if spec.max_download_gb is not None and not need <= spec.max_download_gb:
        raise ModelTooBig(
            f"Layers {spec.lo + 1} to {spec.hi} of {spec.repo} need a download of {need:.3g} GB, and "
            f"this device allows {spec.max_download_gb:.3g} GB.",
            "Allow a larger download, or copy the model's folder to this device.",
        )
    return sizes


def _weights(spec: LoadSpec) -> list[str]:
    """Return the files of the range: by the index, else the single file, else all there are."""
    if INDEX in spec.files or (SINGLE not in spec.files and _exists(spec, INDEX)):
        index = json.loads(_of_spec(spec, INDEX).read_bytes())
        weight_map = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(weight_map, dict):
            raise ModelNotFound(f"The index of {spec.repo} is damaged.", "Choose another model.")
        named = {str(k): str(v) for k, v in weight_map.items()}
        return needed_files(named, spec.lo, spec.hi, spec.ends, spec.draft_layers)
    if SINGLE in spec.files or not spec.files:
        return [SINGLE]
    return sorted(name for name in spec.files if is_weights(name))


def _exists(spec: LoadSpec, name: str) -> bool:
    try:
        _of_spec(spec, name)
    except ModelNotFound:
        return False
    return True


def _check_revision(revision: str | None) -> None:
    """A revision becomes part of a path in the cache, and it may come from a room."""
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise ModelNotFound(
            "The model's revision is none that a hub has.", "Give a commit, a tag or a branch."
        )


def _check_names(repo: str, names: list[str]) -> None:
    if "config.json" not in names:
        raise ModelNotSupported(f"{repo} has no config.json.", "Choose a model that transformers can load.")
    if not any(is_weights(name) for name in names):
        other = pickled(names)
        raise ModelNotSupported(
            f"{repo} has no safetensors file" + (f", only {other}." if other else "."),
            "Choose a model that is published as safetensors: other formats are never read.",
        )


def _info(repo: str, revision: str | None) -> Any:
    if constants.HF_HUB_OFFLINE:
        raise HubUnreachable("HF_HUB_OFFLINE is set")
    return huggingface_hub.HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=_ASK_S)


def _cached(repo: str, revision: str | None) -> Found | None:
    """Return the model as the hub's cache has it: its small files, and all weights or some."""
    config = _said(repo, lambda: try_to_load_from_cache(repo, "config.json", revision=revision))
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    files = {
        path.name: _cached_fact(path)
        for path in sorted(folder.iterdir())
        if path.is_file() and (path.name in SMALL or is_weights(path.name))
    }
    return Found(
        repo=repo,
        revision=folder.name,
        folder=folder,
        label=repo.rsplit("/", 1)[-1],
        files=files,
        note="The hub cannot be reached: this device's cached copy is used.",
    )


def _cached_fact(path: Path) -> FileFact:
    size = path.stat().st_size
    if not is_weights(path.name):
        return FileFact(size=size)
    if path.is_symlink():  # to a blob, which is named by its hash: nothing is read
        return FileFact(size=size, sha256=known_sha256(path))
    return FileFact(size=size, sample=weights_sample(path) or None)


def _of_spec(spec: LoadSpec, name: str, part: Callable[[float], None] | None = None) -> Path:
    return _download(spec.repo, name, spec.revision, spec.files.get(name), part)


def _here(repo: str, name: str, revision: str) -> Path | None:
    """Return a file of a commit that the cache has; a branch may have moved on."""
    if not _COMMIT.fullmatch(revision):
        return None
    path = _said(repo, lambda: try_to_load_from_cache(repo, name, revision=revision))
    return Path(path) if isinstance(path, str) else None


def _size(repo: str, name: str, revision: str, fact: FileFact | None) -> int:
    """Ask how large a file is, and refuse what is not the file that was meant.

    Raises
    ------
    ModelNotFound
        It has another size than the room says, none at all, or one that no such file has.
    """
    url = _said(repo, lambda: hf_hub_url(repo, name, revision=revision))
    size = _said(repo, lambda: get_hf_file_metadata(url, timeout=_ASK_S).size)
    if size is None or (name in SMALL and size > _MAX_SMALL):
        how = "does not say how large it is" if size is None else f"would bring {size / 1e9:.2g} GB"
        raise ModelNotFound(f"{name} of {repo} is not fetched: the hub {how}.", "Choose another model.")
    if fact is not None and fact.size != size:
        raise ModelNotFound(
            f"{name} of {repo} has {size} bytes on the hub, and {fact.size} in the room.",
            "Start the room again, so that it uses the hub's files.",
        )
    return size


def _download(
    repo: str,
    name: str,
    revision: str,
    fact: FileFact | None = None,
    part: Callable[[float], None] | None = None,
) -> Path:
    """Return a file of the cache, fetched first if need be: never more bytes than were announced."""
    if (here := _here(repo, name, revision)) is not None:
        return here
    size = _size(repo, name, revision, fact)
    more: dict[str, Any] = {}
    if "tqdm_class" in inspect.signature(hf_hub_download).parameters:
        more["tqdm_class"] = _bar(part or (lambda done: None), size)  # older versions tell nothing
    return Path(_said(repo, lambda: hf_hub_download(repo, name, revision=revision, **more)))


def _bar(part: Callable[[float], None], most: int) -> Any:
    """Make a bar that draws nothing, tells the share done, and ends what brings more than announced."""

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
            part(self._done / max(1, most))
            return None

    return Bar


def _said(repo: str, ask: Callable[[], T]) -> T:
    """Ask the hub, and put its answer into our words."""
    try:
        return ask()
    except hub_errors.HFValidationError as error:
        raise ModelNotFound(
            f"{repo[:80]!r} is no hub id.", "Write it like HuggingFaceTB/SmolLM2-135M-Instruct."
        ) from error
    except hub_errors.GatedRepoError as error:
        raise ModelNotFound(
            f"{repo} is gated: its owner lets only people read it who asked.",
            f"Accept its terms at huggingface.co/{repo}, then log in with: hf auth login",
        ) from error
    except hub_errors.RevisionNotFoundError as error:
        raise ModelNotFound(
            f"{repo} has no such revision.", "Leave the revision out, or check it."
        ) from error
    except hub_errors.RepositoryNotFoundError as error:
        raise ModelNotFound(
            f"The hub has no model {repo}, or it is private.",
            "Check the name; for a private one: hf auth login",
        ) from error
    except hub_errors.LocalEntryNotFoundError as error:
        raise HubUnreachable("the download cannot begin") from error
    except hub_errors.EntryNotFoundError as error:
        raise ModelNotFound(f"{repo} lacks a file that its list names.", "Choose another model.") from error
    except hub_errors.OfflineModeIsEnabled as error:
        raise HubUnreachable("HF_HUB_OFFLINE is set") from error
    except hub_errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status in (401, 403):
            raise ModelNotFound(
                f"The hub does not let you read {repo}.", "Log in with: hf auth login"
            ) from error
        raise HubUnreachable(f"it answered {status}") from error
    except Exception as error:
        # Which HTTP library is below differs between versions of huggingface_hub: tell errors by their home.
        homes = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
        if isinstance(error, OSError) or homes & {"httpx", "httpx2", "requests"}:
            raise HubUnreachable(type(error).__name__) from error
        raise


def _within(seconds: float, ask: Callable[[], T]) -> T:
    """Give a call this long: name resolution blocks for as long as it likes, and heeds no time-out."""
    box: list[T | Exception] = []

    def run() -> None:
        try:
            box.append(ask())
        except Exception as error:
            box.append(error)

    thread = threading.Thread(target=run, name="pooled-hub", daemon=True)
    thread.start()
    thread.join(seconds)
    if not box:
        raise HubUnreachable(f"no answer within {seconds:g} s")
    if isinstance(box[0], Exception):
        raise box[0]
    return box[0]
