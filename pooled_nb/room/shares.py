"""Decides how much less a device gets that was killed (PROTOCOL section 6, ``ai-share``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pooled_nb.mesh.gatekeeper import MAX_PASSES


@dataclass(frozen=True, slots=True)
class Less:
    """It gets at most ``gb`` from now on."""

    gb: float
    why: str


@dataclass(frozen=True, slots=True)
class Without:
    """The room goes on without its memory."""

    why: str


class Shares:
    """What is known of devices that were killed while they loaded or computed, by the id of their pass.

    It counts for every later deal of the room: memory that did not hold half a model at noon does not
    hold all of it at one.
    """

    def __init__(self) -> None:
        self._caps: dict[str, float] = {}
        self._before: dict[str, float] = {}
        """Caps before the newest kill, where there were any."""
        self._words: dict[str, Less | Without] = {}
        self._once: dict[str, None] = {}
        """Who had held a single layer when it was killed: that may have been one bad moment."""

    def killed(
        self,
        key: str,
        name: str,
        layers: Sequence[int],
        extra: int = 0,
        *,
        did: str = "loaded",
        held: bool = False,
    ) -> Less | Without | None:
        """A device was killed while it ``did`` these layers (bytes of each), ``extra`` bytes beside them.

        The first time it gets half of that, and at least one layer; after the second, or where it had one
        layer, nothing. A single layer that it had ``held`` it gets once more: None.
        """
        again = key in self._caps
        if held and not again and len(layers) < 2 and key not in self._once:
            self._once[key] = None
            while len(self._once) > MAX_PASSES:
                del self._once[next(iter(self._once))]
            return None
        self._before.pop(key, None)
        if again:
            self._before[key] = self._caps.pop(key)
        for known in (self._caps, self._before, self._words):
            while len(known) >= MAX_PASSES:  # the oldest goes
                del known[next(iter(known))]
        if again or len(layers) < 2:
            why = f"{name} was killed while it {did}{' again' if again else ' a single layer'}."
            self._caps[key] = 0.0
            word: Less | Without = Without(f"{why} The room goes on without its memory.")
        else:
            gb = (max(sum(layers) / 2, *layers) + extra) / 1e9
            self._caps[key] = gb
            why = f"{name} was killed while it {did}, most likely because memory ran out."
            word = Less(gb, f"{why} It gets half of its share, {amount(gb)} at most.")
        self._words[key] = word
        return word

    def most(self, key: str, lends_gb: float) -> float:
        """GB that a device may hold: what it lends, or less."""
        return min(lends_gb, self._caps.get(key, lends_gb))

    def word(self, key: str) -> Less | Without | None:
        """What a device still has to hear of it; once."""
        return self._words.pop(key, None)

    def owe(self, key: str, word: Less | Without) -> None:
        """It could not be told: it hears it when it comes back."""
        self._words[key] = word

    def forgive(self, key: str) -> None:
        """It may hold as much as before it was killed last: the room cannot do with less of it."""
        self._caps.pop(key, None)
        self._words.pop(key, None)
        if key in self._before:
            self._caps[key] = self._before.pop(key)


def amount(gb: float) -> str:
    """GB as people read them, in MB where that is less than one."""
    return f"{gb:.1f} GB" if gb >= 1 else f"{max(1, int(gb * 1e3))} MB"
