"""What a connection needs of a WebRTC stack, and nothing more (DESIGN section 4).

`pooled_nb.mesh.stacks` fills it with aiortc and with libwebrtc (the package wrtc); `pooled_nb.mesh.rtc` is
written against it, and whatever stands above knows of no stack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pooled_nb.mesh.ice import IcePolicy
    from pooled_nb.mesh.network import ConnectionStats, Path
    from pooled_nb.mesh.paths import Way


@dataclass(frozen=True, slots=True)
class ChannelEvents:
    """Whom a channel tells what happens (W3C RTCDataChannel), on the mesh loop. None of them raises.

    Attributes
    ----------
    message
        Called with ``bytes``, or with whatever else the other end sent (text).
    low
        ``buffered`` fell to ``low_threshold`` or below.
    """

    open: Callable[[], None]
    message: Callable[[Any], None]
    close: Callable[[], None]
    low: Callable[[], None]


class StackChannel(Protocol):
    """One data channel of a stack."""

    low_threshold: int
    """Bytes (W3C ``bufferedAmountLowThreshold``)."""

    @property
    def is_open(self) -> bool:
        """Whether `send` may be called now."""

    @property
    def is_reliable(self) -> bool:
        """Whether it is ordered, and nothing of it is ever given up."""

    @property
    def buffered(self) -> int:
        """W3C ``bufferedAmount``, in bytes."""

    def listen(self, events: ChannelEvents) -> None:
        """Tell these from now on; once."""

    def send(self, data: bytes) -> None:
        """Queue one message. Raises `ValueError` where the stack does not take it."""

    def close(self) -> None:
        """Close this channel alone."""


class Peer(Protocol):
    """One RTCPeerConnection. Made, with its channels, in one step on the mesh loop."""

    on_state: Callable[[str], None] | None
    """Called with ``"connected"``, ``"failed"``, and ``"closed"`` as the other end closes it; what else it is
    called with counts for nothing."""
    on_channel: Callable[[StackChannel], None] | None
    """Called with each channel that the other end opens."""
    on_fault: Callable[[str], None] | None
    """Called with why, in words, when the other end broke a bound: the connection is to be closed."""

    @property
    def ice_state(self) -> str:
        """W3C ``iceConnectionState``."""

    @property
    def told(self) -> Sequence[Way]:
        """The candidates of the other end that are tried, or were."""

    @property
    def trouble(self) -> str:
        """Why no relay let this device in, in words; empty while that is not known."""

    @property
    def path(self) -> Path | None:
        """Of the pair in use; None where there is none (yet, or any more)."""

    def channel(
        self, label: str, *, id: int | None = None, ordered: bool = True, retransmits: int | None = None
    ) -> StackChannel:
        """Make a channel; with an ``id`` both ends make it, and nothing is said in band (RFC 8832)."""

    async def offer(self) -> str:
        """Describe this end, with the candidates that its policy lets it offer. Raises whatever it likes."""

    async def answer(self) -> str:
        """Likewise, once an offer was applied."""

    async def apply(self, sdp: str, type: str) -> None:
        """Take the other end's ``"offer"`` or ``"answer"``. Raises whatever it stumbles on."""

    async def add(self, line: str) -> None:
        """Take a candidate (``candidate:…``); one that is no good may raise whatever it likes.

        A ``….local`` name is asked for by mDNS, for a second at most (RFC 6762).
        """

    def stats(self) -> ConnectionStats | None:
        """What its association counts; None: this stack does not say."""

    async def close(self) -> None:
        """Give everything back. May raise; leaves no task."""


class Stack(Protocol):
    """Where the connections of one `network.Network` come from.

    Attributes
    ----------
    name
        As a setting has it: ``transport="aiortc"``.
    """

    name: str

    async def settle(self) -> None:
        """Load what takes a while, off the loop. Before the first connection; again does nothing.

        Raises
        ------
        BadOption
            The package is there and cannot be loaded.
        """

    def peer(self, ice: IcePolicy, remote: str) -> Peer:
        """Make one connection to the device of this id.

        Raises
        ------
        LinkFailed
            The package is of a version that this cannot be done with.
        """
