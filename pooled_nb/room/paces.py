"""How fast devices compute: what each says of itself, and what a deal makes of it (PROTOCOL section 6).

Decides only: frames, messages and the time go in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pooled_nb.mesh.gatekeeper import MAX_PASSES
from pooled_nb.mesh.messages import deal as wire

TELL_S = 0.7
"""Between two messages of one device at least."""
ALIKE = 1.5
"""Devices count as equally fast up to this factor: no noise moves layers, and with them gigabytes."""

FrameKind = Literal["one", "spec", "pre"]
"""A token alone, tokens of a verify frame or of an answer that is computed again, a part of a prompt."""


def kind_of(*, batch: bool, spec: bool) -> FrameKind:
    """Which kind a frame is: ``batch`` where it is a ``-b`` frame."""
    return "spec" if batch and spec else "pre" if batch else "one"


class Pace:
    """What this device says of its own compute, ``ai-tele``.

    Means are over the frames since the message before. The first frame of each kind after a load prepares
    what the others find, so it does not count.
    """

    def __init__(self) -> None:
        self._seen: set[FrameKind] = set()
        self._sums: dict[FrameKind, tuple[float, int]] = {}
        self._told: float | None = None

    def loaded(self, layer_ms: float, layers: int, now: float) -> wire.Telemetry | None:
        """A range was loaded, and measured once: ``layer_ms`` for each of its layers, 0 where it was not."""
        self._seen.clear()
        self._sums.clear()
        self._told = now if layer_ms > 0 else None
        return wire.Telemetry(k=wire.Compute(one=layer_ms * layers)) if layer_ms > 0 else None

    def ran(self, kind: FrameKind, ms: float, now: float) -> wire.Telemetry | None:
        """A frame was computed in so many milliseconds: what to say now, if anything."""
        if ms <= 0:  # nobody measured it
            return None
        if kind not in self._seen:
            self._seen.add(kind)
            return None
        total, n = self._sums.get(kind, (0.0, 0))
        self._sums[kind] = total + ms, n + 1
        if self._told is not None and now - self._told < TELL_S:
            return None
        self._told = now
        means: dict[str, float] = {kind: total / n for kind, (total, n) in self._sums.items()}
        self._sums.clear()
        return wire.Telemetry(k=wire.Compute(**means))


class Paces:
    """What the host knows of all devices: milliseconds a layer for a frame of generated text.

    By the id of their pass, so that a device that comes back is known.
    """

    def __init__(self) -> None:
        self._layer_ms: dict[str, float] = {}

    def heard(self, key: str, said: wire.Compute, layers: int) -> None:
        """A device that holds so many layers says how long it computes. Newer numbers count as much as all
        before them.
        """
        ms = said.one or said.spec
        if not ms or layers < 1:
            return
        new = ms / layers
        before = self._layer_ms.pop(key, new)  # the newest last
        self._layer_ms[key] = (before + new) / 2
        while len(self._layer_ms) > MAX_PASSES:
            del self._layer_ms[next(iter(self._layer_ms))]

    def of(self, key: str) -> float | None:
        """Milliseconds that a layer takes there; None: nobody has measured."""
        return self._layer_ms.get(key)


def alike(ms: Mapping[str, float]) -> dict[str, float]:
    """The same by id, with devices that are about as fast as each other counted as equal."""
    level, base = {}, 0.0
    for id, one in sorted(ms.items(), key=lambda item: item[1]):
        if one > base * ALIKE:
            base = one
        level[id] = base
    return level
