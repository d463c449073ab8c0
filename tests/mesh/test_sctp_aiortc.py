"""aiortc's own tests of SCTP and of data channels, against the tuned association.

They come from its source distribution, of the version that is installed, and are run as they come; which of
them run with stock's numbers, and why, says `tests.mesh.sctpstock.BY_STOCK_NUMBERS`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from platformdirs import user_cache_path

ROOT = Path(__file__).parents[2]
VERSION = metadata.version("aiortc")
DOWNLOAD_S = 60


def _fetched() -> Path:
    """The source distribution, kept in the user's cache. Without it: skipped in words, a failure in CI."""
    folder = user_cache_path("pooled-nb-tests")
    found = folder / f"aiortc-{VERSION}.tar.gz"
    if found.is_file():
        return found
    folder.mkdir(parents=True, exist_ok=True)
    call = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    call += ["--no-build-isolation", "--dest", str(folder), f"aiortc=={VERSION}"]
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=DOWNLOAD_S, check=False)
        said = done.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    if not found.is_file():
        why = f"the source distribution of aiortc {VERSION} cannot be had: {said[-300:]}"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    return found


def _unpacked(to: Path) -> Path:
    with tarfile.open(_fetched()) as source:
        wanted = [member for member in source if re.match(r"[^/]+/tests/", member.name)]
        source.extractall(to, wanted, filter="data")
    return to / f"aiortc-{VERSION}"


LOTS = {
    "sctp": ("test_rtcsctptransport.py", "", 105),
    "data-channels": ("test_rtcpeerconnection.py", "datachannel", 19),
}
"""File, which of its tests, and how many these are at least."""


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, tuple[subprocess.Popen[str], Path]]]:
    """All at once: they wait for timers most of the time."""
    folder = tmp_path_factory.mktemp("aiortc")
    place = _unpacked(folder)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/mesh")])}
    env.pop("PYTEST_ADDOPTS", None)
    made = {}
    for name, (file, only, _) in LOTS.items():
        call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "sctpstock"]
        call += [f"tests/{file}", *(["-k", only] if only else [])]
        said = folder / name
        with said.open("w") as out:
            process = subprocess.Popen(
                call, cwd=place, env=env, stdout=out, stderr=subprocess.STDOUT, text=True
            )
        made[name] = process, said
    yield made
    for process, _ in made.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize("lot", LOTS)
def test_its_own_tests_pass(lot: str, running: dict[str, tuple[subprocess.Popen[str], Path]]) -> None:
    """DESIGN section 4: the tuned classes are right where stock's are."""
    process, said = running[lot]
    code = process.wait(170)
    text = said.read_text()
    assert code == 0, text[-4_000:]
    passed = re.search(r"(\d+) passed", text)
    assert passed is not None
    assert int(passed[1]) >= LOTS[lot][2]
    assert "skipped" not in text.splitlines()[-1]
