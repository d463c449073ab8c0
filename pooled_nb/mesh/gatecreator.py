"""Decides at the creator whether a device is let in: pass, then key, then a person (PROTOCOL section 4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from pooled_nb.mesh import proofs
from pooled_nb.mesh.gate import BINDING_S, Doorway, GateAction, Pass, Refuse, Say, Wait
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.link import Admit, Auth, AuthProof, Hello, Lobby
from pooled_nb.mesh.namesakes import PROBE_S, Namesake, Verdict

if TYPE_CHECKING:
    from pooled_nb.mesh.gatekeeper import Gatekeeper, Request

PROOF_S = 10.0
"""Seconds that a device has for its answer to the challenge: it may itself wait 5 s for its binding."""
LOBBY_S = 600.0
"""Seconds after which nobody is expected to decide any more."""
DENIED = "The host did not let this device in."
FULL = "Eight devices wait for the host already. Try again in a minute."
SEARCHED = (
    "Too many devices have asked to join within ten minutes. Join with the invite link, or try again later."
)
NO_API = "This room takes no API clients. Its host can switch them on."
CANNOT_WAIT = "This room asks its host first, and this version cannot wait. Ask the host for an invite link."
WRONG_NONCE = (
    "This device did not keep to the nonce that it had committed to. Join again; if that happens again, "
    "somebody stands between you and the host."
)
NO_BINDING = "The certificates of this link could not be read, so nobody can be proved on it. Join again."
NO_PROOF = "This device did not answer the room's challenge. Join again."
TAKEN_ID = "Another device of this room has this id. Join again."
IN_USE = (
    "The pass of this device is in use: another device proved it and is here. Join with the invite link, "
    "or with a pass of its own."
)
ASKED_AGAIN = "This device asks again over another link. Wait for the answer there."
NOBODY_CAME = "Nobody decided in ten minutes. Ask the host, then join again."

SAME_ID = "A device of the room has the same id: allowed, this one takes its place."
SAME_PASS = "It holds the pass of {name}, which is here: one of the two is a copy."
OLD_LINK = "Its invite link or pass is not one of this room's: an old one, or somebody stands between you."
NO_DIGITS = "It is of an older version and cannot prove itself: there are no digits to compare."


@dataclass(slots=True)
class _Shown:
    """What a device proved over this link, or sent as it is where that counts (`GateSettings.older`)."""

    digits: str = ""
    seat: str = ""
    """Of its pass; empty: it showed none."""
    hp_pass: str | None = None
    key: str | None = field(default=None, repr=False)
    """The invite key as it was then; None: it showed none."""
    hp_key: str | None = None


class CreatorGate:
    """The `Gate` of one device's link at the creator.

    What older public devices send is ``hello {join: 1, key?, pass?}`` without ``auth``: those two fields, and
    admission without proof, are all of older versions that is covered.
    """

    def __init__(self, keeper: Gatekeeper, doorway: Doorway, *, random_bytes: proofs.RandomBytes) -> None:
        self._keeper, self._doorway, self._random = keeper, doorway, random_bytes
        self._hello = Hello()
        self._hn = ""
        self._proof: AuthProof | None = None
        self._shown: _Shown | None = None
        self._probed: tuple[str, float] | None = None
        self._namesake = Namesake()
        self._request: Request | None = None
        self._seat = self._bar = ""
        self._since = 0.0
        self._beside = self._unsettled = self._over = False

    def hello(self, hello: Hello) -> Hello:
        """See `Gate.hello`."""
        return msgspec.structs.replace(hello, gate=True, ask=self._keeper.settings.ask, auth=True)

    def greeted(self, hello: Hello, now: float) -> list[GateAction]:
        """See `Gate.greeted`: the challenge goes out, always, to who may still come in."""
        self._hello, self._since = hello, now
        if hello.meta.api and not self._keeper.settings.api:  # checked first (section 9)
            return self._refuse(NO_API)
        if not hello.auth or hello.jc is None:
            self._shown = self._raw() if self._keeper.settings.older else _Shown()
            return self._decide(self._shown, now)
        self._bar = self._barred(now)
        if self._bar and not (hello.kc or self._keeper.pass_secret(hello.pid)):
            return self._refuse(self._bar)  # it can prove nothing, and nobody is asked about it
        self._hn, self._unsettled = proofs.new_nonce(self._random), not self._bar
        return [Say(Auth(v=1, hn=self._hn))]

    def message(self, message: Message, now: float) -> list[GateAction]:
        """See `Gate.message`: one ``auth-proof``, once."""
        if self._over or not isinstance(message, AuthProof) or not self._hn or self._proof is not None:
            return []
        self._proof = message
        if not proofs.same(proofs.commitment(message.jn), self._hello.jc):
            return self._refuse(WRONG_NONCE)
        return self._judge(message, now)

    def tick(self, now: float) -> list[GateAction]:
        """See `Gate.tick`."""
        if self._over:
            return []
        if self._request is not None:
            return self._decided(self._request, now)
        if self._shown is not None:
            return self._decide(self._shown, now)
        if self._proof is not None:
            return self._judge(self._proof, now)
        late = self._hn and now - self._since >= PROOF_S
        return self._refuse(NO_PROOF, again=self._hello.back) if late else []

    def closed(self) -> None:
        """See `Gate.closed`."""
        self._over = True
        self._leave_lobby()
        if self._seat:
            self._keeper.left(self._seat)
            self._seat = ""
        if self._unsettled:
            self._keeper.tried(self._since)
            self._unsettled = False

    # -- what was shown ----------------------------------------------------------------------------

    def _judge(self, proof: AuthProof, now: float) -> list[GateAction]:
        binding = self._doorway.binding()
        if binding is None:
            late = now - self._since >= BINDING_S
            return self._refuse(NO_BINDING, again=self._hello.back) if late else []
        shown = self._shown = _Shown(proofs.digits(binding, proof.jn, self._hn))
        pid, ps = self._hello.pid, self._keeper.pass_secret(self._hello.pid)
        if pid and ps and proofs.same(proof.pp, self._mac(ps, "join", "pass", binding, proof.jn)):
            shown.seat, shown.hp_pass = pid, self._mac(ps, "host", "pass", binding, proof.jn)
        key = self._keeper.key
        if proofs.same(proof.kp, self._mac(key, "join", "key", binding, proof.jn)):
            shown.key, shown.hp_key = key, self._mac(key, "host", "key", binding, proof.jn)
        return self._decide(shown, now)

    def _raw(self) -> _Shown:
        shown = _Shown()
        if self._hello.pass_ is not None:
            ps = proofs.pass_secret(self._hello.pass_)
            pid = proofs.pass_id(ps)
            if proofs.same(self._keeper.pass_secret(pid), ps):
                shown.seat = pid
        if proofs.same(self._hello.key, self._keeper.key):
            shown.key = self._keeper.key
        return shown

    # -- what follows from it ----------------------------------------------------------------------

    def _decide(self, shown: _Shown, now: float) -> list[GateAction]:
        copy = ""
        if shown.seat and self._keeper.pass_secret(shown.seat) is None:
            shown.seat = ""  # revoked while its seat was probed
        holder = self._doorway.seat()
        if shown.seat and holder in (None, shown.seat):
            taken = self._is_taken(shown.seat, now)
            if taken is None:
                return []
            if not taken:
                drops = self._ghost(self._keeper.name_of(shown.seat) or "", shown.seat, now)
                if drops is None:
                    return []
                via = "pass" if shown.hp_pass else None
                admit = Admit(via=via, hp=shown.hp_pass, mk=self._keeper.mesh_key)
                return self._pass(admit, shown.seat, came_back=True, drops=drops)
            copy = SAME_PASS.format(name=self._keeper.name_of(shown.seat))
        # A seat is its pass's alone (section 3): with the id of somebody who is here nothing else does.
        if proofs.same(shown.key, self._keeper.key) and holder is None:
            return self._new(now, via="key" if shown.hp_key else None, hp=shown.hp_key)
        return self._ask(shown, copy, now)

    def _is_taken(self, seat: str, now: float) -> bool | None:
        """Whether another living device, under another id, has this seat; None: not known yet.

        A pass that is proved twice is a copy, or its device is back before the room has noticed that it went.
        Who is here and answers keeps the seat; otherwise the two would take it from each other for ever.
        """
        holder = self._doorway.holder(seat)
        if holder is None:
            return False
        id, quiet = holder
        if self._probed is None or self._probed[0] != id:
            self._probed = id, now
            self._doorway.probe(seat)
            return None
        waited = now - self._probed[1]
        if quiet < waited:
            return True
        return None if waited < PROBE_S else False

    def _barred(self, now: float) -> str:
        """Why no person is asked about this device; empty: one may be."""
        keeper, id = self._keeper, self._doorway.remote
        if keeper.is_denied(id):  # only where nothing is proved: anybody can be made to seem of this id
            return DENIED
        if not keeper.settings.ask:
            return ""
        if keeper.is_searched(now):
            return SEARCHED
        return FULL if keeper.is_full(id) else ""

    def _ask(self, shown: _Shown, copy: str, now: float) -> list[GateAction]:
        # Once barred, always: digits of this challenge are shown to nobody, so it is no try (`MAX_TRIES`).
        if why := self._bar or self._barred(now):
            return self._refuse(why)
        self._beside = self._doorway.seat() is not None
        if not self._keeper.settings.ask:
            if self._beside or copy:
                return self._refuse(TAKEN_ID if self._beside else IN_USE)
            return self._new(now)
        if not self._hello.join:
            return self._refuse(CANNOT_WAIT)
        note = self._note(shown, copy)
        self._unsettled = True  # without a challenge, too: or names could be used up (`MAX_SPENT`)
        self._request = self._keeper.knock(
            self._doorway.remote, self._hello.name, self._hello.meta, digits=shown.digits, note=note, now=now
        )
        digits = f" Its screen must show {shown.digits}." if shown.digits else ""
        text = f"{self._request.name} asks to join.{digits}{f' {note}' if note else ''}"
        return [Say(Lobby()), Wait(text if self._keeper.tells(now) else "")]

    def _note(self, shown: _Shown, copy: str) -> str:
        """What the person should know before it says yes; ``copy``: of a pass that is in use."""
        notes = [copy] if copy else []
        proved = shown.seat or proofs.same(shown.key, self._keeper.key)
        if shown.digits and not proved and (self._hello.kc or self._hello.pid):
            notes.append(OLD_LINK)
        if not shown.digits:
            notes.append(NO_DIGITS)
        if self._beside:
            notes.append(SAME_ID)
        return " ".join(notes)

    def _decided(self, request: Request, now: float) -> list[GateAction]:
        if not self._keeper.waits(request):
            return self._refuse(ASKED_AGAIN)
        if self._hello.meta.api and not self._keeper.settings.api:
            return self._refuse(NO_API)  # switched off meanwhile
        if self._doorway.seat() is not None and not self._beside:
            return self._refuse(TAKEN_ID)  # since it asked: a yes to it was none to taking that one's place
        if request.allowed:
            return self._new(now, name=request.name)
        if request.allowed is not None:
            self._unsettled = False
            self._keeper.deny(self._doorway.remote)
            return self._refuse(DENIED)
        return self._refuse(NOBODY_CAME) if now - request.since >= LOBBY_S else []

    # -- the end -----------------------------------------------------------------------------------

    def _new(
        self, now: float, *, via: str | None = None, hp: str | None = None, name: str = ""
    ) -> list[GateAction]:
        """``name``: the one that the person said yes to."""
        drops = self._ghost(name or self._hello.name, "", now)
        if drops is None:
            return []
        pass_, seat = self._keeper.issue(self._hello.name)
        admit = Admit(pass_=pass_, via=via, hp=hp, mk=self._keeper.mesh_key)
        return self._pass(admit, seat, name=name, drops=drops)

    def _ghost(self, name: str, seat: str, now: float) -> str | None:
        """Who goes, since it holds the name and does not answer (section 8); empty: nobody; None: it is being
        asked.
        """
        holder = self._doorway.namesake(name, seat)
        verdict = self._namesake.decide(holder, now)
        if holder is None or verdict is Verdict.GO:
            return ""
        if verdict is Verdict.PROBE:
            self._doorway.ask(holder.id)
        return holder.id if verdict is Verdict.DROP else None

    def _pass(
        self, admit: Admit, seat: str, *, came_back: bool = False, name: str = "", drops: str = ""
    ) -> list[GateAction]:
        self._over, self._unsettled, self._seat = True, False, seat
        self._keeper.entered(seat)
        self._leave_lobby()
        name = (came_back and self._keeper.name_of(seat)) or name
        return [Pass(admit, seat=seat, came_back=came_back, name=name, drops=drops)]

    def _refuse(self, reason: str, *, again: bool = False) -> list[GateAction]:
        self._over = True
        self._leave_lobby()
        return [Refuse(reason, again=again)]

    def _leave_lobby(self) -> None:
        if self._request is not None:
            self._keeper.gone(self._request)
            self._request = None

    def _mac(self, secret: str, role: proofs.GateRole, cred: proofs.Credential, binding: str, jn: str) -> str:
        text = proofs.gate_transcript(
            role,
            cred,
            binding=binding,
            joiner=self._doorway.remote,
            creator=self._doorway.own,
            jn=jn,
            hn=self._hn,
        )
        return proofs.mac(secret, text)
