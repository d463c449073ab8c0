from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

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
    monkeypatch.setattr(pooled_nb.room, "resume", scripted.resume, raising=False)
    yield scripted
    if (room := pooled_nb.current()) is not None:
        room.leave()
    assert not mesh.running


@pytest.fixture
def shell(rooms: Rooms) -> Iterator[InteractiveShell]:
    """An IPython without a frontend, with the magics loaded over the scripted rooms."""
    InteractiveShell.clear_instance()
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    shell.run_line_magic("load_ext", "pooled_nb")
    yield shell
    InteractiveShell.clear_instance()
