"""Which devices have loaded, and whether the start goes on (PROTOCOL section 6). Decides only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Trouble:
    """A device that cannot hold its layers: it is left out of the next deal.

    ``killed``: its process was, or its memory ran out; with less of the model it may do.
    """

    id: str
    name: str
    why: str
    killed: bool = False


@dataclass(slots=True)
class Loading:
    """One start under way. ``names`` by id, the host among them.

    ``ckpt``: every device that is ready applies checkpoint control. ``asking``: devices whose person is asked
    whether it may download so much.
    """

    names: dict[str, str]
    pct: dict[str, int] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    trouble: Trouble | None = None
    ckpt: bool = True
    asking: set[str] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def progress(self, id: str, pct: int, *, asks: bool = False) -> None:
        """A device is this far; never backwards, so that no bar jumps. ``asks``: it waits for its person."""
        if id in self.names and id not in self.ready:
            self.pct[id] = max(pct, self.pct.get(id, 0))
            (self.asking.add if asks else self.asking.discard)(id)

    def is_ready(self, id: str, *, ckpt: bool = False) -> None:
        """A device holds its layers."""
        if id in self.names:
            self.ready.add(id)
            self.ckpt = self.ckpt and ckpt
            self.pct[id] = 100
            self.asking.discard(id)
            self._changed.set()

    def again(self, id: str) -> None:
        """A device that was ready was told anew."""
        if id in self.names:
            self.ready.discard(id)
            self.pct[id] = 0

    def failed(self, id: str, why: str, *, killed: bool = False) -> None:
        """A device cannot, or is gone. The first trouble counts."""
        if id in self.names and self.trouble is None:
            self.trouble = Trouble(id, self.names[id], why, killed)
            self._changed.set()

    @property
    def total(self) -> int:
        """Percent of the whole start: the slowest device counts."""
        return min((self.pct.get(id, 0) for id in self.names), default=100)

    def by_name(self) -> dict[str, int]:
        """Percent by name, for ``ai-hostprog``."""
        return {name: self.pct.get(id, 0) for id, name in self.names.items()}

    @property
    def words(self) -> str:
        """How far everybody is, and for whom it waits."""
        asks = {self.names[id] for id in self.asking}
        return ", ".join(
            f"{name}: waits for its person" if name in asks else f"{name}: {pct} %"
            for name, pct in self.by_name().items()
        )

    async def settled(self) -> Trouble | None:
        """Wait until all are ready (None), or one is in trouble."""
        while self.trouble is None and self.ready != set(self.names):
            self._changed.clear()
            await self._changed.wait()
        return self.trouble
