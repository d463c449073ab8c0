"""How much of a signaling server one address may take: a decider without I/O (DESIGN section 4).

Addresses and ``now`` go in, yes or no comes out. A room behind one router is one address, so the limits are
wide: a class of 100 devices that arrives at once stays far below them, a flood does not.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

UNKNOWN = "unknown"
"""The group of those whose address cannot be read: they share the limits of one."""
TOO_MANY = "Too many connections from this address"
TOO_FAST = "Too many new connections from this address: wait a minute"
FULL = "Server has reached its concurrent user limit"
V6_BITS = 64
"""Of an IPv6 address: the network of one home or office. Its devices draw the rest as they like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressLimits:
    """What one address may have. Rates are of the long run; a burst is what it may do at once.

    Attributes
    ----------
    members
        Devices registered at one time.
    sockets
        Open connections, those before and after registration counted: above, they are cut off unheard.
    new_per_min, new_burst
        New connections.
    messages, messages_burst
        Messages a second, of all its devices together.
    bytes, bytes_burst
        Bytes a second, likewise.
    """

    members: int = 256
    sockets: int = 384
    new_per_min: float = 300.0
    new_burst: int = 400
    messages: float = 1_000.0
    messages_burst: int = 20_000
    bytes: float = 2.0 * 1024 * 1024
    bytes_burst: int = 32 * 1024 * 1024


def group(address: str) -> str | None:
    """Whose limits an address counts for; None: nobody's.

    Programs of this machine are not limited by address (there the totals hold), and an IPv6 address counts
    for its /64.
    """
    text = address.partition("%")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return UNKNOWN
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif not found.is_loopback:
            return str(ipaddress.IPv6Network((found, V6_BITS), strict=False))
    return None if found.is_loopback else str(found)


def forwarded(header: str) -> str:
    """The address that a proxy in front of us saw: the last one of ``X-Forwarded-For``.

    Whatever stands before it was said by the client itself. Empty where there is none.
    """
    last = header.rpartition(",")[2].strip()
    if last.startswith("["):
        return last[1:].partition("]")[0]
    host, _, port = last.partition(":")
    return host if port.isdigit() else last


def is_proxy(address: str) -> bool:
    """Whether this peer may be a proxy, whose word counts: it stands on this machine or beside it."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found.is_loopback or found.is_private or found.is_link_local


@dataclass(slots=True)
class Bucket:
    """Credit that comes back at ``rate`` a second, up to ``most``."""

    rate: float
    most: float
    credit: float
    at: float

    @classmethod
    def full(cls, rate: float, most: float, now: float) -> Bucket:
        """One that nobody took from."""
        return cls(rate, most, most, now)

    def refill(self, now: float) -> float:
        """What is there now."""
        self.credit = min(self.most, self.credit + max(0.0, now - self.at) * self.rate)
        self.at = now
        return self.credit

    def take(self, amount: float, now: float) -> bool:
        """Take it if it is there."""
        if self.refill(now) < amount:
            return False
        self.credit -= amount
        return True


@dataclass(slots=True)
class _Address:
    arrivals: Bucket
    messages: Bucket
    bytes: Bucket
    minted: Bucket
    sockets: int = 0
    members: int = 0


class Quota:
    """The addresses of one server.

    Parameters
    ----------
    limits
        Of one address.
    addresses
        How many are kept in mind. One that is idle and has all of its credit back is forgotten.
    minted_per_min, minted_burst
        How often one address may ask for credentials of a relay.
    """

    def __init__(
        self,
        limits: AddressLimits | None = None,
        *,
        addresses: int = 8_192,
        minted_per_min: float = 60.0,
        minted_burst: int = 200,
    ) -> None:
        self._limits = limits or AddressLimits()
        self._most = addresses
        self._minted = minted_per_min / 60, float(minted_burst)
        self._known: dict[str, _Address] = {}

    def __len__(self) -> int:
        return len(self._known)

    def accept(self, group: str | None, now: float) -> bool:
        """A connection of this address came in; False: cut it off. True has to be followed by `closed`."""
        if group is None:
            return True
        who = self._address(group, now)
        # What is above the credit, and not yet far above, is let in to be told why it is refused.
        if who is None or who.sockets >= self._limits.sockets:
            return False
        if who.arrivals.refill(now) <= -self._limits.new_burst / 4:
            return False
        who.arrivals.credit -= 1
        who.sockets += 1
        return True

    def closed(self, group: str | None) -> None:
        """A connection that was accepted is gone."""
        if group is not None and (who := self._known.get(group)) is not None:
            who.sockets = max(0, who.sockets - 1)

    def enter(self, group: str | None, now: float, *, is_forwarded: bool = False) -> str:
        """Whether one more device may register from there; empty: yes, else why not.

        Parameters
        ----------
        is_forwarded
            The address is a proxy's word: its connection was not counted by `accept`.
        """
        if group is None:
            return ""
        who = self._address(group, now)
        if who is None:
            return FULL
        if is_forwarded and who.arrivals.refill(now) > -self._limits.new_burst / 4:
            who.arrivals.credit -= 1
        if who.arrivals.refill(now) < 0:
            return TOO_FAST
        if who.members >= self._limits.members:
            return TOO_MANY
        who.members += 1
        return ""

    def left(self, group: str | None) -> None:
        """A device that had entered is gone."""
        if group is not None and (who := self._known.get(group)) is not None:
            who.members = max(0, who.members - 1)

    def spend(self, group: str | None, size: int, now: float) -> bool:
        """One message, or request, of so many bytes came from there; False: it is too much."""
        if group is None:
            return True
        who = self._address(group, now)
        return who is not None and who.messages.take(1, now) and who.bytes.take(size, now)

    def mint(self, group: str | None, now: float) -> bool:
        """Somebody there asks for credentials of a relay; False: too often."""
        if group is None:
            return True
        who = self._address(group, now)
        return who is not None and who.minted.take(1, now)

    def tick(self, now: float) -> None:
        """Forget who took nothing lately."""
        for name, who in list(self._known.items()):
            buckets = (who.arrivals, who.messages, who.bytes, who.minted)
            if not who.sockets and not who.members and all(b.refill(now) >= b.most for b in buckets):
                del self._known[name]

    def _address(self, group: str, now: float) -> _Address | None:
        who = self._known.get(group)
        if who is None:
            if len(self._known) >= self._most:
                return None
            limits = self._limits
            who = self._known[group] = _Address(
                arrivals=Bucket.full(limits.new_per_min / 60, limits.new_burst, now),
                messages=Bucket.full(limits.messages, limits.messages_burst, now),
                bytes=Bucket.full(limits.bytes, limits.bytes_burst, now),
                minted=Bucket.full(*self._minted, now),
            )
        return who
