"""PROTOCOL section 7: where the drafts of the next frame come from, and what never becomes one."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from pooled_nb.shard import Sampling, Want
from pooled_nb.shard.drafter import Drafts, Pace, common
from pooled_nb.shard.history import History

GREEDY = Sampling()
BOTH = Want(lookup=3, draft=4)


class Fake:
    """A drafter that guesses what it is told to."""

    kind: Literal["model", "layers"] = "model"
    weights = cache = 0

    def __init__(self, guesses: list[int]) -> None:
        self.guesses, self.done = guesses, list[Any]()

    def begin(self, history: History, ends: object) -> None:
        self.done.append("begin")

    def saw(self, pos: int, hidden: object) -> None:
        if hidden is None:
            raise MemoryError
        self.done.append(("saw", pos))

    def accept(self, pos: int, n: int, data: object) -> None:
        self.done.append((pos, n))

    def guess(self, most: int, sampling: Sampling) -> list[int]:
        self.done.append(most)
        return self.guesses[:most]

    def close(self) -> None:
        self.done.append("close")


def begun(fake: Fake | None, tokens: list[int], ends: frozenset[int] = frozenset()) -> Drafts:
    """An answer whose first token was drawn, and told of."""
    drafts = Drafts(fake, 100)
    history = History(tokens[:-1])
    drafts.begin(history, ends)
    history.add(tokens[-1])
    drafts.next(len(tokens) - 2, 1, b"", None, GREEDY)
    return drafts


def test_lookup_is_asked_first() -> None:
    """PROTOCOL section 7: text that stands there already costs nothing; it is tried before what computes."""
    fake = Fake([7, 8, 9])
    assert begun(fake, [1, 2, 5, 1, 2]).next(3, 1, b"", BOTH, GREEDY) == ([5, 1, 2], "lookup")
    assert fake.done == ["begin", (3, 1), (3, 1)]
    assert begun(fake, [1, 2, 5, 1, 3]).next(3, 1, b"", BOTH, GREEDY) == ([7, 8, 9], "draft")
    assert begun(None, [1, 2, 5, 1, 3]).next(3, 1, b"", BOTH, GREEDY) == ([], "")
    assert begun(fake, [1, 2, 5, 1, 3]).next(3, 1, b"", Want(lookup=9), GREEDY) == ([], "")


def test_the_first_token_waits_for_no_drafter() -> None:
    """PROTOCOL section 7: a drafter reads the prompt after the answer's first token, not before."""
    drafts, history = Drafts(fake := Fake([7]), 100), History([1, 2, 3])
    drafts.begin(history, frozenset())
    history.add(4)
    assert drafts.next(2, 1, b"", BOTH, GREEDY) == ([], "")
    history.add(5)
    assert drafts.next(3, 1, b"", BOTH, GREEDY) == ([7], "draft")
    assert fake.done == ["begin", (2, 1), (3, 1), 4]


@pytest.mark.parametrize(("guess", "kept"), [([5, 2, 6], [5]), ([2], []), ([7, 100], [7]), ([7, -1], [7])])
def test_no_draft_is_in_vain(guess: list[int], kept: list[int]) -> None:
    """PROTOCOL section 7: nothing runs after an end token, and a token the model lacks cannot be run."""
    drafts = begun(Fake(guess), [1, 3, 4], ends=frozenset({2}))
    assert drafts.next(1, 1, b"", BOTH, GREEDY) == (kept, "draft" if kept else "")


def test_without_places_nothing_is_drafted() -> None:
    """PROTOCOL section 7: a room that does not say what was seen gets lookup only."""
    fake = Fake([7])
    assert begun(fake, [1, 3, 4]).next(9, 1, b"", BOTH, GREEDY) == ([], "")
    assert fake.done == ["begin", (1, 1)]


def test_what_fails_is_switched_off(capfd: pytest.CaptureFixture[str]) -> None:
    """CASES: a drafter that fails costs speed only, and says so once."""
    drafts = begun(fake := Fake([7]), [1, 3, 4])
    assert drafts.kind == "model"
    drafts.saw(3, b"some")
    drafts.saw(4, None)
    assert drafts.kind == ""
    assert drafts.next(1, 1, b"", BOTH, GREEDY) == ([], "")
    drafts.saw(5, b"some")
    assert fake.done[2:] == [("saw", 3), "close"]
    assert capfd.readouterr().err == "pooled_nb: drafting is off: MemoryError: \n"


def test_one_that_cannot_be_freed_fails_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """CASES: what broke may break again as it is freed; the answer goes on."""
    drafts = begun(fake := Fake([7]), [1, 3, 4])

    def fail(*_: object) -> list[int]:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(fake, "guess", fail)
    monkeypatch.setattr(fake, "close", fail)
    assert drafts.next(1, 1, b"", BOTH, GREEDY) == ([], "")
    assert drafts.kind == ""


def test_a_token_waits_a_tenth_of_a_second_for_what_catches_up() -> None:
    """PROTOCOL section 7: what drafts never holds up an answer, however slow the device is."""
    pace = Pace(16, 256)
    read = [pace.columns]
    for columns, seconds in ((16, 0.01), (160, 0.05), (256, 0.2), (128, 5.0), (16, 0.0)):
        pace.took(columns, seconds)
        read.append(pace.columns)
    assert read == [16, 160, 256, 128, 16, 256]
    assert Pace(16, 8).columns == 8


def test_common_beginnings() -> None:
    """What two texts share is what caches may keep."""
    pairs = [
        ([], [1], 0),
        ([1, 2], [1, 2, 3], 2),
        ([1, 2], [1, 3], 1),
    ]
    assert [common(one, other) for one, other, _ in pairs] == [count for *_, count in pairs]
