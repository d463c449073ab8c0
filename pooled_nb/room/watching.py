"""Decides which devices of the chain stopped responding while an answer runs (PROTOCOL section 8).

Nobody is dropped here: the mesh does that, once its patience ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pooled_nb.mesh.liveness import LATE_S
from pooled_nb.mesh.timing import stopped_responding


@dataclass(frozen=True, slots=True)
class Heard:
    """What is known of one device now.

    Attributes
    ----------
    silence_s
        Seconds since anything was heard of it.
    rtt_s
        Round trip; None: not measured.
    answered_s
        When the newest ping was **sent** that it answered; None: none, or its link is lost.
    """

    silence_s: float
    rtt_s: float | None = None
    answered_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """A device stopped responding."""

    id: str
    silent_s: float


@dataclass(frozen=True, slots=True)
class Back:
    """It answered again, a ping that was sent after it went silent."""

    id: str


class Watching:
    """Who is silent, and since when. ``silent`` by id: the time at which each went silent."""

    def __init__(self) -> None:
        self.silent: dict[str, float] = {}
        self._began: float | None = None
        self._ticked = 0.0

    @property
    def on(self) -> bool:
        """Whether an answer runs."""
        return self._began is not None

    def begin(self, now: float) -> None:
        """An answer begins: silence before it does not count."""
        if self._began is None:
            self._began = self._ticked = now

    def end(self) -> None:
        """No answer runs: nobody is waited for."""
        self._began = None
        self.silent.clear()

    def silent_s(self, id: str, now: float) -> float:
        """Seconds for which a device does not respond; 0: it does."""
        return max(0.0, now - self.silent[id]) if id in self.silent else 0.0

    def tick(self, now: float, devices: Mapping[str, Heard]) -> list[Stopped | Back]:
        """Time passed. ``devices``: those of the chain that do not load now, in chain order."""
        late, self._ticked = now - self._ticked > LATE_S, now
        if self._began is None:
            return []
        told: list[Stopped | Back] = []
        for id in [id for id in self.silent if id not in devices]:  # it loads, or is dropped: others say so
            del self.silent[id]
        for id, heard in devices.items():
            since = max(now - heard.silence_s, self._began)
            if id in self.silent:
                if heard.answered_s is not None and heard.answered_s > self.silent[id]:
                    del self.silent[id]
                    told.append(Back(id))
            elif not late and now - since >= stopped_responding(heard.rtt_s or 0.0):
                self.silent[id] = since
                told.append(Stopped(id, now - since))
        return told
