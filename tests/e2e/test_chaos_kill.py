"""Processes that are killed in the middle of an answer, over real links (PROTOCOL sections 3, 6, 8; CASES).

Killed is a device with its shard's child, as by a power cut, or the child alone, as by a system that has run
out of memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.e2e.chaos import FULL, POSIX, Asked, Device
from tests.e2e.chaosroom import QUESTION, Question, Rooms, Stage

pytestmark = [pytest.mark.timeout(240), POSIX]

Alone = Callable[[Question], str]
KILLS = 20


def ended(asked: Asked, alone: Alone) -> None:
    """Its text is the one of a device that nothing befell, and it ended once."""
    assert asked.done()["reason"] == "max"
    assert asked.text == alone(QUESTION)


def test_a_worker_is_killed_at_the_fifth_token_and_again_at_the_seventeenth(
    rooms: Rooms, alone: Alone
) -> None:
    """CASES: the text equals the uninterrupted one. PROTOCOL section 3: it takes its seat by its pass."""
    stage = rooms("ana", "bo")
    layers = stage.layers()
    asked = stage.ask(QUESTION)
    for pieces in (5, 17):
        asked.until(pieces)
        stage["ana"].kill()
        stage.join("ana", by_pass=True)
    ended(asked, alone)
    assert stage.layers() == layers
    assert stage["bo"].process.poll() is None
    stage.shown(QUESTION, asked.text)


@pytest.mark.parametrize("asker", ["ana", pytest.param("host", marks=FULL)])
def test_the_host_is_killed_and_resumed(rooms: Rooms, alone: Alone, asker: str) -> None:
    """PROTOCOL section 8, host resume; CASES: the same worker object serves again without a rerun."""
    stage = rooms("ana", "bo")
    layers = stage.layers()
    asked = stage.ask(QUESTION, asker)
    asked.until(40)
    stage.host.kill()
    shown = asked.text
    stage.replace("host", stage.process("host"))
    said = stage.host.call("resume", code=stage.code)
    assert said["link"] == stage.link
    if asker == "host":
        assert said["asked"] == [QUESTION.text]
        asked = stage.ask(QUESTION)
    ended(asked, alone)
    assert asked.text.startswith(shown)
    assert stage.layers() == layers
    assert all(stage[name].process.poll() is None for name in ("ana", "bo"))
    stage.shown(QUESTION, asked.text)


def test_a_worker_is_killed_for_good_and_the_person_deals_again(rooms: Rooms, alone: Alone) -> None:
    """PROTOCOL section 6: the host offers a re-deal, over the devices that are here."""
    stage = rooms("ana", "bo")
    asked = stage.ask(QUESTION)
    asked.until(5)
    mark = len(stage.host.said)
    stage["ana"].kill()
    stage.host.until_state("degraded", since=mark)
    shown = len(asked.pieces)
    stage.host.call("start")
    ended(asked, alone)
    assert len(asked.pieces) > shown
    layers = {name: held for name, held in stage.layers().items() if held}
    assert sorted(layers) == ["bo", "host"]


@FULL
def test_one_worker_is_frozen_and_another_killed(rooms: Rooms, alone: Alone) -> None:
    """PROTOCOL section 3: both take their seats again, whoever is first."""
    stage = rooms("ana", "bo")
    layers = stage.layers()
    asked = stage.ask(QUESTION)
    asked.until(5)
    with stage["bo"].frozen():
        stage["ana"].kill()
        stage.join("ana", by_pass=True)
        time.sleep(17)
    ended(asked, alone)
    assert stage.layers() == layers
    stage.shown(QUESTION, asked.text)


@FULL
def test_a_worker_is_killed_for_good_and_the_room_deals_again_by_itself(rooms: Rooms, alone: Alone) -> None:
    """PROTOCOL section 8, auto re-deal: 60 s after the drop, and nobody presses anything."""
    stage = rooms("ana", "bo")
    asked = stage.ask(QUESTION)
    asked.until(5)
    stage["ana"].kill()
    asked.until(len(asked.pieces) + 1, 150)
    ended(asked, alone)


@pytest.mark.parametrize("who", ["ana", "host"])
def test_what_computes_is_killed_alone(rooms: Rooms, alone: Alone, who: str) -> None:
    """PROTOCOL section 6, ``ai-error {load}``: nobody has to be waited for, so it deals again at once."""
    stage = rooms("ana")
    asked = stage.ask(QUESTION)
    asked.until(5)
    [child] = stage[who].children()
    child.kill()
    ended(asked, alone)
    assert stage[who].process.poll() is None
    assert any("memory" in notice for notice in stage[who].notices)


@pytest.mark.parametrize("when", [pytest.param("looks", marks=FULL), "reads"])
def test_what_computes_is_killed_while_it_loads(rooms: Rooms, alone: Alone, when: str) -> None:
    """PROTOCOL section 6, ``ai-share``: killed while loading: half its share, or without it.

    From ``ai-load`` on, that is: as its process looks for what it lacks of its layers, or as it reads them.
    A room is shown as loading before that, when its devices are asked what they have of the model.
    """
    stage = rooms("ana", start=False)
    ana = stage["ana"]
    [child] = ana.children()
    if when == "looks":
        child.suspend()  # else it has looked before it is killed
    dealing = stage.host.tell("start")
    ana.until(lambda: any(said.get("heard") == when for said in ana.said), f"that it {when}")
    child.kill()
    stage.host.answer(dealing)
    [why] = [notice for notice in stage.host.notices if "was killed" in notice]
    assert why.startswith("ana was killed while it loaded")
    asked = stage.ask(QUESTION)
    ended(asked, alone)
    held = stage.layers()["ana"]
    assert held is None or held[1] - held[0] < 3


class Gauge:
    """What a host's process takes while nobody asks."""

    def __init__(self, device: Device) -> None:
        self.process = psutil.Process(device.pid)
        self.device = device

    def held(self) -> dict[str, int]:
        """Tasks, descriptors and threads."""
        tasks = self.device.call("gauge")["tasks"]
        return {"tasks": tasks, "files": self.process.num_fds(), "threads": self.process.num_threads()}

    def busy(self, seconds: float = 3.0) -> float:
        """The share of a core that it takes."""
        before = self.process.cpu_times()
        time.sleep(seconds)
        after = self.process.cpu_times()
        return (after.user - before.user + after.system - before.system) / seconds


def twenty_kills(stage: Stage, question: Question, want: str) -> None:
    """Kill a worker twenty times in one answer; then look at what its host still holds."""
    stage.ask(question).done()  # all that is opened at the first use is open
    stage.host.call("reset")
    gauge = Gauge(stage.host)
    before, busy = gauge.held(), gauge.busy()
    spare = stage.process("ana")
    asked = stage.ask(question)
    for _ in range(KILLS):
        asked.until(len(asked.pieces) + 3)
        stage["ana"].kill()
        stage.replace("ana", spare)
        stage.join("ana", by_pass=True, wait=False)
        spare = stage.process("ana")
    spare.close()
    assert asked.done()["reason"] == "max"
    assert asked.text == want
    stage.host.call("reset")
    after = stage.ask(question)
    after.done()
    assert after.text == want
    assert sorted(stage.layers()) == ["ana", "host"]
    end = time.monotonic() + 60  # what was given up is let go of within its time
    while (held := gauge.held()) != before and time.monotonic() < end:
        time.sleep(0.5)
    assert all(held[what] <= before[what] for what in before), (before, held)
    assert gauge.busy() <= 2 * busy + 0.1


def test_twenty_kills_in_a_row_leave_nothing_behind(tmp_path: Path) -> None:
    """CASES: CPU idle, descriptors, tasks and threads at their baseline, next answer right."""
    question = Question("Why is the sky blue?", tokens=400)
    stage = Stage(tmp_path, Path("toy/model"), [], env={"POOLED_CHAOS_TOY": "1000"}).open()
    try:
        stage.host.call("start")
        want = stage.ask(question)
        want.done()
        stage.join("ana")
        stage.host.call("start")
        stage.host.call("reset")
        assert None not in stage.layers().values()
        twenty_kills(stage, question, want.text)
    finally:
        stage.close()


@FULL
@pytest.mark.timeout(400)
def test_twenty_kills_in_a_row_with_a_real_model(rooms: Rooms, alone: Alone) -> None:
    """CASES: the same where each new process loads its layers again."""
    question = Question("Why is the sky blue?", tokens=400)
    stage = rooms("ana")
    twenty_kills(stage, question, alone(question))
