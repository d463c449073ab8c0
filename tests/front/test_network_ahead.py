"""The network box without a room: what later rooms begin with (PROTOCOL section 2, DESIGN section 7)."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import pooled_nb
from pooled_nb.errors import BadOption
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.room import networkbox
from pooled_nb.room.ways import Ways

RELAY = "turn:ana:PLANTEDpassword@relay.example.org:3478"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POOLED_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config"


async def test_a_relay_that_was_named_before_any_room_counts_in_the_next(folder: Path) -> None:
    """PROTOCOL section 2: "TURN from the user's settings"; a join that found no path has no room."""
    shown = pooled_nb.network(turn=RELAY, relay_only=True)
    assert (shown.relay, shown.relay_from, shown.relay_only) == ("relay.example.org:3478", "settings", True)
    assert "PLANTED" not in repr(shown)
    assert stat.S_IMODE(networkbox.path().stat().st_mode) == 0o600
    policy = Ways(LoopClock(), env={}).policy("wss://signal.example.org/")
    assert policy.relay_only
    assert [relay.place for relay in policy.relays] == ["relay.example.org:3478"]
    assert pooled_nb.network().relay == "relay.example.org:3478"
    assert pooled_nb.network(turn="", relay_only=False).relay == ""


def test_what_cannot_be_read_changes_nothing(folder: Path) -> None:
    """DESIGN section 7: no error repeats a relay."""
    pooled_nb.network(turn=RELAY)
    with pytest.raises(BadOption) as refused:
        pooled_nb.network(turn="turn:ana:PLANTED two@")
    assert "PLANTED" not in str(refused.value)
    assert pooled_nb.network().relay == "relay.example.org:3478"


def test_looking_writes_nothing(folder: Path) -> None:
    """PROTOCOL section 2: alone it only shows."""
    assert pooled_nb.network().relay == ""
    assert not folder.exists()
