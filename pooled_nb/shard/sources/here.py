"""What this device has of one model: in the hub's own cache, and in the range cache. No network."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.door import FileFact, LoadSpec
from pooled_nb.shard.folders import LOCAL, difference
from pooled_nb.shard.gguf.choosing import is_gguf
from pooled_nb.shard.gguf.files import file_of, open_header, refuse_config
from pooled_nb.shard.gguf.layout import header_of, layout_of
from pooled_nb.shard.gguf.reader import MAX_HEADER, Header, read_header
from pooled_nb.shard.headers import INDEX, PREFIX, header_end, read_index, read_layout, safetensors_layout
from pooled_nb.shard.layout import Layout
from pooled_nb.shard.pieces import Sent
from pooled_nb.shard.ranges import Counts, RangeFile, Ranges, hub_file
from pooled_nb.shard.sources.needs import small_files, wanted
from pooled_nb.shard.tensormap import Locate, TensorMap, tensor_map, whole


class Located:
    """Where a load finds its model: small files in ``folder``, tensors by ``tensors``.

    What is in the range cache is not removed as long as this is ``held``; `close` lets it go.
    """

    def __init__(self, folder: Path, tensors: TensorMap, held: contextlib.ExitStack | None = None) -> None:
        self.folder, self.tensors = folder, tensors
        self._held = held or contextlib.ExitStack()

    def close(self) -> None:
        """Let go of what it keeps in the cache."""
        self._held.close()

    def __del__(self) -> None:
        self._held.close()


class Here:
    """See the module.

    Parameters
    ----------
    repo, revision, files
        The model, and what the room or the hub's list says of its files.
    sent
        What the room vouches for of what devices sent, by file: what came over a room counts in no other
        one without its host's word, and never for who hosts or pulls.

    Raises
    ------
    ModelNotFound
        No model has such a name.
    """

    def __init__(
        self,
        repo: str,
        revision: str,
        files: Mapping[str, FileFact],
        sent: Mapping[str, Iterable[Sent]] | None = None,
        config_sha256: str = "",
    ) -> None:
        self.repo, self.revision, self.files = repo, revision, files
        self._sent, self._config = sent or {}, config_sha256
        self.kept = Ranges().model(repo, revision)
        self._open: dict[str, RangeFile] = {}
        self._headers: dict[str, tuple[Header, bytes, int]] = {}

    def small(self, name: str) -> bytes | None:
        """A small file. What a room brought counts only with the hash that this load's room names."""
        if (found := self.whole(name)) is not None:
            return found.read_bytes()
        fact = self.files.get(name)
        said = [fact.sha256 if fact else None, *(sha256 for _, _, sha256 in self._sent.get(name, ()))]
        if name == "config.json":
            said.append(self._config)
        return next((data for sha256 in said if sha256 and (data := self.kept.small(name, sha256))), None)

    def has_small(self, name: str) -> bool:
        """Whether a small file is here."""
        return self.whole(name) is not None or self.small(name) is not None

    def whole(self, name: str) -> Path | None:
        """A file that the hub's own cache has. What a room names after a folder is none of the hub's."""
        return None if self.repo.startswith(LOCAL) else hub_file(self.repo, self.revision, name)

    def folder(self, spec: LoadSpec) -> Path:
        """One folder with all small files of a load, which are here.

        Raises
        ------
        ModelNotFound, ModelNotSupported
            Those of a GGUF file cannot be made.
        """
        if name := file_of(spec.files):
            return self.made(name, tokenizer=spec.ends)
        names = [name for name in small_files(spec) if self.has_small(name)]
        folders = {path.parent if (path := self.whole(name)) else None for name in names}
        folder = folders.pop() if len(folders) == 1 else None
        if folder is not None:
            return folder
        return self.kept.together({name: data for name in names if (data := self.small(name)) is not None})

    def index(self) -> dict[str, str] | None:
        """Which file holds which tensor, where the model has an index and it is here."""
        data = self.small(INDEX)
        return None if data is None else read_index(data)

    def file(self, name: str) -> RangeFile | None:
        """What the range cache has of a weights file; None where its size is not known."""
        if name not in self._open:
            fact = self.files.get(name)
            counts = Counts(sent=frozenset(self._sent.get(name, ())))
            found = self.kept.file(name, fact.size, counts) if fact else self.kept.known(name, counts)
            if found is None:
                return None
            self._open[name] = found
        return self._open[name]

    def keep_file(self, file: RangeFile) -> None:
        """Remember a file whose size the hub told."""
        self._open[file.name] = file

    def layout(self, name: str) -> Layout | None:
        """Of a weights file, where its header is here.

        Raises
        ------
        ModelNotFound
            The header is damaged.
        """
        if is_gguf(name):
            known = self._header(name)
            return None if known is None else layout_of(known[0], known[2], name)
        if (path := self.whole(name)) is not None:
            return read_layout(path)
        file = self.file(name)
        if file is None or file.size <= PREFIX or (start := file.read(0, PREFIX)) is None:
            return None
        head = file.read(0, header_end(start, file.size, name))
        return None if head is None else safetensors_layout(head, file.size, name)

    def _header(self, name: str) -> tuple[Header, bytes, int] | None:
        """What the header of a GGUF file says, its bytes, and the file's size; None where it is not here."""
        if name in self._headers:
            return self._headers[name]
        if (path := self.whole(name)) is not None:
            header, size = header_of(path)
            with path.open("rb") as stream:
                found = header, stream.read(header.end), size
        else:
            file = self.file(name)
            first = next((hi for lo, hi in file.held() if lo == 0), 0) if file is not None else 0
            head = file.read(0, min(first, MAX_HEADER)) if file is not None and first else None
            known = read_header(head, file.size, name) if file is not None and head else None
            if file is None or head is None or known is None:
                return None
            found = known, head[: known.end], file.size
        self._headers[name] = found
        return found

    def made(self, name: str, *, tokenizer: bool) -> Path:
        """A folder with the small files of a GGUF file, whose header is here.

        Raises
        ------
        ModelNotFound, ModelNotSupported
            They cannot be made.
        """
        known = self._header(name)
        if known is None:
            raise ModelNotFound(f"The header of {name} went away a moment ago.", "Start again.")
        return open_header(*known, name, tokenizer=tokenizer)[0]

    def missing(self, name: str, layout: Layout, chosen: Callable[[str], bool]) -> list[tuple[int, int]]:
        """Blocks ``[lo, hi)`` of a file that a load needs, and this device lacks."""
        if self.whole(name) is not None or (file := self.file(name)) is None:
            return []
        blocks = [(block.lo, block.hi) for block in wanted(layout, chosen) if block.lo < block.hi]
        return [(lo, hi) for lo, hi in blocks if file.find(lo, hi) is None]

    def tensors(
        self,
        layouts: Mapping[str, Layout],
        where: Mapping[str, str] | None,
        chosen: Callable[[str], bool],
    ) -> TensorMap:
        """The tensors of a load. Two files that hold the same one are refused."""
        return tensor_map(
            {name: (layout, self._locate(name, layout, chosen)) for name, layout in layouts.items()}, where
        )

    def _locate(self, name: str, layout: Layout, chosen: Callable[[str], bool]) -> Locate:
        if (path := self.whole(name)) is not None:
            return whole(path)
        file = self.file(name)
        needed = {(tensor.lo, tensor.hi) for tensor in layout.tensors if chosen(tensor.name)}

        def locate(lo: int, hi: int) -> tuple[Path, int] | None:
            if file is None or (lo, hi) not in needed:
                return None
            # A tensor without numbers lies nowhere, and is read from anywhere.
            return file.find(lo, hi) if hi > lo else file.find(0, PREFIX)

        return locate

    def check(self, folder: Path, spec: LoadSpec, weights: Iterable[str]) -> None:
        """Refuse what is not the room's model: another config gives other numbers without an error."""
        if name := file_of(spec.files):
            refuse_config(folder, name, spec)
            return
        names = [*small_files(spec), *(name for name in weights if self.whole(name) is not None)]
        facts = {name: spec.files[name] for name in names if name in spec.files}
        if words := difference(folder, facts, spec.config_sha256 or None):
            raise ModelNotFound(
                f"This device's copy of {spec.repo} is not the room's: {words}.",
                "Delete this device's copy of the model and start again.",
            )
