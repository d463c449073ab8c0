"""PROTOCOL section 4: the arithmetic of proofs (the vectors say that it is the right one)."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh import codes, proofs

words = st.text(min_size=1, max_size=30)


def test_new_secrets() -> None:
    """PROTOCOL section 4: "16 random bytes, base64url without padding (22 …)"; a mesh key has 43."""
    for _ in range(50):
        assert re.fullmatch(r"[A-Za-z0-9_-]{22}", nonce := proofs.new_nonce())
        assert codes.good_key(nonce)
        assert re.fullmatch(r"[A-Za-z0-9_-]{43}", proofs.new_mesh_key())
    assert proofs.new_nonce(lambda n: b"\xff" * n) == "_" * 21 + "w"


@settings(deadline=None, max_examples=100)
@given(words, words, words, words)
def test_a_proof_says_what_it_is_for(a: str, b: str, c: str, d: str) -> None:
    """PROTOCOL section 4: another role, credential, end or nonce is another proof."""
    base = {"binding": "sha-256 ab", "joiner": a, "creator": b, "jn": c, "hn": d}
    texts = {
        proofs.gate_transcript(role, cred, **base) for role in ("join", "host") for cred in ("key", "pass")
    }
    assert len(texts) == 4
    other = proofs.gate_transcript("join", "key", **(base | {"jn": c + "x"}))
    assert other not in texts
    ends = {"binding": "sha-256 ab", "dialer": a, "acceptor": b}
    assert proofs.mesh_proof(c, "dial", **ends) != proofs.mesh_proof(c, "accept", **ends)


@settings(deadline=None, max_examples=100)
@given(words, words, words)
def test_six_digits(fp: str, jn: str, hn: str) -> None:
    """PROTOCOL section 4: "shown ``482 019`` on both ends": always six, leading zeros kept."""
    assert re.fullmatch(r"\d{3} \d{3}", proofs.digits(fp, jn, hn))


def test_same() -> None:
    """PROTOCOL section 4: compared in constant time; what is absent equals nothing."""
    assert proofs.same("ab", "ab")
    assert not proofs.same("ab", "ac")
    assert not proofs.same(None, None)
    assert not proofs.same("é", "e")
