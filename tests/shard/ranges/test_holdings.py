"""What a device gives away of models' files, and what it takes in (PROTOCOL section 6)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard import Piece, open_holdings, wheel
from pooled_nb.shard.pieces import Holdings
from pooled_nb.shard.ranges import Ranges
from pooled_nb.shard.ranges.segments import OWN
from tests.shard.ranges.kernels import CONTENT

REPO, COMMIT, NAME = "org/model", "0123456789abcdef" * 2 + "01234567", "model.safetensors"
SIZE = 1000


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POOLED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "cache"


def take(holdings: Holdings, name: str, lo: int, hi: int, size: int = SIZE) -> str:
    piece = holdings.take(REPO, COMMIT, Piece(name=name, lo=lo, hi=hi, size=size))
    assert piece is not None
    piece.write(CONTENT[lo:hi])
    return piece.finish()


def read_from_hub(lo: int, hi: int) -> str:
    piece = Ranges().model(REPO, COMMIT).file(NAME, SIZE, OWN).begin(lo, hi)
    assert piece is not None
    piece.write(CONTENT[lo:hi])
    return piece.finish()


def hub_cache(root: Path, name: str) -> None:
    """A file as the hub's own cache has it: a link to a blob."""
    repo = root / "hub" / f"models--{REPO.replace('/', '--')}"
    (repo / "blobs").mkdir(parents=True, exist_ok=True)
    (repo / "snapshots" / COMMIT).mkdir(parents=True, exist_ok=True)
    (repo / "blobs" / "blob").write_bytes(CONTENT[:SIZE])
    (repo / "snapshots" / COMMIT / name).symlink_to("../../blobs/blob")


def test_only_what_is_known_to_be_open_is_given(tmp_path: Path) -> None:
    """PROTOCOL section 6, ai-inv: for a gated model have: []; not known counts as gated."""
    holdings = open_holdings()
    sha256 = read_from_hub(100, 200)
    read_from_hub(200, 300)
    hub_cache(tmp_path, "config.json")
    model = Ranges().model(REPO, COMMIT)
    for is_open in (None, False):
        model.remember(open=is_open)
        assert holdings.have(REPO, COMMIT, NAME) == holdings.have(REPO, COMMIT, "config.json") == []
        for name in (NAME, "config.json"):
            with pytest.raises(ModelNotFound):
                holdings.read(REPO, COMMIT, name, 0, 9)
            with pytest.raises(ModelNotFound):
                holdings.read(REPO, COMMIT, name, 100, 200)
    model.remember(open=True)
    assert holdings.have(REPO, COMMIT, NAME) == [(100, 300)]
    assert holdings.have(REPO, COMMIT, "config.json") == [(0, SIZE)]
    assert holdings.read(REPO, COMMIT, NAME, 150, 250) == CONTENT[150:250]
    assert holdings.sha256(REPO, COMMIT, NAME, 100, 200) == sha256
    assert holdings.sha256(REPO, COMMIT, NAME, 100, 300) == ""
    whole = hashlib.sha256(CONTENT[:SIZE]).hexdigest()
    assert holdings.sha256(REPO, COMMIT, "config.json", 0, SIZE) == whole
    assert holdings.sha256(REPO, COMMIT, "config.json", 0, 8) == ""
    with pytest.raises(ModelNotFound):
        holdings.read(REPO, COMMIT, NAME, 250, 301)
    model.remember(open=False)  # it became gated, in the middle
    with pytest.raises(ModelNotFound):
        holdings.read(REPO, COMMIT, NAME, 150, 250)


def test_what_is_removed_is_not_given(own_cache: Path) -> None:
    """PROTOCOL section 6: asked for what is not there any more, a device says so; and again when it is."""
    holdings = open_holdings()
    for _ in range(2):
        read_from_hub(0, 100)
        Ranges().model(REPO, COMMIT).remember(open=True)
        assert holdings.read(REPO, COMMIT, NAME, 0, 100) == CONTENT[:100]
        assert Ranges().delete(REPO) > 0
        assert holdings.have(REPO, COMMIT, NAME) == []
        with pytest.raises(ModelNotFound):
            holdings.read(REPO, COMMIT, NAME, 0, 100)


def test_a_whole_file_of_the_hubs_own_cache(tmp_path: Path) -> None:
    """DESIGN section 6: the hub's cache is shared, for public models only; never a branch, which moves."""
    hub_cache(tmp_path, NAME)
    holdings = open_holdings()
    assert holdings.have(REPO, COMMIT, NAME) == []
    assert holdings.take(REPO, COMMIT, Piece(name=NAME, lo=0, hi=9, size=SIZE)) is None  # it is here
    Ranges().model(REPO, COMMIT).remember(open=True)
    Ranges().model(REPO, "main").remember(open=True)
    assert holdings.have(REPO, COMMIT, NAME) == [(0, SIZE)]
    assert holdings.read(REPO, COMMIT, NAME, 990, SIZE) == CONTENT[990:SIZE]
    assert holdings.have(REPO, "main", NAME) == holdings.have("org/other", COMMIT, NAME) == []
    with pytest.raises(ModelNotFound):
        holdings.read(REPO, COMMIT, NAME, 990, SIZE + 1)


def test_own_folders_are_given_and_nothing_beside(tmp_path: Path) -> None:
    """DESIGN section 6: a model that exists only in the host's folder reaches the workers over the room."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in (NAME, "config.json", "notes.txt", "model.bin"):
        (folder / name).write_bytes(CONTENT[:SIZE])
    (tmp_path / "config.json").write_bytes(b"secret")
    own: dict[tuple[str, str], Path] = {}
    holdings = open_holdings(own)
    assert holdings.have("local/mine", "r1", NAME) == []
    own["local/mine", "r1"] = folder  # the room opened
    for name in (NAME, "config.json"):
        assert holdings.have("local/mine", "r1", name) == [(0, SIZE)]
        assert holdings.read("local/mine", "r1", name, 10, 20) == CONTENT[10:20]
    for name in ("notes.txt", "model.bin", "../config.json", "../mine/config.json", "gone.safetensors"):
        assert holdings.have("local/mine", "r1", name) == []
        with pytest.raises(ModelNotFound):
            holdings.read("local/mine", "r1", name, 0, 5)
    assert holdings.have("local/mine", "r2", NAME) == holdings.have("local/other", "r1", NAME) == []
    assert holdings.take("local/mine", "r1", Piece(name=NAME, lo=0, hi=9, size=SIZE)) is None
    del own["local/mine", "r1"]
    assert holdings.have("local/mine", "r1", NAME) == []


def test_the_offline_model_is_given(own_cache: Path) -> None:
    """DESIGN section 6: Apache-2.0, from PyPI: everybody may have it."""
    holdings = open_holdings()
    assert holdings.have(wheel.REPO, wheel.REVISION, "config.json") == []
    folder = own_cache / "models" / f"{wheel.LABEL}--{wheel.REVISION}"
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(b"{}")
    (folder / NAME).write_bytes(CONTENT[:SIZE])
    assert holdings.have(wheel.REPO, wheel.REVISION, "config.json") == [(0, 2)]
    assert holdings.read(wheel.REPO, wheel.REVISION, NAME, 1, 3) == CONTENT[1:3]
    assert holdings.have("org/other", wheel.REVISION, "config.json") == []


def test_pieces_that_cannot_be(own_cache: Path) -> None:
    """PROTOCOL section 6: a piece of a room is checked before anything is written."""
    holdings = open_holdings()
    for name, lo, hi, size in (
        (NAME, 5, 5, 9),
        (NAME, 0, 10, 9),
        (NAME, -1, 3, 9),
        (NAME, 0, 1, 1 << 62),
        ("config.json", 0, 5, 9),
        ("config.json", 0, 1 << 40, 1 << 40),
        ("code.py", 0, 9, 9),
        ("../x.safetensors", 0, 9, 9),
    ):
        with pytest.raises(ModelNotFound):
            holdings.take(REPO, COMMIT, Piece(name=name, lo=lo, hi=hi, size=size))
    assert not own_cache.exists()


def test_a_small_file_is_what_its_own_room_says() -> None:
    """PROTOCOL section 6: what another room brought under its name stands in nobody's way."""
    holdings = open_holdings()
    first = take(holdings, "config.json", 0, 9, size=9)
    piece = holdings.take(REPO, COMMIT, Piece(name="config.json", lo=0, hi=9, size=9))
    assert piece is not None
    piece.write(b"[1, 2, 3]")
    second = piece.finish()
    take(holdings, "config.json", 0, 8, size=8)
    model = Ranges().model(REPO, COMMIT)
    assert model.small("config.json", first) == CONTENT[:9]
    assert model.small("config.json", second) == b"[1, 2, 3]"
    model.remember(open=True)
    assert holdings.have(REPO, COMMIT, "config.json") == [], "nor is it given away"
    assert holdings.sha256(REPO, COMMIT, "config.json", 0, 9) == ""


def test_what_devices_sent_is_given_on_where_the_room_vouches_for_it() -> None:
    """DESIGN section 6: a host's word holds in its room; nobody passes off as read what came over one."""
    holdings = open_holdings()
    sha256 = take(holdings, NAME, 0, 100)
    read_from_hub(200, 300)
    model = Ranges().model(REPO, COMMIT)
    assert holdings.sent(REPO, COMMIT, NAME) == [(0, 100, sha256)]
    model.remember(open=True)
    assert holdings.have(REPO, COMMIT, NAME) == [(200, 300)]
    with pytest.raises(ModelNotFound):
        holdings.read(REPO, COMMIT, NAME, 0, 100)
    for other in ((0, 100, "0" * 64), (0, 101, sha256), (1, 100, sha256)):
        holdings.confirm(REPO, COMMIT, NAME, [other])
    holdings.confirm(REPO, "0" * 40, NAME, [(0, 100, sha256)])
    assert holdings.have(REPO, COMMIT, NAME) == [(200, 300)]
    holdings.confirm(REPO, COMMIT, NAME, [(0, 100, sha256)])
    assert holdings.have(REPO, COMMIT, NAME) == [(0, 100), (200, 300)]
    assert holdings.read(REPO, COMMIT, NAME, 0, 100) == CONTENT[:100]
    assert holdings.sha256(REPO, COMMIT, NAME, 0, 100) == "", "this device has not read it from the hub"
    assert open_holdings().have(REPO, COMMIT, NAME) == [(200, 300)], "nor in the next room"
    assert not holdings.closed(REPO, COMMIT)
    model.remember(open=False)  # the hub says now that it is gated
    assert holdings.closed(REPO, COMMIT)
    assert holdings.have(REPO, COMMIT, NAME) == []
    with pytest.raises(ModelNotFound):
        holdings.read(REPO, COMMIT, NAME, 0, 100)


def test_a_model_of_the_hosts_folder_is_passed_on() -> None:
    """DESIGN section 6: no hub knows whether it is public, and its host has shared it with this very room."""
    holdings, piece = open_holdings(), Piece(name=NAME, lo=0, hi=100, size=SIZE)
    incoming = holdings.take("local/mine", "r1", piece)
    assert incoming is not None
    incoming.write(CONTENT[:100])
    sha256 = incoming.finish()
    assert holdings.have("local/mine", "r1", NAME) == []
    holdings.confirm("local/mine", "r1", NAME, [(0, 100, sha256)])
    assert holdings.have("local/mine", "r1", NAME) == [(0, 100)]
    assert holdings.read("local/mine", "r1", NAME, 0, 100) == CONTENT[:100]
    assert holdings.have("local/mine", "r2", NAME) == []


def test_the_size_that_a_room_says_holds_in_that_room(own_cache: Path) -> None:
    """PROTOCOL section 6: a host that lies about a file's size spoils it for nobody else."""
    holdings = open_holdings()
    take(holdings, NAME, 0, 7, size=7)
    read_from_hub(0, 100)
    Ranges().model(REPO, COMMIT).remember(open=True)
    assert holdings.have(REPO, COMMIT, NAME) == [(0, 100)]
    with pytest.raises(ModelNotFound, match=f"{SIZE}"):  # what the hub said of it holds
        holdings.take(REPO, COMMIT, Piece(name=NAME, lo=0, hi=7, size=7))


def test_who_is_at_it_is_not_asked_twice() -> None:
    """PROTOCOL section 6: another kernel is fetching it. What it sends is marked as a room's."""
    holdings = open_holdings()
    piece = Piece(name=NAME, lo=0, hi=100, size=SIZE)
    first = holdings.take(REPO, COMMIT, piece)
    assert first is not None
    assert open_holdings().take(REPO, COMMIT, piece) is None
    first.write(CONTENT[:100])
    first.finish()
    sha256 = hashlib.sha256(CONTENT[:100]).hexdigest()
    assert holdings.sent(REPO, COMMIT, NAME) == [(0, 100, sha256)]
    assert Ranges().model(REPO, COMMIT).file(NAME, SIZE, OWN).held() == []
