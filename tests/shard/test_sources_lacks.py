"""What a load would have to fetch, told without the network (PROTOCOL section 6, `Shard.missing`)."""

from __future__ import annotations

import hashlib
import json
import shutil

import huggingface_hub.constants
import pytest

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard import FileFact, LoadSpec, Missing, wheel
from pooled_nb.shard import sources as sources_module
from pooled_nb.shard.ranges import Ranges
from pooled_nb.shard.sources import fetch, lacks
from tests.shard.hubbed import HUB_ID, alone, look, quiet, spec_of, with_hub, write_layers
from tests.shard.test_sources_ranges import FILES, numbers, wanted


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_layers(tmp_path_factory.mktemp("models") / "layers")


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    alone(monkeypatch, tmp_path)


def missing(spec: LoadSpec) -> Missing:
    return lacks(spec, progress=quiet)


def bring(spec: LoadSpec, model, found: Missing) -> None:
    """Put what lacks into the range cache, as the room does."""
    kept = Ranges().model(spec.repo, spec.revision)
    for piece in found.pieces:
        data = (model / piece.name).read_bytes()
        assert len(data) == piece.size
        if not piece.name.endswith(".safetensors"):
            assert (piece.lo, piece.hi) == (0, piece.size)
            kept.put_small(piece.name, data)
            continue
        incoming = kept.file(piece.name, piece.size).begin(piece.lo, piece.hi)
        assert incoming
        incoming.write(data[piece.lo : piece.hi])
        assert incoming.finish(hashlib.sha256(data[piece.lo : piece.hi]).hexdigest())


@pytest.mark.parametrize(("lo", "hi", "ends"), [(2, 9, False), (0, 12, True), (0, 1, True)])
def test_a_model_of_the_hosts_folder_comes_piece_by_piece(model, lo, hi, ends):
    """DESIGN section 6: a model that exists only in the host's folder reaches the workers over the room."""
    spec = spec_of(look(str(model)), lo=lo, hi=hi, ends=ends)
    with pytest.raises(ModelNotFound, match="only in the host's folder"):
        fetch(spec, progress=quiet)
    first = missing(spec)
    assert first.again
    assert {piece.name for piece in first.pieces} == {"config.json", "model.safetensors.index.json"} | (
        {"tokenizer.json"} if ends else set()
    )
    need = sum(len(data) for data in wanted(model, spec).values())
    assert first.bytes >= need
    bring(spec, model, first)
    second = missing(spec)
    assert second.again
    assert all(piece.lo == 0 for piece in second.pieces)
    assert need * 0.5 <= second.bytes <= need * 1.3 + (1 << 20)
    bring(spec, model, second)
    third = missing(spec)
    assert not third.again
    assert third.bytes == need == sum(piece.hi - piece.lo for piece in third.pieces)
    assert [(p.name, p.lo) for p in third.pieces] == sorted((p.name, p.lo) for p in third.pieces)
    bring(spec, model, Missing(pieces=third.pieces[1:]))
    assert missing(spec).pieces == third.pieces[:1]
    bring(spec, model, Missing(pieces=third.pieces[:1]))
    assert missing(spec) == Missing()
    located = fetch(spec, progress=quiet)
    assert numbers(located.tensors) == wanted(model, spec)
    assert json.loads((located.folder / "config.json").read_text())["num_hidden_layers"] == 12


def test_a_single_file_without_an_index(tmp_path):
    """PROTOCOL section 6: its header says what is in it."""
    model = write_layers(tmp_path / "single", files=1)
    spec = spec_of(look(str(model)), lo=3, hi=5, ends=False)
    first = missing(spec)
    assert {piece.name for piece in first.pieces} == {"config.json", "model.safetensors"}
    assert first.again
    bring(spec, model, first)
    assert missing(spec).bytes == 2 << 20
    bring(spec, model, missing(spec))
    assert numbers(fetch(spec, progress=quiet).tensors) == wanted(model, spec)


def test_a_damaged_small_file_is_wanted_again(model):
    """DESIGN section 6: what is here already counts only where it has the hash that the room names."""
    spec = spec_of(look(str(model)))
    found = missing(spec)
    bring(spec, model, found)
    config = (model / "config.json").read_bytes()
    kept = Ranges().model(spec.repo, spec.revision)
    for path in kept.folder.glob("*/config.json"):
        path.write_bytes(config.replace(b"12", b"13"))
    assert [piece.name for piece in missing(spec).pieces if piece.name == "config.json"]


def test_nothing_lacks_where_a_folder_or_a_wheel_has_it(model, tmp_path, monkeypatch):
    """DESIGN section 6: sources in order: a folder of this device's."""
    spec = spec_of(look(str(model)), hi=12)
    assert missing(spec_of(look(str(model)), folder=str(model))) == Missing()
    monkeypatch.setenv("POOLED_MODELS", str(model))
    assert missing(spec) == Missing()
    monkeypatch.delenv("POOLED_MODELS")
    made = tmp_path / "cache" / "models" / f"{wheel.LABEL}--{wheel.REVISION}"
    small = spec_of(look(str(model)), repo=wheel.REPO, revision=wheel.REVISION)
    assert missing(small).pieces, "another device can give it"
    shutil.copytree(model, made)
    assert missing(small) == Missing()


def test_what_the_hub_gave_lacks_no_more(model, monkeypatch):
    """DESIGN section 6: the same is asked of the room and of the hub, block by block."""
    with with_hub(monkeypatch) as hub:
        hub.repos[HUB_ID] = model
        found = look(HUB_ID)
        spec = spec_of(found, lo=0, hi=4)
        lacking = missing(spec)
        assert not lacking.again, "small files, index and headers came when it was chosen"
        fetch(spec_of(found, lo=0, hi=2), progress=quiet)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        asked = len(hub.parts)
        assert missing(spec).bytes == 2 << 20
        assert {piece.name for piece in missing(spec).pieces} == {FILES[0]}
        assert len(hub.parts) == asked
        with pytest.raises(ModelNotFound, match="HF_HUB_OFFLINE"):
            fetch(spec, progress=quiet)


def test_what_the_room_does_not_name_cannot_be_asked_for(model):
    """PROTOCOL section 6: ``files`` may be absent: then nothing is known before the hub is asked."""
    spec = spec_of(look(str(model)), repo=HUB_ID, revision="0" * 40, files={})
    assert missing(spec) == Missing()
    odd = {"config.json": FileFact(size=-5), "model.safetensors": FileFact(size=100, header=200)}
    assert missing(spec_of(look(str(model)), repo=HUB_ID, revision="0" * 40, files=odd)).pieces == []


def test_looking_can_be_stopped(model):
    """DESIGN section 3: a person's stop ends every wait."""

    class Stopped(Exception):
        pass

    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        sources_module.lacks(spec_of(look(str(model))), progress=quiet, stop=stop)
