"""Pings, silence and numbers of this device's links (PROTOCOL sections 3 and 8).

What `liveness` decides is done here, and what is measured goes to `telemetry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.link import Link
from pooled_nb.mesh.linkbook import LinkBook
from pooled_nb.mesh.listener import LinkFacts
from pooled_nb.mesh.liveness import Liveness
from pooled_nb.mesh.network import Connection
from pooled_nb.mesh.telemetry import NOTHING, Numbers, Telemetry


class Pulse:
    """Of all links in the book. Its clock is the real one: a late tick is what tells of a stall.

    Parameters
    ----------
    stripes
        The connections that carry a link's slices, beside its own.

    Attributes
    ----------
    spared
        Devices that load: nobody drops them for silence.
    """

    def __init__(self, book: LinkBook, clock: Clock, stripes: Callable[[Link], Sequence[Connection]]) -> None:
        self._book, self._clock, self._stripes = book, clock, stripes
        self._telemetry: dict[int, Telemetry] = {}
        self._numbers: dict[int, Numbers] = {}
        """Of links that somebody asked about since the last tick: each lap asks, and a minute is counted."""
        self._liveness: Liveness[int] = Liveness(clock.now())
        self._watched: tuple[str, ...] = ()
        self.spared: frozenset[str] = frozenset()

    def watch(self, ids: Iterable[str]) -> None:
        """See `Mesh.watch`."""
        self._watched = tuple(ids)

    def opened(self, link: Link, patience: float) -> None:
        """A link opened, and is dropped after so many seconds of silence."""
        self._liveness.add(link.key, self._clock.now(), patience)
        self._telemetry[link.key] = Telemetry()

    def patience(self, link: Link, seconds: float) -> None:
        """What its device is became known."""
        self._liveness.patience(link.key, seconds)

    def heard(self, link: Link) -> None:
        """Something was received."""
        self._liveness.heard(link.key, self._clock.now())

    def answered(self, link: Link, ts: object) -> None:
        """A ping was answered."""
        now = self._clock.now()
        rtt, telemetry = self._liveness.answered(link.key, ts, now), self._telemetry.get(link.key)
        if rtt is not None and telemetry is not None:
            telemetry.trip(rtt, now)

    def ended(self, link: Link) -> float:
        """It ended: seconds since anything was heard over it."""
        quiet = self.quiet(link)
        self._liveness.remove(link.key)
        self._telemetry.pop(link.key, None)
        self._numbers.pop(link.key, None)
        return quiet

    def quiet(self, link: Link) -> float:
        """Seconds since anything was heard over a link."""
        return self._liveness.quiet(link.key, self._clock.now())

    def ask(self, link: Link | None) -> None:
        """Ping it now."""
        ts = None if link is None else self._liveness.ping(link.key, self._clock.now())
        if link is not None and ts is not None:
            link.ping(ts)

    def facts(self, link: Link, *, wanted: int) -> LinkFacts:
        """What is known of a link; ``wanted``: see `LinkFacts`."""
        return LinkFacts(
            rtt_s=self._liveness.rtt(link.key),
            path=link.connection.path,
            quiet_s=self.quiet(link),
            answered_s=self._liveness.answered_ping_of(link.key),
            label=link.connection.label,
            dialed=link.state.dialed,
            fallback=link.wire.fallback,
            queued=link.wire.queued,
            stripes=len(self._stripes(link)),
            wanted=wanted,
            recent=self._recent(link.key),
        )

    def tick(self, now: float) -> None:
        """Time passes."""
        by_key = {link.key: link for link in self._book}
        self._liveness.watch(self._keys_of(self._watched))
        self._liveness.spare(self._keys_of(self.spared))
        due = self._liveness.tick(now)
        for key in due.silent:
            quiet = self._liveness.quiet(key, now)
            if link := by_key.get(key):
                link.silent(f"nothing was heard of it for {quiet:.0f} s")
        for key, ts in due.pings:
            if link := by_key.get(key):
                link.ping(ts)
        self._numbers.clear()
        for link in self._book:
            if telemetry := self._telemetry.get(link.key):
                carriers = (link.connection, *self._stripes(link))
                telemetry.counted({c.connection_id: c.stats() for c in carriers}, now)

    def _recent(self, key: int) -> Numbers:
        telemetry = self._telemetry.get(key)
        if telemetry is not None and key not in self._numbers:
            self._numbers[key] = telemetry.numbers(self._clock.now())
        return self._numbers.get(key, NOTHING)

    def _keys_of(self, ids: Iterable[str]) -> list[int]:
        return [link.key for id in ids if (link := self._book.used(id)) is not None]
