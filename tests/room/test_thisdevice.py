"""What a device does about weights, as its options, its environment and its place say."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from pooled_nb.errors import BadOption
from pooled_nb.room import opening, resumable, resuming
from pooled_nb.room.opening import host
from pooled_nb.room.roomfile import Opened
from pooled_nb.room.thisdevice import gives_weights, max_download, means_here


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POOLED_CACHE", str(tmp_path))
    for name in ("POOLED_GIVE_WEIGHTS", "POOLED_MAX_DOWNLOAD", "COLAB_GPU", "COLAB_RELEASE_TAG"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("text", "said", "gives"),
    [
        ("", None, True), ("1", None, True), ("0", None, False), (" Off ", None, False), ("no", None, False),
        ("0", True, True), ("1", False, False), ("", False, False),
    ],
)  # fmt: skip
def test_whether_it_gives(text: str, said: bool | None, gives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 6: a person may keep weights to themselves; what is said for a room goes first."""
    monkeypatch.setenv("POOLED_GIVE_WEIGHTS", text)
    assert gives_weights(said) is gives
    means = means_here(give=said)
    assert (means.gives, means.takes) == (gives, True)


def test_colab_neither_gives_nor_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 7: all of its runtimes forbid peer-to-peer file sharing, whatever a person says."""
    monkeypatch.setenv("COLAB_GPU", "1")
    means = means_here(give=True)
    assert (means.gives, means.takes) == (False, False)


async def test_what_is_no_answer_is_refused_before_anything_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad input: an environment that says neither."""
    monkeypatch.setenv("POOLED_GIVE_WEIGHTS", "perhaps")
    with pytest.raises(BadOption, match=r"POOLED_GIVE_WEIGHTS is 'perhaps'\. Set it to 1 or 0\."):
        await host("no/model")


def test_how_much_it_downloads_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 6: above that its person is asked."""
    assert max_download() == 8.0
    monkeypatch.setenv("POOLED_MAX_DOWNLOAD", "0.5")
    assert means_here().download_gb == 0.5
    assert (means_here().free_gb() or 0) > 0
    monkeypatch.setenv("POOLED_MAX_DOWNLOAD", "much")
    with pytest.raises(BadOption, match="Set it to a number of GB"):
        max_download()


def test_a_drive_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad input: nothing of the cache folder's path is there, up to its drive: nobody waits for it."""

    def missing(place: object) -> None:
        raise FileNotFoundError(place)

    monkeypatch.setattr("shutil.disk_usage", missing)
    monkeypatch.setattr("pathlib.Path.exists", lambda self: False)
    assert means_here().free_gb() is None


async def test_a_room_that_goes_on_keeps_what_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 8: it is taken back as it was opened."""
    given: list[object] = []

    async def opened(model: str, **options: object) -> None:
        given.append(options["give"])

    monkeypatch.setattr(opening, "host", opened)
    monkeypatch.setattr(resumable, "servers", lambda *_: [])
    for give in (None, False):
        saved = MagicMock()
        saved.room.opened = Opened(give=give)
        monkeypatch.setattr(resumable, "choose", lambda code, saved=saved: saved)
        await resuming.resume()
    assert given == [None, False]
