"""What a room is like changes by itself, and whoever watches it sees that."""

from __future__ import annotations

import threading

import pytest

import pooled_nb
from pooled_nb import room_life
from pooled_nb.threads import mesh
from tests.front.scripted import Rooms


def test_numbers_that_change_by_themselves_are_seen(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round trip that is measured anew is no event of the room; where nothing changed nobody is woken."""
    monkeypatch.setattr(room_life, "NUMBERS_S", 0.02)
    room = pooled_nb.host("m")
    woken, looked = threading.Event(), threading.Event()
    end = room.watch(woken.set)
    core, status = rooms.core, rooms.core.status
    core.status = lambda: (looked.set(), status())[1]  # type: ignore[method-assign]
    for _ in range(3):
        assert looked.wait(10)
        looked.clear()
    assert not woken.is_set()
    core.change = {"used": 77}
    assert woken.wait(10)
    mesh.hold()  # the loop goes on without it
    try:
        room.leave()
        looked.clear()
        assert not looked.wait(0.2), "it goes on after the room"
    finally:
        mesh.release(None)
    end()
