"""Which ways to this device are offered, and through which servers (PROTOCOL section 2, ICE)."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

LOOPBACK = "127.0.0.2"
"""aiortc skips 127.0.0.1 as a candidate, and takes its neighbour (DESIGN section 4)."""
PUBLIC_STUN = ("stun:stun.l.google.com:19302", "stun:stun.cloudflare.com:3478")
GATHER_S = 3
"""Longest wait for STUN and TURN servers before the OFFER goes out: a black hole must not cost more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnServer:
    """A relay and what it asks for: ``turn:HOST:PORT?transport=udp|tcp``, or ``turns:`` for TLS.

    User and password are in no text form of this object (DESIGN section 7).

    Attributes
    ----------
    named_by
        Host of the signaling server that named it; empty: this device's user did. Where that server is not
        in this device's own network, the relay may not be, either (`relay.allocate`).
    """

    url: str
    username: str = field(default="", repr=False)
    credential: str = field(default="", repr=False)
    named_by: str = ""

    @property
    def place(self) -> str:
        """Host and port, for people."""
        return self.url.partition(":")[2].partition("?")[0]

    @property
    def transport(self) -> str:
        """``udp``, ``tcp``, or ``tls``."""
        if self.url.startswith("turns:"):
            return "tls"
        return self.url.partition("?transport=")[2] or "udp"


@dataclass(frozen=True, slots=True, kw_only=True)
class IcePolicy:
    """How connections look for a path.

    Attributes
    ----------
    local_only
        A room on one machine: offers the loopback and nothing else where stack and system let it, else the
        addresses of this machine's interfaces. No server is asked.
    stun
        URLs of STUN servers. All are asked, the first answer counts.
    relays
        Ways to a relay, the best first; one is used (see `gathering`).
    relay_only
        Offer nothing but the relay.
    silent
        URLs of servers that did not answer, and until when they are not waited for in full: of the loop's
        time. Shared by the connections of one device, so that a black hole delays the first of them only.
    """

    local_only: bool = False
    stun: tuple[str, ...] = ()
    relays: tuple[TurnServer, ...] = ()
    relay_only: bool = False
    silent: dict[str, float] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def local(cls) -> IcePolicy:
        """One machine: loopback candidates, no servers."""
        return cls(local_only=True)

    def addresses(self, found: list[str]) -> list[str]:
        """Which of this machine's addresses aiortc is to offer.

        Parameters
        ----------
        found
            Those of its interfaces, without loopback.
        """
        if self.relay_only and not self.local_only:
            return []
        loopback = [LOOPBACK] if can_bind(LOOPBACK) else []
        if self.local_only:
            return loopback or found or ["127.0.0.1"]
        # Without any network a room on one machine still has to work (DESIGN section 1).
        return found or loopback or ["127.0.0.1"]


def can_bind(address: str) -> bool:
    """Whether this system lets a program receive on the address."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
