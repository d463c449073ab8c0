"""A public model, and a network that only the host has (DESIGN section 6): devices give one another.

``ana`` has the model from earlier, ``bo`` has nothing. What ``ana`` gives counts as far as the host vouches.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.e2e.chaos import POSIX
from tests.e2e.chaosroom import GB, Signaling
from tests.e2e.weightsroom import LAYERS, Apart, Ranges, layout_of, needs, wide
from tests.shard import fakehub

pytestmark = [pytest.mark.timeout(240), POSIX]

REPO = "lab/wide"


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    """A host that has fetched the model and answered alone; ``ana`` and ``bo`` are dealt in."""
    folder = tmp_path_factory.mktemp("peers")
    mine, never = wide(folder / "published")
    with fakehub.serving() as hub, Signaling(folder) as signaling:
        hub.repos[REPO] = mine
        online = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": hub.url}
        made = Apart(folder, REPO, never, signaling=signaling, more={"host": online})
        try:
            made.begin("ana", "bo")
            sent = hub.sent
            shutil.copytree(made.cache("host") / "ranges", made.cache("ana") / "ranges")
            for name in ("ana", "bo"):  # in this order they are dealt in
                made.join(name)
            made.host.call("start")
            yield made
            assert hub.sent == sent
        finally:
            made.close()


def fetched_again(room: Apart) -> tuple[Ranges, Ranges]:
    """What ``bo``, whose person has deleted its copy, asks of ``ana`` and of the host where it is dealt anew.

    ``ana`` lends half of what the others do, or as much again: so the layers of ``bo`` are other ones.
    """
    before, marks = room.dealt(), room.marks()
    room.lend("ana", GB / 2 if before["ana"][1] - before["ana"][0] == LAYERS // 3 else GB)
    room.forget("bo")
    room.host.call("start")
    assert room.dealt().get("bo") not in (before["bo"], None), room.host.notices
    assert room.held("bo") == needs(layout_of(room.folder / "published"), room.dealt()["bo"])
    assert room.answer() == room.alone
    return room.asked("ana", "bo", marks["ana"]), room.asked("host", "bo", marks["host"])


def test_what_a_device_lacks_comes_from_whoever_has_it(room: Apart) -> None:
    """PROTOCOL section 6, ``ai-inv``: the host is not asked for all of it. Each block is asked for once."""
    of_ana, of_host = fetched_again(room)
    assert of_ana
    assert sorted(of_ana + of_host) == room.held("bo")
    assert not room.asked("host", "ana")


def test_a_device_gives_what_is_wrong(room: Apart) -> None:
    """DESIGN section 6: "A range from a peer counts only when its hash is one the host vouches for".

    PROTOCOL section 6, ``nb-bad``: it is named to both persons, and asked for nothing more.
    """
    first = 2 * LAYERS // 3  # from here on ``ana`` computes nothing, whatever is dealt
    wrong = set(needs(layout_of(room.folder / "published"), (first, LAYERS))[1:])
    for segment, path in room.segments("ana").items():
        if (segment.lo, segment.hi) in wrong:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
    of_ana, of_host = fetched_again(room)
    assert wrong.intersection(of_ana)
    assert wrong <= set(of_host)
    [told] = [notice for notice in room["bo"].notices if "wrong" in notice]
    assert told.startswith("ana gave wrong bytes of model.safetensors")
    assert any("bo says that it got wrong weights from ana" in notice for notice in room.host.notices)
    assert all("wrong" not in notice for notice in room["ana"].notices)
    of_ana, of_host = fetched_again(room)
    assert not of_ana
    assert sorted(of_host) == room.held("bo")
