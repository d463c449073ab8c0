"""PROTOCOL section 2, ICE: candidates that are told, and why no path was found, over each stack."""

import re

import pytest

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh import descriptions
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.ice import IcePolicy, TurnServer
from pooled_nb.mesh.peerjs.shapes import IceCandidate
from pooled_nb.mesh.rtc import CHECKING_S, CONNECT_S
from tests.front.udpservers import answering, full
from tests.mesh.rtctools import HandClock, Pair, close, nothing_left, opened, until

NAMES = "0b0b0b0b-no-such-device.local"


def bare(sdp: str) -> str:
    """A description without any address, to which more may come."""
    marks = ("a=candidate:", "a=end-of-candidates")
    return "".join(line for line in sdp.splitlines(keepends=True) if not line.startswith(marks))


async def test_candidates_before_the_answer(pair: Pair):
    """PROTOCOL section 2: trickled candidates are taken, also before the answer; bad ones are dropped."""
    async with nothing_left():
        near, far = pair()
        offer = await near.offer()
        answer = await far.answer(descriptions.take(offer))
        lines = answer.splitlines()
        trickled = [x[2:] for x in lines if x.startswith("a=candidate:")]
        assert trickled
        bare = [x for x in lines if not x.startswith("a=candidate:") and x != "a=end-of-candidates"]
        unknown = "candidate:9 1 udp 2130706431 0b0b0b0b-no-such-device.local 50001 typ host"
        for line in ("", "nonsense", unknown, *trickled):
            near.candidate(IceCandidate(candidate=line, sdp_mid="whatever"))
        await near.accept(descriptions.take("\r\n".join([*bare, f"a={unknown}", ""])))
        await opened(near, far)
        for n in range(200):
            near.candidate(IceCandidate(candidate=f"candidate:{n} 1 udp 1 127.0.0.1 {2000 + n} typ host"))
        assert near._candidates_seen > descriptions.MAX_CANDIDATES
        assert len(near._peer.told) <= descriptions.MAX_CANDIDATES
        await close(near, far)


async def test_only_local_names(pair: Pair):
    """PROTOCOL section 2: a browser may offer only ….local candidates: be reachable yourself."""
    async with nothing_left():
        near, far = pair()
        answer = await far.answer(descriptions.take(await near.offer()))
        hidden = re.sub(r"127\.0\.0\.[12]", NAMES, answer)
        assert len(descriptions.take(hidden).names) == answer.count("a=candidate:") > 0
        await near.accept(descriptions.take(hidden))
        await opened(near, far)
        assert near.path == "direct"
        await close(near, far)


async def test_relay_only_asks_its_own_network_for_no_name(pair: Pair, monkeypatch):
    """PROTOCOL section 2: "relay-only is a setting"; no packet but to the relay leaves this device."""
    asked = []
    monkeypatch.setattr("aioice.ice.get_or_create_mdns_protocol", asked.append)
    line = f"candidate:9 1 udp 2130706431 {NAMES} 50001 typ host"
    async with nothing_left():
        near, far = pair()
        offer = bare(await near.offer()) + f"a={line}\r\n"
        hidden = pair.end(1, LoopClock(), "y", IcePolicy(relay_only=True))
        with pytest.raises(LinkFailed, match="relay alone"):
            await hidden.answer(descriptions.take(offer))
        hidden.candidate(IceCandidate(candidate=line))
        await until(lambda: hidden._names == 2)
        assert "only names of its own network" in hidden.obstacle
        await close(near, far, hidden)
    assert asked == []


async def test_an_answer_that_is_none(pair: Pair):
    """PROTOCOL section 2: a description that cannot be applied is one error in words, and nothing is left."""
    async with nothing_left():
        near, far = pair()
        offer = await near.offer()
        taken = descriptions.take(offer)
        broken = descriptions.Taken(taken.sdp.replace("a=ice-ufrag", "a=ice-nothing"), taken.fingerprint, ())
        with pytest.raises(LinkFailed, match="far"):
            await near.accept(broken)
        assert near.state == "failed"
        with pytest.raises(LinkFailed):
            await far.answer(descriptions.Taken("v=0\r\nm=application x y z\r\n", "", ()))
        await close(near, far)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (None, "has not answered"),
        ("", "told no address"),
        (f"a=candidate:9 1 udp 2130706431 {NAMES} 50001 typ host", "only names of its own network"),
        ("a=candidate:9 1 udp 2130706431 192.0.2.9 50001 typ host", "none of the ways to the other device"),
    ],
)
async def test_the_reason_why_no_path_was_found(pair: Pair, told: str | None, why: str):
    """PROTOCOL section 2, ICE: "at 40 s while paths are still being tried, with the reason"."""
    async with nothing_left():
        clock = HandClock()
        near, far = pair(clock)
        offer = await near.offer()
        if told is not None:
            answer = await far.answer(descriptions.take(bare(offer)))  # it knows of no way to here
            await far.close()
            await near.accept(descriptions.take("\r\n".join([bare(answer) + told, ""])))
            await until(lambda: near.is_checking and (NAMES not in told or near._names == 1))
        clock.advance(CONNECT_S)
        if told is not None:  # paths are tried still
            assert (near.state, near.is_checking) == ("connecting", True)
            assert why in near.obstacle
            clock.advance(CHECKING_S - CONNECT_S)
        assert near.state == "failed"
        assert why in near.failure
        assert f"{CONNECT_S if told is None else CHECKING_S:.0f} s" in near.failure
        await close(near, far)


async def test_a_relay_that_refused_is_part_of_the_reason(pair: Pair):
    """Credentials are not (DESIGN section 7)."""
    async with nothing_left(), answering(full("ana", "hunter2")) as port:
        clock = HandClock()
        server = TurnServer(url=f"turn:127.0.0.1:{port}?transport=udp", username="ana", credential="hunter2")
        near, far = pair(clock, ice=IcePolicy(relays=(server,)))
        await near.offer()
        assert "quota" in near._peer.trouble
        near._other = "sha-256 00"
        assert "the relay 127.0.0.1" in near.obstacle
        assert "quota" in near.obstacle
        await close(near, far)
        alone, other = pair(clock, ice=IcePolicy(relays=(server,), relay_only=True))
        with pytest.raises(LinkFailed, match="a relay alone") as error:
            await alone.offer()
        assert "quota" in str(error.value)
        assert "hunter2" not in f"{error.value!r} {near!r} {server!r}"
        await close(alone, other)
