"""The models that this device keeps, whoever keeps them: list, delete, prune, fetch ahead. Without torch."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from filelock import FileLock, Timeout
from msgspec import Struct

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.kept import cache_folder
from pooled_nb.shard.ranges import Ranges

if TYPE_CHECKING:
    from pooled_nb.shard.sources import Located

Where = Literal["range cache", "hub cache", "made here"]
"""``range cache``: what rooms fetched. ``hub cache``: that of huggingface_hub, which other programs use, too.
``made here``: turned once from another form into safetensors."""
BRIEF = 12
"""Characters of a revision that are shown."""
_NAMED = 5


class KeptModel(Struct, frozen=True, kw_only=True):
    """A model at one revision, as far as it is here.

    Attributes
    ----------
    repo, revision
        As a room or the hub names them.
    label
        A shorter name for people; may be empty.
    bytes
        On the disk.
    total
        Bytes of all its weights, where that is known.
    whole
        Whether all its weights are here.
    used
        When it was used last, in seconds since the epoch; 0: not known.
    """

    repo: str
    revision: str
    label: str = ""
    bytes: int
    total: int | None = None
    whole: bool
    used: float = 0.0
    where: Where

    @property
    def brief(self) -> str:
        """Its revision as it is shown: a commit's first letters."""
        return self.revision if len(self.revision) < 40 else self.revision[:BRIEF]


def kept_models() -> list[KeptModel]:
    """What is here, by name; models in the hub's own cache, too, as far as they have safetensors files."""
    found = [*_in_ranges(), *_made_here(), *_in_hub()]
    return sorted(found, key=lambda kept: (kept.repo.lower(), kept.where, kept.revision))


def delete_model(model: str, revision: str | None = None) -> int:
    """Remove a model that this package keeps: all its revisions, unless one is given.

    Parameters
    ----------
    model
        Its repo, or its label.
    revision
        Whole, or how it begins.

    Returns
    -------
    int
        Bytes that became free.

    Raises
    ------
    ModelNotFound
        It is not here, it is in use, it lies in the hub's own cache, or the disk says no.
    """
    found = find_kept(model, revision)
    freed = 0
    for kept in found:
        freed += _unmade(kept) if kept.where == "made here" else Ranges().delete(kept.repo, kept.revision)
    left = {(kept.repo, kept.revision, kept.where) for kept in kept_models()}
    if any((kept.repo, kept.revision, kept.where) in left for kept in found):
        raise ModelNotFound(
            f"{found[0].repo} is loaded or fetched by a program of this machine now.",
            "Leave the room that uses it, then delete it.",
        )
    return freed


def find_kept(model: str, revision: str | None = None) -> list[KeptModel]:
    """What `delete_model` would remove.

    Raises
    ------
    ModelNotFound
        Nothing: it is not here, or lies in the hub's own cache; or it is a label that several models have.
    """
    named = [
        kept
        for kept in kept_models()
        if model.lower() in (kept.repo.lower(), kept.label.lower())
        and (revision is None or kept.revision.startswith(revision))
    ]
    ours = [kept for kept in named if kept.where != "hub cache"]
    ours = [kept for kept in ours if kept.repo.lower() == model.lower()] or ours
    if len(repos := sorted({kept.repo for kept in ours})) > 1:  # a label that says less than a name
        more = f" and {len(repos) - _NAMED} more" if len(repos) > _NAMED else ""
        raise ModelNotFound(
            f"{model[:100]} may be {', '.join(repos[:_NAMED])}{more}.", "Write its whole name."
        )
    if ours:
        return ours
    if named:
        raise ModelNotFound(
            f"{named[0].repo} lies in the hub's own cache, which other programs use, too.",
            f"Remove it there with: hf cache rm model/{named[0].repo}",
        )
    at = f" at revision {revision[:40]}" if revision else ""
    raise ModelNotFound(
        f"No model {model[:100]}{at} is kept on this device.", "pooled-nb models lists those that are."
    )


def prune_models(most: int) -> int:
    """Remove models of the range cache, the least recently used first, until it keeps at most so many bytes.

    Returns
    -------
    int
        Bytes that became free.

    Raises
    ------
    ModelNotFound
        The cache cannot be written.
    """
    return Ranges().prune(most)


def pull_model(
    model: str,
    *,
    revision: str | None = None,
    lo: int = 0,
    hi: int | None = None,
    ends: bool = True,
    progress: Callable[[int, str], None],
    stop: Callable[[], None] = lambda: None,
) -> Located:
    """Fetch layers ``[lo, hi)`` of a model ahead; see `sources.pull`. What came is kept, however it ends."""
    from pooled_nb.shard.sources import pull  # 1 s: the hub's client

    return pull(model, revision=revision, lo=lo, hi=hi, ends=ends, progress=progress, stop=stop)


def _in_ranges() -> Iterator[KeptModel]:
    for kept in Ranges().models():
        yield KeptModel(
            repo=kept.repo,
            revision=kept.revision,
            label=kept.label,
            bytes=kept.bytes,
            total=kept.total,
            whole=kept.whole,
            used=kept.used,
            where="range cache",
        )


def _made_here() -> Iterator[KeptModel]:
    from pooled_nb.shard import wheel

    for folder in _folders(cache_folder() / "models"):
        label, _, revision = folder.name.partition("--")
        if not (revision and (folder / "config.json").is_file()):
            continue
        size, used = _measured(folder)
        repo = wheel.REPO if revision == wheel.REVISION else label
        yield KeptModel(
            repo=repo, revision=revision, label=label, bytes=size, whole=True, used=used, where="made here"
        )


def _unmade(kept: KeptModel) -> int:
    folder = cache_folder() / "models" / f"{kept.label}--{kept.revision}"
    gone = folder.with_name(f".gone-{secrets.token_hex(6)}")
    try:
        with FileLock(f"{folder}.lock", timeout=0):  # whoever makes it holds that
            folder.replace(gone)
    except (OSError, Timeout):
        return 0
    shutil.rmtree(gone, ignore_errors=True)
    return kept.bytes


def _in_hub() -> Iterator[KeptModel]:
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    try:
        cache = scan_cache_dir(constants.HF_HUB_CACHE)
    except (CacheNotFound, ValueError, OSError):
        return
    for repo in cache.repos:
        for revision in repo.revisions if repo.repo_type == "model" else ():
            names = {file.file_name: file for file in revision.files}
            if not any(name.endswith(".safetensors") for name in names):
                continue
            yield KeptModel(
                repo=repo.repo_id,
                revision=revision.commit_hash,
                bytes=revision.size_on_disk,
                whole=_is_whole(Path(revision.snapshot_path), names),
                used=float(repo.last_accessed),
                where="hub cache",
            )


def _is_whole(folder: Path, names: Iterable[str]) -> bool:
    """Whether a snapshot has the weights files that its index names, or the only one there is."""
    from pooled_nb.shard.headers import INDEX, SINGLE, read_index

    if INDEX not in names:
        return SINGLE in names
    with contextlib.suppress(OSError, ModelNotFound):  # an index that cannot be read makes no model whole
        return set(read_index((folder / INDEX).read_bytes()).values()) <= set(names)
    return False


def _folders(place: Path) -> list[Path]:
    try:
        return [each for each in place.iterdir() if not each.name.startswith(".") and each.is_dir()]
    except OSError:
        return []


def _measured(folder: Path) -> tuple[int, float]:
    """Bytes of a folder's files, and when one of them was read or written last."""
    size, used = 0, 0.0
    with contextlib.suppress(OSError):
        for file in folder.iterdir():
            facts = file.stat()
            size, used = size + facts.st_size, max(used, facts.st_atime, facts.st_mtime)
    return size, used
