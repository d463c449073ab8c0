"""What the mesh tells the room: the one callback surface between the two packages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.link import Member
from pooled_nb.mesh.network import Path
from pooled_nb.mesh.telemetry import NOTHING, Numbers

log = logging.getLogger(__name__)

SAME_NOTICE_S = 30.0
"""Seconds between two equal sentences that other devices can bring about."""


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """What is known of one link now.

    Attributes
    ----------
    rtt_s
        Round trip in seconds, the median of the last 5 pings; None until one was answered. Time-outs use it.
    path
        Whether the nominated pair is relayed.
    quiet_s
        Seconds since anything at all was received over it.
    answered_s
        Clock time (seconds) at which the newest ping that was answered had been **sent**: a device that
        went silent at ``t`` is back once this exceeds ``t`` (PROTOCOL section 8). None: none was.
    label
        W3C label of the link's connection.
    dialed
        Whether this end dialed it.
    fallback
        Frames go as control messages, since all wire channels are closed (PROTOCOL section 5).
    queued
        Bytes of frames that wait on this device.
    stripes
        Proved stripes that carry its slices, beside its own connection (section 5).
    wanted
        Stripes that this end opens for it; 0 where the other end does, or nobody.
    recent
        What it was like in the last minute, for people.
    """

    rtt_s: float | None
    path: Path
    quiet_s: float
    answered_s: float | None = None
    label: str = ""
    dialed: bool = False
    fallback: bool = False
    queued: int = 0
    stripes: int = 0
    wanted: int = 0
    recent: Numbers = NOTHING


class MeshListener(Protocol):
    """What the room hears. All on the mesh loop; the mesh guards every call and logs what it raises."""

    def on_roster(self, members: tuple[Member, ...]) -> None:
        """Who is here changed: creator first, then in order of joining, this device included."""

    def on_admitted(self, member: Member, was: str) -> None:
        """Creator only: a device is in; ``admit`` and the roster went out (PROTOCOL section 3).

        ``was``: the id under which its seat stood in the roster until now, its own where that is the same;
        empty: it was not in the roster (`Mesh.seat` still knows a seat that was left longer ago). Frames and
        messages in flight on the link before are lost, both ways, without `on_gone`: who waits for a return
        must take this call for the loss.
        """

    def on_away(self, id: str, name: str, why: str) -> None:
        """The link to a device broke, and it may come back: nothing is lost yet (section 3, dead links).

        At the creator: its seat is kept, its line stays in the roster, and `on_admitted` or `on_gone`
        follows. At a device: of the creator alone; it knocks, and `on_back` or `on_closed` follows.
        """

    def on_back(self) -> None:
        """Device only: it is in the room again, over a new link to the creator, with a new roster."""

    def on_gone(self, id: str, name: str, why: str, *, left: bool) -> None:
        """A device is gone: it left the roster (creator), or its link to this device ended (device).

        ``why`` is words for people; ``left``: it said so itself. At the creator not of a device that takes
        its seat again, under whatever id: that is `on_admitted` alone.
        """

    def on_message(self, sender: str, message: Message) -> None:
        """A message of an admitted device; never one that the mesh handles itself."""

    def on_frame(self, sender: str, frame: Frame) -> None:
        """A whole frame of a device that `Mesh.chain` named, in strict order per link.

        A frame that no device may send (PROTOCOL section 5) is dropped when its turn comes. What it carries
        still has to be checked against the model: `wire.check_payload`.
        """

    def on_notice(self, text: str) -> None:
        """A sentence for people."""

    def on_closed(self, why: str) -> None:
        """Device only: thrown out, room over, or the creator is lost. The mesh has closed everything."""


class Guarded:
    """A `MeshListener` before another one: what that raises is logged, and after `mute` it hears nothing."""

    def __init__(self, listener: MeshListener) -> None:
        self._listener = listener
        self._muted = False
        self._told: dict[str, float] = {}

    def notice_once(self, text: str, now: float) -> None:
        """A sentence for people, the same one at most once in 30 s (PROTOCOL section 2)."""
        self._told = {said: at for said, at in self._told.items() if now - at < SAME_NOTICE_S}
        if text not in self._told:
            self._told[text] = now
            self.on_notice(text)

    def mute(self) -> None:
        """This device left: nothing is told any more."""
        self._muted = True

    def on_roster(self, members: tuple[Member, ...]) -> None:
        """See `MeshListener`."""
        self._tell(lambda: self._listener.on_roster(members))

    def on_admitted(self, member: Member, was: str) -> None:
        """See `MeshListener`."""
        self._tell(lambda: self._listener.on_admitted(member, was))

    def on_away(self, id: str, name: str, why: str) -> None:
        """See `MeshListener`."""
        self._tell(lambda: self._listener.on_away(id, name, why))

    def on_back(self) -> None:
        """See `MeshListener`."""
        self._tell(self._listener.on_back)

    def on_gone(self, id: str, name: str, why: str, *, left: bool) -> None:
        """See `MeshListener`."""
        self._tell(lambda: self._listener.on_gone(id, name, why, left=left))

    def on_message(self, sender: str, message: Message) -> None:
        """See `MeshListener`."""
        self._tell(lambda: self._listener.on_message(sender, message))

    def on_frame(self, sender: str, frame: Frame) -> None:
        """See `MeshListener`."""
        self._tell(lambda: self._listener.on_frame(sender, frame))

    def on_notice(self, text: str) -> None:
        """See `MeshListener`."""
        self._tell(lambda: self._listener.on_notice(text))

    def on_closed(self, why: str) -> None:
        """See `MeshListener`."""
        self._tell(lambda: self._listener.on_closed(why))

    def _tell(self, call: Callable[[], None]) -> None:
        if self._muted:
            return
        try:
            call()
        except Exception:
            log.exception("the room failed on what the mesh told it")
