"""Several kernels at one cache, and kernels that are killed in the middle."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests
from pooled_nb.shard.ranges import Ranges, incoming
from pooled_nb.shard.ranges.segments import PARTS
from tests.shard.ranges.kernels import BLOCK, CONTENT, MODEL, NAME, SIZE, fetch, open_file

Kernel = subprocess.Popen[str]


@contextlib.contextmanager
def kernels(root: Path, *whats: str) -> Iterator[list[Kernel]]:
    """Processes that begin together."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.shard.ranges.kernels", what, str(root)],
            cwd=Path(tests.__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        for what in whats
    ]
    try:
        for kernel in started:
            assert said(kernel) == "ready"
        for kernel in started:
            go_on(kernel)
        yield started
    finally:
        for kernel in started:
            kernel.kill()
            kernel.communicate()


def said(kernel: Kernel) -> str:
    assert kernel.stdout is not None
    return kernel.stdout.readline().strip()


def go_on(kernel: Kernel) -> None:
    assert kernel.stdin is not None
    kernel.stdin.write("\n")
    kernel.stdin.flush()


def test_kernels_fetch_one_file_together(tmp_path: Path) -> None:
    """DESIGN section 6: each byte comes once, whoever fetches it, and what is read is right."""
    with kernels(tmp_path, "fetch", "fetch", "fetch") as started:
        wrote = [int(said(kernel)) for kernel in started]
    assert sum(wrote) == SIZE
    file = open_file(tmp_path)
    assert file.read(0, SIZE) == CONTENT
    assert len(file.held()) == SIZE // BLOCK


def test_what_a_killed_kernel_wrote_goes_on_where_it_ended(tmp_path: Path) -> None:
    """DESIGN section 6: ranges are resumed. Its lock is free; only what verifies counts."""
    with kernels(tmp_path, "hang") as (kernel,):
        assert said(kernel) == str(BLOCK - 1)
        file = open_file(tmp_path)
        assert file.begin(0, BLOCK) is None  # it holds the lock
        assert file.held() == []
        kernel.kill()
        kernel.wait()
    again = file.begin(0, BLOCK)
    assert again is not None
    assert again.at == BLOCK - 1 - (BLOCK - 1) % incoming.CHUNK > 0
    again.write(CONTENT[again.at : BLOCK])
    again.finish()
    assert file.read(0, BLOCK) == CONTENT[:BLOCK]


def test_who_waits_takes_over_from_a_killed_kernel(tmp_path: Path) -> None:
    """DESIGN section 6: a lock ends with its process."""
    file = open_file(tmp_path)
    with kernels(tmp_path, "hang") as (kernel,):
        said(kernel)
        waited = 0

        def wait() -> None:
            nonlocal waited
            waited += 1
            if waited == 2:
                kernel.kill()

        taken = file.begin(0, BLOCK, wait=wait)
    assert taken is not None
    assert waited >= 2
    taken.drop()


def test_whoever_waits_may_give_up(tmp_path: Path) -> None:
    """DESIGN section 6: a load that is stopped waits for nobody. Its own errors stay what they are."""
    file = open_file(tmp_path)
    mine = file.begin(0, BLOCK)
    assert mine is not None

    def give_up() -> None:
        raise TimeoutError("stopped")

    with pytest.raises(TimeoutError, match="stopped"):
        open_file(tmp_path).begin(0, BLOCK, wait=give_up)
    mine.drop()
    assert Ranges(tmp_path).delete(MODEL[0]) > 0  # nobody uses it any more


@pytest.mark.parametrize("damage", ["bytes", "zeros", "end", "journal", "no journal"])
def test_a_torn_part_counts_up_to_the_tear(tmp_path: Path, damage: str) -> None:
    """DESIGN section 6: after a loss of power what was not on the disk is fetched again, and nothing else."""
    file = open_file(tmp_path)
    piece = file.begin(0, SIZE)
    assert piece is not None
    piece.write(CONTENT[: 10 * incoming.CHUNK + 7])
    piece.keep()
    (part,) = tmp_path.glob(f"models/*/files/*/{PARTS}/*.part")
    journal = part.with_name(part.name + incoming.JOURNAL)
    at = 4 * incoming.CHUNK + 99
    with part.open("r+b") as stream:
        stream.seek(at)
        if damage == "bytes":
            stream.write(bytes([CONTENT[at] ^ 1]))
        elif damage == "zeros":
            stream.write(bytes(200_000))
        elif damage == "end":
            stream.truncate()
    if damage == "journal":
        os.truncate(journal, 4 * 8 + 3)
    elif damage == "no journal":
        journal.unlink()
    piece = file.begin(0, SIZE)
    assert piece is not None
    assert piece.at == (0 if damage == "no journal" else 4 * incoming.CHUNK)
    piece.write(CONTENT[piece.at :])
    piece.finish()
    assert file.read(0, SIZE) == CONTENT


def test_what_is_loaded_or_written_is_not_removed(tmp_path: Path) -> None:
    """DESIGN section 6: the user deletes ranges, but none that another kernel works on."""
    ranges = Ranges(tmp_path)
    fetch(open_file(tmp_path), BLOCK, 2 * BLOCK, waits=False)
    with kernels(tmp_path, "use", "hang") as (user, writer):
        assert said(user) == "using"
        said(writer)
        assert ranges.delete(MODEL[0]) == ranges.prune(0) == 0
        user.kill()
        user.wait()
        assert ranges.delete(MODEL[0]) == ranges.prune(0) == 0
        writer.kill()
        writer.wait()
        assert ranges.delete(MODEL[0]) > BLOCK
    assert ranges.models() == []
    assert open_file(tmp_path).held() == []


def test_removing_while_others_fetch_harms_nobody(tmp_path: Path) -> None:
    """DESIGN section 6: a model goes whole, between two pieces, or not at all."""
    with kernels(tmp_path, "fetch", "churn", "fetch") as started:
        wrote = [int(said(kernel)) for kernel in started]
    assert wrote[0] + wrote[2] >= SIZE
    file = open_file(tmp_path)
    for lo, hi in file.held():
        assert file.read(lo, hi) == CONTENT[lo:hi]


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="needs another user")
def test_a_cache_that_may_only_be_read(tmp_path: Path) -> None:
    """DESIGN section 6: what is there is used; what cannot be written is said in words."""
    fetch(open_file(tmp_path), 0, BLOCK, waits=False)
    for path in (tmp_path, *tmp_path.parents):
        if path.owner() == "root" and path.stat().st_mode & 0o055 != 0o055:
            path.chmod(path.stat().st_mode | 0o055)
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tests.shard.ranges import kernels as k\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "root = Path(sys.argv[1]); file = k.open_file(root)\n"
        "with k.Ranges(root).model(*k.MODEL).use():\n"
        "    print(file.read(0, k.BLOCK) == k.CONTENT[:k.BLOCK], file.begin(5, k.BLOCK))\n"
        "try: file.begin(0, k.SIZE)\n"
        "except k.ModelNotFound as error: print(error.what)\n"
        "try: k.Ranges(root).delete(k.MODEL[0])\n"
        "except k.ModelNotFound as error: print(error.what)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=Path(tests.__file__).parent.parent,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    words = f"The cache folder {tmp_path} cannot be written."
    assert done.stdout.splitlines() == ["True None", words, words], done.stderr
    assert open_file(tmp_path).held() == [(0, BLOCK)]
    assert NAME in str([k.files for k in Ranges(tmp_path).models()])
