"""Credentials of a relay that end by themselves: what ``POST /api/turn`` answers (PROTOCOL section 2, ICE).

The TURN REST way, which coturn speaks with ``use-auth-secret``: the server of this file and the relay share
a secret, the name is the second at which it ends, and the password is a code over the name. So nobody who
was given one can make another, and neither keeps a list.

Arithmetic alone: no sockets, no clock. **Wall time is meant**, unlike everywhere else in the mesh: the relay
compares the name with its own wall clock.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import Any

from pooled_nb.errors import BadOption

TTL_S = 3_600
TTLS = (60, 24 * 3_600)
MAX_URIS = 8
MAX_SECRET = 1_024
_URI = re.compile(
    r"turns?:(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])"
    r"(?::([0-9]{1,5}))?(?:\?transport=(?:udp|tcp))?"
)
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnMint:
    """Makes credentials of one relay.

    Attributes
    ----------
    uris
        Where it is: ``turn:turn.example.org:3478``, in the order in which they are tried.
    secret
        What it shares with this server (coturn: ``static-auth-secret``). In no text form of this object.
    ttl_s
        Seconds for which a credential is good.

    Raises
    ------
    BadOption
        One of them makes no sense. The secret is not repeated.
    """

    uris: tuple[str, ...]
    secret: bytes = field(repr=False)
    ttl_s: int = TTL_S

    def __post_init__(self) -> None:
        if not 1 <= len(self.uris) <= MAX_URIS:
            raise BadOption("A relay needs an address.", f"Name 1 to {MAX_URIS}, like turn:HOST:3478.")
        for uri in self.uris:
            found = _URI.fullmatch(uri)
            if found is None or (found[1] is not None and not 0 < int(found[1]) < 65_536):
                raise BadOption(
                    # What stands before an @ may be a password.
                    f"{uri.rpartition('@')[2][:60]!r} is no address of a relay.",
                    "Write it as turn:HOST:3478 or turns:HOST:5349, without a user and password.",
                )
        if not 1 <= len(self.secret) <= MAX_SECRET:
            raise BadOption(
                "The relay's secret is empty or too long.", "It is what coturn has as static-auth-secret."
            )
        if not TTLS[0] <= self.ttl_s <= TTLS[1]:
            raise BadOption(
                f"Credentials of a relay cannot be good for {self.ttl_s} seconds.",
                f"Name {TTLS[0]} to {TTLS[1]} seconds.",
            )

    def credentials(self, label: str, wall_now: float) -> tuple[str, str]:
        """``(username, credential)``.

        Parameters
        ----------
        label
            Tells one device's traffic from another's in the relay's log. Nobody's name: draw it.
        wall_now
            Seconds since 1970.
        """
        if _LABEL.fullmatch(label) is None:
            raise ValueError("a label has letters, digits, - and _ only")
        username = f"{int(wall_now) + self.ttl_s}:{label}"
        # SHA-1 is what relays compute here; as an HMAC it is sound.
        code = hmac.new(self.secret, username.encode(), hashlib.sha1).digest()
        return username, base64.b64encode(code).decode()

    def answer(self, label: str, wall_now: float) -> dict[str, Any]:
        """The JSON of ``POST /api/turn``: ``{"iceServers": [{"urls", "username", "credential"}], "ttl"}``."""
        username, credential = self.credentials(label, wall_now)
        server = {"urls": list(self.uris), "username": username, "credential": credential}
        return {"iceServers": [server], "ttl": self.ttl_s}


def secret_of(text: bytes) -> bytes:
    """A secret as a file holds it: without the line's end.

    Raises
    ------
    BadOption
        It has several lines, or none.
    """
    secret = text.strip()
    if not secret or len(secret) > MAX_SECRET or len(secret.splitlines()) > 1:
        raise BadOption(
            "The relay's secret is not one line.", "Keep it alone in its file, as coturn has it in its own."
        )
    return secret
