"""What frames cost by their columns, and how often drafts are right: estimates that follow what is so now."""

from __future__ import annotations

from collections import deque
from statistics import median

KEPT = 5
"""Newest values that count: one slow lap among them moves nothing, three in a row do."""
STEPS = (1, 4, 8, 16)
"""Columns up to which frames count as alike."""


class Middle:
    """The median of the newest values."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=KEPT)
        self.value: float | None = None
        """None before the first."""

    def add(self, value: float) -> None:
        """Take one."""
        self._values.append(value)
        self.value = median(self._values)


class Cost:
    """Seconds of a frame by its columns, in steps: the head runs some rows at a time, and so do kernels.

    The base, a frame of one column, follows every frame. What wider ones cost against it is learned only from
    frames that ran one after the other: a network that got slower is not taken for columns that got dearer.

    Parameters
    ----------
    slope
        What a column more costs, as a part of the first, until it is measured.
    """

    def __init__(self, slope: float) -> None:
        self._base = Middle()
        self._ratios = [Middle() for _ in STEPS]
        self._ratios[0].add(1.0)
        self._guessed = slope
        self._before = (0, 0.0)

    def of(self, columns: int) -> float:
        """Seconds of a frame; before the first was measured, in units of one column."""
        base = 1.0 if self._base.value is None else self._base.value
        return base * self._ratio(_step(columns))

    def took(self, columns: int, seconds: float) -> None:
        """Take what one took."""
        step = _step(columns)
        (narrow, one), (wide, many) = sorted((self._before, (step, seconds)))
        if narrow == 0 < wide and one > 0:
            self._ratios[wide].add(max(1.0, many / one))
        self._before = step, seconds
        self._base.add(seconds / self._ratio(step))

    def _ratio(self, step: int) -> float:
        """What a frame of this step costs against one of one column; as the nearest that is known, else."""
        own = self._ratios[step].value
        if own is not None:
            return own
        known = [i for i in range(1, len(STEPS)) if self._ratios[i].value is not None]
        nearest = min(known, key=lambda i: abs(i - step), default=0)
        value = self._ratios[nearest].value
        slope = (value - 1) / (STEPS[nearest] - 1) if nearest and value is not None else self._guessed
        return 1 + slope * (STEPS[step] - 1)


def _step(columns: int) -> int:
    return next(i for i, most in enumerate(STEPS) if columns <= most)


class Luck:
    """How often drafts of one source are right: the first of a frame, and each that follows a right one.

    Two numbers, since a guess that begins well mostly goes on so.
    """

    def __init__(self, first: float, later: float) -> None:
        self._first, self._later = first, later

    def expected(self, drafts: int) -> float:
        """How many of these are right, up to the first wrong one."""
        right, chance = 0.0, self._first
        for _ in range(drafts):
            right += chance
            chance *= self._later
        return right

    def learn(self, right: int, wrong: bool) -> None:
        """Take one frame: drafts that were right, and whether a wrong one ended them."""
        self._first += 0.25 * ((right > 0) - self._first)
        tries = right - 1 + wrong if right else 0
        if tries:
            kept = 0.9**tries
            self._later = kept * self._later + (1 - kept) * (right - 1) / tries
