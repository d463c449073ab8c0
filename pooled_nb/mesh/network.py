"""The seam under the mesh: what it needs of signaling and of WebRTC, and nothing more.

`pooled_nb.mesh.rtc` and `pooled_nb.mesh.endpoint` fill it with a WebRTC stack (`stack`) and PeerJS; the
simulator fills it with queues. Everything above (links, wire, roster, room) is the same code over either.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pooled_nb.errors import SignalingDown

Path = Literal["direct", "relayed", "unknown"]


class Line(enum.Enum):
    """Where somebody who dials this device waits for an answer."""

    LINK = "link"
    """A link, of anybody; and what a device whose link is not admitted yet calls a stripe."""
    STRIPE = "stripe"
    """A stripe of a device that has an admitted link: strangers do not stand before it."""


@dataclass(frozen=True, slots=True)
class ConnectionStats:
    """What a connection's association counts (W3C ``getStats``, as far as a stack tells it).

    Attributes
    ----------
    sent, resent
        DATA chunks (or packets) sent for the first time and again, since it opened.
    doubled
        Those that the other end says came twice: they were late, not lost, and sent again for nothing.
    unsent, in_flight
        Bytes that were handed over and not sent; sent, from the first on that is not acknowledged.
    window
        Bytes that may be in flight now: of all connections to one device together where they share it.
    rtt_s
        Smoothed round trip of the association, seconds; None until one was measured.
    stuck_s
        Seconds since the other end last acknowledged anything, while something is in flight; 0 while nothing
        is, and where a stack does not say.
    """

    sent: int = 0
    resent: int = 0
    doubled: int = 0
    unsent: int = 0
    in_flight: int = 0
    window: int = 0
    rtt_s: float | None = None
    stuck_s: float = 0.0


class Channel(Protocol):
    """One data channel. Callbacks run on the mesh loop, set before the first message can arrive."""

    on_open: Callable[[], None] | None
    on_message: Callable[[bytes], None] | None
    on_close: Callable[[], None] | None
    on_low: Callable[[], None] | None
    """``buffered`` fell to ``low_threshold`` or below (W3C ``bufferedamountlow``): more may follow."""
    low_threshold: int
    """Bytes; 0 at first (W3C ``bufferedAmountLowThreshold``)."""

    @property
    def is_open(self) -> bool:
        """Whether `send` may be called now."""

    @property
    def buffered(self) -> int:
        """Bytes handed over by `send` that have not left this device (W3C ``bufferedAmount``)."""

    def send(self, data: bytes) -> None:
        """Queue one message.

        Raises
        ------
        LinkFailed
            The channel is not open.
        """


class Connection(Protocol):
    """One RTCPeerConnection to one device, with its three channels (PROTOCOL sections 2 and 5).

    ``control`` carries packed and chunked BinaryPack bytes (the PeerJS data channel), ``wire`` is
    channel 77, ``keepalive`` channel 78. Stripes are connections too; their label is ``"stripe"``.
    """

    remote: str
    """PeerJS id of the other device, as the signaling server named it."""
    connection_id: str
    """PeerJS ``connectionId``; the same on both ends."""
    label: str
    dialed: bool
    """True where this end made the OFFER."""
    failure: str
    """Why it failed, in words for people; empty while it did not."""
    control: Channel
    wire: Channel
    keepalive: Channel
    on_state: Callable[[str], None] | None
    """W3C ``connectionState`` as it changes: connecting, connected, disconnected, failed, closed."""

    @property
    def state(self) -> str:
        """W3C ``connectionState`` now."""

    @property
    def path(self) -> Path:
        """Whether the nominated pair is relayed."""

    def fingerprints(self) -> tuple[str, str] | None:
        """Own and remote ``"<alg> <hex:…>"`` in lower case; None unless one each end (PROTOCOL section 4)."""

    def stats(self) -> ConnectionStats | None:
        """What its association counts; None: this stack does not say."""

    async def close(self) -> None:
        """Close the connection and its channels. Never raises."""


class NoServer(SignalingDown):
    """No signaling server of the list answered.

    Attributes
    ----------
    tries
        Each server and why, for people: ``10.0.0.4:9000 (network: connection refused)``.
    """

    def __init__(self, tries: Sequence[str], next_step: str) -> None:
        super().__init__(f"No signaling server answers: {', '.join(tries)}.", next_step)
        self.tries = tuple(tries)


class Endpoint(Protocol):
    """This device at the signaling server: one registered id, dials and is dialed."""

    id: str
    server: str
    """The spec of the server that answered, as typed (PROTOCOL section 2); shown to people."""
    passed: tuple[str, ...]
    """Servers before it in the list that did not answer; see `NoServer.tries`."""
    token: str
    """What lets this device register the same id again later. A secret."""
    on_connection: Callable[[Connection], None] | None
    """Called for each incoming connection as soon as its OFFER is taken, before channels open."""
    line_of: Callable[[str, str], Line | None]
    """Asked with id and label of who dials: where it waits; None: it is not heard."""
    has_room: Callable[[Line], bool]
    """Asked before an incoming connection is made: while it says False, its line waits, for 15 s at most."""
    on_outage: Callable[[bool], None] | None
    """Called with True when signaling is lost, with False when it is back."""

    async def dial(self, remote: str, *, label: str = "") -> Connection:
        """Send an OFFER and return at once when the ANSWER was applied (channels open later).

        Raises
        ------
        RoomNotFound
            Nobody is registered under this id (PeerJS ``EXPIRE``).
        LinkFailed
            No path was found within 15 s, or 40 s while paths are still being tried.
        SignalingDown
            The server is not reachable now.
        """

    def hurry(self) -> None:
        """Signaling that is down is tried again at once. Nothing happens while it is up, or being tried."""

    async def close(self) -> None:
        """Leave the signaling server; connections stay."""


class Network(Protocol):
    """Where endpoints come from."""

    async def register(self, id: str | None, servers: Sequence[str], *, token: str | None = None) -> Endpoint:
        """Register at the first server of the list that answers (PROTOCOL section 2).

        Parameters
        ----------
        id
            The wanted id; None for a random one.
        servers
            Specs, tried in order: 8 s each, 20 s for the last.
        token
            The token kept from an earlier registration: takes the same id over.

        Raises
        ------
        NoServer
            None of them answers; says which were tried and how each failed.
        RoomError
            The server answered no (the id is taken or not allowed).
        """
