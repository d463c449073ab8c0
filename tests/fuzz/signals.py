"""What a device says to the signaling server, and a server to a device (PROTOCOL section 2, DESIGN 4)."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh import descriptions, fingerprints
from pooled_nb.mesh.peerjs import client
from pooled_nb.mesh.switchboard import Drop, Limits, Send, Switchboard
from tests.fuzz import values

IDS = ("pooled-room-4TKG9P", "a", "b", "c-1", "-bad", "two  blanks", "", "x" * 101, "ż")
KINDS = ("OFFER", "ANSWER", "CANDIDATE", "LEAVE", "EXPIRE", "HEARTBEAT", "OPEN", "ID-TAKEN", "ERROR",
         "INVALID-KEY", "SHOUT", "")  # fmt: skip
LIMITS = Limits(members=6, text=4_000, queued=4, queued_all=5, queued_bytes=6_000, rate=5, burst=20)
SDP = (
    "v=0",
    "o=- 1 1 IN IP4 0.0.0.0",
    "s=-",
    "t=0 0",
    "a=group:BUNDLE 0",
    "m=application 9 UDP/DTLS/SCTP webrtc-datachannel",
    "c=IN IP4 0.0.0.0",
    "a=mid:0",
    "a=candidate:1 1 udp 2130706431 127.0.0.2 40000 typ host",
    "a=candidate:2 1 udp 2130706431 5f1e.local 40001 typ host",
    "a=end-of-candidates",
    "a=ice-ufrag:abcd",
    "a=ice-pwd:abcdefghijklmnopqrstuv",
    "a=fingerprint:sha-256 " + ":".join(["AB"] * 32),
    "a=fingerprint:sha-256 " + ":".join(["CD"] * 32),
    "a=setup:actpass",
)


def description(rng: Random) -> str:
    lines = [line for line in SDP if rng.random() < 0.93]
    if rng.random() < 0.5 and SDP[-2] in lines:
        lines.remove(SDP[-2])
    for _ in range(rng.choice((0, 0, 1, 3))):
        at = rng.randrange(len(lines) + 1)
        match rng.randrange(4):
            case 0 if at < len(lines):
                cut = rng.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:cut] + rng.choice((" ", "\x0b", "\u2028", "a=fingerprint:", "\t", ":"))
            case 1 if at < len(lines):
                lines[at] = lines[at].swapcase()
            case 2:
                lines.insert(at, rng.choice(SDP))
            case 3:
                lines.insert(at, " " + SDP[-3])
    return rng.choice(("\r\n", "\n", "\r", "\x0b", "\u2028")).join(lines)


def payload(rng: Random) -> Any:
    if rng.random() < 0.2:
        return _jsonable(values.any_value(rng))
    made: dict[str, Any] = {
        "sdp": {"type": rng.choice(("offer", "answer", "rollback")), "sdp": description(rng)},
        "candidate": {"candidate": rng.choice(SDP)[2:], "sdpMid": rng.choice(("0", None, 0))},
        "connectionId": rng.choice(("dc_1", "dc_2", "", "x" * 101)),
        "type": rng.choice(("data", "data", "media")),
        "label": "x",
        "reliable": rng.choice((True, False, 1)),
        "serialization": "binary",
        "msg": "no",
    }
    for key in list(made):
        if rng.random() < 0.1:
            made[key] = _jsonable(values.any_value(rng))
    return made


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return list(value[:3])
    if isinstance(value, list):
        return [_jsonable(item) for item in value]
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    return value


def line(rng: Random) -> str:
    made = {
        "type": rng.choice(KINDS),
        "src": rng.choice(IDS),
        "dst": rng.choice(IDS),
        "payload": payload(rng),
    }
    for key in list(made):
        if rng.random() < 0.08:
            del made[key]
    text = json.dumps(made)
    match rng.randrange(12):
        case 0:
            return text[: rng.randrange(len(text))]
        case 1:
            return "[" * rng.choice((1, 900, 3_900)) + text
        case 2:
            return text.replace('"', rng.choice(("", "'", '""')), 3)
        case 3:
            return text + " " * 5_000
    return text


def run(seed: str) -> None:
    """One server with some members, and one client with a server that says anything."""
    rng = Random(seed)
    _server(rng)
    _client(rng)
    _describe(rng)


def _server(rng: Random) -> None:
    board, now = Switchboard(LIMITS), 0.0
    ids: dict[int, str] = {}
    for number in range(rng.randint(2, 40)):
        now += rng.choice((0.0, 0.0, 0.01, 1.0, 6.0, 80.0))
        match rng.randrange(8):
            case 0 | 1:
                id, token = rng.choice(IDS), rng.choice(("t", "u", "", "x" * 201, "ż"))
                actions = board.join(
                    number, key=rng.choice(("peerjs", "peerjs", "", "no")), id=id, token=token, now=now
                )
                if not any(action == Drop(number) for action in actions):
                    ids = {member: other for member, other in ids.items() if other != id} | {number: id}
            case 2:
                actions = board.tick(now)
            case 3 if ids:
                member = rng.choice(list(ids))
                board.gone(member)
                del ids[member]
                actions = []
            case _:
                member = rng.choice([*ids, 99])
                text = line(rng)
                actions = board.receive(member, text, now)
                for action in actions:
                    if isinstance(action, Send):
                        told = json.loads(action.text)
                        if told["type"] == "ERROR" or told["src"] != ids[member]:
                            # The server's own words, to who sent: too much, or nothing more can wait.
                            assert told["type"] in ("ERROR", "EXPIRE")
                            assert action.member == member
                            assert told.get("dst", ids[member]) == ids[member]
                            continue
                        assert told["src"] == ids[member], "signaling names who really sent it"
                        assert ids[action.member] == told["dst"]
                        assert len(action.text) <= LIMITS.text + 400
        for action in actions:
            if isinstance(action, Drop):
                ids.pop(action.member, None)
        assert len(board) == len(ids) <= LIMITS.members
        waiting = board._waiting.values()
        assert len(waiting) <= LIMITS.queued_all
        assert all(len(one.messages) <= LIMITS.queued for one in waiting)
        held = sum(len(text) for one in waiting for _, text in one.messages)
        assert held == board._waiting_bytes <= LIMITS.queued_bytes


def _client(rng: Random) -> None:
    servers = rng.choice((1, 2, 3))
    here, now, told = client.Client(servers, id="me", resumes=rng.random() < 0.3), 0.0, 0
    actions = here.start(now)
    for _ in range(rng.randint(1, 30)):
        attempt = here._attempt - (rng.random() < 0.1)
        match rng.randrange(5):
            case 0:
                now += rng.choice((0.1, 1.1, 5.0, 9.0, 31.0))
                actions = here.tick(now)
            case 1:
                actions = here.opened(attempt, now)
            case 2 if rng.random() < 0.3:
                actions = here.lost(attempt, "network", now)
            case _:
                text: str | bytes = line(rng)
                actions = here.received(attempt, text.encode() if rng.random() < 0.1 else text, now)
        assert len(actions) <= 4
        for action in actions:
            match action:
                case client.Deliver(message):
                    assert here.state is client.State.REGISTERED
                    assert 1 <= len(message.src) <= 100
                case client.Registered(index):
                    told += 1
                    assert 0 <= index < servers
                case client.Dial(index=index):
                    assert 0 <= index < servers
        assert told <= 1


def _describe(rng: Random) -> None:
    text = description(rng)
    descriptions.is_usable(rng.choice(text.splitlines() or [""]))
    try:
        taken = descriptions.take(text)
    except LinkFailed:
        return
    # What a stack is given names one certificate, and it is the one that proofs are bound to.
    assert taken.fingerprint == fingerprints.one(taken.sdp) == fingerprints.one(text)
    assert sum("fingerprint" in part.lower() for part in set(taken.sdp.splitlines())) >= 1
    assert len(taken.names) <= descriptions.MAX_CANDIDATES
