"""The place of the gate in a link's life: what comes before admission (PROTOCOL section 4).

One `Gate` guards one link, on either end: at the creator (`gatecreator`), at the device that knocks
(`gatejoiner`), and between two devices (`gatepeer`). What the links of one device share is a `Gates`:
the creator's `gatekeeper.Gatekeeper`, or a device's `newcomer.Newcomer`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pooled_nb.mesh import fingerprints
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.link import Admit, Hello
from pooled_nb.mesh.namesakes import Holder

BINDING_S = 5.0
"""A data channel may open before both descriptions are set: so long they are waited for (section 4)."""


class Side(enum.Enum):
    """What this end of a link is to the room."""

    CREATOR = "creator"
    """This device opened the room; the other end is a device."""
    JOINER = "joiner"
    """The other end is the creator."""
    PEER = "peer"
    """Neither is the creator."""


def _nobody(*_: object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Doorway:
    """What a gate knows of its link.

    Attributes
    ----------
    own, remote
        PeerJS ids as registered: one's own from what one registered, the other's as signaling named it.
    dialed
        Whether this end made the OFFER.
    fingerprints
        Own and remote, once both descriptions are set.
    seat
        At the creator: the seat of the admitted device that has this id now; None: nobody has it.
    holder
        At the creator, of a seat: the device that has it under another id than this link's, and seconds since
        that one was heard; None: nobody has it so, or there is no admitted link to it.
    probe
        At the creator: ping the device that has this seat.
    namesake
        At the creator, of a name and of the seat that asks for it: the device that is called so, and may be
        gone; None: nobody is, or it keeps its name whatever comes, or that seat has its name already.
    ask
        At the creator: ping the device of this id.
    """

    side: Side
    own: str
    remote: str
    dialed: bool
    fingerprints: Callable[[], tuple[str, str] | None]
    seat: Callable[[], str | None] = _nobody
    holder: Callable[[str], tuple[str, float] | None] = _nobody
    probe: Callable[[str], None] = _nobody
    namesake: Callable[[str, str], Holder | None] = _nobody
    ask: Callable[[str], None] = _nobody

    def binding(self) -> str | None:
        """What proofs over this link are bound to; None while it is not known (section 4)."""
        pair = self.fingerprints()
        return None if pair is None else fingerprints.binding(*pair)


@dataclass(frozen=True, slots=True)
class Say:
    """Send this."""

    message: Message


@dataclass(frozen=True, slots=True)
class Pass:
    """Admitted.

    Attributes
    ----------
    admit
        What the creator sends first.
    seat
        At the creator: the place that is taken, named by the id of its pass (section 3).
    came_back
        The pass of that seat was proved: place and name are kept.
    name
        What that pass was given for: the device is called so again where its place is no longer kept.
    drops
        At the creator: the device that holds its name and did not answer, which goes (section 8).
    """

    admit: Admit | None = None
    seat: str = ""
    came_back: bool = False
    name: str = ""
    drops: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Not let in. ``next_step`` is for this end's person.

    ``again``: nothing was decided about the device, which was here before and may only be slow, or hard to
    reach: its link closes without ``bye``, and it knocks anew (section 3).
    """

    reason: str
    next_step: str = ""
    again: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """A person is being asked, here or there: no timer of the link runs meanwhile.

    ``text`` is a sentence for this end's person; empty: it was told enough of them.
    """

    text: str


GateAction = Say | Pass | Refuse | Wait


class Gate(Protocol):
    """A decider; it gets no message before both ``hello``s and none after it passed or refused."""

    def hello(self, hello: Hello) -> Hello:
        """This end's ``hello``, with what the gate offers and asks."""

    def greeted(self, hello: Hello, now: float) -> list[GateAction]:
        """The other end's ``hello`` came, of this version."""

    def message(self, message: Message, now: float) -> list[GateAction]:
        """One of ``auth``, ``auth-proof``, ``lobby``, ``admit``, ``mesh``."""

    def tick(self, now: float) -> list[GateAction]:
        """Time passes, or a person decided."""

    def closed(self) -> None:
        """The link ended, whether it had passed or not."""


class Gates(Protocol):
    """What all links of one device share."""

    @property
    def mesh_key(self) -> str | None:
        """The room's key ``mk``, which links between devices and stripes prove; None: not known yet."""

    def door(self, doorway: Doorway) -> Gate:
        """The gate of one link."""
