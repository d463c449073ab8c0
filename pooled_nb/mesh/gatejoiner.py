"""Decides at a device that joins: what it proves, and whether it believes the host (PROTOCOL section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pooled_nb.mesh import proofs
from pooled_nb.mesh.gate import BINDING_S, Doorway, GateAction, Pass, Refuse, Say, Wait
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.link import Admit, Auth, AuthProof, Hello, Lobby

if TYPE_CHECKING:
    from pooled_nb.mesh.newcomer import Newcomer, Trust

LOBBY_S = 660.0
"""Seconds that it waits in a lobby: a host itself says after ten minutes that nobody decided, and digits that
stood for hours would give others time to search for the same ones."""
CONFIRM_S = 120.0
"""Seconds that this device's person has for comparing the digits: to the room it is in already, and is asked
for layers that it does not load."""

WAITS_FOR_HOST = "Waiting for the host to let this device in."
IMPOSTOR = "The host of this room could not prove that it knows your link: somebody may stand between you."
UNRECOGNISED = "The host let this device in without recognising its invite link, and without asking anybody."
UNKNOWN_PASS = (
    "The host let this device in without recognising it from the visit before, and without asking anybody."
)
NOT_CONFIRMED = "The host did not recognise your link, and the six digits were not the same."
NOT_PROVED = "The host cannot prove itself, and nobody here vouched for it."
NOBODY_DECIDED = "Nobody let this device in within eleven minutes."
NOBODY_CONFIRMED = "Nobody compared the six digits here within two minutes."
NEXT = "Do not use this link again; ask the host for a new one, over another way."
NEXT_PASS = "Ask the host for an invite link, over another way, and join with it."
NEXT_ASK = "Ask the host, then join again."
NEXT_AGAIN = "Join again when you can compare them with the host."

COMPARE = "The host did not recognise your link: compare the six digits, {digits}."
NO_DIGITS = "The host did not recognise your link, and this host cannot prove itself. Is it the one you mean?"


class JoinerGate:
    """The `Gate` of a device's link to the creator.

    It says no secret, whatever the host asks or leaves out: a host of an older version, which says no
    ``auth``, gets no raw key either, and may only ask its person.
    """

    def __init__(self, newcomer: Newcomer, doorway: Doorway, *, random_bytes: proofs.RandomBytes) -> None:
        self._newcomer, self._doorway = newcomer, doorway
        self._held = newcomer.offers
        self._ps = proofs.pass_secret(self._held.pass_) if self._held.pass_ else None
        self._jn = proofs.new_nonce(random_bytes)
        self._hn: str | None = None
        self._binding: str | None = None
        self._since = self._lobbied_at = 0.0
        self._answered = self._lobbied = self._over = False
        self._admit: Admit | None = None

    def hello(self, hello: Hello) -> Hello:
        """See `Gate.hello`: a commitment, and what can be proved; no secret."""
        return msgspec.structs.replace(
            hello,
            join=True,
            auth=True,
            jc=proofs.commitment(self._jn),
            kc=self._held.key is not None,
            pid=proofs.pass_id(self._ps) if self._ps else None,
        )

    def greeted(self, hello: Hello, now: float) -> list[GateAction]:
        """See `Gate.greeted`."""
        if self._newcomer.distrusts:
            return self._refuse(self._newcomer.distrusts, NEXT)
        return []

    def message(self, message: Message, now: float) -> list[GateAction]:
        """See `Gate.message`."""
        if self._over:
            return []
        match message:
            case Auth(hn=hn) if self._hn is None:
                self._hn, self._since = hn, now
                return self._prove(now)
            case Lobby() if self._admit is None and not self._lobbied:
                self._lobbied, self._lobbied_at = True, now
                self._newcomer.waits(self, "lobby", self._digits)
                shown = f" Both screens must show {self._digits}." if self._digits else ""
                return [Wait(f"{WAITS_FOR_HOST}{shown}")]
            case Admit() if self._admit is None:
                self._admit, self._since = message, now
                return self._believe(message)
        return []

    def tick(self, now: float) -> list[GateAction]:
        """See `Gate.tick`."""
        if self._over:
            return []
        if self._admit is not None:
            return self._confirmed(self._admit, now)
        if self._lobbied and now - self._lobbied_at >= LOBBY_S:
            return self._refuse(NOBODY_DECIDED, NEXT_ASK)
        return self._prove(now)

    def closed(self) -> None:
        """See `Gate.closed`."""
        self._over = True
        self._newcomer.waits(self, "", "")

    def _prove(self, now: float) -> list[GateAction]:
        """``auth-proof``, always, once."""
        if self._hn is None or self._answered or self._admit is not None:
            return []
        self._binding = self._doorway.binding()
        if self._binding is None and now - self._since < BINDING_S:
            return []
        self._answered = True
        if self._lobbied:
            self._newcomer.waits(self, "lobby", self._digits)
        kp = self._mac(self._held.key, "join", "key")
        pp = self._mac(self._ps, "join", "pass")
        return [Say(AuthProof(jn=self._jn, kp=kp, pp=pp))]

    def _believe(self, admit: Admit) -> list[GateAction]:
        if admit.via is not None:
            wanted = {
                "pass": self._mac(self._ps, "host", "pass"),
                "key": self._mac(self._held.key, "host", "key"),
            }
            if proofs.same(admit.hp, wanted.get(admit.via)):
                return self._enter(admit, self._newcomer.met if admit.via == "pass" else "proved")
            self._newcomer.distrusts = IMPOSTOR
            return self._refuse(IMPOSTOR, NEXT)
        if not self._held.any:
            return self._enter(admit, "first")
        if not self._lobbied:
            return (
                self._refuse(UNKNOWN_PASS, NEXT_PASS)
                if self._held.key is None
                else self._refuse(UNRECOGNISED, NEXT)
            )
        self._newcomer.waits(self, "confirm", self._digits)
        return [Wait(COMPARE.format(digits=self._digits) if self._digits else NO_DIGITS)]

    def _confirmed(self, admit: Admit, now: float) -> list[GateAction]:
        said = self._newcomer.said_to(self)
        if said is None:
            late = now - self._since >= CONFIRM_S
            return self._refuse(NOBODY_CONFIRMED, NEXT_AGAIN) if late else []
        if said:
            return self._enter(admit, "confirmed")
        self._newcomer.distrusts = NOT_CONFIRMED if self._digits else NOT_PROVED
        return self._refuse(self._newcomer.distrusts, NEXT)

    def _enter(self, admit: Admit, trust: Trust) -> list[GateAction]:
        self._over = True
        self._newcomer.admitted(pass_=admit.pass_, mesh_key=admit.mk, trust=trust)
        return [Pass()]

    def _refuse(self, reason: str, next_step: str) -> list[GateAction]:
        self._over = True
        self._newcomer.waits(self, "", "")
        return [Refuse(reason, next_step)]

    @property
    def _digits(self) -> str:
        if self._binding is None or self._hn is None:
            return ""
        return proofs.digits(self._binding, self._jn, self._hn)

    def _mac(self, secret: str | None, role: proofs.GateRole, cred: proofs.Credential) -> str | None:
        if secret is None or self._binding is None or self._hn is None:
            return None
        text = proofs.gate_transcript(
            role,
            cred,
            binding=self._binding,
            joiner=self._doorway.own,
            creator=self._doorway.remote,
            jn=self._jn,
            hn=self._hn,
        )
        return proofs.mac(secret, text)
