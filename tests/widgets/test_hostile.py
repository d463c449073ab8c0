"""Sources that break every promise: the painter lives, other panels go on, and what is sent stays bounded."""

from __future__ import annotations

import itertools
import json
import logging
import random
import threading
from typing import Any, get_args

import msgspec
import pytest

from pooled_nb.room.core import State, Status
from pooled_nb.widgets.answer_panel import AnswerPanel
from pooled_nb.widgets.painter import NAME, painter
from pooled_nb.widgets.room_panel import RoomPanel
from pooled_nb.widgets.sources import AnswerFacts
from pooled_nb.widgets.stream import MOST
from tests.widgets.conftest import FakeComm, until
from tests.widgets.fakes import STATIC, FakeAnswer, FakeRoom, device, status, studio

NAMES = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202eevil \u2066\u2069\u202a",
    "\u200b\u200d\ufeff",
    "\u05d3\u05e0\u05d4 \u0639\u0644\u064a",
    "n" * 200,
    "🙂" * 200,
    "two\nlines\r\n\t\x1b[2J\x00",
    "\ud800",
    "",
    "%s {0} ${x} `x` &lt;",
]
GARBAGE: list[Any] = [
    None,
    True,
    -1,
    10**30,
    1e308,
    float("nan"),
    "",
    "x" * 100_000,
    [],
    [None, {}],
    {},
    object(),
]
CROWD = [
    studio((0, 1)),
    *(device(NAMES[n % len(NAMES)], (2 * n + 1, 2 * n + 2), id=NAMES[n % 7] * (n % 3)) for n in range(5_000)),
]


def crowd(state: str, **more: Any) -> Status:
    words = "y" * 1_000_000
    names = [name * 50 for name in NAMES] * 500
    given = {
        "layers": 10_100,
        "sentence": words,
        "label": words,
        "model": words,
        "dtype": words,
        "queue": names,
        "waits_for": names,
    }
    return status(
        state, CROWD, **{**given, "answering": NAMES[0], "signaling": words, "waiting": 10**12, **more}
    )


class HostileRoom(FakeRoom):
    """A `RoomSource` that raises, or gives what no room gives, as often as it gives a room."""

    def __init__(self) -> None:
        super().__init__(status("online", can=["stop", "set"]))
        self.fails = False
        self.looks = 0

    def seen(self) -> Any:
        self.looks += 1
        if self.fails:
            raise random.Random(self.looks).choice([ValueError, RecursionError, MemoryError, SystemExit])(
                "no"
            )
        return self.now

    def command(self, name: str, options: dict[str, object], done: Any = None) -> None:
        raise SystemExit(name)


class HostileAnswer(FakeAnswer):
    """An `AnswerSource` whose facts fail, and whose text does not end."""

    fails = False

    def facts(self) -> AnswerFacts:
        if self.fails:
            raise ZeroDivisionError("facts")
        return super().facts()


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("pooled_nb.widgets.painter.RETRY_S", 0.01)
    monkeypatch.setattr("pooled_nb.widgets.turns.GAP_S", 0.001)
    monkeypatch.setattr("pooled_nb.widgets.room_panel.NUMBERS_S", 0.0)
    caplog.set_level(logging.ERROR, logger="pooled_nb.widgets")


def of(panel: Any) -> FakeComm:
    comm: FakeComm = panel.comm
    return comm


def still_works() -> None:
    """Another panel of the same thread."""
    answer = FakeAnswer()
    panel = AnswerPanel(answer, fallback=lambda: STATIC)
    answer.say("fine")
    answer.end()
    until(lambda: of(panel).state()["text"] == "fine")
    panel.close()


def test_a_room_of_garbage(comms: list[FakeComm], caplog: pytest.LogCaptureFixture) -> None:
    """Every field of a status, and of a device, as no room gives it: then a good one is drawn again."""
    room = HostileRoom()
    panel = RoomPanel(room, fallback=lambda: STATIC)
    good = room.now
    assert good is not None
    bad = [
        msgspec.structs.replace(good, **{field: odd})
        for field, odd in itertools.product(Status.__struct_fields__, GARBAGE)
    ]
    for field, odd in itertools.product(type(CROWD[0]).__struct_fields__, GARBAGE):
        broken = msgspec.structs.replace(good.devices[1], **{field: odd})
        bad.append(msgspec.structs.replace(good, devices=[good.devices[0], broken]))
    for now in bad:
        looks = room.looks
        room.become(now)
        until(lambda seen=looks: room.looks >= seen + 2)  # once for what is so, once for the state
    room.become(status("answering", can=["stop", "set"]))
    until(lambda: of(panel).state()["room"]["state"] == "answering")
    for update in of(panel).updates:
        assert len(json.dumps(update, default=str)) < 200_000  # a kernel may refuse it: a paint that fails
    still_works()
    assert 0 < len(caplog.records) < len(bad)


def test_a_source_that_raises(comms: list[FakeComm], caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it raises, for as long as it does: one line in the log, and the panel is there again after."""
    room, answer = HostileRoom(), HostileAnswer()
    panel = RoomPanel(room, fallback=lambda: STATIC)
    second = AnswerPanel(answer, fallback=lambda: STATIC)
    until(lambda: not painter._turns._due)
    room.fails = answer.fails = True
    before = room.looks
    answer.say("all of ")
    answer.say("it")
    answer.end("max", can=("continue",))
    room.now = status("loading")
    room.changed()
    until(lambda: room.looks > before + 5)
    still_works()
    assert len(caplog.records) == 2
    room.fails = answer.fails = False  # and nobody wakes them
    until(lambda: of(panel).state()["room"]["state"] == "loading")
    until(lambda: of(second).state()["text"] == "all of it")
    assert of(second).state()["answer"]["state"] == "capped"
    of(second).say(cmd="continue")  # an assertion fails in it
    room.become(status("answering", can=["stop"]))
    of(panel).say(cmd="stop")  # and this one would end the thread
    until(lambda: not panel._inbox and not second._inbox)
    still_works()
    assert [thread.name for thread in threading.enumerate()].count(NAME) <= 1


@pytest.mark.parametrize("state", get_args(State))
def test_a_crowd(comms: list[FakeComm], state: str) -> None:
    """CASES, Names: 5,000 devices with every bad name: bounded, JSON, cut, and text."""
    room = FakeRoom(crowd(state))
    panel = RoomPanel(room, fallback=lambda: STATIC)
    made = of(panel).opened["room"]
    assert len(json.dumps(made, allow_nan=False)) < 150_000
    json.dumps(made, ensure_ascii=False).encode()
    assert len(made["chain"]) <= 101
    assert len(made["guests"]) <= 101
    for words in strings(made):
        assert len(words) <= 401
        assert not {"\x1b", "\x00", "\n", "\ud800"} & set(words)
    still_works()


def test_a_source_that_cannot_be_watched(comms: list[FakeComm], monkeypatch: pytest.MonkeyPatch) -> None:
    """No panel, and nothing is left of it."""

    def watch(wake: Any) -> Any:
        raise OSError("no")

    room = FakeRoom(status("online"))
    monkeypatch.setattr(room, "watch", watch)
    with pytest.raises(OSError, match="no"):
        RoomPanel(room, fallback=lambda: STATIC)
    assert [comm.closed for comm in comms] == [True, True]
    assert not painter.running


def test_an_answer_that_does_not_end(comms: list[FakeComm]) -> None:
    """A text that grows forever is cut; facts are cut; no message is without a bound."""
    answer = HostileAnswer("q" * 1_000_000)
    panel = AnswerPanel(answer, fallback=lambda: STATIC)
    for n in range(6):
        answer.say(NAMES[n] + "z" * 1_000_000, notice="n" * 1_000_000, line="l" * 1_000_000)
    answer.end("error", line="l" * 1_000_000, error="e" * 1_000_000)
    until(lambda: of(panel).state()["answer"]["state"] == "failed")
    until(lambda: len(of(panel).state()["text"]) == MOST)
    assert len(json.dumps(of(panel).state()["answer"])) < 12_000
    assert sum(len(m["text"]) for m in of(panel).customs) == MOST
    still_works()


def strings(made: Any) -> list[str]:
    """Every text in it."""
    if isinstance(made, str):
        return [made]
    parts = made.values() if isinstance(made, dict) else made if isinstance(made, list) else []
    return [words for part in parts for words in strings(part)]
