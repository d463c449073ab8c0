"""DESIGN section 4: which session descriptions are sent and taken."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh import descriptions

HASH = ":".join(["AB"] * 32)
HOST = "a=candidate:1 1 udp 2130706431 10.0.0.7 50000 typ host"
NAMED = "a=candidate:2 1 udp 2130706431 4f0a-11.local 50001 typ host generation 0"


def sdp(*more: str, fingerprints: int = 1, media: tuple[str, ...] = ("application",)) -> str:
    lines = ["v=0", "o=- 1 1 IN IP4 0.0.0.0", "s=-", "t=0 0"]
    for kind in media:
        lines += [f"m={kind} 9 UDP/DTLS/SCTP webrtc-datachannel", "c=IN IP4 0.0.0.0", "a=mid:0"]
        lines += [f"a=fingerprint:sha-256 {HASH[:-2]}{n:02X}" for n in range(fingerprints)]
    return "\r\n".join([*lines, *more, ""])


def test_taken():
    """PROTOCOL section 4: exactly one distinct fingerprint, in lower case."""
    taken = descriptions.take(sdp(HOST, "a=end-of-candidates"))
    assert taken.fingerprint == f"sha-256 {HASH[:-2].lower()}00"
    assert taken.names == ()
    assert HOST in taken.sdp
    assert "a=end-of-candidates" in taken.sdp


@pytest.mark.parametrize(
    "text",
    [
        "",
        sdp(fingerprints=0),
        sdp(fingerprints=2),
        sdp("a=fingerprint:sha-1 AA:BB"),
        sdp("s=x\x0ba=fingerprint:sha-256 " + HASH),
        sdp(media=()),
        sdp(media=("audio",)),
        sdp(media=("application", "video")),
        sdp("x\x0cm=video 9 UDP/TLS/RTP/SAVPF 96"),
    ],
)
def test_refused(text: str):
    """PROTOCOL section 4: other than one fingerprint is refused; so is more than data."""
    with pytest.raises(LinkFailed):
        descriptions.take(text)


def test_names_are_resolved_apart():
    """PROTOCOL section 2: a .local candidate that nobody resolves holds up no other."""
    taken = descriptions.take(sdp(NAMED, HOST, "a=end-of-candidates"))
    assert taken.names == (NAMED[2:],)
    assert NAMED not in taken.sdp
    assert HOST in taken.sdp
    # their list is not complete while a name is being resolved
    assert "a=end-of-candidates" not in taken.sdp


@pytest.mark.parametrize(
    ("line", "usable"),
    [
        (HOST[2:], True),
        (NAMED[2:], True),
        ("candidate:1 1 UDP 1 fe80::1 9 typ host", True),
        ("", False),
        ("candidate:1 1 tcp 1 10.0.0.7 9 typ host tcptype active", False),
        ("candidate:1 2 udp 1 10.0.0.7 9 typ host", False),
        ("candidate:1 1 udp 1 evil.example.com 9 typ host", False),
        ("candidate:1 1 udp 1 10.0.0.7 0 typ host", False),
        ("candidate:1 1 udp 1 10.0.0.7 99999 typ host", False),
        ("candidate:1 1 udp x 10.0.0.7 9 typ host", False),
        ("candidate:1 1 udp 1 10.0.0.7 ٣ typ host", False),
    ],
)
def test_usable(line: str, usable: bool):
    assert descriptions.is_usable(line) is usable


def test_candidates_are_bounded():
    many = [f"a=candidate:{n} 1 udp 1 10.0.0.7 {1000 + n} typ host" for n in range(500)]
    assert descriptions.take(sdp(*many)).sdp.count("a=candidate") == descriptions.MAX_CANDIDATES


@settings(deadline=None, max_examples=200)
@given(
    st.text(), st.lists(st.sampled_from([HOST, NAMED, "m=audio 1", "a=candidate:", "a=x", "\x85", "a=mid:0"]))
)
def test_taking_anything(text: str, lines: list[str]):
    """PROTOCOL section 2: whatever is signaled is taken or refused, never anything else."""
    for candidate in (text, sdp(*lines), text.join(lines)):
        try:
            taken = descriptions.take(candidate)
        except LinkFailed:
            continue
        assert taken.sdp.count("\nm=") <= 1
        assert ".local" not in "".join(x for x in taken.sdp.splitlines() if x.startswith("a=candidate"))


def test_outgoing_keeps_sha256_alone():
    """DESIGN section 4: aiortc writes three fingerprint lines; only sha-256 is sent."""
    three = sdp(
        f"a=fingerprint:sha-384 {':'.join(['CD'] * 48)}", f"a=fingerprint:sha-512 {':'.join(['EF'] * 64)}"
    )
    sent = descriptions.outgoing(three)
    assert sent.count("a=fingerprint") == 1
    assert descriptions.take(sent)
