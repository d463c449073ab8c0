"""A model that only the host has, over real links (DESIGN section 6): workers fetch what they compute, once.

Each device is a process with a cache of its own; no folder, no hub. What crosses is what the giving side was
asked for; what is there is what lies on the disk of the one that asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.e2e.chaos import LIMIT_S, POSIX
from tests.e2e.chaosroom import GB, Signaling
from tests.e2e.weightsroom import LAYERS, Apart, Ranges, layout_of, needs, wide

pytestmark = [pytest.mark.timeout(240), POSIX]

JOURNAL = 256 << 10
"""Bytes of a piece of a block, of which it is known whether they are here."""


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    """A host that has answered alone, and two workers that are not dealt in yet."""
    folder = tmp_path_factory.mktemp("weights")
    with Signaling(folder) as signaling:
        made = Apart(folder, *wide(folder / "mine"), signaling=signaling)
        try:
            made.begin("ana", "bo").join_all("ana", "bo")
            yield made
        finally:
            made.close()


@pytest.fixture
def online(room: Apart) -> Apart:
    """The same with both dealt in, whatever befell them before."""
    if not room.is_whole():
        room.join_all("ana", "bo")
        room.host.call("start")
    assert room.is_whole()
    return room


def begun(room: Apart, name: str) -> dict[tuple[int, int], int]:
    """Wait until some blocks of a device are in the middle; how far each is."""
    end = time.monotonic() + LIMIT_S
    while max((parts := room.parts(name)).values(), default=0) <= 2 * JOURNAL:
        assert time.monotonic() < end, f"nothing came: {room[name].log()}"
        time.sleep(0.01)
    return parts


def size(ranges: Ranges) -> int:
    return sum(hi - lo for lo, hi in ranges)


def test_only_the_host_has_the_model(online: Apart) -> None:
    """PROTOCOL section 6, ``ai-wget``: exactly the blocks of one's own layers, each asked for once, of the
    host, since nobody else has any. DESIGN section 5: the text is that of one device.
    """
    layout, dealt = layout_of(online.model), online.dealt()
    assert sorted(dealt) == ["ana", "bo", "host"]
    for name in ("ana", "bo"):
        assert online.held(name) == needs(layout, dealt[name])
        assert sorted(online.asked("host", name)) == online.held(name)
    assert not online.asked("ana", "bo") + online.asked("bo", "ana")
    assert online.answer() == online.alone


def test_a_worker_is_killed_while_it_fetches(online: Apart) -> None:
    """DESIGN section 6: "Ranges are kept on disk, resumed": after SIGKILL it goes on where it was."""
    dealt, had = online.dealt(), online.held("bo")
    online["bo"].kill()
    online.forget("bo")
    online.slow.touch()
    online.join("bo", by_pass=True)
    begun(online, "bo")
    online["bo"].kill()
    online.slow.unlink()
    whole, parts = online.held("bo"), online.parts("bo")
    marks = online.marks()
    online.join("bo", by_pass=True)
    assert online.answer() == online.alone  # which waits for it
    assert online.dealt() == dealt
    assert online.held("bo") == had
    again = online.asked("host", "bo", marks["host"])
    assert len(again) == len(had) - len(whole)
    assert any(block not in had for block in again)
    assert size(again) <= size(had) - size(whole) - sum(max(0, at - 2 * JOURNAL) for at in parts.values())


def test_a_second_start_fetches_nothing(online: Apart) -> None:
    """DESIGN section 6: once in its life; by a process that goes on, and by one that begins anew."""
    dealt, marks = online.dealt(), online.marks()
    online["ana"].kill()
    online.join("ana", by_pass=True)
    online.host.call("start")
    assert online.dealt() == dealt
    for name in ("ana", "bo"):
        assert not online.asked("host", name, marks["host"])
    assert online.answer() == online.alone


def test_what_a_worker_got_it_passes_on(online: Apart) -> None:
    """PROTOCOL section 6, ``ai-inv``: what the host vouches for counts from whoever has it in its room."""
    had, marks = online.held("bo"), online.marks()
    online.lend("ana", GB / 2)
    online.host.call("start")
    lacked = sorted(set(needs(layout_of(online.model), online.dealt()["bo"])) - set(had))
    assert lacked
    assert online.held("bo") == sorted({*had, *lacked})
    of_ana, of_host = (online.asked(name, "bo", marks[name]) for name in ("ana", "host"))
    assert of_ana
    assert sorted(of_ana + of_host) == lacked
    assert online.answer() == online.alone
    online.lend("ana", GB)


def test_a_worker_leaves(online: Apart) -> None:
    """PROTOCOL section 6: after a re-deal a device fetches what it lacks, and nothing that it has."""
    marks, had = online.marks(), online.held("bo")
    online["ana"].call("leave")
    online.devices.pop("ana").close()
    online.host.call("start")
    dealt = online.dealt()
    assert sorted(dealt) == ["bo", "host"]
    assert dealt["bo"][1] - dealt["bo"][0] == LAYERS // 2
    lacked = sorted(set(needs(layout_of(online.model), dealt["bo"])) - set(had))
    assert lacked
    assert sorted(online.asked("host", "bo", marks["host"])) == lacked
    assert online.answer() == online.alone
