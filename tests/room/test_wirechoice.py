"""PROTOCOL section 5: stripes, small frames twice and keep-alive are settings; who says them, and when."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.errors import BadOption
from pooled_nb.mesh import stacks
from pooled_nb.mesh.wiresettings import DEFAULT, ONE_MACHINE, WireSettings
from pooled_nb.room import meeting, networkbox, wirechoice
from pooled_nb.room.doorfacts import NetworkChoice, WireChoice
from pooled_nb.room.networkbox import NetworkBox
from pooled_nb.room.ways import Ways, remember
from tests.mesh.rtctools import HandClock

HERE, FAR = ["ws://127.0.0.1:9000/"], ["wss://rooms.example.org/"]


@dataclass
class Signaled:
    server: str = "rooms.example.org"
    signaling_up: bool = True


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLED_CONFIG_DIR", str(tmp_path / "config"))


def ways(choice: NetworkChoice | None = None, box: NetworkBox | None = None, **env: str) -> Ways:
    return Ways(HandClock(), choice, env=env, box=box or NetworkBox())


def test_what_fits_the_place() -> None:
    """PROTOCOL section 5: 3 stripes; on one machine they only cost time, and so do keep-alives."""
    assert meeting.wiring(HERE, ways()) == ONE_MACHINE
    assert meeting.wiring(FAR, ways()) == DEFAULT
    assert (DEFAULT.stripes, DEFAULT.twice, DEFAULT.keepalive_ms) == (3, True, 10.0)


def test_the_environment_counts_on_one_machine_too() -> None:
    said = ways(POOLED_STRIPES="2", POOLED_KEEPALIVE_MS="12.5", POOLED_TWICE="off")
    assert meeting.wiring(HERE, said) == WireSettings(keepalive_ms=12.5, stripes=2, twice=False)
    assert meeting.wiring(HERE, ways(POOLED_KEEPALIVE_MS="0")).keepalive_ms == 0


def test_who_goes_before_whom() -> None:
    """What was chosen for the room, then what is remembered, then the environment, then the place."""
    env = {"POOLED_STRIPES": "1", "POOLED_TWICE": "no"}
    room, box = NetworkChoice(stripes=5), NetworkBox(stripes=4, keepalive_ms=20.0)
    assert meeting.wiring(FAR, ways(room, box, **env)) == WireSettings(20.0, 5, False)
    assert meeting.wiring(FAR, ways(None, box, **env)) == WireSettings(20.0, 4, False)
    assert meeting.wiring(FAR, ways(None, None, **env)) == WireSettings(10.0, 1, False)


def test_auto_is_what_fits_the_place_whatever_comes_after() -> None:
    said = ways(NetworkChoice(stripes="auto"), NetworkBox(stripes=7), POOLED_STRIPES="8")
    assert (meeting.wiring(FAR, said).stripes, meeting.wiring(HERE, said).stripes) == (3, 0)
    assert meeting.wiring(FAR, ways(POOLED_STRIPES="auto")) == DEFAULT


@pytest.mark.parametrize(
    ("variable", "value", "names"),
    [
        ("POOLED_STRIPES", "9", "0 to 8"),
        ("POOLED_STRIPES", "-1", "0 to 8"),
        ("POOLED_STRIPES", "2.5", "0 to 8"),
        ("POOLED_STRIPES", "many", "0 to 8"),
        ("POOLED_STRIPES", "1" * 5000, "0 to 8"),
        ("POOLED_TWICE", "3", "on, off or auto"),
        ("POOLED_SCTP", "fast", "stock, or unset it"),
        ("POOLED_KEEPALIVE_MS", "nan", "1 to 1,000, 0 (off)"),
        ("POOLED_KEEPALIVE_MS", "inf", "1 to 1,000, 0 (off)"),
        ("POOLED_KEEPALIVE_MS", "0.2", "1 to 1,000, 0 (off)"),
        ("POOLED_KEEPALIVE_MS", "-5", "1 to 1,000, 0 (off)"),
        ("POOLED_TRANSPORT", "tcp", "aiortc, wrtc or auto"),
    ],
)
def test_a_value_that_there_is_not(variable: str, value: str, names: str) -> None:
    """One sentence that names the variable, and one that names what there is."""
    with pytest.raises(BadOption) as refused:
        ways(**{variable: value})
    assert variable in refused.value.what
    assert names in refused.value.next_step
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "bad",
    [
        {"stripes": True},
        {"stripes": 9},
        {"stripes": 1.0},
        {"stripes": "3"},
        {"twice": 1},
        {"twice": "on"},
        {"keepalive_ms": False},
        {"keepalive_ms": float("nan")},
        {"keepalive_ms": 5000},
        {"keepalive_ms": "10"},
        {"transport": "udp"},
        {"transport": 3},
    ],
)
def test_a_value_of_python_that_there_is_not(bad: dict[str, Any]) -> None:
    with pytest.raises(BadOption):
        wirechoice.said(NetworkChoice(**bad))


@given(st.text(max_size=12), st.sampled_from(wirechoice.FIELDS))
def test_whatever_is_typed(text: str, name: str) -> None:
    """It is a value of that field, or refused: nothing else gets through."""
    try:
        value = wirechoice.typed(name, text, "here")
    except BadOption:
        return
    wirechoice.said(WireChoice(**{name: value}))
    wirechoice.settings(wirechoice.settled(DEFAULT, WireChoice(**{name: value})))


def test_a_transport_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before anything is opened, with what to type."""
    monkeypatch.setattr(stacks, "available", lambda: (stacks.DEFAULT,))
    for make in (lambda: ways(NetworkChoice(transport="wrtc")), lambda: ways(POOLED_TRANSPORT="wrtc")):
        with pytest.raises(BadOption, match=r"pip install 'pooled-nb\[wrtc\]'"):
            make()
    assert ways().transport == "aiortc"
    assert ways(NetworkChoice(transport="auto"), NetworkBox(transport="wrtc")).transport == "aiortc"
    monkeypatch.setattr(stacks, "available", lambda: stacks.NAMES)
    assert ways(NetworkChoice(transport="wrtc")).transport == "wrtc"
    assert ways(None, NetworkBox(transport="wrtc"), POOLED_TRANSPORT="aiortc").transport == "wrtc"


async def test_how_frames_travel_is_the_room_s_from_its_opening_on() -> None:
    """PROTOCOL section 5: both ends of a link read it once. What is remembered counts in the next room."""
    mine = ways(box=networkbox.read())
    mine.policy(FAR[0])
    assert mine.wiring(DEFAULT) == DEFAULT
    with pytest.raises(BadOption, match="next room"):
        await mine.choose(NetworkChoice(stripes=0))
    with pytest.raises(BadOption, match="0 to 8"):
        await mine.choose(NetworkChoice(stripes=11, remember=True))
    assert networkbox.read() == NetworkBox()
    await mine.choose(NetworkChoice(stripes=0, keepalive_ms=25, remember=True))
    facts = mine.facts(Signaled())
    assert facts.wire == WireChoice(stripes=3, twice=True, keepalive_ms=10.0, transport="aiortc")
    assert facts.later == WireChoice(stripes=0, keepalive_ms=25.0)
    await mine.close()

    later = ways(box=networkbox.read())
    assert later.wiring(DEFAULT) == WireSettings(keepalive_ms=25.0, stripes=0)
    assert later.facts(Signaled()).later == WireChoice()
    await later.choose(NetworkChoice(stripes="auto", remember=True))
    assert networkbox.read() == NetworkBox(keepalive_ms=25.0)
    assert later.facts(Signaled()).later == WireChoice(stripes=3)
    await later.close()


def test_said_ahead_of_a_room() -> None:
    facts = remember(NetworkChoice(stripes=1, transport="aiortc"))
    assert (facts.wire, facts.later) == (None, WireChoice(stripes=1, transport="aiortc"))
    assert remember(NetworkChoice(transport="auto")).later == WireChoice(stripes=1)
    with pytest.raises(BadOption):
        remember(NetworkChoice(keepalive_ms=-1))
    assert networkbox.read() == NetworkBox(stripes=1)


def test_a_box_of_another_hand_is_read_with_care() -> None:
    """What stands in the file, and makes no sense, is said; it opens no room with nonsense."""
    with pytest.raises(BadOption, match=r"The network box.s stripes"):
        ways(box=NetworkBox(stripes=1_000_000))
