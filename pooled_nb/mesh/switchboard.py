"""What a PeerJS-compatible signaling server decides: who is registered, who hears what (DESIGN section 4).

No sockets, no clock: events of numbered members and ``now`` go in, actions come out. Messages are passed
on without being read; only their envelope counts. Nothing a member sends ends it for another.
"""

from __future__ import annotations

import collections
import hmac
import re
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from pooled_nb.mesh.peerjs.shapes import id_allowed
from pooled_nb.mesh.quota import FULL, AddressLimits, Bucket, Quota

TOO_MUCH = "Too many messages"
_TOKEN = re.compile(r"[!-~]{1,200}")
"""PeerJS draws letters and digits, and lets an application name its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one server holds at most. Times in seconds, sizes in bytes.

    Attributes
    ----------
    key
        What clients must name.
    members
        Devices registered at one time.
    sockets
        Open connections, those before and after registration counted.
    text
        Size of one message.
    silent_s
        A member without a ``HEARTBEAT`` for this long is gone.
    handshake_s
        A connection that has not said what it wants by then is cut off.
    queue_s, queued, queued_by, queued_all, queued_bytes
        How long a message waits for somebody who is absent, and how many do: for one absent id, of one
        sender, absent ids in all, and bytes in all. What cannot wait comes back as ``EXPIRE`` at once.
    rate, burst, rate_bytes, burst_bytes
        Messages and bytes a second of one member, in the long run and at once. What is above is not read;
        who goes on for another burst is dropped.
    unsent, unsent_all
        Bytes that wait for one member that reads slowly, and for all.
    each
        Of one address.
    """

    key: str = "peerjs"
    members: int = 512
    sockets: int = 1_024
    text: int = 128 * 1024
    silent_s: float = 75.0
    handshake_s: float = 10.0
    queue_s: float = 5.0
    queued: int = 256
    queued_by: int = 128
    queued_all: int = 2_048
    queued_bytes: int = 8 * 1024 * 1024
    rate: float = 100.0
    burst: int = 1_000
    rate_bytes: float = 1024.0 * 1024
    burst_bytes: int = 16 * 1024 * 1024
    unsent: int = 2 * 1024 * 1024
    unsent_all: int = 64 * 1024 * 1024
    each: AddressLimits = field(default_factory=AddressLimits)


@dataclass(frozen=True, slots=True)
class Send:
    """Send this text to the member."""

    member: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the member's socket."""

    member: int


Action = Send | Drop


class _Envelope(Struct):
    type: Literal["OFFER", "ANSWER", "CANDIDATE", "LEAVE", "EXPIRE", "HEARTBEAT"]
    dst: str | None = None
    payload: Raw = Raw()


@dataclass(slots=True)
class _Member:
    id: str
    token: str
    heard: float
    messages: Bucket
    bytes: Bucket
    address: str | None
    over: int = 0
    """Messages above the rate that were not read."""


@dataclass(slots=True)
class _Waiting:
    since: float
    messages: list[tuple[str, bytes]] = field(default_factory=list)
    """(src, whole text)"""


_decoder = msgspec.json.Decoder(_Envelope)


class Switchboard:
    """The realm of one server."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self.quota = Quota(self._limits.each)
        """Its addresses."""
        self._members: dict[int, _Member] = {}
        self._by_id: dict[str, int] = {}
        self._waiting: collections.OrderedDict[str, _Waiting] = collections.OrderedDict()
        self._waiting_of: collections.Counter[str] = collections.Counter()
        self._waiting_bytes = 0
        self._sockets = 0

    def __len__(self) -> int:
        return len(self._members)

    @property
    def held(self) -> tuple[int, int, int, int]:
        """(members, messages that wait, their bytes, addresses kept in mind)."""
        waiting = sum(len(w.messages) for w in self._waiting.values())
        return len(self._members), waiting, self._waiting_bytes, len(self.quota)

    def accept(self, address: str | None, now: float) -> bool:
        """A connection came in; False: cut it off. True has to be followed by `released`.

        Parameters
        ----------
        address
            See `quota.group`.
        """
        if self._sockets >= self._limits.sockets or not self.quota.accept(address, now):
            return False
        self._sockets += 1
        return True

    def released(self, address: str | None) -> None:
        """A connection that was accepted is gone."""
        self._sockets = max(0, self._sockets - 1)
        self.quota.closed(address)

    def join(
        self,
        member: int,
        *,
        key: str,
        id: str,
        token: str,
        now: float,
        address: str | None = None,
        is_forwarded: bool = False,
    ) -> list[Action]:
        """A socket opened and says who it is.

        Parameters
        ----------
        address, is_forwarded
            See `quota.group` and `quota.Quota.enter`.
        """
        # First: who is told off for too many tries must not learn anything by one more.
        if why := self.quota.enter(address, now, is_forwarded=is_forwarded):
            return _refuse(member, "ERROR", why)
        actions = self._join(member, key=key, id=id, token=token, now=now, address=address)
        if member not in self._members:
            self.quota.left(address)
        return actions

    def _join(
        self, member: int, *, key: str, id: str, token: str, now: float, address: str | None
    ) -> list[Action]:
        limits = self._limits
        if not (id and token and key):
            return _refuse(member, "ERROR", "No id, token, or key supplied to websocket server")
        if not hmac.compare_digest(key.encode(), limits.key.encode()):
            return _refuse(member, "ERROR", "Invalid key provided")
        if not id_allowed(id):
            return _refuse(member, "ERROR", "ID is invalid")
        if _TOKEN.fullmatch(token) is None:
            return _refuse(member, "ERROR", "Invalid token provided")
        actions: list[Action] = []
        old = self._by_id.get(id)
        if old is not None:
            if not hmac.compare_digest(self._members[old].token.encode(), token.encode()):
                return _refuse(member, "ID-TAKEN", "ID is taken")
            # The same device over a new socket takes its id over, without a second OPEN.
            actions += self._leave(old)
        elif len(self._members) >= limits.members:
            return _refuse(member, "ERROR", FULL)
        else:
            actions.append(Send(member, b'{"type":"OPEN"}'))
        self._members[member] = _Member(
            id,
            token,
            now,
            Bucket.full(limits.rate, limits.burst, now),
            Bucket.full(limits.rate_bytes, limits.burst_bytes, now),
            address,
        )
        self._by_id[id] = member
        if (waiting := self._fetch(id)) is not None:
            actions += [Send(member, text) for _, text in waiting.messages]
        return actions

    def receive(self, member: int, text: str, now: float) -> list[Action]:
        """A member said something; what cannot be read is ignored."""
        who = self._members.get(member)
        if who is None:
            return []
        if len(text) > self._limits.text or not self._spend(who, len(text), now):
            return self._over(member, who)
        try:
            envelope = _decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return []
        if envelope.type == "HEARTBEAT":
            # Only this keeps a member alive, as in the original.
            who.heard = now
            return []
        dst = envelope.dst
        if dst is None:
            return self._leave(member) if envelope.type == "LEAVE" else []
        if not id_allowed(dst):
            return []
        out: dict[str, object] = {"type": envelope.type, "src": who.id, "dst": dst}
        if bytes(envelope.payload):
            out["payload"] = envelope.payload
        try:
            line = msgspec.json.encode(out)
        except (msgspec.MsgspecError, ValueError):
            return []
        there = self._by_id.get(dst)
        if there is not None:
            return [Send(there, line)]
        if envelope.type in ("LEAVE", "EXPIRE") or self._keep(who.id, dst, line, now):
            return []
        return [Send(member, _expire(dst, who.id))]

    def noise(self, member: int, size: int, now: float) -> list[Action]:
        """A member sent what is no message (a binary frame, a ping): it counts, and is not read."""
        who = self._members.get(member)
        if who is None or self._spend(who, size, now):
            return []
        return self._over(member, who)

    def gone(self, member: int) -> None:
        """A socket closed. Others are not told, as in the original."""
        who = self._members.pop(member, None)
        if who is None:
            return
        self.quota.left(who.address)
        if self._by_id.get(who.id) == member:
            del self._by_id[who.id]

    def tick(self, now: float) -> list[Action]:
        """Drop silent members, and return what nobody fetched as ``EXPIRE``; about once a second."""
        self.quota.tick(now)
        actions: list[Action] = []
        for member, who in list(self._members.items()):
            if now - who.heard >= self._limits.silent_s:
                actions += self._leave(member)
        for dst, waiting in list(self._waiting.items()):
            if now - waiting.since < self._limits.queue_s:
                continue
            self._fetch(dst)
            for src in dict.fromkeys(src for src, _ in waiting.messages):
                if (there := self._by_id.get(src)) is not None:
                    actions.append(Send(there, _expire(dst, src)))
        return actions

    def _leave(self, member: int) -> list[Action]:
        self.gone(member)
        return [Drop(member)]

    def _keep(self, src: str, dst: str, line: bytes, now: float) -> bool:
        limits = self._limits
        waiting = self._waiting.get(dst)
        full = (
            self._waiting_bytes + len(line) > limits.queued_bytes
            or self._waiting_of[src] >= limits.queued_by
            or (waiting is None and len(self._waiting) >= limits.queued_all)
            or (waiting is not None and len(waiting.messages) >= limits.queued)
        )
        if full:
            return False
        if waiting is None:
            waiting = self._waiting[dst] = _Waiting(now)
        waiting.messages.append((src, line))
        self._waiting_of[src] += 1
        self._waiting_bytes += len(line)
        return True

    def _fetch(self, dst: str) -> _Waiting | None:
        """Take out what waits for this id."""
        waiting = self._waiting.pop(dst, None)
        for src, text in waiting.messages if waiting is not None else ():
            self._waiting_bytes -= len(text)
            self._waiting_of[src] -= 1
            if self._waiting_of[src] <= 0:
                del self._waiting_of[src]
        return waiting

    def _spend(self, who: _Member, size: int, now: float) -> bool:
        if not (who.messages.take(1, now) and who.bytes.take(size, now)):
            return False
        is_calm = who.messages.credit > self._limits.burst / 2
        if is_calm:
            who.over = 0
        if self.quota.spend(who.address, size, now):
            return True
        if is_calm:
            # Others of its address are loud, and what it said, maybe a HEARTBEAT, is not read: it lives.
            who.heard = now
        return False

    def _over(self, member: int, who: _Member) -> list[Action]:
        who.over += 1
        if who.over <= self._limits.burst:
            return []
        self.gone(member)
        return _refuse(member, "ERROR", TOO_MUCH)


def _expire(absent: str, sender: str) -> bytes:
    return msgspec.json.encode({"type": "EXPIRE", "src": absent, "dst": sender})


def _refuse(member: int, type: str, why: str) -> list[Action]:
    return [Send(member, msgspec.json.encode({"type": type, "payload": {"msg": why}})), Drop(member)]
