"""What is kept: listed, counted, removed; and the small files beside."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from pathlib import Path

import msgspec
import pytest

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.ranges import KeptFile, RangeFile, Ranges, locking
from pooled_nb.shard.ranges.segments import joined, segment_name
from tests.shard.ranges.kernels import CONTENT


def fill(file: RangeFile, *ranges: tuple[int, int]) -> None:
    for lo, hi in ranges:
        piece = file.begin(lo, hi)
        assert piece is not None
        piece.write(CONTENT[lo + piece.at : hi])
        piece.finish()


def aged(ranges: Ranges, repo: str, seconds: int) -> None:
    home = ranges.model(repo, "main").home
    for path in (home, home / "used"):
        os.utime(path, (1_700_000_000 + seconds,) * 2)


def test_what_is_kept_is_listed(tmp_path: Path) -> None:
    """DESIGN section 6: ranges are listed by the user: size, last use, whole or not."""
    ranges = Ranges(tmp_path)
    model = ranges.model("org/model", "main")
    with model.use():
        pass
    assert ranges.models() == []  # a look is not worth a line
    fill(model.file("b.safetensors", 300), (0, 100), (100, 200))
    fill(model.file("a.safetensors", 50), (0, 50))
    model.remember(label="Model", open=True)
    model.remember()
    (kept,) = ranges.models()
    assert (kept.repo, kept.revision, kept.label, kept.open) == ("org/model", "main", "Model", True)
    assert kept.files == [
        KeptFile(name="a.safetensors", bytes=50, size=50),
        KeptFile(name="b.safetensors", bytes=200, size=300),
    ]
    assert (kept.total, kept.whole) == (350, False)
    assert 250 < kept.bytes < 1000
    fill(model.file("b.safetensors", 300), (200, 300))
    assert ranges.models()[0].whole
    index = {"metadata": {"total_size": 900}, "weight_map": {"x": "c.safetensors"}}
    model.put_small("model.safetensors.index.json", msgspec.json.encode(index))
    assert (ranges.models()[0].total, ranges.models()[0].whole) == (900, False)
    model.put_small("model.safetensors.index.json", b"nonsense")
    assert ranges.models()[0].total is None


def test_a_use_is_remembered(tmp_path: Path) -> None:
    """DESIGN section 6: the last use is what prune goes by."""
    ranges = Ranges(tmp_path)
    fill(ranges.model("a/b", "main").file("x.safetensors", 9), (0, 9))
    aged(ranges, "a/b", 0)
    assert ranges.models()[0].used == 1_700_000_000
    with ranges.model("a/b", "main").use():
        assert ranges.models()[0].used > 1_700_000_000


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    """DESIGN section 6: bounded in size, on request."""
    ranges = Ranges(tmp_path)
    for i, repo in enumerate(("o/second", "o/first", "o/third", "o/in-use")):
        fill(ranges.model(repo, "main").file("x.safetensors", 10_000), (0, 10_000))
        aged(ranges, repo, (2, 1, 3, 0)[i])
    assert ranges.prune(100_000) == 0
    with ranges.model("o/in-use", "main").in_use():
        assert ranges.prune(32_000) > 10_000
        assert [kept.repo for kept in ranges.models()] == ["o/in-use", "o/second", "o/third"]
        ranges.prune(0)
        assert [kept.repo for kept in ranges.models()] == ["o/in-use"]
    ranges.prune(0)
    assert ranges.models() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["locks", "models", "trash"]
    assert not os.listdir(tmp_path / "trash")


def test_what_is_held_twice_goes_before_models_do(tmp_path: Path) -> None:
    """DESIGN section 6: blocks of an older rule of cutting, once all of them lies in newer ones."""
    ranges = Ranges(tmp_path)
    file = ranges.model("a/b", "main").file("x.safetensors", 30_000)
    fill(file, (0, 10_000), (5_000, 25_000), (0, 20_000))
    assert file.held() == [(0, 10_000), (0, 20_000), (5_000, 25_000)]
    assert ranges.prune(45_000) == 10_000
    assert file.held() == [(0, 20_000), (5_000, 25_000)]
    assert joined(file.held()) == [(0, 25_000)]


def test_of_what_is_held_twice_what_is_trusted_more_stays(tmp_path: Path) -> None:
    """DESIGN section 6: a room's word is good for a room; of two equal segments one stays."""
    ranges = Ranges(tmp_path)
    file = ranges.model("a/b", "main").file("x.safetensors", 30_000)
    fill(file, (0, 10_000))
    piece = file.begin(0, 20_000, room=True)
    assert piece is not None
    piece.write(CONTENT[10_000:20_000])
    piece.finish()
    assert file.tidy() == 0
    found = file.find(0, 20_000)
    assert found is not None
    folder = found[0].parent
    (folder / segment_name(0, 20_000, "0" * 64, room=True)).write_bytes(bytes(20_000))
    (folder / segment_name(0, 20_000, "f" * 64, room=False)).write_bytes(CONTENT[:20_000])
    assert file.tidy() == 50_000
    assert file.held() == [(0, 20_000)]
    assert file.sent() == []


def test_one_revision_or_all(tmp_path: Path) -> None:
    """DESIGN section 6: ranges are deleted by the user."""
    ranges = Ranges(tmp_path)
    for repo, revision in (("a/b", "one"), ("a/b", "two"), ("a/c", "one")):
        fill(ranges.model(repo, revision).file("x.safetensors", 9), (0, 9))
    assert ranges.delete("a/b", "one") > 9
    assert [(k.repo, k.revision) for k in ranges.models()] == [("a/b", "two"), ("a/c", "one")]
    ranges.delete("a/b")
    assert [k.repo for k in ranges.models()] == ["a/c"]
    assert ranges.delete("../..") == 0
    assert ranges.delete("a/b") == 0


def test_a_file_never_changes_its_size(tmp_path: Path) -> None:
    """PROTOCOL section 6: a room may say anything; what is kept of one file never mixes with another."""
    model = Ranges(tmp_path).model("a/b", "main")
    before = model.file("x.safetensors", 500)
    assert model.known("x.safetensors") is None
    larger = model.file("x.safetensors", 501)  # nothing is here yet
    fill(larger, (0, 100))
    with pytest.raises(ModelNotFound, match=r"501.*pooled-nb models delete a/b"):
        model.file("x.safetensors", 500)
    found = model.known("x.safetensors")
    assert found is not None
    assert (found.size, found.held()) == (501, [(0, 100)])
    fill(before, (0, 50))  # of a kernel that began before
    assert larger.held() == [(0, 100)]


def test_small_files_are_a_folder(tmp_path: Path) -> None:
    """DESIGN section 6: written whole or not at all, by their hashes, and given as a Hugging Face folder.

    A room that brings another ``config.json`` under the same name changes nothing of the first.
    """
    model = Ranges(tmp_path).model("a/b", "main")
    one, other = b"{}", b'{"a": 1}'
    for data in (one, other, one):
        model.put_small("config.json", data)
    model.put_small("chat_template.jinja", b"x")
    for data in (one, other):
        assert model.small("config.json", hashlib.sha256(data).hexdigest()) == data
        folder = model.together({"config.json": data})
        assert [path.read_bytes() for path in folder.iterdir()] == [data], "and nothing beside it"
    assert model.small("config.json", hashlib.sha256(b"x").hexdigest()) is None
    (folder / "config.json").write_bytes(b"[]")
    assert (model.together({"config.json": other}) / "config.json").read_bytes() == other
    kept = next(model.folder.glob(f"{hashlib.sha256(other).hexdigest()[:20]}/config.json"))
    kept.write_bytes(b"[]")
    assert model.small("config.json", hashlib.sha256(other).hexdigest()) is None, "it was damaged"
    with pytest.raises(ModelNotFound, match="0 bytes"):
        model.put_small("tokenizer.json", b"")
    piece = model.begin_small("tokenizer.json", 3)
    assert piece is not None
    assert model.begin_small("tokenizer.json", 3) is None  # somebody is at it
    piece.write(b"12")
    piece.keep()
    piece = model.begin_small("tokenizer.json", 3)
    assert piece is not None
    assert piece.at == 2
    piece.write(b"3")
    sha256 = piece.finish()
    with pytest.raises(ModelNotFound):
        model.begin_small("vocab.json", 1 << 40)
    assert model.small("tokenizer.json", sha256) == b"123"


def test_a_small_file_that_finds_no_place_lets_go_of_its_lock(tmp_path: Path) -> None:
    """DESIGN section 6: what a disk does not do is said in words, and the next try may go on."""
    model = Ranges(tmp_path).model("a/b", "main")
    piece = model.begin_small("config.json", 2)
    assert piece is not None
    piece.write(b"{}")
    model.folder.rmdir()
    with pytest.raises(ModelNotFound, match="cannot be used"):
        piece.finish()
    again = model.begin_small("config.json", 2)
    assert again is not None, "its lock was let go of"
    again.write(b"{}")
    assert model.small("config.json", again.finish()) == b"{}"


def test_what_a_folder_says_of_itself_is_checked(tmp_path: Path) -> None:
    """DESIGN section 6: a damaged or moved folder is no model."""
    ranges = Ranges(tmp_path)
    model = ranges.model("a/b", "main")
    model.remember(open=True)
    shutil.copytree(model.home, model.home.with_name("other--00"))
    assert [k.repo for k in ranges.models()] == ["a/b"]
    about = model.home / "about.json"
    for words in (b'{"repo": "c/d", "revision": "main", "open": true}', b"", b"[", b'{"repo": 3}'):
        about.write_bytes(words)
        assert model.open is None
        assert ranges.models() == []
    model.remember(label="B")
    assert model.open is None
    assert ranges.models()[0].label == "B"


def test_threads_of_one_kernel(tmp_path: Path) -> None:
    """DESIGN section 6: four threads fetch into one file, each block once."""
    file = Ranges(tmp_path).model("a/b", "main").file("x.safetensors", 40_000)
    wrote: list[int] = []

    def fetch() -> None:
        for i in range(40):
            piece = file.begin(i * 1000, i * 1000 + 1000, wait=lambda: None)
            if piece is not None:
                data = CONTENT[i * 1000 + piece.at : i * 1000 + 1000]
                piece.write(data)
                wrote.append(len(data))
                piece.finish()

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(wrote) == 40_000
    assert file.read(0, 40_000) == CONTENT[:40_000]


def test_a_gate_that_is_held_for_very_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 6: nobody waits for ever for a process that hangs."""
    monkeypatch.setattr(locking, "GATE_S", 0.05)
    model = Ranges(tmp_path).model("a/b", "main")
    with locking.gate(model.locks):
        with pytest.raises(ModelNotFound, match="has been removing"), model.use():
            pass
        with pytest.raises(ModelNotFound, match="has been removing"):
            model.put_small("config.json", b"{}")
    model.put_small("config.json", b"{}")


def test_two_that_delete_at_once_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 6: safe for several kernels: one empties the trash while another moves a model there."""
    ranges = Ranges(tmp_path)
    for repo in ("a/b", "c/d"):
        fill(ranges.model(repo, "main").file("m.safetensors", 100), (0, 100))
    assert ranges.delete("c/d") > 0
    replace = os.replace

    def late(source: Path, target: Path) -> None:
        if target.parent.name == "trash":
            Ranges(tmp_path).prune(1 << 40)  # another kernel, between the making of the folder and the move
        replace(source, target)

    monkeypatch.setattr(os, "replace", late)
    assert ranges.delete("a/b") > 0
    assert ranges.models() == []
    assert list((tmp_path / "trash").iterdir()) == []


def test_whole_is_what_lacks_no_file_of_its_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 6: whole or not: files of which nothing came count too, also by the hub's own cache."""
    commit, index = "0" * 40, "model.safetensors.index.json"
    model = Ranges(tmp_path / "ranges").model("org/model", commit)
    fill(model.file("a.safetensors", 300), (0, 300))
    said = {"metadata": {"total_size": 290}, "weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    snapshot = tmp_path / "hub" / "models--org--model" / "snapshots" / commit
    snapshot.mkdir(parents=True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    (kept,) = Ranges(tmp_path / "ranges").models()
    assert (kept.total, kept.whole) == (300, True), "as far as is known"
    (tmp_path / "blob").write_bytes(msgspec.json.encode(said))
    os.link(tmp_path / "blob", snapshot / index)
    (kept,) = Ranges(tmp_path / "ranges").models()
    assert (kept.total, kept.whole) == (290, False)
    fill(model.file("b.safetensors", 50), (0, 50))
    assert Ranges(tmp_path / "ranges").models()[0].whole
