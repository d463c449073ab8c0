"""Names come from a room: none of them leads anywhere, and none of them means another."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard import open_holdings
from pooled_nb.shard.pieces import Piece
from pooled_nb.shard.ranges import Ranges

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
