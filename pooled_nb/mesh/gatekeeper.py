"""What the creator's gate keeps for the room: invite key, passes, mesh key, lobby (PROTOCOL section 4).

Decides only, and nothing here blocks: a proof is one HMAC over some hundred bytes, microseconds, and passes
are found by their id. Secrets are in no text form of anything here.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_bytes

from pooled_nb.mesh import names, proofs
from pooled_nb.mesh.gate import Doorway, Gate
from pooled_nb.mesh.gatecreator import CreatorGate
from pooled_nb.mesh.messages.link import DeviceMeta

log = logging.getLogger(__name__)

MAX_PASSES = 500
"""Passes kept. When there are more, the one goes whose device has been away longest."""
MAX_LOBBY = 8
MAX_DENIED = 500
"""Ids that are remembered as denied."""
MAX_SPENT = 200
"""Names under which somebody waited in vain: none is given again, so that a yes typed to it counts for no
device but the one whose digits were compared. As many as `MAX_TRIES`: they cannot be pushed out sooner."""
MAX_TRIES, TRIES_S = 200, 600.0
"""Challenges and requests in so many seconds that ended before anything was proved, or decided by a person;
after them nobody new is asked about. Six digits are one in a million: who stands between two devices knows
those of one link, and those of the other from its challenge on, so it could hang up and try again as long as
its victim waits. Honest devices answer, and wait; and who finds the lobby full, or this limit reached, is no
try: a class of forty that joins by code within ten minutes makes a handful."""
TOLD, TOLD_S = 8, 60.0
"""Requests that are told as a sentence in so many seconds; the lobby shows the others just the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """What the room's owner chose.

    Attributes
    ----------
    ask
        A person is asked before a device comes in that proves neither key nor pass. Off: it is let in. Who
        waits already when it is switched off goes on waiting: for that a person was to be asked.
    api
        API clients may come at all (section 9).
    older
        Keys and passes count that a device which knows no proofs sends as they are, ``hello {key?, pass?}``:
        whoever stands in the middle of such a link reads them. Off unless switched on.
    """

    ask: bool = True
    api: bool = False
    older: bool = False


@dataclass(slots=True)
class KeptPass:
    """One pass as the creator keeps it: never the pass itself, only ``ps = H(pass)``."""

    secret: str = field(repr=False)
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSecrets:
    """What is saved with the room, in a file that only its user can read (DESIGN section 7)."""

    key: str = field(repr=False)
    mesh_key: str = field(repr=False)
    passes: tuple[tuple[str, str, str], ...] = field(default=(), repr=False)
    """(id, ``ps``, name), first the one that would go first."""


@dataclass(slots=True, kw_only=True)
class Request:
    """One device in the lobby.

    Attributes
    ----------
    number
        Counts from 1 in this room. It names one link with its digits: a device that asks again over another
        link gets another number, so nobody allows a link that nobody looked at.
    name
        Cleaned, unique among those who wait, and without what could pass for its digits.
    digits
        What both screens show; empty where the device knows no proofs.
    note
        What its host's person should know besides, in a sentence or two; mostly empty.
    since
        Clock seconds.
    allowed
        What the person said; None: nothing yet.
    """

    number: int
    id: str
    name: str
    meta: DeviceMeta
    digits: str = field(repr=False)
    note: str
    since: float
    allowed: bool | None = None


class Gatekeeper:
    """The creator's `Gates`.

    Parameters
    ----------
    saved
        Of an earlier run of the same room.
    """

    def __init__(
        self,
        settings: GateSettings | None = None,
        *,
        saved: GateSecrets | None = None,
        random_bytes: proofs.RandomBytes = token_bytes,
    ) -> None:
        self.settings = settings or GateSettings()
        self.on_change: Callable[[], None] = _unheard
        """Somebody waits, or waits no longer, or what is saved has changed."""
        self._random = random_bytes
        self._key = saved.key if saved else proofs.new_nonce(random_bytes)
        self._mesh_key = saved.mesh_key if saved else proofs.new_mesh_key(random_bytes)
        self._passes: OrderedDict[str, KeptPass] = OrderedDict()
        for id, secret, name in saved.passes[-MAX_PASSES:] if saved else ():
            self._passes[id] = KeptPass(secret, name)
        self._here: Counter[str] = Counter()
        """Living links that were let in, by seat."""
        self._lobby: dict[int, Request] = {}
        self._denied: OrderedDict[str, None] = OrderedDict()
        self._spent: OrderedDict[str, None] = OrderedDict()
        self._tries: deque[float] = deque(maxlen=MAX_TRIES)
        self._told: deque[float] = deque(maxlen=TOLD)
        self._numbers = itertools.count(1)

    # -- what the room asks ------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The invite key: a secret."""
        return self._key

    @property
    def mesh_key(self) -> str:
        """See `Gates`."""
        return self._mesh_key

    @property
    def secrets(self) -> GateSecrets:
        """What to save with the room."""
        passes = tuple((id, kept.secret, kept.name) for id, kept in self._passes.items())
        return GateSecrets(key=self._key, mesh_key=self._mesh_key, passes=passes)

    @property
    def lobby(self) -> tuple[Request, ...]:
        """Who waits, longest first."""
        return tuple(self._lobby.values())

    def decide(self, number: int, *, allow: bool) -> Request | None:
        """The person let a device in, or did not; None: it waits no longer. See `Mesh.decided`."""
        request = self._lobby.get(number)
        if request is not None:
            request.allowed = allow
        return request

    def renew_key(self) -> None:
        """Links that were given out let nobody in any more without asking."""
        self._key = proofs.new_nonce(self._random)
        self._changed()

    def revoke(self, seat: str) -> None:
        """A device was thrown out: its pass counts no more.

        Neither do passes given for the same name whose device is not here: it may have come several times.
        """
        kept = self._passes.pop(seat, None)
        if kept is None:
            return
        for id in [
            id for id, other in self._passes.items() if other.name == kept.name and not self._here[id]
        ]:
            del self._passes[id]
        self._changed()

    # -- what the gates ask ------------------------------------------------------------------------

    def door(self, doorway: Doorway) -> Gate:
        """See `Gates.door`."""
        return CreatorGate(self, doorway, random_bytes=self._random)

    def pass_secret(self, id: str | None) -> str | None:
        """``ps`` of the pass with this id."""
        kept = self._passes.get(id) if id else None
        return kept.secret if kept else None

    def name_of(self, seat: str) -> str | None:
        """The name that a pass was given for."""
        kept = self._passes.get(seat)
        return kept.name if kept else None

    def issue(self, name: str) -> tuple[str, str]:
        """A new pass and its id (section 4: at most 500 kept).

        One too many goes: of the devices that are not here that which left first. A device of the room never
        loses its pass so, or it would have to be asked for after its next broken link.
        """
        new = proofs.new_nonce(self._random)
        secret = proofs.pass_secret(new)
        id = proofs.pass_id(secret)
        away = [old for old in self._passes if not self._here[old]]
        for old in away[: max(0, len(self._passes) + 1 - MAX_PASSES)]:
            del self._passes[old]
        self._passes[id] = KeptPass(secret, names.clean(name))
        self._changed()
        return new, id

    def entered(self, seat: str) -> None:
        """A link was let in under this seat."""
        self._here[seat] += 1
        self._used(seat)

    def left(self, seat: str) -> None:
        """And that link ended."""
        self._here[seat] -= 1
        if self._here[seat] <= 0:
            del self._here[seat]
        self._used(seat)

    def knock(self, id: str, name: str, meta: DeviceMeta, *, digits: str, note: str, now: float) -> Request:
        """A device waits from now on: where `is_full` said that it may.

        An id waits once, so that one device cannot hold all places: its newer link takes the older's place.
        """
        if (again := self._waiting(id)) is not None:
            del self._lobby[again.number]
            self._spend(again)
        number = next(self._numbers)
        name = names.without_digits(names.clean(name))
        name = names.unique(name, {other.name for other in self._lobby.values()} | self._spent.keys())
        request = Request(number=number, id=id, name=name, meta=meta, digits=digits, note=note, since=now)
        self._lobby[number] = request
        self._changed()
        return request

    def is_full(self, id: str) -> bool:
        """Whether eight others wait."""
        return len(self._lobby) >= MAX_LOBBY and self._waiting(id) is None

    def waits(self, request: Request) -> bool:
        """Whether it still has its place."""
        return self._lobby.get(request.number) is request

    def gone(self, request: Request) -> None:
        """A device waits no longer: it was let in, denied, or left."""
        if self._lobby.pop(request.number, None) is not None:
            self._spend(request)
            self._changed()

    def tried(self, at: float) -> None:
        """A challenge, which gives digits away, ended in nothing."""
        self._tries.append(max([at, *self._tries]))  # in order, though they end in another

    def is_searched(self, now: float) -> bool:
        """Whether so many did that digits may have been searched for: see `MAX_TRIES`."""
        return len(self._tries) == MAX_TRIES and now - self._tries[0] < TRIES_S

    def tells(self, now: float) -> bool:
        """Whether one more sentence about who knocks may be told now: nobody can fill a screen with them."""
        if len(self._told) == TOLD and now - self._told[0] < TOLD_S:
            return False
        self._told.append(now)
        return True

    def deny(self, id: str) -> None:
        """Do not let this id knock again: without proof of key or pass it is refused at once."""
        self._denied[id] = None
        self._denied.move_to_end(id)
        while len(self._denied) > MAX_DENIED:
            self._denied.popitem(last=False)

    def is_denied(self, id: str) -> bool:
        """Whether this id was denied before."""
        return id in self._denied

    # -- inside ------------------------------------------------------------------------------------

    def _spend(self, request: Request) -> None:
        if not request.allowed:
            self._spent[request.name] = None
            while len(self._spent) > MAX_SPENT:
                self._spent.popitem(last=False)

    def _waiting(self, id: str) -> Request | None:
        return next((request for request in self._lobby.values() if request.id == id), None)

    def _used(self, seat: str) -> None:
        if seat in self._passes:
            self._passes.move_to_end(seat)

    def _changed(self) -> None:
        try:
            self.on_change()
        except Exception:  # a full disk, say, is no fault of the device that knocks
            log.exception("a change at the gate was not taken up")


def _unheard() -> None:
    """Nobody listens yet."""
