"""What a device knows of the room that it joins: key, pass, mesh key, digits (PROTOCOL section 4).

Decides only. Secrets are in no text form of anything here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Literal

from pooled_nb.mesh import proofs
from pooled_nb.mesh.gate import Doorway, Gate, Side
from pooled_nb.mesh.gatejoiner import JoinerGate
from pooled_nb.mesh.gatepeer import PeerGate

log = logging.getLogger(__name__)

Trust = Literal["", "proved", "confirmed", "first"]
"""How this device knows that the host is the one it means: it proved the key or the pass; a person compared
the digits; not at all (trust on first use)."""
Waiting = Literal["", "lobby", "confirm"]
"""Who is waited for: nobody, the host's person, this device's own."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What this device holds: the invite key of its link, the pass of an earlier visit."""

    key: str | None = field(default=None, repr=False)
    pass_: str | None = field(default=None, repr=False)

    @property
    def any(self) -> bool:
        """Whether it holds one."""
        return self.key is not None or self.pass_ is not None


class Newcomer:
    """A device's `Gates`: of its link to the creator, and of those to other devices.

    Attributes
    ----------
    waiting
        Who is waited for now.
    digits
        What both screens show while somebody is waited for; empty where the host knows no proofs.
    trust
        How this device knows its host, once it is in.
    met
        What the pass that it holds is worth as trust: that of the moment when it was given. A pass that came
        over an unproved link in this visit says later that the host is still the same one, no more.
    confirmed
        What this device's person said of the digits that it waits for; None: nothing yet.
    distrusts
        Why this device never knocks here again; empty: it may.
    """

    def __init__(
        self,
        credentials: Credentials | None = None,
        *,
        random_bytes: proofs.RandomBytes = token_bytes,
    ) -> None:
        self.credentials = credentials or Credentials()
        self.on_change: Callable[[], None] = _unheard
        """``waiting``, ``digits``, ``trust`` or the pass changed."""
        self.waiting: Waiting = ""
        self.digits = ""
        self.trust: Trust = ""
        self.met: Trust = "proved"
        self.confirmed: bool | None = None
        self.distrusts = ""
        self._random = random_bytes
        self._mesh_key: str | None = None
        self._waits: object = None
        """The gate that waits: another one's end changes nothing."""

    @property
    def mesh_key(self) -> str | None:
        """See `Gates`."""
        return self._mesh_key

    def door(self, doorway: Doorway) -> Gate:
        """See `Gates.door`."""
        if doorway.side is Side.JOINER:
            return JoinerGate(self, doorway, random_bytes=self._random)
        # Looked up when it is needed: others may dial this device before it has read its own `admit`.
        return PeerGate(lambda: self._mesh_key, doorway)

    @property
    def offers(self) -> Credentials:
        """What it proves, and wants proved. Beside an invite link a pass of a visit on first use is left out:
        who stood in the middle then gave that pass, and could prove it now, where the host of the link has to
        prove the key.
        """
        held = self.credentials
        known = self.met in ("proved", "confirmed")
        return held if held.key is None or known else Credentials(key=held.key)

    def confirm(self, *, same: bool, digits: str | None = None) -> bool:
        """This device's person compared the digits. See `Mesh.decided`.

        Parameters
        ----------
        digits
            Those that it was shown, so that an answer about a link that broke meanwhile counts for no other.

        Returns
        -------
        bool
            False: nobody is waited for here, or other digits are.
        """
        if self.waiting != "confirm" or (digits is not None and digits != self.digits):
            return False
        self.confirmed = same
        return True

    # -- what the gate says ------------------------------------------------------------------------

    def waits(self, gate: object, waiting: Waiting, digits: str) -> None:
        """Somebody is being asked for this gate; empty: nobody any more. What was said before is void."""
        if not waiting and self._waits is not gate:
            return
        self._waits = gate if waiting else None
        self.waiting, self.digits, self.confirmed = waiting, digits, None
        self._changed()

    def said_to(self, gate: object) -> bool | None:
        """What the person said to this gate; None: nothing, or another one asks now."""
        return self.confirmed if self._waits is gate else None

    def admitted(self, *, pass_: str | None, mesh_key: str | None, trust: Trust) -> None:
        """This device is in."""
        self.waiting, self.digits, self.trust, self.confirmed = "", "", trust, None
        self._waits, self._mesh_key = None, mesh_key
        if pass_ is not None:
            self.credentials, self.met = Credentials(self.credentials.key, pass_), trust
        self._changed()

    def _changed(self) -> None:
        try:
            self.on_change()
        except Exception:  # a pass that cannot be saved, say, must not end the link
            log.exception("a change at the gate was not taken up")


def _unheard() -> None:
    """Nobody listens yet."""
