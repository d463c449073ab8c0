"""Weights by ranges: only what is needed, once, resumed, and by several at once (DESIGN section 6)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pooled_nb.errors import ModelNotFound, ModelTooBig
from pooled_nb.shard import FileFact, LoadSpec
from pooled_nb.shard.ranges import Ranges
from pooled_nb.shard.sources import fetch, pull
from pooled_nb.shard.tensormap import TensorMap, read_map
from pooled_nb.shard.tensors import in_range
from tests.shard import fakehub
from tests.shard.fakehub import Fault
from tests.shard.hubbed import HUB_ID, alone, environment, look, quiet, spec_of, with_hub, write_layers

FILES = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
PULL = """
import sys
from pooled_nb.shard.sources import pull
pull(sys.argv[1], lo=int(sys.argv[2]), hi=int(sys.argv[3]), progress=lambda pct, words: None)
"""


class Stopped(Exception):
    """Somebody stopped it."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_layers(tmp_path_factory.mktemp("models") / "layers")


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    alone(monkeypatch, tmp_path)


@pytest.fixture
def hub(monkeypatch, clean, model):
    with with_hub(monkeypatch) as hub:
        hub.repos[HUB_ID] = model
        yield hub


def settle(true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until it is so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


def numbers(held: TensorMap) -> dict[str, bytes]:
    """The bytes of each tensor, read as a load reads them."""
    found = {}
    for name, entry in held.entries.items():
        with entry.file.open("rb") as stream:
            stream.seek(entry.start)
            found[name] = stream.read(entry.end - entry.start)
    return found


def wanted(model: Path, spec: LoadSpec) -> dict[str, bytes]:
    every = numbers(read_map(model))
    return {n: data for n, data in every.items() if in_range(n, spec.lo, spec.hi, spec.ends)}


@pytest.mark.parametrize(("lo", "hi", "ends"), [(0, 12, True), (3, 9, False), (0, 5, True), (11, 12, False)])
def test_only_the_bytes_of_the_range_come(hub, model, lo, hi, ends):
    """DESIGN section 6: only what a device computes is fetched: its tensors, headers besides."""
    found = look(HUB_ID)
    headers = hub.sent
    assert headers <= len(FILES) << 16
    spec = spec_of(found, lo=lo, hi=hi, ends=ends)
    located = fetch(spec, progress=quiet)
    want = wanted(model, spec)
    assert numbers(located.tensors) == want
    assert hub.sent - headers == sum(len(data) for data in want.values())
    asked = hub.links
    again = fetch(spec, progress=quiet)
    assert numbers(again.tensors) == want
    assert hub.links == asked, "what is here costs no request"
    assert len(hub.parts) <= 2 + 6


def test_bytes_fetched_are_those_of_the_range(hub, tmp_path):
    """DESIGN section 6: at most 1.005 times the bytes of the range's tensors, headers too."""
    hub.repos["lab/larger"] = write_layers(
        tmp_path / "larger", layers=16, size=3 << 20, files=1, ends=1 << 20
    )
    located = pull("lab/larger", lo=0, hi=8, ends=False, progress=quiet)
    need = sum(entry.end - entry.start for entry in located.tensors.entries.values())
    assert need == 24 << 20
    assert need <= hub.sent <= 1.005 * need


def test_neighbours_come_in_one_request(hub):
    """DESIGN section 6: few requests: neighbouring tensors come together."""
    found = look(HUB_ID)
    hub.parts.clear()
    fetch(spec_of(found, lo=0, hi=6, ends=False), progress=quiet)
    assert len(hub.parts) == 1


def test_the_store_is_not_told_who_asks(hub, monkeypatch):
    """DESIGN section 7: a token goes to the hub and to nobody else; its link is used again."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    found = look(HUB_ID)
    assert hub.links == 2
    fetch(spec_of(found, hi=12), progress=quiet)
    assert hub.links <= 2 + 2
    assert {part.token for part in hub.parts} == {""}
    assert hub.tokens == {"Bearer hf_secret"}


def test_connections_are_used_again(hub, tmp_path):
    """DESIGN section 6: a request costs no new connection: there are 4 of them to each server at most."""
    hub.repos["lab/parts"] = write_layers(tmp_path / "parts", layers=20, size=1 << 20, files=10)
    pull("lab/parts", progress=quiet)
    assert len(hub.parts) >= 20
    before = hub.connections
    pull("lab/parts", progress=quiet)
    assert hub.connections <= before + 1
    assert before <= 2 * 4 + 4


def test_a_link_that_expired_is_asked_for_again(hub, model):
    """DESIGN section 6: signed links of a store hold for a while only."""
    found = look(HUB_ID)
    hub.link_uses = 1
    hub.faults["*"] = [Fault(times=3, cut=1 << 20)]
    spec = spec_of(found, hi=12)
    assert numbers(fetch(spec, progress=quiet).tensors) == wanted(model, spec)
    assert hub.links >= 2 + 2 + 3


def test_what_the_hubs_own_cache_has_is_read_there(hub, model):
    """DESIGN section 6: a file that is whole in the hub's cache is not fetched again."""
    from huggingface_hub import hf_hub_download

    found = look(HUB_ID)
    hf_hub_download(HUB_ID, FILES[0], revision=found.revision)
    hub.parts.clear()
    spec = spec_of(found, lo=0, hi=9)
    located = fetch(spec, progress=quiet)
    assert {n: d for n, d in numbers(located.tensors).items() if n in wanted(model, spec)} == wanted(
        model, spec
    )
    assert {part.name for part in hub.parts} == {FILES[1]}


def test_a_worker_needs_no_list_of_files(hub, model, tmp_path):
    """PROTOCOL section 6: ``files`` may be absent from ``ai-load``: the index says what to fetch."""
    hub.repos["lab/single"] = write_layers(tmp_path / "single", files=1)
    for repo in (HUB_ID, "lab/single"):
        spec = spec_of(
            look(str(model)), repo=repo, revision=fakehub.COMMIT, files={}, config_sha256="", ends=False
        )
        assert set(numbers(fetch(spec, progress=quiet).tensors)) == {
            f"model.layers.0.{x}.weight" for x in "ab"
        }


def test_no_more_is_downloaded_than_the_device_allows(hub):
    """PROTOCOL section 6: more than a device's setting allows is refused in words; only this range counts."""
    found = look(HUB_ID)
    hub.parts.clear()
    spec = {"lo": 1, "hi": 3, "ends": False}
    with pytest.raises(ModelTooBig, match=r"Layers 2 to 3 of lab/tiny-chat need a download of") as caught:
        fetch(spec_of(found, **spec, max_download_gb=((2 << 20) - 1) / 1e9), progress=quiet)
    assert caught.value.next_step
    assert not hub.parts
    fetch(spec_of(found, **spec, max_download_gb=(2 << 20) / 1e9), progress=quiet)
    fetch(spec_of(found, **spec, max_download_gb=0.0), progress=quiet)  # what is here is no download
    for odd in (0.0, float("nan")):
        with pytest.raises(ModelTooBig):
            fetch(spec_of(found, lo=4, hi=5, ends=False, max_download_gb=odd), progress=quiet)


def test_another_size_than_the_rooms_is_refused(hub):
    """PROTOCOL section 6: what is downloaded is bounded by what the room declares."""
    found = look(HUB_ID)
    files = found.files | {FILES[0]: FileFact(size=found.files[FILES[0]].size - 1)}
    with pytest.raises(ModelNotFound, match=f"{FILES[0]} of lab/tiny-chat is said to have"):
        fetch(spec_of(found, files=files), progress=quiet)
    Ranges().delete(HUB_ID)
    with pytest.raises(ModelNotFound, match=f"{FILES[0]} changed on the hub"):
        fetch(spec_of(found, files=files), progress=quiet)


def test_stopping_keeps_what_came(hub, model):
    """DESIGN section 6: a stopped load keeps the part that came, and ends soon, however slow the server."""
    found = look(HUB_ID)
    spec = spec_of(found, hi=12)
    need = sum(len(data) for data in wanted(model, spec).values())
    headers, hold = hub.sent, threading.Event()
    hub.faults[FILES[0]] = [Fault(times=1, pause=0.01), Fault(times=-1, hold=hold)]
    hub.faults[FILES[1]] = [Fault(times=-1, hold=hold)]  # nothing comes: only cutting the line ends it

    def stop() -> None:
        if hub.sent > headers + (2 << 20):
            raise Stopped

    with pytest.raises(Stopped):
        fetch(spec, progress=quiet, stop=stop)
    assert not [t for t in threading.enumerate() if t.name.startswith("pooled-fetch")]
    hold.set()
    hub.faults.clear()
    before = hub.sent - headers
    assert before < need
    first = len(hub.parts)
    assert numbers(fetch(spec, progress=quiet).tensors) == wanted(model, spec)
    again = sum(part.sent for part in hub.parts[first:])
    assert again <= need - (2 << 20) + (1 << 19)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_pull_goes_on_where_it_was(hub, model, tmp_path):
    """DESIGN section 6: after a SIGKILL in the middle, what was written down is not fetched again."""
    found = look(HUB_ID)
    spec = spec_of(found, lo=0, hi=9)
    need = sum(len(data) for data in wanted(model, spec).values())
    headers = hub.sent
    hub.faults["*"] = [Fault(times=-1, pause=0.01)]
    command = [sys.executable, "-c", PULL, HUB_ID, "0", "9"]
    process = subprocess.Popen(command, env=environment(hub, tmp_path), stdout=subprocess.DEVNULL)
    settle(lambda: hub.sent > headers + (6 << 20) or process.poll() is not None, 60)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    hub.faults.clear()
    settle(lambda: hub.busy == 0)
    before, first = hub.sent - headers, len(hub.parts)
    assert 6 << 20 <= before < need
    assert numbers(fetch(spec, progress=quiet).tensors) == wanted(model, spec)
    again = sum(part.sent for part in hub.parts[first:])
    # Of each request the bytes since the last record of the journal, and what was on its way.
    assert need <= before + again <= need + 2 * (256 << 10) + 2 * (192 << 10)


def test_two_at_once_fetch_each_byte_once(hub, tmp_path):
    """DESIGN section 6: several kernels of one machine that start together fetch the model once."""
    hub.faults["*"] = [Fault(times=-1, pause=0.004)]
    command = [sys.executable, "-c", PULL, HUB_ID, "0", "12"]
    env = environment(hub, tmp_path)
    both = [
        subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in both:
        said = process.communicate(timeout=90)[1]
        assert process.returncode == 0, said
    need = (12 << 20) + (3 << 20) + 1000
    assert need <= hub.sent <= need + (len(FILES) << 16)


def test_progress_says_how_fast_and_how_long(hub, model):
    """DESIGN section 1: every wait shows progress, and ends."""
    found = look(HUB_ID)
    hub.faults["*"] = [Fault(times=-1, pause=0.02)]
    heard: list[tuple[int, str]] = []
    fetch(spec_of(found, hi=12), progress=lambda pct, words: heard.append((pct, words)))
    assert [pct for pct, _ in heard] == sorted(pct for pct, _ in heard)
    rated = [words for _, words in heard if "left" in words]
    assert rated
    assert rated[0].startswith("fetching ")
    assert " of 15.7 MB (" in rated[0]
    assert "B/s, " in rated[0]
