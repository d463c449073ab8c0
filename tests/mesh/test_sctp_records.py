"""DTLS records, by pyOpenSSL's methods and without them (RFC 6347 section 4.1)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from itertools import pairwise

import OpenSSL
import pytest
from aiortc.rtcdtlstransport import SRTP_PROFILES, RTCCertificate
from hypothesis import example, given
from hypothesis import strategies as st
from OpenSSL import SSL

from pooled_nb.mesh.sctp import records, segments
from pooled_nb.mesh.sctp.records import HEADER, Ways

VERSIONS = ["26.4.0", "99.0.0"]


class Ends:
    """Two ends of a connection whose handshake is over."""

    def __init__(self) -> None:
        self.near, self.far = self._made(), self._made()
        self.near.set_connect_state()
        self.far.set_accept_state()
        for _ in range(8):
            for one, other in ((self.near, self.far), (self.far, self.near)):
                with contextlib.suppress(SSL.WantReadError):
                    one.do_handshake()
                with contextlib.suppress(SSL.WantReadError):
                    other.bio_write(one.bio_read(16_384))

    @staticmethod
    def _made() -> SSL.Connection:
        certificate = RTCCertificate.generateCertificate()
        return SSL.Connection(certificate._create_ssl_context(srtp_profiles=SRTP_PROFILES))


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture(params=VERSIONS)
def both(ends: Ends, request: pytest.FixtureRequest) -> tuple[Ways, Ways]:
    """The ways of both ends, of each kind: an unknown pyOpenSSL has the public ones."""
    return records.ways(ends.near, request.param), records.ways(ends.far, request.param)


def cut(sealed: bytes) -> list[bytes]:
    return [run[at : at + step] for run, step in records.runs(sealed) for at in range(0, len(run), step)]


def test_which_pyopenssl_is_known() -> None:
    """The one that is here: its short way is the one that is taken."""
    assert OpenSSL.__version__.partition(".")[0] in records.KNOWN
    assert [version.partition(".")[0] in records.KNOWN for version in VERSIONS] == [True, False]


@pytest.mark.parametrize("near", VERSIONS)
@pytest.mark.parametrize("far", VERSIONS)
def test_what_one_seals_the_other_opens(ends: Ends, near: str, far: str) -> None:
    seal, open = records.ways(ends.near, near).seal, records.ways(ends.far, far).open
    mixed = [os.urandom(n) for n in (1_200, 1_200, 1_200, 3, 1, 1_300)]
    # The last two: as much as there is room for without asking, and more.
    for packets in ([b"x"], mixed, [b"y" * 1_300] * 20, [b"y" * 1_700] * 70):
        assert [open(one) for one in cut(seal(packets))] == packets


def test_several_records_in_one_datagram(both: tuple[Ways, Ways]) -> None:
    """Section 4.1.1: the first is opened, then the next, until there is none."""
    near, far = both
    assert far.open(near.seal([b"one", b"two", b"three"])) == b"one"
    assert [far.open_next(), far.open_next()] == [b"two", b"three"]
    with pytest.raises(SSL.WantReadError):
        far.open_next()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record: b"\x17",
        lambda record: record[:-1],
        lambda record: record[:-1] + bytes([record[-1] ^ 1]),
        lambda record: record[:1] + b"\x01\x01" + record[3:],
        lambda record: b"\x17" * 2_048,
    ],
)
def test_what_is_no_record_harms_none(both: tuple[Ways, Ways], spoil: Callable[[bytes], bytes]) -> None:
    """Section 4.1.2.7: invalid records are discarded, and the connection goes on."""
    near, far = both
    good, bad, other = cut(near.seal([b"a" * 99, b"b" * 99, b"c" * 99]))
    assert far.open(good) == b"a" * 99
    with pytest.raises(SSL.Error):
        far.open(spoil(bad))
    assert far.open(other) == b"c" * 99
    with pytest.raises(SSL.WantReadError):
        far.open(good)  # section 4.1.2.6: a replay
    assert far.open(bad) == b"b" * 99


def test_the_end_is_heard(ends: Ends, both: tuple[Ways, Ways]) -> None:
    """close_notify is told from what is no record; who said it seals no more."""
    near, far = both
    ends.near.shutdown()
    with pytest.raises(SSL.ZeroReturnError):
        far.open(ends.near.bio_read(2_048))
    with pytest.raises(SSL.Error):
        near.seal([b"more"])


@given(st.lists(st.sampled_from([1, 50, 1_200, 1_237, 4_000]), min_size=1, max_size=200))
@example([50] * 200)
@example([1_200] * 200)
def test_runs(sizes: list[int]) -> None:
    """All of one size but the last, which may be shorter; none too long; nothing lost or moved; few."""
    made = [b"\x17" + bytes(10) + size.to_bytes(2, "big") + os.urandom(size) for size in sizes]
    found = list(records.runs(b"".join(made)))
    assert b"".join(run for run, _ in found) == b"".join(made)
    assert cut(b"".join(made)) == made
    for run, step in found:
        assert HEADER < step <= len(run) <= max(step, segments.MOST_BYTES)
        assert len(run) <= step * segments.MOST
    for (run, step), (_, after) in pairwise(found):
        is_full = len(run) == step * segments.MOST or len(run) + after > segments.MOST_BYTES
        assert is_full or len(run) % step or after > step
