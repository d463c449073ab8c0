"""Models of the hub: what is found, what is refused, and what is fetched of small files."""

from __future__ import annotations

import shutil
from typing import Any

import huggingface_hub.constants
import pytest

from pooled_nb.errors import ModelNotFound, ModelNotSupported
from pooled_nb.shard import FileFact
from pooled_nb.shard.facts import model_facts
from pooled_nb.shard.found import Found
from pooled_nb.shard.prints import file_sha256
from pooled_nb.shard.ranges import Ranges
from pooled_nb.shard.sources import fetch, finding
from tests.shard import fakehub
from tests.shard.hubbed import HUB_ID, alone, in_three_files, look, quiet, spec_of, with_hub
from tests.shard.tinychat import write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    alone(monkeypatch, tmp_path)


@pytest.fixture
def hub(monkeypatch, clean):
    with with_hub(monkeypatch) as hub:
        yield hub


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
def test_a_file_of_another_size_than_the_room_says_is_never_fetched(model, hub, name):
    """PROTOCOL section 6: what is downloaded is bounded by what the room declares, before its first byte."""
    hub.repos[HUB_ID] = model
    found = Found(repo=HUB_ID, revision=fakehub.COMMIT, folder=model, label="", files=look(str(model)).files)
    files = {n: FileFact(size=(model / n).stat().st_size - (n == name)) for n in found.files}
    with pytest.raises(ModelNotFound, match=f"{name} of lab/tiny-chat has [0-9]+ bytes on the hub"):
        fetch(spec_of(found, files=files), progress=quiet)
    assert name not in hub.fetched


def test_small_files_are_bounded(model, hub, monkeypatch):
    """DESIGN section 8: a tokenizer or an index of gigabytes is refused before it is fetched."""
    hub.repos[HUB_ID] = model
    spec = spec_of(look(str(model)), repo=HUB_ID, revision=fakehub.COMMIT, files={})
    monkeypatch.setattr("pooled_nb.shard.sources.smallfile.MAX_SMALL", 100)
    words = r"config\.json of lab/tiny-chat is not fetched"
    with pytest.raises(ModelNotFound, match=words):
        look(HUB_ID)
    with pytest.raises(ModelNotFound, match=words):
        fetch(spec, progress=quiet)
    assert hub.fetched == []


def test_a_hub_that_sends_more_than_it_announced(model, hub, monkeypatch):
    """DESIGN section 8: what comes is counted as it comes."""
    hub.repos[HUB_ID] = model
    monkeypatch.setattr("pooled_nb.shard.sources.smallfile._size", lambda *_: 100)
    with pytest.raises(ModelNotFound, match="more of a file than it announced"):
        look(HUB_ID)


def test_what_dealing_and_consent_need_is_read_from_the_headers(model, tmp_path, hub):
    """PROTOCOL section 6: bytes of each layer as they are fetched; a tied head counts once."""
    hub.repos[HUB_ID] = in_three_files(model, tmp_path / "repo")
    found = look(HUB_ID)
    facts = model_facts(found)
    assert facts.layers == 3
    assert facts.folder is None
    assert facts.file_bytes == facts.layer_bytes  # in float32, as in the files
    assert facts.ends_file_bytes == facts.ends_bytes
    for name, fact in found.files.items():
        assert fact.sha256 == file_sha256(hub.repos[HUB_ID] / name), (
            "so that others can take it from the room"
        )
        assert (fact.header > 0) == name.endswith(".safetensors")
    assert look(str(model)).files["model.safetensors"].header > 8
    assert model_facts(look(str(model))).file_bytes == facts.file_bytes


def test_a_model_of_very_many_files_is_chosen_without_their_headers(model, tmp_path, hub, monkeypatch):
    """DESIGN section 1: choosing a model takes seconds, not minutes."""
    hub.repos[HUB_ID] = in_three_files(model, tmp_path / "repo")
    monkeypatch.setattr(finding, "HEADERS", 2)
    facts = model_facts(look(HUB_ID))
    assert facts.file_bytes == []
    assert hub.sent == 0


@pytest.mark.parametrize(
    ("private", "gated"), [(False, False), (True, False), (False, "auto"), (False, "manual")]
)
def test_only_what_everybody_may_read_is_given_to_others(model, hub, private, gated):
    """DESIGN section 6: private and gated models are never listed or served to others."""
    hub.repos[HUB_ID] = model
    hub.private, hub.gated = private, gated
    spec = spec_of(Found(repo=HUB_ID, revision=fakehub.COMMIT, folder=model, label=""), files={})
    fetch(spec, progress=quiet)  # a worker that was told nothing of it asks, too
    kept = Ranges().model(HUB_ID, fakehub.COMMIT)
    assert kept.open == (not private and not gated)
    found = look(HUB_ID)
    assert found.open == kept.open


UNSUPPORTED: dict[str, dict[str, Any]] = {
    "bloom": {"hidden_size": 64, "n_layer": 3, "n_head": 4},
    "mpt": {"d_model": 64, "n_layers": 3, "n_heads": 4},
    "gpt_neo": {
        "hidden_size": 64, "num_layers": 4, "num_heads": 4, "attention_types": [[["global", "local"], 2]],
        "max_position_embeddings": 512, "window_size": 32,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", list(UNSUPPORTED))
def test_what_cannot_be_run_is_refused_before_its_weights_are_fetched(model, tmp_path, hub, kind):
    """CASES, Models: a model that no device could run is refused when it is chosen, from its small files."""
    from transformers import AutoConfig

    folder = shutil.copytree(model, tmp_path / "repo")
    AutoConfig.for_model(kind, vocab_size=512, **UNSUPPORTED[kind]).save_pretrained(folder)
    hub.repos[HUB_ID] = folder
    with pytest.raises(ModelNotSupported) as caught:
        model_facts(look(HUB_ID))
    assert caught.value.next_step
    assert all(part.lo == 0 and part.hi <= 1 << 16 for part in hub.parts), "headers at most"
    hub.repos["lab/fine"] = model
    assert model_facts(look("lab/fine")).layers == 3


def test_a_header_that_lies_is_refused_when_the_model_is_chosen(model, tmp_path, hub):
    """DESIGN section 6: what a file's header says is checked before anything else of it is read."""
    folder = shutil.copytree(model, tmp_path / "repo")
    with (folder / "model.safetensors").open("ab") as stream:
        stream.write(b"x")
    hub.repos[HUB_ID] = folder
    with pytest.raises(ModelNotFound, match=r"model\.safetensors is not a whole safetensors file"):
        look(HUB_ID)


def test_another_config_than_the_rooms_is_refused(model, hub):
    """PROTOCOL section 6: the config decides bits: another one is refused."""
    hub.repos[HUB_ID] = model
    with pytest.raises(ModelNotFound, match=r"copy of lab/tiny-chat is not the room's: config"):
        fetch(spec_of(look(HUB_ID), config_sha256="0" * 64), progress=quiet)


def test_files_that_the_room_does_not_name_are_not_fetched(model, tmp_path, hub):
    """DESIGN section 5: an index cannot lead to weights that nobody vouches for."""
    hub.repos[HUB_ID] = in_three_files(model, tmp_path / "repo")
    found = look(HUB_ID)
    files = {name: fact for name, fact in found.files.items() if "00002" not in name}
    with pytest.raises(ModelNotFound, match=r"names model-00002\.safetensors, which is none of its files"):
        fetch(spec_of(found, files=files, lo=1, hi=2), progress=quiet)


@pytest.mark.parametrize("split", [False, True])
def test_the_caches_serve_without_a_hub(model, tmp_path, hub, monkeypatch, split):
    """DESIGN section 6: sources in order: the local cache. A machine without any network must work."""
    hub.repos[HUB_ID] = in_three_files(model, tmp_path / "repo") if split else model
    before = look(HUB_ID)
    fetch(spec_of(before, hi=3), progress=quiet)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    found = look(HUB_ID, before.revision)
    assert found.revision == before.revision
    assert "cannot be reached" in found.note
    assert {n: f.size for n, f in found.files.items()} == {n: f.size for n, f in before.files.items()}
    assert model_facts(found).file_bytes == model_facts(before).file_bytes
    assert "lm_head.weight" in fetch(spec_of(found, hi=3), progress=quiet).tensors.entries
    with pytest.raises(ModelNotFound, match="HF_HUB_OFFLINE"):
        look("lab/other")


@pytest.mark.parametrize(
    ("status", "code", "words", "step"),
    [
        (404, "RepoNotFound", "has no model lab/x, or it is private", "hf auth login"),
        (403, "GatedRepo", "lab/x is gated", "Accept them at huggingface.co/lab/x"),
        (404, "RevisionNotFound", "no such revision", "Leave the revision out"),
        (403, "", "does not let this device's account read lab/x", "another account"),
        (402, "", "quota", "another account"),
        (429, "", "too many requests", "some minutes"),
        (500, "", "does not work now: it answered 500", "some minutes"),
        (451, "", "it answered 451", "another model"),
    ],
)
def test_what_the_hub_refuses_is_said_in_words(hub, status, code, words, step):
    """DESIGN section 1: errors say what happened and the next step; gated models say so."""
    hub.errors["lab/x"] = (status, code)
    with pytest.raises(ModelNotFound, match=words) as caught:
        look("lab/x")
    assert step in caught.value.next_step


def test_a_repository_of_pickles_is_refused_naming_one(model, tmp_path, hub):
    """DESIGN section 6: only safetensors, never pickle."""
    folder = shutil.copytree(model, tmp_path / "repo")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    hub.repos[HUB_ID] = folder
    with pytest.raises(ModelNotSupported, match=r"only pytorch_model\.bin"):
        look(HUB_ID)


def test_a_hub_that_cannot_be_reached(monkeypatch):
    """DESIGN section 1: a machine without any network must work, fast: refused at once, in words."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelNotFound, match="cannot be reached"):
        look("lab/none")
    with pytest.raises(ModelNotFound, match="no hub id"):
        look("two words/and more")


def test_a_range_from_the_hub_computes_what_the_folder_computes(model, tmp_path, hub):
    """DESIGN section 5: the same bits, whichever source the weights came from."""
    from pooled_nb.shard import Columns, Control, protocol
    from pooled_nb.shard.desk import Desk

    hub.repos[HUB_ID] = in_three_files(model, tmp_path / "repo")
    states = []
    for spec in (
        spec_of(look(HUB_ID), lo=0, hi=2),
        spec_of(look(str(model)), lo=0, hi=2, folder=str(model)),
    ):
        desk = Desk()
        desk.run(protocol.Load(spec=spec), quiet)
        job = protocol.Forward(columns=Columns(pos=0, n=3, wide=True), control=Control(), tokens=[5, 6, 7])
        states.append(desk.run(job, quiet).data)
    assert states[0] == states[1]
