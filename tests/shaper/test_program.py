"""What the shaper's signaling server makes of descriptions and candidates; and paths that nobody uses."""

from __future__ import annotations

import copy
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.shaper import candidates, relay
from tests.shaper.paths import Where
from tests.shaper.program import Detour
from tests.shaper.relay import Relay

CANDIDATE = "candidate:1 1 udp 2130706431 127.0.0.1 {port} typ host"
TAIL = ["a=fingerprint:sha-256 AB:CD", "a=setup:actpass", ""]


@pytest.fixture
def made() -> Iterator[Relay]:
    one = Relay()
    yield one
    one.close()


def sdp(*ports: int) -> str:
    lines = [f"a={CANDIDATE.format(port=port)}" for port in ports]
    return "\r\n".join(["v=0", "m=application 9 UDP/DTLS/SCTP webrtc-datachannel", *lines, *TAIL])


def signal(type: str, src: str, dst: str, **payload: Any) -> dict[str, Any]:
    return {"type": type, "src": src, "dst": dst, "payload": {"connectionId": "c1", **payload}}


def described(type: str, src: str, dst: str, *ports: int) -> dict[str, Any]:
    return signal(type, src, dst, sdp={"type": type.lower(), "sdp": sdp(*ports)}, label="stripe")


def trickled(src: str, dst: str, line: str) -> dict[str, Any]:
    return signal("CANDIDATE", src, dst, candidate={"candidate": line, "sdpMid": "0"})


def test_an_offer_and_its_answer_lead_through_one_path_and_nothing_else_changes(made: Relay) -> None:
    detour = Detour(made)
    offer, answer = described("OFFER", "x", "y", 5_000, 5_001), described("ANSWER", "y", "x", 6_000)
    kept = copy.deepcopy((offer, answer))
    (told_y,), (told_x,) = detour(offer), detour(answer)
    assert (offer, answer) == kept, "what the server remembers is what was said"
    path = made.path(0)
    assert (path.a.name, path.a.at, path.b.name, path.b.at) == (
        "x",
        ("127.0.0.1", 5_000),
        "y",
        ("127.0.0.1", 6_000),
    )
    assert candidates.first(told_y["payload"]["sdp"]["sdp"]) == path.for_b
    assert candidates.first(told_x["payload"]["sdp"]["sdp"]) == path.for_a
    for told, said in ((told_y, offer), (told_x, answer)):
        here, there = (one["payload"]["sdp"]["sdp"].split("\r\n") for one in (told, said))
        assert [x for x in here if "candidate" not in x] == [x for x in there if "candidate" not in x]
        assert sum("candidate" in x for x in here) == 1
        assert {k: v for k, v in told.items() if k != "payload"} == {
            k: v for k, v in said.items() if k != "payload"
        }
    assert made.counts(Where(label="stripe", ends=["y"]))


def test_candidates_that_come_one_by_one(made: Relay) -> None:
    """The first one counts, of each end; others would lead past the relay."""
    detour = Detour(made)
    assert len(detour(described("OFFER", "x", "y"))) == 1
    (told,) = detour(trickled("x", "y", CANDIDATE.format(port=5_000)))
    path = made.path(0)
    assert candidates.address_of(told["payload"]["candidate"]["candidate"]) == path.for_b
    assert told["payload"]["candidate"]["sdpMid"] == "0"
    assert path.a.at == ("127.0.0.1", 5_000)
    assert detour(trickled("x", "y", CANDIDATE.format(port=5_001))) == []
    assert detour(trickled("x", "y", "candidate:2 1 udp 1 name.local 7 typ host")) == []
    assert detour(trickled("x", "y", "")) == [trickled("x", "y", "")]
    (told,) = detour(trickled("y", "x", CANDIDATE.format(port=6_000)))
    assert candidates.address_of(told["payload"]["candidate"]["candidate"]) == path.for_a


def test_what_belongs_to_no_connection_passes(made: Relay) -> None:
    detour = Detour(made)
    stray = described("ANSWER", "x", "y", 5_000)
    assert detour(stray) == [stray]
    late = trickled("x", "y", CANDIDATE.format(port=5_000))
    assert detour(late) == [late]


def test_a_path_that_is_idle_is_closed_and_still_counts(made: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was never used may be used yet."""
    monkeypatch.setattr(relay, "IDLE_S", 0.0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.bind(("127.0.0.1", 0))
        used, unused = made.open(end.getsockname()), made.open(end.getsockname())
        end.sendto(b"x", used.for_a)
        while not made.counts(Where(path=0, sent_by="a"))[0]["came"]:
            pass
        made.open(end.getsockname())
    assert made.path(unused.number) is unused
    with pytest.raises(KeyError):
        made.path(used.number)
    assert made.counts(Where(path=0, sent_by="a"))[0]["came"] == 1
