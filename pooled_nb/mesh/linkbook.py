"""Which links there are to each device, and which one of several is used (PROTOCOL section 2)."""

from __future__ import annotations

from collections.abc import Iterator

from pooled_nb.mesh.gate import Side
from pooled_nb.mesh.link import Link

MAX_WAITING = 64
"""Links that are not admitted, of all devices together."""
MAX_WAITING_EACH = 4
"""And of one id, so that one device cannot take every place."""
CROSSING_S = 5.0
"""Of two links younger than so, one dialed by each end, neither is the one that the other end had lost."""
GIVES_WAY_S = 8.0
"""Seconds after which a link without a ``hello`` gives its place to who waits."""


def takes_over(new: Link, old: Link, own: str) -> bool:
    """Whether ``new`` is to be used instead of ``old``, both admitted.

    A newer link of the same dialer replaces the older, and so does one that says ``back``. When both ends
    dialed each other, both keep the connection whose dialer has the lower id; also where both had lost a link
    before, and so say ``back``: each would keep another one, and close the other's.
    """
    dialer_hello = new.state.own if new.state.dialed else new.state.hello
    crossing = new.admitted_at - old.admitted_at < CROSSING_S
    back = dialer_hello is not None and dialer_hello.back and not crossing
    if new.state.dialed == old.state.dialed or back:
        return True
    # One is dialed by each end: ``new`` wins if its dialer is the lower one.
    return (own < new.remote) == new.state.dialed


class LinkBook:
    """Living links by device. ``own`` is this device's id."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._links: dict[str, list[Link]] = {}
        self._used: dict[str, Link] = {}

    def __iter__(self) -> Iterator[Link]:
        """Every living link; the book may change meanwhile."""
        return iter([link for links in self._links.values() for link in links])

    def of(self, remote: str) -> list[Link]:
        """Living links to a device, oldest first."""
        return list(self._links.get(remote, ()))

    def used(self, remote: str) -> Link | None:
        """The admitted link that messages to this device take."""
        return self._used.get(remote)

    @property
    def admitted(self) -> list[Link]:
        """One link for each device that has an admitted one."""
        return list(self._used.values())

    def has_room(self, now: float) -> bool:
        """Whether one more link may come without pushing out one that is only slow (`GIVES_WAY_S`)."""
        waiting = [link for link in self if not link.is_admitted]
        return len(waiting) < MAX_WAITING or any(
            link.state.hello is None and now - link.state.now >= GIVES_WAY_S for link in waiting
        )

    def make_room(self, remote: str) -> bool:
        """Whether one more link of that device may wait for admission.

        Where all places are taken, the oldest link that has not even said ``hello`` gives way: silent ones
        lock nobody out.
        """
        waiting = [link for link in self if not link.is_admitted]
        if sum(link.remote == remote for link in waiting) >= MAX_WAITING_EACH:
            return False
        if len(waiting) < MAX_WAITING:
            return True
        mute = [link for link in waiting if link.state.hello is None]
        silent = min(mute, key=lambda link: link.key, default=None)
        if silent is not None:
            silent.drop()
        return silent is not None

    def add(self, link: Link) -> None:
        """A link came to be."""
        self._links.setdefault(link.remote, []).append(link)

    def admitted_now(self, link: Link) -> Link | None:
        """A link was admitted. Returns the one that is no longer used: it may be ``link`` itself."""
        old = self._used.get(link.remote)
        if old is None or link.state.side is not Side.PEER or takes_over(link, old, self._own):
            self._used[link.remote] = link
            return old
        return link

    def remove(self, link: Link) -> bool:
        """A link ended. Returns whether its device has no admitted link now, and this was one."""
        links = self._links.get(link.remote, [])
        if link in links:
            links.remove(link)
        if not links:
            self._links.pop(link.remote, None)
        if self._used.get(link.remote) is not link:
            return False
        del self._used[link.remote]
        for other in links:
            if other.is_admitted:
                self._used[link.remote] = other
                return False
        return True
