"""Which ways to this device are offered, and through which servers (PROTOCOL section 2, ICE)."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiortc import RTCConfiguration, RTCPeerConnection

LOOPBACK = "127.0.0.2"
"""WebRTC stacks skip 127.0.0.1 as a candidate, and take its neighbour (DESIGN section 4)."""
PUBLIC_STUN = ("stun:stun.l.google.com:19302", "stun:stun.cloudflare.com:3478")
GATHER_S = 3
"""Longest wait for a STUN or TURN server before the OFFER goes out: a black hole must not cost more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnServer:
    """A relay and what it asks for. The secret is in no text form of this object."""

    url: str
    username: str = field(default="", repr=False)
    credential: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IcePolicy:
    """How connections look for a path.

    Attributes
    ----------
    local_only
        A room on one machine: offers 127.0.0.2 and nothing else where the system has it, else the
        addresses of this machine's interfaces. No server is asked.
    stun
        URLs of STUN servers, in order; aiortc uses the first.
    turn
        A relay, or None.
    relay_only
        Offer nothing but the relay.
    """

    local_only: bool = False
    stun: tuple[str, ...] = ()
    turn: TurnServer | None = None
    relay_only: bool = False

    @classmethod
    def local(cls) -> IcePolicy:
        """One machine: loopback candidates, no servers."""
        return cls(local_only=True)

    @classmethod
    def public(cls, turn: TurnServer | None = None) -> IcePolicy:
        """Devices anywhere: the public STUN servers."""
        return cls(stun=PUBLIC_STUN, turn=turn)

    def configuration(self) -> RTCConfiguration:
        """The same for aiortc, with the server list always explicit: its own default asks a public server."""
        from aiortc import RTCConfiguration, RTCIceServer

        servers: list[RTCIceServer] = []
        if not self.local_only:
            servers += [RTCIceServer(urls=url) for url in self.stun]
            if self.turn is not None:
                turn = self.turn
                servers.append(
                    RTCIceServer(urls=turn.url, username=turn.username, credential=turn.credential)
                )
        more: dict[str, Any] = {}
        if self.relay_only:
            from aiortc import RTCIceTransportPolicy

            more["iceTransportPolicy"] = RTCIceTransportPolicy.RELAY
        return RTCConfiguration(iceServers=servers, **more)

    def addresses(self, found: list[str]) -> list[str]:
        """Which of this machine's addresses to offer.

        Parameters
        ----------
        found
            Those of its interfaces, without loopback.
        """
        loopback = [LOOPBACK] if can_bind(LOOPBACK) else []
        if self.local_only:
            return loopback or found or ["127.0.0.1"]
        # Without any network a room on one machine still has to work (DESIGN section 1).
        return found or loopback or ["127.0.0.1"]

    def apply(self, pc: RTCPeerConnection) -> None:
        """Make this connection, and no other, gather by this policy. Call once its channels exist.

        aioice offers every address that it finds, and has no setting for it; `get_component_candidates`
        of the one ICE connection is handed the list, so that is where it is changed.
        """
        if pc.sctp is None:
            raise ValueError("the connection has no data channel yet")
        ice = pc.sctp.transport.transport._connection
        gather = ice.get_component_candidates

        async def chosen(component: int, addresses: list[str], **_: Any) -> Any:
            offered = [] if self.relay_only and not self.local_only else self.addresses(addresses)
            return await gather(component=component, addresses=offered, timeout=GATHER_S)

        # setattr, since a type checker rightly minds a method being replaced.
        setattr(ice, gather.__name__, chosen)


def can_bind(address: str) -> bool:
    """Whether this system lets a program receive on the address."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
