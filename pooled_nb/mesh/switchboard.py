"""What a PeerJS-compatible signaling server decides: who is registered, who hears what (DESIGN section 4).

No sockets, no clock: events of numbered members and ``now`` go in, actions come out. Messages are passed
on without being read; only their envelope counts. Nothing a member sends ends it for another.
"""

from __future__ import annotations

import collections
import hmac
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from pooled_nb.mesh.peerjs.shapes import id_allowed

Forwarded = Literal["OFFER", "ANSWER", "CANDIDATE", "LEAVE", "EXPIRE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one server holds at most. Times in seconds, sizes in bytes."""

    key: str = "peerjs"
    members: int = 512
    text: int = 128 * 1024
    silent_s: float = 75.0
    queue_s: float = 5.0
    queued: int = 128
    queued_all: int = 2_048
    queued_bytes: int = 8 * 1024 * 1024
    rate: float = 100.0
    """Messages per second of one member, in the long run."""
    burst: int = 1_000


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
    credit: float
    credited: float


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
        self._members: dict[int, _Member] = {}
        self._by_id: dict[str, int] = {}
        self._waiting: collections.OrderedDict[str, _Waiting] = collections.OrderedDict()
        self._waiting_bytes = 0

    def __len__(self) -> int:
        return len(self._members)

    def join(self, member: int, *, key: str, id: str, token: str, now: float) -> list[Action]:
        """A socket opened and says who it is."""
        if not (id and token):
            return _refuse(member, "ERROR", "No id, token, or key supplied to websocket server")
        if key != self._limits.key:
            return _refuse(member, "ERROR", "Invalid key provided")
        if not id_allowed(id) or len(token) > 200:
            return _refuse(member, "ERROR", "ID is invalid")
        actions: list[Action] = []
        old = self._by_id.get(id)
        if old is not None:
            if not hmac.compare_digest(self._members[old].token.encode(), token.encode()):
                return _refuse(member, "ID-TAKEN", "ID is taken")
            # The same device over a new socket takes its id over, without a second OPEN.
            del self._members[old]
            actions.append(Drop(old))
        elif len(self._members) >= self._limits.members:
            return _refuse(member, "ERROR", "Server has reached its concurrent user limit")
        else:
            actions.append(Send(member, b'{"type":"OPEN"}'))
        self._members[member] = _Member(id, token, now, float(self._limits.burst), now)
        self._by_id[id] = member
        if waiting := self._waiting.pop(id, None):
            self._waiting_bytes -= sum(len(text) for _, text in waiting.messages)
            actions += [Send(member, text) for _, text in waiting.messages]
        return actions

    def receive(self, member: int, text: str, now: float) -> list[Action]:
        """A member said something; what cannot be read is ignored."""
        who = self._members.get(member)
        if who is None or len(text) > self._limits.text or not self._spend(who, now):
            return []
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
        if envelope.type not in ("LEAVE", "EXPIRE"):
            self._keep(who.id, dst, line, now)
        return []

    def gone(self, member: int) -> None:
        """A socket closed. Others are not told, as in the original."""
        who = self._members.pop(member, None)
        if who is not None and self._by_id.get(who.id) == member:
            del self._by_id[who.id]

    def tick(self, now: float) -> list[Action]:
        """Drop silent members, and return what nobody fetched as ``EXPIRE``; about once a second."""
        actions: list[Action] = []
        for member, who in list(self._members.items()):
            if now - who.heard >= self._limits.silent_s:
                actions += self._leave(member)
        for dst, waiting in list(self._waiting.items()):
            if now - waiting.since < self._limits.queue_s:
                continue
            del self._waiting[dst]
            self._waiting_bytes -= sum(len(text) for _, text in waiting.messages)
            for src in dict.fromkeys(src for src, _ in waiting.messages):
                if (there := self._by_id.get(src)) is not None:
                    line = msgspec.json.encode({"type": "EXPIRE", "src": dst, "dst": src})
                    actions.append(Send(there, line))
        return actions

    def _leave(self, member: int) -> list[Action]:
        self.gone(member)
        return [Drop(member)]

    def _keep(self, src: str, dst: str, line: bytes, now: float) -> None:
        waiting = self._waiting.get(dst)
        full = (
            self._waiting_bytes + len(line) > self._limits.queued_bytes
            or (waiting is None and len(self._waiting) >= self._limits.queued_all)
            or (waiting is not None and len(waiting.messages) >= self._limits.queued)
        )
        if full:
            return
        if waiting is None:
            waiting = self._waiting[dst] = _Waiting(now)
        waiting.messages.append((src, line))
        self._waiting_bytes += len(line)

    def _spend(self, who: _Member, now: float) -> bool:
        limits = self._limits
        who.credit = min(float(limits.burst), who.credit + (now - who.credited) * limits.rate)
        who.credited = now
        if who.credit < 1:
            return False
        who.credit -= 1
        return True


def _refuse(member: int, type: str, why: str) -> list[Action]:
    return [Send(member, msgspec.json.encode({"type": type, "payload": {"msg": why}})), Drop(member)]
