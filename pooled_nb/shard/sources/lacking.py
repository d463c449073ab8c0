"""What a load would have to fetch: told from what is here, without the network."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from pooled_nb.shard.door import LoadSpec, Progress
from pooled_nb.shard.headers import INDEX
from pooled_nb.shard.pieces import Missing, Piece
from pooled_nb.shard.sources.fetching import own_folder
from pooled_nb.shard.sources.here import Here
from pooled_nb.shard.sources.needs import chooser, small_files, weights_files
from pooled_nb.shard.stopping import Stop, never


def lacks(spec: LoadSpec, *, progress: Progress, stop: Stop = never) -> Missing:
    """Say which pieces a load needs and this device lacks; see `Shard.missing`.

    Only what the room's list names can be asked for: another file's size is not known here.

    Raises
    ------
    ModelNotFound
        What is here is not the room's model.
    """
    progress(1, f"looking for {spec.repo} on this device")
    if own_folder(spec) is not None:
        return Missing()
    stop()
    here = Here(spec.repo, spec.revision, spec.files, spec.sent, spec.config_sha256)
    pieces = [
        Piece(name=name, lo=0, hi=size, size=size)
        for name in small_files(spec)
        if name in spec.files and (size := spec.files[name].size) > 0 and not here.has_small(name)
    ]
    where = here.index()
    if where is None and INDEX in spec.files:
        known = [name for name in weights_files(spec, None) if name in spec.files]
        rough = sum(_rough(here, spec, name, None) for name in known)
        return Missing(pieces=pieces, bytes=_sum(pieces) + rough, again=True)
    names = [name for name in weights_files(spec, where) if here.file(name) is not None or here.whole(name)]
    layouts = {}
    for name in names:
        stop()
        if (layout := here.layout(name)) is not None:
            layouts[name] = layout
    headers = [
        Piece(name=name, lo=0, hi=fact.header, size=fact.size)
        for name in names
        if name not in layouts and (fact := spec.files.get(name)) and 0 < fact.header < fact.size
    ]
    unknown = sum(_rough(here, spec, name, where) for name in names if name not in layouts)
    blocks = []
    if not headers or where is not None:
        chosen = chooser(spec, where, layouts.values())
        for name, layout in layouts.items():
            stop()
            for lo, hi in here.missing(name, layout, chosen):
                blocks.append(Piece(name=name, lo=lo, hi=hi, size=layout.size))
    found = [*pieces, *headers, *blocks]
    return Missing(pieces=found, bytes=_sum(found) + unknown, again=bool(headers))


def _sum(pieces: list[Piece]) -> int:
    return sum(piece.hi - piece.lo for piece in pieces)


def _rough(here: Here, spec: LoadSpec, name: str, where: Mapping[str, str] | None) -> int:
    """About how many bytes a load needs of a file without its header: by its tensors, else by layers."""
    fact = spec.files.get(name)
    size = fact.size if fact is not None else 0
    if where is not None:
        chosen = chooser(spec, where, ())
        own = [tensor for tensor, file in where.items() if file == name]
        return math.ceil(size * sum(map(chosen, own)) / max(1, len(own)))
    config = here.small("config.json")
    layers = _layers(_json(config) if config else {})
    return math.ceil(size * min(1.0, (spec.hi - spec.lo) / layers)) if layers else size


def _json(data: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(data, type=dict[str, object])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}


def _layers(config: dict[str, object]) -> int:
    inner = config.get("text_config")
    for said in (config, inner if isinstance(inner, dict) else {}):
        for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
            if isinstance(count := said.get(key), int) and count > 0:
                return count
    return 0
