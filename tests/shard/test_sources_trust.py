"""What came over one room is nothing to another load, unless its own room vouches for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
from msgspec import structs

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard import LoadSpec, Missing, Sent
from pooled_nb.shard.ranges import Ranges
from pooled_nb.shard.sources import fetch, lacks, pull
from tests.shard import fakehub
from tests.shard.hubbed import HUB_ID, alone, look, quiet, spec_of, with_hub, write_layers
from tests.shard.test_sources_ranges import numbers, wanted

LAYERS = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "layers"
    return write_layers(folder, layers=LAYERS, size=200_000, ends=100_000)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: Path) -> Iterator[fakehub.Hub]:
    alone(monkeypatch, tmp_path)
    with with_hub(monkeypatch) as hub:
        hub.repos[HUB_ID] = model
        yield hub


def sent_by_a_room(spec: LoadSpec, model: Path, *, wrong: bool) -> dict[str, list[Sent]]:
    """All blocks that a load lacks, as a device sent them: what each is, by file."""
    found: dict[str, list[Sent]] = {}
    for piece in lacks(spec, progress=quiet).pieces:
        data = (model / piece.name).read_bytes()[piece.lo : piece.hi]
        data = data[:-1] + bytes([data[-1] ^ wrong])
        kept = Ranges().model(spec.repo, spec.revision)
        incoming = kept.file(piece.name, piece.size).begin(piece.lo, piece.hi, room=True)
        assert incoming is not None
        incoming.write(data)
        sha256 = incoming.finish(hashlib.sha256(data).hexdigest())  # its host vouched for it
        found.setdefault(piece.name, []).append((piece.lo, piece.hi, sha256))
    assert found
    return found


def test_poison_of_one_room_is_not_loaded_in_another(
    hub: fakehub.Hub, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 6: a host vouches for wrong bytes of a public model: fetched again from the hub."""
    spec = spec_of(look(HUB_ID), hi=LAYERS)
    lacking = lacks(spec, progress=quiet)
    poison = sent_by_a_room(spec, model, wrong=True)
    assert lacks(spec, progress=quiet) == lacking, "it is as if nothing had come"
    with monkeypatch.context() as patch:
        patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(ModelNotFound, match="HF_HUB_OFFLINE"):
            fetch(spec, progress=quiet)
    assert numbers(fetch(spec, progress=quiet).tensors) == wanted(model, spec)
    there = structs.replace(spec, sent=poison)  # in the room whose host says that it is right
    assert lacks(there, progress=quiet) == Missing()


def test_nor_when_this_device_hosts_or_pulls(hub: fakehub.Hub, model: Path) -> None:
    """DESIGN section 6: a host, and who fetches ahead, read the hub's bytes."""
    spec = spec_of(look(HUB_ID), hi=LAYERS)
    sent_by_a_room(spec, model, wrong=True)
    assert numbers(pull(HUB_ID, progress=quiet).tensors) == wanted(model, spec)


def test_where_the_room_vouches_nothing_is_fetched_twice(
    hub: fakehub.Hub, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 6: exactly what it says: these bytes, at this place, with this hash."""
    spec = spec_of(look(HUB_ID), hi=LAYERS)
    sent = sent_by_a_room(spec, model, wrong=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    found = fetch(structs.replace(spec, sent=sent), progress=quiet)
    assert numbers(found.tensors) == wanted(model, spec)
    name = next(name for name in sent if len(sent[name]) > 1)
    (lo, hi, one), (lo2, hi2, other), *rest = sent[name]
    for lie in ([(lo, hi, other), (lo2, hi2, one)], [(lo, hi2, one)], [(lo, hi, "0" * 64)]):
        odd = structs.replace(spec, sent={**sent, name: [*lie, *rest]})
        assert {(p.lo, p.hi) for p in lacks(odd, progress=quiet).pieces} >= {(lo, hi)}


def test_small_files_of_another_room_are_not_read(hub: fakehub.Hub, model: Path) -> None:
    """DESIGN section 6: neither in place of the room's own, nor because a library finds them beside those."""
    spec = spec_of(look(str(model)), hi=LAYERS)
    kept = Ranges().model(spec.repo, spec.revision)
    config = (model / "config.json").read_bytes()
    kept.put_small("config.json", config.replace(b"llama", b"qwens"))
    kept.put_small("chat_template.jinja", b"{{ 'I obey the other room' }}")
    assert "config.json" in {piece.name for piece in lacks(spec, progress=quiet).pieces}
    for piece in lacks(spec, progress=quiet).pieces:
        kept.put_small(piece.name, (model / piece.name).read_bytes())
    headers = lacks(spec, progress=quiet)
    assert {piece.lo for piece in headers.pieces} == {0}
    sent = sent_by_a_room(spec, model, wrong=False)
    spec = structs.replace(spec, sent=sent)
    for name, more in sent_by_a_room(spec, model, wrong=False).items():
        sent[name] += more
    found = fetch(spec, progress=quiet)
    assert (found.folder / "config.json").read_bytes() == config
    names = {path.name for path in found.folder.iterdir()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors.index.json"}
    # A room that names no hash for a small file: the hash of the config is known from the deal itself.
    bare = structs.replace(
        spec, files={name: structs.replace(fact, sha256=None) for name, fact in spec.files.items()}
    )
    missing = {piece.name for piece in lacks(bare, progress=quiet).pieces}
    assert missing == names - {"config.json"}
