from __future__ import annotations

from collections.abc import Iterator

import pytest

import pooled_nb
import pooled_nb.room
from pooled_nb.threads import mesh
from tests.front.scripted import Rooms


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rooms]:
    """The scripted rooms in place of the real ones; whatever a test leaves open is left."""
    scripted = Rooms()
    monkeypatch.setattr(pooled_nb.room, "host", scripted.host, raising=False)
    monkeypatch.setattr(pooled_nb.room, "join", scripted.join, raising=False)
    yield scripted
    if (room := pooled_nb.current()) is not None:
        room.leave()
    assert not mesh.running
