"""Devices that are frozen in the middle of an answer, over real links (PROTOCOL section 8).

Frozen is the kernel's process with its shard's child, as when a lid is closed, or the child alone, as when it
swaps. Whatever it takes, the text is the one of a device that nothing befalls.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from tests.e2e.chaos import FULL, POSIX
from tests.e2e.chaosroom import QUESTION, Question, Rooms, Stage

pytestmark = [pytest.mark.timeout(240), POSIX]

Alone = Callable[[Question], str]
GREEDY = Question("And at night?", seed=None)


def freeze(
    stage: Stage,
    who: str | list[str],
    seconds: float,
    alone: Alone,
    question: Question = QUESTION,
    of: str = "host",
    **what: bool,
) -> None:
    """Ask, freeze at the tenth piece, and look at all that was shown."""
    layers = stage.layers()
    assert None not in layers.values()
    asked = stage.ask(question, of)
    asked.until(10)
    with contextlib.ExitStack() as stack:
        for name in [who] if isinstance(who, str) else who:
            stack.enter_context(stage[name].frozen(**what))
        time.sleep(seconds)
    assert asked.done()["reason"] == "max"
    assert asked.gap > 0.8 * seconds
    assert asked.text == alone(question)
    stage.shown(question, asked.text)
    assert stage.layers() == layers


@pytest.mark.parametrize("seconds", [pytest.param(2, marks=FULL), 6, pytest.param(12, marks=FULL), 20])
def test_a_worker_is_frozen(rooms: Rooms, alone: Alone, seconds: float) -> None:
    """PROTOCOL section 8, stopped responding, dropped: held, or dropped and back; it goes on by itself."""
    freeze(rooms("ana", "bo"), "ana", seconds, alone)


@pytest.mark.parametrize(
    "seconds", [pytest.param(2, marks=FULL), pytest.param(6, marks=FULL), pytest.param(12, marks=FULL), 20]
)
def test_the_host_is_frozen(rooms: Rooms, alone: Alone, seconds: float) -> None:
    """PROTOCOL section 8: a timer that fired late judges nobody: the host drops no device for its own sleep,
    and devices that lost it knock and take their seats again.
    """
    freeze(rooms("ana", "bo"), "host", seconds, alone, GREEDY if seconds == 20 else QUESTION)


@pytest.mark.parametrize("seconds", [6, pytest.param(20, marks=FULL)])
def test_what_computes_is_frozen_alone(rooms: Rooms, alone: Alone, seconds: float) -> None:
    """PROTOCOL section 8, lap timeout: its kernel answers pings, so the lap is waited for."""
    freeze(rooms("ana", "bo"), "bo", seconds, alone, kernel=False)


@FULL
def test_what_computes_is_frozen_for_longer_than_a_lap_may_take(rooms: Rooms, alone: Alone) -> None:
    """PROTOCOL section 8, lap timeout: it fails at 25 s, and the answer goes on with what was shown."""
    freeze(rooms("ana", "bo"), "bo", 32, alone, kernel=False)


@FULL
@pytest.mark.parametrize("seconds", [6, 20])
def test_the_hosts_own_layers_are_frozen_alone(rooms: Rooms, alone: Alone, seconds: float) -> None:
    """PROTOCOL section 8: the host waits for itself as for others."""
    freeze(rooms("ana", "bo"), "host", seconds, alone, kernel=False)


@FULL
@pytest.mark.parametrize("seconds", [6, 20])
def test_a_machine_with_the_whole_room_is_frozen(rooms: Rooms, alone: Alone, seconds: float) -> None:
    """PROTOCOL section 8: everybody's timers fired late, so nobody is judged."""
    freeze(rooms("ana", "bo"), ["host", "ana", "bo"], seconds, alone)


@FULL
def test_two_workers_are_frozen(rooms: Rooms, alone: Alone) -> None:
    """PROTOCOL section 6: neighbours that both were dropped find each other again."""
    freeze(rooms("ana", "bo"), ["ana", "bo"], 20, alone)


@FULL
@pytest.mark.parametrize("seconds", [6, 20])
def test_the_asker_is_frozen(rooms: Rooms, alone: Alone, seconds: float) -> None:
    """PROTOCOL section 7: who was away hears the rest of its answer, and nothing twice."""
    freeze(rooms("ana", "bo"), "bo", seconds, alone, of="bo")


@FULL
def test_a_worker_is_frozen_while_it_loads(rooms: Rooms, alone: Alone) -> None:
    """PROTOCOL section 8, dropped: never while it loads."""
    stage = rooms("ana", "bo")
    mark = len(stage["ana"].said)
    dealing = stage.host.tell("start")
    stage["ana"].until_state("loading", since=mark)
    with stage["ana"].frozen():
        time.sleep(20)
    stage.host.answer(dealing)
    asked = stage.ask(QUESTION)
    asked.done()
    assert asked.text == alone(QUESTION)
    assert None not in stage.layers().values()
