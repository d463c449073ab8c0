"""How far a room guesses ahead, over recorded costs (tests/room/costs.py): no clock, no network."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pooled_nb.room.drafting import CONTRAST, DRAFT, RAREST, SILENT, SOONEST, TRY, Drafting
from pooled_nb.room.lapcosts import Cost, Luck
from pooled_nb.shard import Want
from tests.room.costs import EDIT, LAYERS, NOISE, TALK, Machine, Run, Speech, two_devices

ROOMS = [
    *(Machine(mode) for mode in LAYERS),
    *(two_devices(mode, wait) for mode in ("exact bf16", "fast bf16") for wait in (0, 20, 50)),
]
FAST_DRAFTER, SLOW_DRAFTER = 3.0, 30.0
"""Milliseconds of one guess."""
FIXED = [
    Want(),
    *(Want(lookup=k) for k in (3, 7, 15)),
    *(Want(draft=k) for k in DRAFT),
    *(Want(lookup=15, draft=k) for k in DRAFT),
]


def with_drafter(machine: Machine, ms: float) -> Machine:
    return Machine(machine.mode, machine.wait, ms)


def fixed(machine: Machine, speech: Speech, tokens: int, want: Want) -> float:
    return Run(None, fixed=want, seed=3).go(machine, speech, tokens).seconds


def best(machine: Machine, speech: Speech, tokens: int) -> float:
    """Seconds of the best there is among those that never change."""
    wants = FIXED if machine.draft is not None else FIXED[:4]
    return min(fixed(machine, speech, tokens, want) for want in wants)


def start(machine: Machine) -> float:
    """Seconds in which a draft model reads the prompt and what came, and shows what it costs."""
    return 30 * (machine.draft or 0.0) / 1e3


@pytest.mark.parametrize("machine", ROOMS, ids=str)
@pytest.mark.parametrize("drafter", [None, FAST_DRAFTER, SLOW_DRAFTER])
def test_text_that_stands_there_is_looked_up(machine: Machine, drafter: float | None) -> None:
    """PROTOCOL section 7: "drafts from prompt lookup (… up to 15)": in any room, with all the columns."""
    if drafter:
        machine = with_drafter(machine, drafter)
    run = Run(machine.drafting(), seed=1).go(machine, EDIT, 600)
    assert run.seconds < 1.15 * best(machine, EDIT, 600) + start(machine)
    assert run.seconds < fixed(machine, EDIT, 600, Want()) / 4
    late = run.sizes[len(run.sizes) // 2 :]
    assert sorted(late)[len(late) // 2] == 15


@pytest.mark.parametrize("machine", ROOMS, ids=str)
@pytest.mark.parametrize("drafter", [None, FAST_DRAFTER, SLOW_DRAFTER])
def test_what_is_never_right_is_switched_off(machine: Machine, drafter: float | None) -> None:
    """PROTOCOL section 7: guesses that are wrong cost next to nothing: 60 laps, then a trial now and then."""
    if drafter:
        machine = with_drafter(machine, drafter)
    never = Speech(found=0.9)
    run = Run(machine.drafting(), seed=2).go(machine, never, 1500)
    tried = [i for i, size in enumerate(run.sizes) if size]
    sources = 2 if drafter else 1
    assert len([i for i in tried if i >= 60]) <= sources * (1500 - 60) / SOONEST + 30
    plain = fixed(machine, never, 1500, Want())
    assert run.seconds < 1.03 * plain + 10 * machine.lap(1) + start(machine)


@pytest.mark.parametrize("machine", ROOMS, ids=str)
@pytest.mark.parametrize("speech", [TALK, NOISE], ids=["talk", "noise"])
@pytest.mark.parametrize("drafter", [None, FAST_DRAFTER, SLOW_DRAFTER])
def test_no_room_loses_by_it(machine: Machine, speech: Speech, drafter: float | None) -> None:
    """PROTOCOL section 7: whatever is said: never much slower than plain, and near the best that is fixed."""
    if drafter:
        machine = with_drafter(machine, drafter)
    run = Run(machine.drafting(), seed=1).go(machine, speech, 1200)
    assert run.seconds < 1.06 * fixed(machine, speech, 1200, Want())
    assert run.seconds < 1.2 * best(machine, speech, 1200)


@pytest.mark.parametrize("machine", ROOMS, ids=str)
def test_a_fast_drafter_is_used(machine: Machine) -> None:
    """PROTOCOL section 7: "a draft model": 7 in 10 right, at a tenth of a lap: well above plain decoding."""
    machine = with_drafter(machine, FAST_DRAFTER)
    run = Run(machine.drafting(), seed=1).go(machine, TALK, 800)
    assert run.seconds < fixed(machine, TALK, 800, Want()) / 1.3
    late = run.sources[len(run.sources) // 2 :]
    assert late.count("draft") > 0.7 * len(late)


@pytest.mark.parametrize("mode", ["fast bf16", "exact bf16"])
def test_a_slow_drafter_is_used_where_laps_are_slower(mode: str) -> None:
    """A guess as dear as a lap: off on one device, on where each lap waits for a wire, and off again."""
    here, there = Machine(mode, 0.0, SLOW_DRAFTER), two_devices(mode, 50, SLOW_DRAFTER)
    run = Run(here.drafting(), seed=5)

    def lately(machine: Machine) -> float:
        """Tokens a second, 250 tokens after a change, as a part of those of plain decoding."""
        run.go(machine, TALK, 250)
        began = run.seconds
        run.go(machine, TALK, 600)
        return fixed(machine, TALK, 600, Want()) / (run.seconds - began)

    off, on, off_again = lately(here), lately(there), lately(here)
    assert min(off, off_again) > 0.94
    assert on > 1.15
    assert run.sources[-200:].count("draft") < 50


@pytest.mark.parametrize("machine", ROOMS, ids=str)
def test_another_text_is_followed(machine: Machine) -> None:
    """Lookup that was wrong for a thousand tokens is right within the next laps of an answer, and is used."""
    drafting = machine.drafting()
    Run(drafting, seed=6).go(machine, NOISE, 1000)
    run = Run(drafting, seed=7).go(machine, EDIT, 300)  # another answer
    assert run.seconds < fixed(machine, EDIT, 300, Want()) / 2
    # In the middle of one it takes a trial, which comes the rarer, the longer it was wrong.
    drafting = machine.drafting()
    run = Run(drafting, seed=6).go(machine, NOISE, 1000)
    laps = len(run.sizes)
    run.go(machine, EDIT, 2 * RAREST)
    assert max(run.sizes[laps:]) == 15


def test_a_room_tries_at_once_and_without_any_number() -> None:
    """PROTOCOL section 7: the first frame may be a verify frame already; a drafter shows its cost first."""
    for exact in (True, False):
        drafting = Drafting(exact=exact, drafter=True)
        want = drafting.want(999)
        assert want.lookup >= 3
        assert want.draft == 0, "what drawing takes without it is not known"
        asked: list[int] = []
        for _ in range(12):
            draft = drafting.want(999).draft
            # The first one reads the prompt as well, and says nothing about what a guess costs.
            drafting.sampled(1, 0.01 + (0.01 * draft if any(asked) else 0.9 * draft), draft, asked=draft > 0)
            drafting.lap(1 + draft, 0.1)
            drafting.tried("draft", right=draft, wrong=False)
            asked.append(draft)
        tried = [draft for draft in asked if draft]
        assert tried[:2] == [1, 1]
        assert tried[-1] == 7
        assert Drafting(exact=exact, drafter=False).want(999).draft == 0


@pytest.mark.parametrize("room", [-3, 0, 1, 2, 5, 15, 999])
def test_no_more_is_wanted_than_there_is_room_for(room: int) -> None:
    """PROTOCOL section 7: limits of answer, context and bucket bound the drafts of a frame."""
    machine = Machine("exact bf16", 0.0, FAST_DRAFTER)
    drafting = machine.drafting()
    for speech in (EDIT, TALK, NOISE):
        Run(drafting).go(machine, speech, 200)
        want = drafting.want(room)
        assert 0 <= want.lookup <= max(room, 0)
        assert 0 <= want.draft <= max(room, 0)


def test_a_plain_lap_runs_now_and_then() -> None:
    """What a plain lap costs must be known, also where every guess is right for ever."""
    machine = two_devices("exact bf16", 50)
    run = Run(machine.drafting()).go(machine, Speech(found=1.0, first=1.0, later=1.0), 4000)
    plain = [i for i, size in enumerate(run.sizes) if size == 0]
    assert all(after - before <= CONTRAST + 1 for before, after in pairwise(plain))
    assert len(plain) > 2


def test_one_slow_lap_moves_nothing() -> None:
    """CASES: a worker that needs 12 s for one lap: the room goes on as it was."""
    machine = Machine("exact bf16")
    run = Run(machine.drafting()).go(machine, EDIT, 300)
    assert run.drafting
    before = run.drafting.want(999)
    run.drafting.lap(1, 12.0)
    run.drafting.lap(16, 9.0)
    assert run.drafting.want(999) == before


def test_costs_follow_the_base_and_learn_the_steps() -> None:
    """What wider frames cost is learned from frames near each other; the base from every frame."""
    cost = Cost(0.1)
    assert cost.of(1) == 1.0
    for _ in range(5):
        cost.took(1, 0.1)
        cost.took(16, 0.2)
    assert cost.of(1) == pytest.approx(0.1, rel=0.3)
    assert cost.of(16) / cost.of(1) == pytest.approx(2)
    assert cost.of(8) / cost.of(1) == pytest.approx(1 + 7 / 15), "between, until it is measured"
    for _ in range(20):
        cost.took(16, 2.0)  # slower all at once: of what, no narrow frame has told
    assert cost.of(16) == pytest.approx(2.0)
    assert cost.of(16) / cost.of(1) == pytest.approx(2)


def test_luck_counts_what_was_looked_at() -> None:
    """Drafts after a wrong one say nothing; neither does a frame that an end cut short."""
    luck = Luck(0.5, 0.8)
    assert luck.expected(0) == 0
    assert luck.expected(2) == pytest.approx(0.5 + 0.4)
    for _ in range(30):
        luck.learn(3, wrong=False)
    assert luck.expected(3) > 2.9
    for _ in range(30):
        luck.learn(0, wrong=True)
    assert luck.expected(15) < 0.1


def test_lookup_is_asked_where_a_drafter_says_nothing() -> None:
    """PROTOCOL section 7: a draft model that failed in use leaves its frames to prompt lookup."""
    machine = Machine("exact bf16", 0.0, FAST_DRAFTER)
    drafting = machine.drafting()
    Run(drafting, seed=4).go(machine, Speech(found=0.6, first=0.7, later=0.7, drafted=0.97), 400)
    assert drafting.want(999) == Want(draft=7)
    for _ in range(SILENT):
        drafting.sampled(1, machine.head(1), 0, asked=True)
    assert drafting.want(999) == Want(lookup=7, draft=7)
    drafting.sampled(1, machine.head(1) + 7 * FAST_DRAFTER / 1e3, 7, asked=True)
    assert drafting.want(999).lookup <= TRY, "it speaks again: lookup is only tried"
