"""The question of a download, and what a device fetches, as a room's panel has them (PROTOCOL section 6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pooled_nb.room.weights.ask import DownloadAsk
from pooled_nb.widgets.download import size
from pooled_nb.widgets.state import room_state
from tests.widgets.conftest import FakeComm, until
from tests.widgets.fakes import FakeRoom, device, status, studio
from tests.widgets.panels import of, room_panel

NASTY = "<script>1</script>\u202e\x1b[2J" * 99


def ask(gb: float = 12.0, **more: Any) -> DownloadAsk:
    return DownloadAsk(**{"model": "org/model", "lo": 0, "hi": 10, "gb": gb, "free_gb": 80.0, **more})


def asking(gb: float = 12.0, **more: Any) -> Any:
    return status("loading", asks=ask(gb), can=["download", "network", "leave"], **more)


def test_the_rooms_own_model_goes_by_its_short_name() -> None:
    """Two lines hold it, so that nothing below them moves."""
    now = status("loading", asks=ask(model="HuggingFaceTB/SmolLM2-135M-Instruct"), can=["download"])
    assert " of SmolLM2-135M-Instruct; " in room_state(now, "worker")["say"]["about"]


def test_the_sentence_asks_and_its_buttons_answer() -> None:
    """With sizes: what comes, what for, how much room there is; and what happens without an answer."""
    room = room_state(asking(), "worker")
    assert room["say"] == {
        "tone": "warn",
        "what": "May this device download 12 GB?",
        "about": "For layers 1–10 of org/model; 80 GB are free.",
    }
    assert [(a["cmd"], a["label"], a["main"], a["careful"]) for a in room["actions"]] == [
        ("download", "Download 12 GB", True, True),
        ("refuse", "Refuse", False, True),
    ]
    assert "free" not in room_state(
        status("loading", asks=ask(free_gb=None), can=["download"]), "host"
    )["say"]["about"]  # fmt: skip


@pytest.mark.parametrize(
    ("gb", "words"),
    [
        (0.25, "250 MB"), (0.9999, "1.0 GB"), (8.44, "8.4 GB"), (12.4, "12 GB"), (1e4, "10,000 GB"),
        (float("nan"), "some GB"), (float("inf"), "some GB"), (-3.0, "some GB"),
    ],
)  # fmt: skip
def test_sizes(gb: float, words: str) -> None:
    assert size(gb) == words


def test_who_is_not_asked_sees_for_whom_the_room_waits() -> None:
    """The host alone knows whose person is asked."""
    devices = [
        studio((0, 10), progress=100),
        device("mira", (10, 20), progress=4, asks=True),
        device("leo", (20, 30), progress=0, asks=True),
    ]
    room = room_state(status("loading", devices, can=["leave"]), "host")
    assert room["say"]["about"] == "1 of 3 devices ready. It waits for the person of mira and leo."
    assert [(row["word"], row["more"], row["tone"]) for row in room["chain"][1:]] == [
        ("asks its person", "4 %", "warn"),
        ("asks its person", "", "warn"),
    ]


def test_what_this_device_fetches_is_said() -> None:
    """DESIGN section 1: every wait shows progress: here with its rate, and the time that is left."""
    room = room_state(
        status("loading", loading="fetching 1.2 of 3.4 GB from mira (45 MB/s, 50 s left)"), "worker"
    )
    assert room["say"]["about"].endswith("Here: fetching 1.2 of 3.4 GB from mira (45 MB/s, 50 s left).")


def test_what_is_unverified_or_was_given_is_told_where_nothing_is_newer() -> None:
    """DESIGN section 6: what the host has not read itself is shown as unverified."""
    doubt, gave = "1 GB came from Ada; that it is right, only Leo says.", "This device gave 1.2 GB to Ada."
    assert room_state(status(unverified=doubt, given=gave), "worker")["notice"] == doubt
    assert room_state(status(given=gave), "worker")["notice"] == gave
    assert room_state(status(given=gave), "worker", notices=["Ada left."])["notice"] == "Ada left."
    assert room_state(status("closed", given=gave), "worker")["notice"] == ""


def test_nothing_can_be_answered_once_it_is_over() -> None:
    for over in (
        room_state(asking(), "worker", left=True),
        room_state(status("closed", asks=ask()), "worker"),
    ):
        assert over["actions"] == []
        assert "download" not in over["say"]["what"]
    assert room_state(status("loading", asks=ask()), "worker")["say"]["what"] == "Loading"


def test_the_panel_posts_the_answer_to_the_question_that_was_read(comms: list[FakeComm]) -> None:
    """A click may come late: another question, or none, is not answered by it."""
    room = FakeRoom(asking(12.0), "worker")
    comm = of(room_panel(room))
    comm.say(cmd="download", key="Download 20 GB")
    comm.say(cmd="download")
    comm.say(cmd="download", key="Download 12 GB")
    until(lambda: room.commands)
    comm.say(cmd="refuse", key="Refuse")
    until(lambda: len(room.commands) == 2)
    assert [(name, options) for name, options, _ in room.commands] == [
        ("download", {"yes": True}),
        ("download", {"yes": False}),
    ]
    room.become(status("loading", can=["network"]))
    comm.say(cmd="refuse", key="Refuse")
    comm.say(cmd="network", id=1, remember=True, relay_only=True)
    until(lambda: len(room.commands) == 3)
    assert room.commands[-1][0] == "network"


def test_the_question_shows_at_once(comms: list[FakeComm]) -> None:
    """It is a state, no number that may come a quarter of a second later."""
    room = FakeRoom(status("loading"), "worker")
    panel = room_panel(room)
    for gb in (12.0, 20.0):
        room.become(asking(gb))
        until(lambda gb=gb: f"{gb:.0f} GB?" in of(panel).state()["room"]["say"]["what"])


def test_a_question_of_bad_words_is_bounded() -> None:
    """Bad input: the model's name and the layers are what a host says."""
    for more in ({"model": NASTY}, {"lo": -5, "hi": -9}, {"lo": 10**9, "hi": 10**9 + 1}):
        room = room_state(status("loading", asks=ask(**more), can=["download"], loading=NASTY), "worker")
        json.dumps(room, allow_nan=False, ensure_ascii=False).encode()
        assert len(room["say"]["about"]) <= 400
        assert "\x1b" not in room["say"]["about"]
