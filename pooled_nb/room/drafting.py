"""How far to guess ahead: what frames cost and how often guesses were right decide it (PROTOCOL section 7).

A verify frame of ``k`` drafts brings one token and those drafts that are right. It pays where it brings more
tokens a second than plain laps do, which depends on the room (a wait of 50 ms costs the same for one column
as for sixteen), on the mode (in exact mode every frame is computed 16 columns wide), on the draft model, and
on what is being said. So nothing is assumed for long: it is measured, and tried again now and then.
Decides only: seconds and counts go in, wishes come out.
"""

from __future__ import annotations

from dataclasses import dataclass

from pooled_nb.room.lapcosts import Cost, Luck, Middle
from pooled_nb.room.prefill import MAX_DRAFTS
from pooled_nb.shard import Source, Want

LOOKUP = (3, 7, MAX_DRAFTS)
DRAFT = (3, 5, 7)
"""Numbers of drafts that are chosen among: columns in fours, as they are computed."""
TRY = 3
"""Drafts of a trial of what does not pay now; one, where only its cost is in question."""
HOLD = 1.05
"""What is in use stays until another is better by this factor."""
SOME = 0.02
"""Right drafts a frame below which guessing is off, however little it costs."""
SOONEST, RAREST = 16, 256
"""Frames from one trial to the next, for each plain lap's time that it costs: twice as many each time."""
EARLY = 4
"""Frames into an answer after which what is off is tried: another question, another text."""
BURST = 3
"""Trials in a row while they are right: text that stands there already begins from one token to the next."""
COLD = 4
"""Frames without its guesses, after which a draft model is behind."""
SILENT = 4
"""Frames for which a draft model was asked in vain (it reads, or failed), after which lookup has its turn."""
CONTRAST = 64
"""Frames without a plain one, after which one is run: else nobody knows what it costs now."""


@dataclass(slots=True)
class _Trial:
    """When what does not pay is tried again."""

    every: int = SOONEST
    left: float = EARLY
    burst: int = BURST

    def due(self) -> bool:
        """Whether it is time; counts the frames.

        How a trial went is known only after the next frame was wished for: that one is none.
        """
        self.left -= 1
        if self.left > 0:
            return False
        self.left = 2
        return True

    def was(self, right: bool, cost: float) -> None:
        """How it went: ``right``, so that more of it may pay; and what it cost, in plain laps."""
        if right and self.burst:
            self.burst -= 1
            self.left = 1
            return
        self.every = min(2 * self.every, RAREST)
        self.left, self.burst = max(SOONEST, self.every * cost), BURST


class Drafting:
    """Decides for one chain, over all of its answers.

    Parameters
    ----------
    exact
        Frames are computed at one width, so that a draft costs little more than its part of the head.
    drafter
        A draft model, or draft layers, are there.
    """

    def __init__(self, *, exact: bool, drafter: bool) -> None:
        self._lap = Cost(0.003 if exact else 0.1)
        self._sample = Cost(0.05)
        self._per_draft = Middle()
        self._drafter = drafter
        self._luck: dict[Source, Luck] = {"lookup": Luck(0.5, 0.8), "draft": Luck(0.7, 0.75)}
        self._trials: dict[Source, _Trial] = {"lookup": _Trial(), "draft": _Trial()}
        self._using: dict[Source, int] = {"lookup": 0, "draft": 0}
        self._since_plain = 0
        self._since_draft = COLD
        self._silent = 0
        self._cold = self._cold_before = True
        self._spent = 0.0

    def begin(self) -> None:
        """An answer begins. A draft model reads its prompt first: not for one that is too slow."""
        self._silent = 0
        for source, trial in self._trials.items():
            if source != "draft" or self._may_pay(source):
                trial.left = min(trial.left, EARLY)

    def want(self, room: int) -> Want:
        """How many drafts the next frame may have, of the ``room`` that it has."""
        if room < 1 or self._since_plain >= CONTRAST:
            return Want()
        lookup, rate = self._best("lookup", LOOKUP, room)
        draft, draft_rate = self._best("draft", DRAFT, room) if self._drafter else (0, 0.0)
        if draft and draft_rate > rate and self._silent < SILENT:
            lookup = 0
        self._using = {"lookup": lookup, "draft": draft}
        return Want(
            lookup=lookup or self._trial("lookup", room),
            draft=draft or (self._trial("draft", room) if self._drafter else 0),
        )

    def lap(self, columns: int, seconds: float) -> None:
        """A frame of that many columns went round."""
        self._lap.took(columns, seconds)
        self._since_plain = 0 if columns == 1 else self._since_plain + 1

    def sampled(self, columns: int, seconds: float, drafted: int, *, asked: bool) -> None:
        """Tokens were drawn from as many columns, and ``drafted`` ones guessed by the draft model.

        One that has not guessed for a while reads what was said meanwhile: what that takes is no guess's.
        ``asked``: it was asked to guess, and may have done no more than read.
        """
        self._cold_before, self._cold = self._cold, self._since_draft >= COLD
        self._since_draft = 0 if drafted else self._since_draft + 1
        if asked:
            self._silent = 0 if drafted else self._silent + 1
            self._spent += max(0.0, seconds - self._sample.of(columns))
        if drafted and not self._cold:
            self._per_draft.add(max(0.0, seconds - self._sample.of(columns)) / drafted)
        elif not drafted and not asked:
            self._sample.took(columns, seconds)

    def tried(self, source: Source, right: int, wrong: bool) -> None:
        """Drafts were looked at: how many were right, and whether the one after them was wrong."""
        if not source or not (right or wrong):
            return
        self._luck[source].learn(right, wrong)
        if self._using[source]:
            self._trials[source], self._spent = _Trial(left=SOONEST), 0.0
        else:
            cost = self._seconds("", self._size(source)) / self._seconds("", 0) - 1
            if source == "draft":
                cost += self._spent / self._seconds("", 0)
                self._spent = 0.0
            # One that was behind has read only now: what its guesses cost shows next time.
            again = right > 0 or (source == "draft" and self._cold_before)
            self._trials[source].was(again and self._may_pay(source), cost)

    def _best(self, source: Source, sizes: tuple[int, ...], room: int) -> tuple[int, float]:
        """The number of drafts that brings most tokens a second, and that rate; 0 where plain laps do."""
        if source == "draft" and self._per_draft.value is None:
            return 0, 0.0  # what one costs is not known yet: a trial tells
        luck, using = self._luck[source], self._using[source]
        right = {k: luck.expected(k) for k in {min(size, room) for size in sizes}}
        rates = {k: (1 + right[k]) / self._seconds(source, k) for k in right}
        best = max(rates, key=lambda k: rates[k] * (HOLD if k == using else 1.0))
        plain = 1 / self._seconds("", 0)
        better = right[best] > SOME and rates[best] > plain * (1.0 if using else HOLD)
        return (best, rates[best]) if better else (0, 0.0)

    def _may_pay(self, source: Source) -> bool:
        """Whether it would pay if every guess were right."""
        sizes = DRAFT if source == "draft" else LOOKUP
        return any((1 + k) * self._seconds("", 0) > self._seconds(source, k) for k in sizes)

    def _seconds(self, source: Source, drafts: int) -> float:
        """What a token more costs with as many drafts: a lap, its part of the head, and the guessing."""
        each = (self._per_draft.value or 0.0) if source == "draft" else 0.0
        return max(self._lap.of(1 + drafts) + self._sample.of(1 + drafts) + drafts * each, 1e-6)

    def _trial(self, source: Source, room: int) -> int:
        return min(self._size(source), room) if self._trials[source].due() else 0

    def _size(self, source: Source) -> int:
        unknown = source == "draft" and self._per_draft.value is None
        return TRY if self._may_pay(source) and not unknown else 1
