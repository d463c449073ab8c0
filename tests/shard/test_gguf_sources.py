"""Where GGUF models come from: a file, a folder, the hub by tag or file, the devices of a room."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from msgspec import structs

from pooled_nb.errors import ModelNotFound, ModelNotSupported, ModelTooBig
from pooled_nb.shard import Missing, Sent, open_holdings, protocol
from pooled_nb.shard.desk import Desk
from pooled_nb.shard.door import LoadSpec, Turn
from pooled_nb.shard.facts import model_facts
from pooled_nb.shard.found import Found
from pooled_nb.shard.gguf import files
from pooled_nb.shard.gguf.choosing import choose, split_words, tag_of
from pooled_nb.shard.prints import file_sha256
from pooled_nb.shard.ranges import Ranges
from pooled_nb.shard.sources import fetch, lacks, pull
from pooled_nb.shard.sources.needs import wanted
from tests.shard import ggufs
from tests.shard.hubbed import HUB_ID, alone, look, quiet, spec_of, with_hub

NAME = "tiny-Q8_0.gguf"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "own"
    folder.mkdir()
    ggufs.write(ggufs.model_of("llama"), folder / NAME, "Q8_0")
    return folder


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    torch.set_num_threads(1)
    alone(monkeypatch, tmp_path)


@pytest.fixture
def hub(monkeypatch, clean):
    with with_hub(monkeypatch) as hub:
        yield hub


def another(path: Path) -> Path:
    """Change one number of the last tensor: names, shapes and sizes stay."""
    data = bytearray(path.read_bytes())
    data[-300] ^= 1
    path.write_bytes(data)
    return path


def numbers(spec: LoadSpec) -> dict[str, str]:
    """A hash of each tensor's bytes as a load finds them."""
    located = fetch(spec, progress=quiet)
    found = {}
    for name, entry in located.tensors.entries.items():
        data = entry.file.read_bytes()[entry.start : entry.end]
        found[name] = hashlib.sha256(data).hexdigest()
    return found


def names_of(found: Found, lo: int, hi: int, *, ends: bool) -> set[str]:
    return {
        tensor.name
        for layout in found.layouts.values()
        for tensor in layout.tensors
        if ("layers" not in tensor.name and ends)
        or ("layers" in tensor.name and lo <= int(tensor.name.split(".")[2]) < hi)
    }


# --- files and folders


def test_a_file_is_a_model(folder, tmp_path):
    """DESIGN section 6: a GGUF file of a person's own, by its path or that of its folder."""
    found = look(str(folder / NAME))
    assert found.repo == f"local/{NAME}"
    assert found.label == "tiny-Q8_0"
    facts = model_facts(found)
    assert facts.folder == str(folder / NAME)
    assert (facts.arch, facts.layers, facts.dtype, facts.dim) == ("LlamaForCausalLM", 3, "bfloat16", 256)
    assert facts.files[NAME].size == (folder / NAME).stat().st_size
    assert facts.files[NAME].sample
    assert facts.files[NAME].header == found.layouts[NAME].header
    # In the file 34 bytes for 32 numbers; in the room 2 bytes a number.
    assert facts.layer_bytes[0] / facts.file_bytes[0] == pytest.approx(64 / 34, rel=0.01)
    assert (
        sum(facts.file_bytes) + facts.ends_file_bytes + found.layouts[NAME].header == facts.files[NAME].size
    )
    assert facts.words == facts.repo
    by_folder = look(str(folder))
    assert (by_folder.repo, by_folder.revision, by_folder.home) == (found.repo, found.revision, found.home)
    assert look(found.repo, found.revision, folder=facts.folder).revision == found.revision
    copy = shutil.copy(folder / NAME, tmp_path)
    assert look(str(copy)).revision == found.revision
    assert look(str(another(Path(copy)))).revision != found.revision
    with pytest.raises(ModelNotFound, match="another state"):
        look(found.repo, found.revision, folder=str(copy))


def test_a_link_to_a_file_keeps_its_name(folder, tmp_path):
    """DESIGN section 6: the hub's cache and Ollama keep blobs, and name them by links."""
    blob = shutil.copy(folder / NAME, tmp_path / "0123abcd")
    (tmp_path / "nice.gguf").symlink_to(blob)
    found = look(str(tmp_path / "nice.gguf"))
    assert found.repo == "local/nice.gguf"
    assert numbers(spec_of(found, folder=str(found.home), hi=3))


def test_a_folder_of_several_files_asks_for_one(folder, tmp_path):
    """DESIGN section 6: which file is meant is never guessed."""
    for name in ("a.gguf", "b.gguf"):
        shutil.copy(folder / NAME, tmp_path / name)
    with pytest.raises(ModelNotSupported, match=r"holds 2 GGUF files: a\.gguf, b\.gguf") as caught:
        look(str(tmp_path))
    assert str(tmp_path / "a.gguf") in caught.value.next_step
    assert look(str(tmp_path / "b.gguf")).label == "b"


def test_a_load_reads_its_own_range(folder):
    """DESIGN section 6: of a file that is here, a range's tensors are named; a changed file is refused."""
    found = look(str(folder / NAME))
    spec = spec_of(found, folder=str(folder / NAME), lo=1, hi=2, ends=False)
    assert lacks(spec, progress=quiet) == Missing()
    made = fetch(spec, progress=quiet).folder
    assert file_sha256(made / "config.json") == spec.config_sha256
    with pytest.raises(ModelNotFound, match="another config"):
        fetch(spec_of(found, folder=str(folder / NAME), config_sha256="0" * 64), progress=quiet)


def test_a_device_with_the_same_file_uses_it(folder, tmp_path, monkeypatch):
    """DESIGN section 6: the room's file among those of POOLED_MODELS, by name and by what it holds."""
    found = look(str(folder / NAME))
    spec = spec_of(found, lo=0, hi=2)
    whole = numbers(spec_of(found, folder=str(folder / NAME), lo=0, hi=2))
    for place in (folder, folder / NAME):
        monkeypatch.setenv("POOLED_MODELS", str(place))
        assert numbers(spec) == whole
        assert look(found.repo, found.revision).home == folder / NAME
    nested = tmp_path / NAME.removesuffix(".gguf")
    nested.mkdir()
    own = Path(shutil.copy(folder / NAME, nested))
    monkeypatch.setenv("POOLED_MODELS", str(tmp_path))
    assert numbers(spec) == whole
    another(own)
    with pytest.raises(ModelNotFound, match="not the room's: it holds other weights"):
        fetch(spec, progress=quiet)
    monkeypatch.delenv("POOLED_MODELS")
    with pytest.raises(ModelNotFound, match="only in the host's"):
        fetch(spec, progress=quiet)
    for repo in (f"local/../{NAME}", f"local/{own}", "local/.gguf/x.gguf"):
        with pytest.raises(ModelNotFound):
            look(repo, found.revision)


def test_a_damaged_file_is_refused_when_it_is_named(tmp_path):
    """DESIGN section 6: said before a room is opened."""
    (tmp_path / "x.gguf").write_bytes(b"GGUF\3\0\0\0")
    with pytest.raises(ModelNotFound, match=r"x\.gguf is not a whole GGUF file"):
        look(str(tmp_path / "x.gguf"))
    with pytest.raises(ModelNotFound, match="no folder"):
        look(str(tmp_path / "y.gguf"))


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="POSIX")
def test_a_cache_of_another_user_is_read(folder, monkeypatch):
    """DESIGN section 6: what is made is used also where its last use cannot be noted."""
    made = look(str(folder / NAME)).folder

    def no(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "utime", no)
    assert look(str(folder / NAME)).folder == made


def test_a_file_that_is_here_is_pulled_already(folder, hub):
    """DESIGN section 1: to pull a file of this device fetches nothing, and says no odd thing."""
    located = pull(str(folder / NAME), progress=quiet)
    assert located.tensors.entries
    assert hub.sent == 0


def test_without_the_library(folder, monkeypatch, hub):
    """DESIGN section 8: gguf is an extra: where it is missing, a sentence says how to get it."""
    hub.repos[HUB_ID] = folder
    found = look(str(folder / NAME))
    spec = spec_of(found, folder=str(folder / NAME))
    real = importlib.util.find_spec
    monkeypatch.setattr(
        files.importlib.util, "find_spec", lambda name: None if name == "gguf" else real(name)
    )
    for ask in (
        lambda: look(str(folder / NAME)),
        lambda: look(f"{HUB_ID}:Q8_0"),
        lambda: fetch(spec, progress=quiet),
    ):
        with pytest.raises(ModelNotSupported, match=r"tiny-Q8_0\.gguf needs the gguf library") as caught:
            ask()
        assert caught.value.next_step == "Run: pip install 'pooled-nb[gguf]'"
    assert hub.sent == 0


def test_a_shard_answers_from_a_file(folder):
    """DESIGN section 2: the shard's jobs, from what a person says to the first token."""
    desk = Desk()
    facts = desk.run(protocol.Inspect(model=str(folder / NAME)), quiet)
    spec = LoadSpec(
        repo=facts.repo, revision=facts.revision, folder=facts.folder, config_sha256=facts.config_sha256,
        files=facts.files, lo=0, hi=3, ends=True, ctx=256, dtype=facts.dtype,
    )  # fmt: skip
    loaded = desk.run(protocol.Load(spec=spec), quiet)
    assert loaded.weights == pytest.approx(sum(facts.layer_bytes) + facts.ends_bytes, rel=0.01)
    prompt = desk.run(protocol.Render(turns=[Turn(role="user", text="hell")]), quiet)
    assert 0 < len(prompt.ids) < 60
    assert facts.eos == [2]
    desk.run(protocol.Unload(), quiet)


# --- devices of a room


def test_a_file_reaches_another_device_piece_by_piece(folder, tmp_path, monkeypatch):
    """PROTOCOL section 6: header first, then blocks of the range; the host gives of that one file only."""
    for name in ("config.json", "other.gguf"):
        shutil.copy(folder / NAME, tmp_path / name)
    path = Path(shutil.copy(folder / NAME, tmp_path / NAME))
    found = look(str(path))
    have = open_holdings({(found.repo, found.revision): path})
    assert have.have(found.repo, found.revision, NAME) == [(0, path.stat().st_size)]
    assert have.have(found.repo, found.revision, "other.gguf") == []
    assert have.have(found.repo, found.revision, "config.json") == []
    monkeypatch.setenv("POOLED_CACHE", str(tmp_path / "there"))
    spec, sent = spec_of(found, lo=1, hi=3, ends=False), list[Sent]()
    for again in (True, False):
        missing = lacks(spec, progress=quiet)
        assert missing.again is again
        assert {piece.name for piece in missing.pieces} == {NAME}
        for piece in missing.pieces:
            data = have.read(found.repo, found.revision, NAME, piece.lo, piece.hi)
            incoming = open_holdings().take(found.repo, found.revision, piece)
            assert incoming
            incoming.write(data)
            digest = hashlib.sha256(data).hexdigest()
            assert incoming.finish(digest)
            sent.append((piece.lo, piece.hi, digest))
        spec = structs.replace(spec, sent={NAME: sent})
    assert lacks(spec, progress=quiet) == Missing()
    mine, own = numbers(spec), names_of(found, 1, 3, ends=False)
    whole = numbers(spec_of(found, folder=str(path), lo=1, hi=3, ends=False))
    assert mine == {name: digest for name, digest in whole.items() if name in own}
    assert set(mine) == own
    kept = Ranges().model(found.repo, found.revision).file(NAME, path.stat().st_size)
    assert 0 < sum(hi - lo for lo, hi in kept.held()) < path.stat().st_size * 0.9
    with pytest.raises(ModelNotFound, match="only in the host's folder"):
        fetch(structs.replace(spec, sent={}), progress=quiet)  # in a room that does not vouch for it


# --- the hub


def test_a_file_of_the_hub_by_tag_or_name(folder, tmp_path, hub):
    """DESIGN section 6: ``user/repo:Q8_0`` as llama.cpp and Ollama have it, or the file's own name."""
    repo = tmp_path / "repo"
    repo.mkdir()
    shutil.copy(folder / NAME, repo / NAME)
    (repo / "README.md").write_text("x")
    hub.repos[HUB_ID] = repo
    found = look(HUB_ID)
    assert list(found.files) == [NAME]
    assert (found.repo, found.label, found.open, found.local) == (HUB_ID, "tiny-Q8_0", True, False)
    header = found.layouts[NAME].header
    assert found.files[NAME].header == header
    assert found.files[NAME].sha256 == file_sha256(repo / NAME)
    facts = model_facts(found)
    assert facts.folder is None
    assert facts.words == f"{HUB_ID}/{NAME}"
    ggufs.write(ggufs.model_of("llama"), repo / "tiny-Q4_0.gguf", "Q4_0")
    with pytest.raises(ModelNotSupported, match="has 2 GGUF files") as caught:
        look(HUB_ID)
    assert caught.value.next_step == f"Name one of them, like {HUB_ID}:Q4_0"
    for words in (f"{HUB_ID}:Q8_0", f"{HUB_ID}:q8_0", f"{HUB_ID}/{NAME}"):
        assert look(words).layouts == found.layouts
    assert look(facts.words, facts.revision).files == found.files
    assert list(look(f"{HUB_ID}:Q4_0").files) == ["tiny-Q4_0.gguf"]
    with pytest.raises(ModelNotFound, match=r"no GGUF file Q5_K_M, only tiny-Q4_0\.gguf, tiny-Q8_0\.gguf"):
        look(f"{HUB_ID}:Q5_K_M")


@pytest.mark.parametrize(("lo", "hi", "ends"), [(0, 1, True), (1, 3, False), (2, 3, False)])
def test_a_device_fetches_its_own_blocks(folder, hub, lo, hi, ends):
    """DESIGN section 6: bytes fetched are the header's and those of the range's blocks."""
    hub.repos[HUB_ID] = folder
    found = look(f"{HUB_ID}:Q8_0")
    spec = spec_of(found, lo=lo, hi=hi, ends=ends)
    before = hub.sent
    own = names_of(found, lo, hi, ends=ends)
    with pytest.raises(ModelTooBig, match=r"tiny-chat need a download"):
        fetch(spec_of(found, lo=lo, hi=hi, ends=ends, max_download_gb=1e-6), progress=quiet)
    mine = numbers(spec)
    assert set(mine) == own
    need = sum(b.hi - b.lo for b in wanted(found.layouts[NAME], lambda name: name in own))
    assert hub.sent - before == need
    whole = numbers(spec_of(look(str(folder / NAME)), folder=str(folder / NAME), lo=0, hi=3))
    assert mine == {name: digest for name, digest in whole.items() if name in own}
    assert numbers(spec) == mine
    assert hub.sent - before == need
    with pytest.raises(ModelNotFound, match="reads another config"):
        fetch(structs.replace(spec, config_sha256="0" * 64), progress=quiet)


def test_a_file_is_pulled_ahead(folder, hub):
    """DESIGN section 6: some layers of it, or all; a load of them then needs no hub."""
    hub.repos[HUB_ID] = folder
    pull(f"{HUB_ID}:Q8_0", lo=0, hi=2, progress=quiet).close()
    sent = hub.sent
    found = look(f"{HUB_ID}/{NAME}")
    assert set(numbers(spec_of(found, lo=0, hi=2))) == names_of(found, 0, 2, ends=True)
    assert hub.sent == sent
    (kept,) = Ranges().models()
    assert (kept.repo, kept.label) == (HUB_ID, "tiny-Q8_0")


def test_without_a_network_a_file_is_found_again(folder, hub, monkeypatch):
    """DESIGN section 6: what was fetched is used again where the hub cannot be reached."""
    hub.repos[HUB_ID] = folder
    found = look(f"{HUB_ID}:Q8_0")
    spec = spec_of(found, hi=3)
    fetch(spec, progress=quiet)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for words in (f"{HUB_ID}:Q8_0", HUB_ID, f"{HUB_ID}/{NAME}"):
        again = look(words)
        assert (again.revision, again.layouts, again.folder) == (found.revision, found.layouts, found.folder)
        assert "cached copy" in again.note
    assert look(f"{HUB_ID}/{NAME}", found.revision).revision == found.revision
    assert set(numbers(spec)) == names_of(found, 0, 3, ends=True)
    with pytest.raises(ModelNotFound, match="cannot be reached"):
        look(f"{HUB_ID}:Q4_0")


def test_a_file_beside_safetensors_is_asked_for(folder, tmp_path, hub):
    """DESIGN section 6: a repository of both is its safetensors, unless the file is named."""
    from tests.shard.tinychat import write_model

    repo = write_model(tmp_path / "both")
    shutil.copy(folder / NAME, repo)
    hub.repos[HUB_ID] = repo
    assert NAME not in look(HUB_ID).files
    assert list(look(f"{HUB_ID}:Q8_0").files) == [NAME]
    local = look(str(repo))
    assert NAME not in local.files
    assert local.repo == "local/both"


def test_a_header_larger_than_the_first_bytes(folder, tmp_path, hub, monkeypatch):
    """DESIGN section 6: how long a header is, is said nowhere: more of it is asked for, and nothing twice."""
    from pooled_nb.shard.sources import header

    hub.repos[HUB_ID] = folder
    monkeypatch.setattr(header, "FIRST", 100)
    found = look(f"{HUB_ID}:Q8_0")
    assert found.layouts == look(str(folder / NAME)).layouts
    assert hub.sent < 4 * found.layouts[NAME].header


# --- words


def test_words_that_name_a_file():
    """DESIGN section 6: what follows a hub id."""
    assert split_words("a/b:Q4_K_M") == ("a/b", "Q4_K_M")
    assert split_words("a/b/c-Q4.gguf") == ("a/b", "c-Q4.gguf")
    for words in ("a/b", "gpt2", "a:b", "a/b:", "a/b/c", "a/b:x/y", "a/b/c/d.gguf", "x.gguf"):
        assert split_words(words) == (words, "")
    assert tag_of("Qwen3-0.6B-Q4_K_M.gguf") == "Q4_K_M"
    assert tag_of("gemma-3-1b-it-UD-IQ2_XXS.gguf") == "UD-IQ2_XXS"
    assert tag_of("model.f16.gguf") == "F16"
    assert tag_of("llama-2-7b.gguf") == ""


@pytest.mark.parametrize(
    ("names", "asked", "found"),
    [
        (["a-Q4_K_M.gguf", "a-Q4_K_S.gguf"], "Q4_K_M", "a-Q4_K_M.gguf"),
        (["a-Q4_K_M.gguf", "a-UD-Q4_K_M.gguf"], "Q4_K_M", "a-Q4_K_M.gguf"),
        (["a-UD-Q4_K_M.gguf", "a-Q8_0.gguf"], "Q4_K_M", "a-UD-Q4_K_M.gguf"),
        (["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"], "Q4_K_M", ModelNotSupported),
        (["a-Q4_K_M.gguf"], "Q4_K", ModelNotFound),
        (["x.gguf", "y.gguf"], "", ModelNotSupported),
        (["sub/x.gguf"], "", ModelNotFound),
        (["x.gguf"], "", "x.gguf"),
        (["x.gguf", "y.gguf"], "y.gguf", "y.gguf"),
    ],
)
def test_which_file_is_meant(names, asked, found):
    """DESIGN section 6: one file, or a sentence that names those there are."""
    if isinstance(found, str):
        assert choose(names, asked, "a/b") == found
        return
    with pytest.raises(found) as caught:
        choose(names, asked, "a/b")
    assert caught.value.next_step
