"""Pieces on their way: what a full disk, a failing one, or a source that lies leaves behind."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

import tests
from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.pieces import Incoming
from pooled_nb.shard.ranges import RangeFile, Ranges, disk
from pooled_nb.shard.ranges.incoming import CHUNK
from tests.shard.ranges.kernels import CONTENT, SIZE, open_file


def begin(file: RangeFile, lo: int = 0, hi: int = SIZE, *, room: bool = False) -> Incoming:
    piece = file.begin(lo, hi, room=room)
    assert piece is not None
    return piece


def files(root: Path) -> set[str]:
    """All that is kept, but locks and what a model's folder says of itself."""
    return {path.name for path in root.glob("models/*/files/*/**/*") if path.is_file()} - {"about.json"}


@pytest.fixture
def file(tmp_path: Path) -> RangeFile:
    return open_file(tmp_path)


def test_a_wrong_hash_is_thrown_away(file: RangeFile, tmp_path: Path) -> None:
    """DESIGN section 6: a range counts only when its hash is the one vouched for."""
    piece = begin(file)
    piece.write(CONTENT)
    assert piece.finish("ab" * 32) == ""
    assert file.held() == []
    assert files(tmp_path) == set()
    assert begin(file).at == 0


def test_the_hash_is_known_later_without_reading(file: RangeFile, tmp_path: Path) -> None:
    """PROTOCOL section 6, nb-hash: hashed when it came, also over several tries."""
    piece = begin(file, 7, SIZE)
    piece.write(CONTENT[7:400_000])
    piece.keep()
    piece = begin(file, 7, SIZE)
    assert piece.at == 400_000 - 7  # the last bytes too: it ended in peace
    piece.write(CONTENT[400_000:])
    assert piece.finish() == hashlib.sha256(CONTENT[7:]).hexdigest()
    assert open_file(tmp_path).sha256(7, SIZE) == hashlib.sha256(CONTENT[7:]).hexdigest()
    assert file.sha256(7, SIZE - 1) == file.sha256(8, SIZE) == file.sha256(-1, 3) == ""


def test_more_than_a_piece_has_is_refused(file: RangeFile) -> None:
    """PROTOCOL section 6: a device that sends too much."""
    piece = begin(file, 0, 10)
    piece.write(CONTENT[:10])
    with pytest.raises(ModelNotFound, match="More bytes"):
        piece.write(b"x")
    assert piece.finish() == hashlib.sha256(CONTENT[:10]).hexdigest()


def test_less_than_a_piece_is_no_end(file: RangeFile) -> None:
    """PROTOCOL section 6: a device that sends too little. What came stays."""
    piece = begin(file, 0, 10)
    piece.write(CONTENT[:4])
    with pytest.raises(ModelNotFound, match="Only 4 of 10"):
        piece.finish()
    piece.keep()
    piece.keep()  # ends once
    with pytest.raises(ValueError, match="ended"):
        piece.write(b"x")
    assert begin(file, 0, 10).at == 4


def test_a_piece_that_nothing_came_of_leaves_nothing(file: RangeFile, tmp_path: Path) -> None:
    """DESIGN section 6: no empty files stay behind."""
    begin(file).keep()
    assert files(tmp_path) == set()


def test_ranges_that_no_file_has(file: RangeFile) -> None:
    """PROTOCOL section 6: bounds come from outside."""
    for lo, hi in ((-1, 5), (5, 5), (9, 3), (0, SIZE + 1)):
        with pytest.raises(ModelNotFound, match="no range"):
            file.begin(lo, hi)
        assert file.read(lo, hi) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_a_disk_that_fails_is_said_in_words(
    file: RangeFile, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 6: a full disk, a quota; what was fetched is kept."""
    piece = begin(file)
    piece.write(CONTENT[: 2 * CHUNK])

    def fail(fd: int, data: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(ModelNotFound) as caught:
            piece.write(CONTENT[2 * CHUNK :])
        piece.keep()
    need = f"{(SIZE - 2 * CHUNK) / 1e9:.3g} GB more are needed"
    words = {errno.ENOSPC: need, errno.EDQUOT: need, errno.EIO: "cannot be used", errno.EROFS: "be written"}
    assert words[number] in caught.value.what
    assert "what was fetched is kept" in caught.value.next_step
    piece = begin(file)
    assert piece.at == 2 * CHUNK
    piece.write(CONTENT[piece.at :])
    assert piece.finish(hashlib.sha256(CONTENT).hexdigest())


def test_what_could_not_be_flushed_is_not_read_again(
    file: RangeFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 6: after a failed flush the system shows bytes that the disk does not have."""
    piece = begin(file)
    piece.write(CONTENT)

    def fail(fd: int) -> NoReturn:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(disk, "settle", fail)
    with pytest.raises(ModelNotFound, match="cannot be used: broken"):
        piece.finish()
    assert files(tmp_path) == set()
    assert begin(file).at == 0


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a small disk")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """DESIGN section 6: the sentence has both numbers, and after some space is freed it goes on."""
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.shard.ranges import kernels as k\n"
        "root = Path(sys.argv[1]); ballast = root / 'ballast'; ballast.write_bytes(bytes(4_000_000))\n"
        "piece = k.open_file(root / 'ranges').begin(0, k.SIZE)\n"
        "try: piece.write(k.CONTENT)\n"
        "except k.ModelNotFound as error: print(error.what)\n"
        "at = piece.at; piece.keep(); ballast.unlink()\n"
        "piece = k.open_file(root / 'ranges').begin(0, k.SIZE)\n"
        "print(at - piece.at < 262144 < piece.at)\n"
        "piece.write(k.CONTENT[piece.at:]); piece.finish()\n"
        "print(k.open_file(root / 'ranges').read(0, k.SIZE) == k.CONTENT)\n"
    )
    mount = f'mount -t tmpfs -o size=8m none {tmp_path} && exec {sys.executable} -c "$CODE" {tmp_path}'
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount],
        cwd=Path(tests.__file__).parent.parent,
        env={**os.environ, "CODE": code},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if not done.stdout and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip("may not mount")
    words, *rest = done.stdout.splitlines()
    assert words.startswith(f"The disk of {tmp_path / 'ranges'} is full: 0.00"), done.stderr
    assert words.endswith("GB more are needed, and 0 GB are free.")
    assert rest == ["True", "True"]


def test_what_other_segments_hold_is_copied(file: RangeFile) -> None:
    """DESIGN section 6: once in its life; an older rule of cutting left other blocks."""
    for lo, hi in ((0, 1_000_000), (1_000_000, 1_500_000), (1_400_000, 2_000_000)):
        piece = begin(file, lo, hi)
        piece.write(CONTENT[lo + piece.at : hi])
        piece.finish()
    piece = begin(file, 500_000, 2_500_000)
    assert piece.at == 1_500_000
    piece.write(CONTENT[2_000_000:2_500_000])
    piece.finish(hashlib.sha256(CONTENT[500_000:2_500_000]).hexdigest())
    assert file.find(600_000, 2_400_000) is not None
    assert file.read(0, 2_500_000) == CONTENT[:2_500_000]
    assert len(file.held()) == 4


def test_half_a_piece_of_a_room_is_not_finished_from_the_hub(file: RangeFile) -> None:
    """DESIGN section 6: a range from a peer counts only when its hash is vouched for, as a whole."""
    piece = begin(file, room=True)
    piece.write(b"x" * CHUNK)
    piece.keep()
    piece = begin(file)
    assert piece.at == 0
    piece.write(CONTENT[:CHUNK])
    piece.keep()
    piece = begin(file, room=True)  # the other way it may: the whole is checked
    assert piece.at == CHUNK
    piece.write(CONTENT[CHUNK:])
    piece.finish()
    assert [(lo, hi) for lo, hi, _ in file.sent()] == [(0, SIZE)]


def test_segments_of_a_room_are_told_apart(file: RangeFile) -> None:
    """DESIGN section 6: what a room vouched for is no more than that."""
    piece = begin(file, 0, 100, room=True)
    piece.write(CONTENT[:100])
    piece.finish()
    assert file.sent() == [(0, 100, hashlib.sha256(CONTENT[:100]).hexdigest())]
    assert begin(file, 50, 200).at == 0  # nor does it get into what comes from the hub
    assert begin(file, 60, 200, room=True).at == 40


def test_links_are_not_followed(file: RangeFile, tmp_path: Path) -> None:
    """DESIGN section 6: whoever puts a link into the cache gets nothing out of other folders."""
    piece = begin(file, 0, 100)
    piece.write(CONTENT[:100])
    piece.finish()
    found = file.find(0, 100)
    assert found is not None
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(100))
    found[0].unlink()
    found[0].symlink_to(secret)
    assert file.read(0, 100) is None
    assert open_file(tmp_path).held() == []
    model = next((tmp_path / "models").iterdir())
    moved = tmp_path / "elsewhere"
    model.rename(moved)
    model.symlink_to(moved, target_is_directory=True)
    assert Ranges(tmp_path).models() == []
    with pytest.raises(ModelNotFound):
        file.begin(0, 50)
