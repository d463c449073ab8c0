"""What the tests of real chaos share: a tiny model, and what one device answers that nothing befalls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.chaosroom import Question, Rooms, Stage, talker


@pytest.fixture(scope="package")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """See `chaosroom.talker`."""
    return talker(tmp_path_factory.mktemp("tiny") / "talker")


@pytest.fixture(scope="package")
def alone(
    tmp_path_factory: pytest.TempPathFactory, tiny: tuple[Path, list[int]]
) -> Iterator[Callable[[Question], str]]:
    """What one device answers to a question in a new chat; each is asked once."""
    answers: dict[Question, str] = {}
    stages: list[Stage] = []

    def answer(question: Question) -> str:
        if question not in answers:
            if not stages:
                stages.append(Stage(tmp_path_factory.mktemp("alone"), *tiny, pace=0).open())
                stages[0].host.call("start")
            stages[0].host.call("reset")
            asked = stages[0].ask(question)
            done = asked.done()
            assert done["stats"]["tokens"] == question.tokens, "it ended early: another question is needed"
            answers[question] = asked.text
        return answers[question]

    yield answer  # ended with this folder's tests: others count the processes that are left
    for stage in stages:
        stage.close()


@pytest.fixture(scope="package")
def rooms(tmp_path_factory: pytest.TempPathFactory, tiny: tuple[Path, list[int]]) -> Iterator[Rooms]:
    """Rooms on this machine, without a network between; one that is whole serves the next file, too."""
    made = Rooms(lambda: Stage(tmp_path_factory.mktemp("rooms"), *tiny))
    yield made
    made.close()
