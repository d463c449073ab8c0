"""Names come from a room: none of them leads anywhere, and none of them means another."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path, PureWindowsPath

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard import FileFact, open_holdings
from pooled_nb.shard.pieces import Piece
from pooled_nb.shard.ranges import Ranges, disk
from pooled_nb.shard.ranges.segments import segment_name

HOSTILE = [
    *("..", "../x", "/etc/passwd", "a/../../b", "C:\\x", "c:x", "a\0b", "", ".", " ", "a/b/c", "/", "a//b"),
    *("x" * 5000, "\ud800", "a\nb", "..\\..\\x", "./a", "a/..", "a/", "~/x", "\u202e../", "\\\\host\\share"),
]
RESERVED = ["con", "NUL.json", "com1.txt", "aux", "a" * 200, "a.", ".hidden", "config.json.", "Ünï.json"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused(tmp_path: Path, name: str) -> None:
    """PROTOCOL section 6: a repo never becomes a path, an origin or code."""
    ranges = Ranges(tmp_path / "root")
    if name != "~/x":  # a folder of that name, where nothing is made of it
        with pytest.raises(ModelNotFound):
            ranges.model(name, "main")
    if name not in ("a/b/c", "a//b") or ".." in name:
        with pytest.raises(ModelNotFound):
            ranges.model("a/b", "../" + name)
    model = ranges.model("a/b", "main")
    with pytest.raises(ModelNotFound):
        model.file(name, 5)
    with pytest.raises(ModelNotFound):
        model.put_small(name, b"{}")
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("name", [*RESERVED, "model.safetensors", "x.GGUF"])
def test_names_that_some_system_does_not_have(tmp_path: Path, name: str) -> None:
    """DESIGN section 6: small files keep their names, so these are names everywhere."""
    with pytest.raises(ModelNotFound):
        Ranges(tmp_path).model("a/b", "main").put_small(name, b"{}")
    assert list(tmp_path.iterdir()) == []


@given(repo=st.text(max_size=30), revision=st.text(max_size=30), name=st.text(max_size=30))
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_name_leads_out(tmp_path: Path, repo: str, revision: str, name: str) -> None:
    """PROTOCOL section 6: any text at all, as repo, revision and name."""
    root = tmp_path / "root"
    try:
        model = Ranges(root).model(repo, revision)
        file = model.file(name, 5)
    except ModelNotFound:
        return
    for path in (model.folder, model.home, model.locks):
        assert path.resolve().is_relative_to(root.resolve())
        assert path.relative_to(root).as_posix().isascii()
        assert len(str(path.relative_to(root))) < 80
    piece = file.begin(0, 5)
    assert piece is not None
    piece.drop()
    assert {path.name for path in tmp_path.iterdir()} == {"root"}


@given(
    st.text(max_size=20),
    st.text(max_size=20),
    st.text(max_size=20),
    st.integers(-9, 1 << 70),
    st.integers(-9, 1 << 70),
)
@settings(deadline=None, max_examples=150)
def test_holdings_raise_one_thing_only(repo: str, revision: str, name: str, lo: int, hi: int) -> None:
    """PROTOCOL section 6: whatever a device asks for."""
    holdings = open_holdings()
    for one in (name, "config.json", "model.safetensors"):
        assert holdings.have(repo, revision, one) == []
        assert holdings.sha256(repo, revision, one, lo, hi) == ""
        with pytest.raises(ModelNotFound):
            holdings.read(repo, revision, one, lo, hi)
        if hi > 9:  # larger than any file, or out of it
            with pytest.raises(ModelNotFound):
                holdings.take(repo, revision, Piece(name=one, lo=hi, hi=lo, size=9))


def test_case_does_not_mix_two_models(tmp_path: Path) -> None:
    """DESIGN section 6: some file systems know no case, and no difference between two ways to write é."""
    ranges = Ranges(tmp_path)
    pairs = [("Org/Model", "main"), ("org/model", "main"), ("org/model", "Main")]
    pairs += [("o/\u00e9", "m"), ("o/e\u0301", "m")]
    homes = [ranges.model(*pair).home for pair in pairs]
    assert len({str(home).lower() for home in homes}) == len(pairs)
    model = ranges.model("a/b", "main")
    model.put_small("config.json", b"{}")
    model.put_small("Config.json", b"[]")
    for name, data in (("config.json", b"{}"), ("Config.json", b"[]")):
        assert model.small(name, hashlib.sha256(data).hexdigest()) == data
    one, two = model.file("A.safetensors", 5), model.file("a.safetensors", 5)
    piece = one.begin(0, 5)
    assert piece is not None
    piece.write(b"12345")
    piece.finish()
    assert two.held() == []


HASH = "0123456789abcdef" * 4
NO_HASH = [
    "",
    HASH[:63],
    HASH + "0",
    HASH.upper(),
    HASH[:63] + "g",
    HASH + "\n",
    "\\\\host\\share",
    "../../x",
]


@pytest.mark.parametrize("odd", NO_HASH)
def test_what_is_no_hash_leads_nowhere(tmp_path: Path, odd: str) -> None:
    """PROTOCOL section 6: a deal's hash names a folder of the cache: another text there is refused."""
    for fact in ({"size": 1, "sha256": odd}, {"size": 1, "sample": odd}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(fact, FileFact)
    assert msgspec.convert({"size": 1, "sha256": HASH, "sample": None}, FileFact).sha256 == HASH
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "config.json").write_bytes(b"{}")
    model = Ranges(tmp_path / "cache").model("a/b", "main")
    assert model.small("config.json", odd) is None
    looked = list[Path]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "regular_size", looked.append)
        assert model.small("config.json", str(outside)) is None
        assert not looked, "a path that a room named is not looked at"


def test_paths_of_windows_may_be_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 6: paths of Windows are 260 letters at most, but for those written in another form."""
    assert disk.extended("C:\\a b\\c") == "\\\\?\\C:\\a b\\c"
    assert disk.extended("\\\\host\\share\\c") == "\\\\?\\UNC\\host\\share\\c"
    assert disk.extended("\\\\?\\C:\\a") == "\\\\?\\C:\\a"
    model = Ranges(tmp_path).model("o" * 40 + "/" + "m" * 56, HASH[:40])
    file = model.file("model-00001-of-00100.safetensors", 1 << 40)
    name = segment_name((1 << 40) - (16 << 20), 1 << 40, HASH, True)
    inside = file._folder.relative_to(tmp_path) / name
    cache = PureWindowsPath("C:/Users/somebody.with.a.name/AppData/Local/pooled_nb/Cache/ranges")
    assert len(str(cache / inside)) > 259, "else the other form would not be needed"
    monkeypatch.setattr(sys, "platform", "win32")
    assert str(Ranges(tmp_path).root).startswith("\\\\?\\")
    monkeypatch.undo()
    said = disk.in_words(OSError(5, "no"), Path(disk.extended("C:\\x")), 0)
    assert said.what == "The cache folder C:\\x cannot be used: no."
