"""What goes wrong with a hub, a store or a disk while weights come: each in words, and what came is kept."""

from __future__ import annotations

import errno
import os

import pytest

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.ranges import Incoming, RangeFile, disk
from pooled_nb.shard.sources import fetch, needs, retry
from pooled_nb.shard.sources.crew import Crew
from pooled_nb.shard.sources.http import Remote
from pooled_nb.shard.sources.words import HubUnreachable
from tests.shard.fakehub import COMMIT, Fault
from tests.shard.hubbed import HUB_ID, alone, look, quiet, spec_of, with_hub, write_layers
from tests.shard.test_sources_ranges import numbers, wanted

NAME = "model.safetensors"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_layers(tmp_path_factory.mktemp("models") / "layers", layers=8, files=1)


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    alone(monkeypatch, tmp_path)
    monkeypatch.setattr(retry, "FIRST_S", 0.001)
    monkeypatch.setattr(retry, "LONGEST_S", 0.002)


@pytest.fixture
def hub(monkeypatch, clean, model):
    with with_hub(monkeypatch) as hub:
        hub.repos[HUB_ID] = model
        yield hub


@pytest.fixture
def spec(hub):
    return spec_of(look(HUB_ID), hi=8)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(times=3, status=500),
        Fault(times=3, status=503, headers={"Retry-After": "0"}),
        Fault(times=3, status=429, headers={"Retry-After": "0"}, store=False),
        Fault(times=3, status=502, store=False),
        Fault(times=3, cut=100_000),
        Fault(times=3, cut=0),
        Fault(times=3, short=3_000_000),
    ],
    ids=["500", "503", "429", "502", "cut", "empty", "short"],
)
def test_what_passes_is_tried_again(hub, model, spec, fault):
    """DESIGN section 6: resets, truncated bodies, 429 and 5xx: tried again, from where it was."""
    fault.times = 3
    hub.parts.clear()
    hub.faults["*"] = [fault]
    assert numbers(fetch(spec, progress=quiet).tensors) == wanted(model, spec)
    need = sum(len(data) for data in wanted(model, spec).values())
    assert need <= hub.sent <= need + (1 << 16) * 4, "nothing that came is fetched again"


def test_a_server_that_is_silent(hub, model, spec, monkeypatch):
    """DESIGN section 6: time-outs are huggingface_hub's own setting; they are tried again, too."""
    import threading

    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    hold = threading.Event()
    hub.faults["*"] = [Fault(times=1, hold=hold)]
    assert numbers(fetch(spec, progress=quiet).tensors) == wanted(model, spec)
    hold.set()


@pytest.mark.parametrize(
    ("fault", "words", "step"),
    [
        (Fault(status=401, store=False), "does not know who asks", "hf auth login"),
        (Fault(status=403, store=False), "does not let this device's account read", "another account"),
        (
            Fault(status=403, store=False, headers={"X-Error-Code": "GatedRepo"}),
            "is gated: its owner lets only people read it who accepted its terms",
            "with this device's account",
        ),
        (
            Fault(status=404, store=False, headers={"X-Error-Code": "EntryNotFound"}),
            "lacks a file that its list names",
            "another model",
        ),
        (Fault(status=402, store=False), "quota", "renewed"),
        (Fault(status=429, store=False), r"too many requests \(429\)", "in some minutes"),
        (Fault(status=429, headers={"Retry-After": "9999"}), r"too many requests \(429\)", "hf auth login"),
        (Fault(status=500), "does not work now: it answered 500", "another mirror"),
        (
            Fault(status=403),
            r"leads to a store that does not give model\.safetensors .*\(403\)",
            "clock",
        ),
        (Fault(cut=0), "stopped sending lab/tiny-chat|cannot be reached", "network"),
        (
            Fault(size=5),
            "changed on the hub .*: it has 5 bytes now",
            "Start the room again",
        ),
        (Fault(shift=1), "sends bytes .* were asked for", "mirror"),
        (Fault(status=418), "answered 418", "huggingface_hub"),
    ],
    ids=str,
)
def test_what_stays_is_said_in_words_and_what_came_is_kept(hub, model, spec, fault, words, step):
    """DESIGN section 1: each way in which a download fails has its own sentence and its next step."""
    half = spec_of(look(HUB_ID), hi=4, ends=False)
    fetch(half, progress=quiet)
    fault.times = -1
    hub.faults["*"] = [fault]
    with pytest.raises(ModelNotFound, match=words) as caught:
        fetch(spec, progress=quiet)
    assert step in caught.value.next_step
    hub.faults.clear()
    first = len(hub.parts)
    assert numbers(fetch(spec, progress=quiet).tensors) == wanted(model, spec)
    again = sum(part.sent for part in hub.parts[first:])
    assert again == sum(len(d) for d in wanted(model, spec).values()) - (4 << 20)


def test_what_came_before_the_end_is_named_in_the_next_step(hub, model, spec):
    """DESIGN section 1: the person learns that nothing is lost."""
    hub.faults["*"] = [Fault(times=1, cut=3_000_000), Fault(times=-1, status=500)]
    with pytest.raises(ModelNotFound) as caught:
        fetch(spec, progress=quiet)
    assert caught.value.next_step.endswith("; the 3.0 MB that came are kept.")
    hub.faults.clear()
    first = len(hub.parts)
    assert numbers(fetch(spec, progress=quiet).tensors) == wanted(model, spec)
    need = sum(len(data) for data in wanted(model, spec).values())
    assert sum(part.sent for part in hub.parts[first:]) == need - 3_000_000


@pytest.mark.parametrize(
    ("other", "words"),
    [(Fault(etag='"other"'), "its tag"), (Fault(etag="0" * 64, store=False), "its hash")],
    ids=["tag", "hash"],
)
def test_another_file_in_the_middle_of_one(hub, spec, other, words):
    """DESIGN section 6: a file that changes while it is fetched is refused, by its tag or its hash."""
    other.times = -1
    hub.faults["*"] = [Fault(times=1, cut=1_000_000), other]
    hub.link_uses = 1
    with pytest.raises(ModelNotFound, match=f"changed on the hub while it was fetched: {words}"):
        fetch(spec, progress=quiet)


def test_a_server_without_ranges_sends_the_whole_file_once(hub, model, spec):
    """DESIGN section 6: where a server ignores ranges, the wanted bytes are taken from what it sends."""
    hub.parts.clear()
    hub.faults["*"] = [Fault(times=-1, whole=True)]
    assert numbers(fetch(spec, progress=quiet).tensors) == wanted(model, spec)
    assert len(hub.parts) == 1


def test_a_server_without_ranges_is_refused_where_that_is_a_waste(hub, model, monkeypatch):
    """DESIGN section 6: much more than is wanted is not fetched in silence."""
    spec = spec_of(look(HUB_ID), lo=7, hi=8, ends=False)
    hub.faults["*"] = [Fault(times=-1, whole=True)]
    monkeypatch.setattr("pooled_nb.shard.sources.needs.WASTE", 1 << 20)
    with pytest.raises(ModelNotFound, match="sends whole files only") as caught:
        fetch(spec, progress=quiet)
    assert "hf download lab/tiny-chat" in caught.value.next_step


@pytest.mark.parametrize("held", [False, True])
def test_a_server_without_ranges_sends_many_requests_worth_once(hub, tmp_path, monkeypatch, held):
    """DESIGN section 6: what would be several requests is one, as soon as the first answer is the file."""
    monkeypatch.setattr(needs, "BLOCK", 1 << 20)  # requests of 1 MiB
    monkeypatch.setattr(needs, "WASTE", 0)
    hub.repos["lab/long"] = write_layers(tmp_path / "long", files=1, ends=1 << 20)
    spec = spec_of(look("lab/long"), hi=12)
    if held:
        fetch(spec_of(look("lab/long"), lo=5, hi=6, ends=False), progress=quiet)
    hub.parts.clear()
    hub.faults["*"] = [Fault(times=-1, whole=True)]
    assert numbers(fetch(spec, progress=quiet).tensors) == wanted(tmp_path / "long", spec)
    assert len(hub.parts) == 1


@pytest.mark.parametrize("held", [False, True])
def test_what_is_sent_again_and_again_is_no_help(hub, model, spec, held):
    """DESIGN section 6: a server that ignores ranges and cuts each time is given up, not asked for ever."""
    if held:
        fetch(spec_of(look(HUB_ID), hi=4, ends=False), progress=quiet)
    hub.parts.clear()
    hub.faults["*"] = [Fault(times=40, whole=True, cut=6_000_000)]  # 40: should it be asked for ever
    with pytest.raises(ModelNotFound, match=r"stopped sending lab/tiny-chat|cannot be reached"):
        fetch(spec, progress=quiet)
    assert len(hub.parts) <= 2 * retry.TRIES


def test_a_header_that_is_sent_again_and_again(hub, model):
    """DESIGN section 6: the same where bytes are read into memory: what is skipped does not count."""
    size = (model / NAME).stat().st_size
    hub.faults["*"] = [Fault(times=40, whole=True, cut=3_000_000)]
    remote = Remote(HUB_ID, COMMIT, NAME, size)
    with pytest.raises(HubUnreachable):
        remote.read(2_000_000, 4_000_000, Crew())
    assert len(hub.parts) <= 2 * retry.TRIES


def test_a_whole_file_keeps_few_blocks_open(hub, tmp_path, monkeypatch):
    """DESIGN section 6: a server that ignores ranges sends hundreds of blocks, and files have a limit."""
    hub.repos["lab/many"] = write_layers(tmp_path / "many", layers=40, size=4096, files=1)
    open_, most = set[int](), 0
    begin, finish = RangeFile.begin, Incoming.finish

    def begun(self: RangeFile, lo: int, hi: int, **how: object) -> Incoming | None:
        nonlocal most
        incoming = begin(self, lo, hi, **how)
        if incoming is not None:
            open_.add(id(incoming))
            most = max(most, len(open_))
        return incoming

    def finished(self: Incoming) -> str:
        open_.discard(id(self))
        return finish(self)

    spec = spec_of(look("lab/many"), hi=40)
    monkeypatch.setattr(RangeFile, "begin", begun)
    monkeypatch.setattr(Incoming, "finish", finished)
    hub.parts.clear()
    hub.faults["*"] = [Fault(times=-1, whole=True)]
    assert numbers(fetch(spec, progress=quiet).tensors) == wanted(tmp_path / "many", spec)
    assert len(hub.parts) == 1
    assert 1 < most <= needs.OPEN


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "is full"), (errno.EDQUOT, "quota"), (errno.EROFS, "written")]
)
def test_a_disk_that_takes_no_more(hub, model, spec, monkeypatch, number, words):
    """DESIGN section 1: a full disk and a quota are said in words; what was written stays."""
    real, written = os.write, 0

    def write(fd: int, data: bytes) -> int:
        nonlocal written
        if len(data) > 4096:
            written += len(data)
            if written > 3_000_000:
                raise OSError(number, os.strerror(number))
        return real(fd, data)

    monkeypatch.setattr(disk.os, "write", write)
    with pytest.raises(ModelNotFound, match=words) as caught:
        fetch(spec, progress=quiet)
    assert "POOLED_CACHE" in caught.value.next_step
    monkeypatch.setattr(disk.os, "write", real)
    first = len(hub.parts)
    assert numbers(fetch(spec, progress=quiet).tensors) == wanted(model, spec)
    need = sum(len(data) for data in wanted(model, spec).values())
    assert sum(part.sent for part in hub.parts[first:]) < need - 2_000_000
