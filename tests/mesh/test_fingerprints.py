"""PROTOCOL section 4: fingerprints and the binding."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.fingerprints import binding, one, only_sha256

A = ":".join(["AB"] * 32)
B = ":".join(["CD"] * 32)
LONG = ":".join(["EF"] * 64)


def sdp(*lines: str, end: str = "\r\n") -> str:
    return end.join(["v=0", "o=- 1 1 IN IP4 0.0.0.0", *lines, "m=application 9 UDP/DTLS/SCTP x", ""])


def test_only_sha256_is_sent() -> None:
    """PROTOCOL section 4: aiortc's three lines become one; everything else stays, byte for byte."""
    full = sdp(f"a=fingerprint:sha-256 {A}", f"a=fingerprint:sha-384 {LONG}", f"a=fingerprint:sha-512 {LONG}")
    assert only_sha256(full) == sdp(f"a=fingerprint:sha-256 {A}")
    assert one(only_sha256(full)) == f"sha-256 {A.lower()}"
    assert only_sha256(sdp()) == sdp()


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([f"a=fingerprint:sha-256 {A}"], f"sha-256 {A.lower()}"),
        ([f"a=fingerprint:SHA-256 {A.lower()} "], f"sha-256 {A.lower()}"),
        ([f"a=fingerprint:sha-256 {A}", f"a=fingerprint:sha-256 {A.lower()}"], f"sha-256 {A.lower()}"),
        ([f"a=fingerprint:sha-512 {LONG}"], f"sha-512 {LONG.lower()}"),
        ([f"a=fingerprint:sha-256 {A}", f"a=fingerprint:sha-256 {B}"], None),
        ([f"a=fingerprint:sha-256 {A}", f"a=fingerprint:sha-512 {LONG}"], None),
        ([f"a=fingerprint:sha-256 {A}", "a=fingerprint:sha-256"], None),
        ([f"a=fingerprint:sha-256 {A}", "a=fingerprint:"], None),
        ([f"a=fingerprint:sha-256 {A}", f" A=Fingerprint:sha-256 {B}"], None),
        ([f"a=fingerprint:sha-256 {A}", f"a=fingerprint:sha-256 {A[:-3]}"], None),
        ([f"a=fingerprint:sha-256 {A[:-3]}"], None),
        ([f"a=fingerprint:own-hash {A}"], None),
        ([f"a=fingerprint:sha-256 {A[:-1]}G"], None),
        ([f"a=fingerprint:sha-256 {A} {B}"], None),
        ([f"s=x\x0ba=fingerprint:sha-256 {B}", f"a=fingerprint:sha-256 {A}"], None),
        ([], None),
    ],
    ids=range(16),
)
def test_exactly_one(lines: list[str], found: str | None) -> None:
    """PROTOCOL section 4: "Exactly **one** distinct fingerprint per end, every fingerprint line readable"."""
    assert one(sdp(*lines)) == found
    assert one(sdp(*lines, end="\n")) == found


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    """PROTOCOL section 4: a description is a peer's text; reading it never raises."""
    assert one(text) is None or "fingerprint" in text.lower()
    only_sha256(text)


def test_binding() -> None:
    """PROTOCOL section 4: "sorted, joined by ``,``", the same on both ends; none where an end has none."""
    a, b = f"sha-256 {A.lower()}", f"sha-256 {B.lower()}"
    assert binding(a, b) == binding(b, a) == f"{a},{b}"
    assert binding(a, a) == a
    assert binding(a, None) is None
    assert binding(None, None) is None
