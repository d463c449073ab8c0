"""Rooms over bad networks say what one device says, bit for bit (PROTOCOL section 5, DESIGN section 5).

Devices are processes of their own; each of their connections, stripes too, goes through a path of the shaper
(`tests.shaper`) that delays, loses, doubles and holds datagrams. No time is asserted: the text always is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pooled_nb.mesh import codes
from tests.e2e.chaos import FULL, LIMIT_S, Said
from tests.e2e.chaosroom import Question, Rooms, Stage
from tests.shaper.handle import NOTHING, Shaper
from tests.shaper.line import Counts, LineSettings

pytestmark = pytest.mark.timeout(600)

MODEL = Path("HuggingFaceTB/SmolLM2-135M-Instruct")
DEFAULTS = {"POOLED_STRIPES": "3", "POOLED_KEEPALIVE_MS": "10"}
"""As between machines: on one machine alone nothing is lost, and a room there has no stripes."""
LONG_S = 4 * LIMIT_S
"""Of an answer at 15 % loss and 300 ms there and back, on a machine that has other work."""

SKY = "Why is the sky blue?"
REPEAT = (
    "Repeat this text exactly:\nThe quick brown dog jumps over the lazy dog. Then the dog sleeps in the sun."
)
Alone = Callable[[Question], str]


def name(line: LineSettings) -> str:
    return f"{line.loss:.0%}-{line.delay_ms:.0f}ms"


GRID = [
    LineSettings(loss=loss, delay_ms=delay)
    for delay in (0.0, 25.0, 150.0)
    for loss in (0.0, 0.01, 0.05, 0.15)
]
ALWAYS = [LineSettings(loss=0.05, delay_ms=25.0), LineSettings(loss=0.15, delay_ms=150.0)]
"""What `make test` has of the grid."""
MESS = LineSettings(
    delay_ms=15.0, jitter_ms=10.0, reorder=0.1, reorder_ms=40.0, duplicate=0.1, loss=0.02, burst=3.0
)
MESSES: dict[str, dict[str, LineSettings]] = {
    "jitter, reorder, copies": {"": MESS},
    "1 Mbit/s": {"": LineSettings(rate_kbit=1_000.0, delay_ms=10.0, queue_bytes=30_000.0)},
    "another each way": {"": LineSettings(delay_ms=60.0), "host": MESS},
}
"""What lines are, and what those are that this device sends into."""


def marks(workers: tuple[str, ...], line: LineSettings) -> Any:
    return () if line in ALWAYS and len(workers) == 2 else FULL


class Shaped:
    """Rooms of one shaper, one after the other; one that is whole serves the next test, too."""

    def __init__(self, folder: Callable[[str], Path], tiny: tuple[Path, list[int]]) -> None:
        self.net = Shaper(seed=11)
        self._folder, self._tiny = folder, tiny
        self._kind: tuple[bool, bool] | None = None
        self.begins = NOTHING
        """What lines are while a room comes to be."""
        self._rooms: Rooms | None = None

    def room(self, *workers: str, guesses: bool = False, real: bool = False) -> Stage:
        """A started room in a new chat, over lines that are clean; ``real``: of SmolLM2."""
        self.net.change(self.begins)
        if self._rooms is None or self._kind != (guesses, real):
            self.close_room()
            model, never = (MODEL, []) if real else self._tiny
            self._kind = (guesses, real)
            self._rooms = Rooms(
                lambda: Stage(
                    self._folder("shaped"),
                    model,
                    never,
                    pace=0,
                    env=DEFAULTS,
                    servers=[self.net.url],
                    speculate=guesses,
                )
            )
        return self._rooms(*workers)

    def close_room(self) -> None:
        if self._rooms is not None:
            self._rooms.close()
        self._rooms = None

    def close(self) -> None:
        self.close_room()
        self.net.close()


@pytest.fixture(scope="module")
def shaped(tmp_path_factory: pytest.TempPathFactory, tiny: tuple[Path, list[int]]) -> Iterator[Shaped]:
    made = Shaped(tmp_path_factory.mktemp, tiny)
    yield made
    made.close()


@pytest.fixture(scope="module")
def real_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    """What one device says that holds all of SmolLM2."""
    stage = Stage(tmp_path_factory.mktemp("alone"), MODEL, [], pace=0, speculate=False).open()
    stage.host.call("start")

    def answer(question: Question) -> str:
        stage.host.call("reset")
        asked = stage.ask(question)
        asked.done()
        return asked.text

    yield answer
    stage.close()


def same(net: Shaper, stage: Stage, question: Question, want: str) -> tuple[Counts, Said]:
    """Ask over the lines as they are now; what these did meanwhile, and the one `Done`."""
    before = net.total()
    stage.host.call("reset")
    asked = stage.ask(question)
    end = asked.done(LONG_S)
    after = net.total()
    assert asked.text == want, end
    stage.shown(question, asked.text)
    fields = Counts.__struct_fields__
    return Counts(**{field: getattr(after, field) - getattr(before, field) for field in fields}), end


def until_striped(net: Shaper, stage: Stage) -> set[int]:
    """Wait until each link of the host has its stripes; their paths."""
    end = time.monotonic() + LIMIT_S
    while True:
        counts = net.counts(ends=[codes.room_id(stage.code)])
        links = {frozenset((c.src, c.dst)) for c in counts if c.label != "stripe"}
        stripes = {c.path: frozenset((c.src, c.dst)) for c in counts if c.label == "stripe" and c.went > 10}
        if links and all(list(stripes.values()).count(link) >= 3 for link in links):
            return set(stripes)
        assert time.monotonic() < end, (links, stripes)
        time.sleep(0.1)


def carried(net: Shaper, paths: set[int]) -> dict[int, int]:
    """Bytes that came over each, both ways."""
    return {path: net.total(path=path).came_bytes for path in paths}


@pytest.mark.parametrize(
    ("workers", "line"),
    [
        pytest.param(workers, line, id=f"{len(workers) + 1}-{name(line)}", marks=marks(workers, line))
        for workers in (("ana",), ("ana", "bo"))
        for line in GRID
    ],
)
@pytest.mark.parametrize("guesses", [False, True], ids=["plain", "guesses"])
def test_the_text_is_that_of_one_device(
    shaped: Shaped, alone: Alone, workers: tuple[str, ...], line: LineSettings, guesses: bool
) -> None:
    """DESIGN section 5, exact mode: whatever is lost and however late it comes, greedy and drawn."""
    stage = shaped.room(*workers, guesses=guesses)
    layers = stage.layers()
    assert len(layers) == len(workers) + 1
    assert None not in layers.values()
    shaped.net.change(line)
    tokens = 8 if line.delay_ms > 100 else 24
    drafted = 0
    for question in (Question(SKY, tokens), Question("And at night?", tokens, seed=None)):
        did, end = same(shaped.net, stage, question, alone(question))
        assert did.came > tokens // 2
        assert (did.lost > 0) == (line.loss > 0) or line.loss == 0.01
        drafted += end["stats"]["drafted"]
    assert (drafted > 0) == guesses
    assert stage.layers() == layers


@pytest.mark.parametrize(
    "what", ["jitter, reorder, copies", *(pytest.param(w, marks=FULL) for w in list(MESSES)[1:])]
)
def test_the_text_is_that_of_one_device_over(shaped: Shaped, alone: Alone, what: str) -> None:
    """PROTOCOL section 5, receiving: strictly in order, never twice, and never with a hole."""
    stage = shaped.room("ana", "bo", guesses=True)
    for sender, line in MESSES[what].items():
        shaped.net.change(line, **({"sent_by": codes.room_id(stage.code)} if sender else {}))
    question = Question(SKY, 32)
    did, _ = same(shaped.net, stage, question, alone(question))
    if what == "jitter, reorder, copies":
        assert min(did.lost, did.doubled, did.held_back) > 0


@pytest.mark.parametrize("what", ["swallow", pytest.param("freeze", marks=FULL)])
def test_two_seconds_of_nothing_in_the_middle_of_an_answer(shaped: Shaped, alone: Alone, what: str) -> None:
    """PROTOCOL section 5: a missing frame is late, not lost; section 3: nobody is dropped for two seconds."""
    stage = shaped.room("ana", "bo", guesses=True)
    layers = stage.layers()
    shaped.net.change(LineSettings(delay_ms=25.0))
    question = Question(SKY, 32)
    asked = stage.ask(question)
    asked.until(5)
    getattr(shaped.net, what)(2.0)
    asked.done(LONG_S)
    assert asked.gap > 1.8
    assert asked.text == alone(question)
    stage.shown(question, asked.text)
    assert stage.layers() == layers


@pytest.mark.parametrize(
    ("workers", "line"),
    [
        pytest.param(("ana",), LineSettings(loss=0.05, delay_ms=25.0), id="2-5%-25ms"),
        pytest.param(("ana", "bo"), LineSettings(loss=0.15, delay_ms=25.0), id="3-15%-25ms", marks=FULL),
        pytest.param(("ana", "bo"), LineSettings(loss=0.05, delay_ms=150.0), id="3-5%-150ms", marks=FULL),
    ],
)
@pytest.mark.parametrize("guesses", [pytest.param(False, marks=FULL), True], ids=["plain", "guesses"])
def test_a_real_model_says_what_it_says_on_one_device(
    shaped: Shaped, real_alone: Alone, workers: tuple[str, ...], line: LineSettings, guesses: bool
) -> None:
    """DESIGN section 5: SmolLM2, greedy and drawn; frames of its prompt are of many slices."""
    stage = shaped.room(*workers, guesses=guesses, real=True)
    stripes = until_striped(shaped.net, stage)
    shaped.net.change(line)
    before = carried(shaped.net, stripes)
    for question in (Question(REPEAT, 16, seed=None), Question(REPEAT, 8)):
        did, _ = same(shaped.net, stage, question, real_alone(question))
        assert did.lost > 0
    after = carried(shaped.net, stripes)
    assert all(after[path] - before[path] > 5_000 for path in stripes), "each stripe carried slices"


@FULL
@pytest.mark.parametrize(
    "line", [LineSettings(loss=0.05, delay_ms=25.0), LineSettings(loss=0.15, delay_ms=150.0)], ids=name
)
def test_a_room_comes_to_be_over_a_bad_network(shaped: Shaped, alone: Alone, line: LineSettings) -> None:
    """PROTOCOL sections 2 to 6: doors, deal and stripes, over lines that are bad from the start."""
    shaped.close_room()
    shaped.begins = line
    try:
        stage = shaped.room("ana", "bo")
        question = Question(SKY, 12)
        same(shaped.net, stage, question, alone(question))
    finally:
        shaped.begins = NOTHING
        shaped.close_room()
