"""Whose word counts for which bytes (PROTOCOL section 6, ``nb-hash``)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pooled_nb.mesh.link import packed
from pooled_nb.mesh.messages import read, write
from pooled_nb.mesh.messages.weights import NbHash, NbHashes
from pooled_nb.room.weights import hashes
from pooled_nb.room.weights.hashes import AT_ONCE, Hashes, HostHashes, Span, Word, message_of

URL = "toy/model@1/model.safetensors"
OTHER = "toy/model@1/model-2.safetensors"
SIZES = {URL: 1_000_000, OTHER: 500}


def sha(n: int) -> str:
    return f"{n:064x}"


def span(n: int, url: str = URL) -> Span:
    return Span(url, n * 10, n * 10 + 10)


def words(table: Hashes) -> dict[Span, Word]:
    """All that it knows."""
    return dict(table._words)


def told(host: HostHashes) -> Hashes:
    """What a device knows that was told everything."""
    device = Hashes()
    for message in host.messages():
        device.heard(message)
    return device


def test_the_first_device_that_read_it_is_passed_on() -> None:
    """PROTOCOL section 6: "the first to do so is passed on", by whom it is."""
    host = HostHashes(SIZES)
    assert host.named("a", span(0), sha(1)) == "new"
    assert host.named("b", span(0), sha(1)) == "known"
    assert told(host).of(*span(0)) == Word(sha(1), "a")


def test_the_hosts_own_word_wins() -> None:
    """PROTOCOL section 6: what the host holds itself it vouches for; who named others is not believed."""
    host = HostHashes(SIZES)
    assert host.named("a", span(0), sha(1)) == "new"
    assert host.named("a", span(1), sha(2)) == "new"
    assert host.named("b", span(2), sha(3)) == "new"
    assert host.vouch(span(0), sha(9)) == "a"
    assert host.of(*span(0)) == Word(sha(9))
    assert host.named("b", span(0), sha(1)) == "wrong"
    device = told(host)
    for message in host.disbelieve("a"):
        device.heard(message)
    assert [device.of(*span(n)) for n in range(3)] == [Word(sha(9)), None, Word(sha(3), "b")]
    assert words(device) == words(host)
    assert host.named("a", span(5), sha(5)) == "ignored"
    assert host.vouch(span(2), sha(3)) == "", "the same word is nobody's fault"
    assert host.of(*span(2)) == Word(sha(3))


def test_of_two_devices_that_contradict_each_other_neither_is_believed() -> None:
    """PROTOCOL section 6: nobody knows which of them lies, until the host reads it itself."""
    host = HostHashes(SIZES)
    host.named("a", span(0), sha(1))
    device = told(host)
    assert host.named("b", span(0), sha(2)) == "disputed"
    device.heard(message_of(span(0), host.of(*span(0))))
    assert device.of(*span(0)) is None
    assert host.named("c", span(0), sha(2)) == "ignored"
    assert host.vouch(span(0), sha(2)) == ""
    assert host.of(*span(0)) == Word(sha(2))


@pytest.mark.parametrize(
    "wrong",
    [
        Span(URL, 5, 5),
        Span(URL, 9, 5),
        Span(URL, -1, 5),
        Span(URL, 0, 1_000_001),
        Span(OTHER, 0, 501),
        Span("toy/model@2/model.safetensors", 0, 10),
        Span("../x", 0, 10),
    ],
)
def test_only_ranges_of_the_rooms_files_are_named(wrong: Span) -> None:
    """PROTOCOL section 6, ``nb-hash``: beyond a file's end, of another file or of no file."""
    host = HostHashes(SIZES)
    assert host.named("a", wrong, sha(1)) == "ignored"
    assert len(host) == 0


def test_no_device_fills_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 3: all that comes from others is bounded, in one device's hands and in all."""
    monkeypatch.setattr(hashes, "MOST", 10)
    monkeypatch.setattr(hashes, "MOST_BY_ONE", 4)
    host = HostHashes(SIZES)
    for by in "abc":
        for n in range(8):
            host.named(by, span(100 * ord(by) + n), sha(n))
    by_whom = [word.by for word in words(host).values()]
    assert [by_whom.count(by) for by in "abc"] == [4, 4, 2]
    host.vouch(span(7), sha(7))
    assert len(host) == 10
    assert host.of(*span(7)) == Word(sha(7)), "the host's own word finds room"
    device = Hashes()
    device.heard(NbHashes(url=URL, all={f"{n}-{n}": sha(n) for n in range(30)}))
    assert len(device) == 10


def test_a_device_under_another_id() -> None:
    """PROTOCOL section 3: a device comes back under another id; its words are its own."""
    host = HostHashes(SIZES)
    host.named("a", span(0), sha(1))
    host.renamed("a", "a2")
    assert host.of(*span(0)) == Word(sha(1), "a2")
    host.disbelieve("a2")
    host.renamed("a2", "a3")
    assert host.named("a3", span(1), sha(1)) == "ignored"


def test_what_a_message_may_hold() -> None:
    """PROTOCOL section 2: a whole table goes in messages that every device reads, each of one file."""
    host = HostHashes(SIZES)
    for n in range(2 * AT_ONCE + 5):
        host.vouch(span(n), sha(n))
    host.vouch(span(0, OTHER), sha(1))
    messages = list(host.messages())
    assert len(messages) == 4
    assert all(len(packed(m)) < 40_000 and read(write(m)) == m for m in messages)
    assert words(told(host)) == words(host)


@pytest.mark.parametrize(
    "message",
    [
        NbHash(url="../../x", lo=0, hi=9, sha256=sha(1)),
        NbHash(url=URL, lo=9, hi=0, sha256=sha(1)),
        NbHashes(url=URL, all={"9-0": sha(1), "x": sha(1), "0-": sha(1), "-5": sha(2)}),
        NbHashes(url="x", all={"0-9": sha(1)}),
    ],
)
def test_what_says_nothing(message: NbHash | NbHashes) -> None:
    """PROTOCOL section 3: what is not of the form is ignored."""
    device = Hashes()
    device.heard(message)
    assert len(device) == 0


class Words(RuleBasedStateMachine):
    """A host's table, and that of a device which hears everything, against what must hold of both."""

    def __init__(self) -> None:
        super().__init__()
        self.host, self.device = HostHashes(SIZES), Hashes()
        self.own: dict[Span, str] = {}

    @rule(n=st.integers(0, 5), value=st.integers(0, 2))
    def vouches(self, n: int, value: int) -> None:
        """The host reads it."""
        liar = self.host.vouch(span(n), sha(value))
        self.own[span(n)] = sha(value)
        self.device.heard(message_of(span(n), self.host.of(*span(n))))
        if liar:
            self._disbelieve(liar)

    @rule(by=st.sampled_from("abc"), n=st.integers(0, 5), value=st.integers(0, 2))
    def names(self, by: str, n: int, value: int) -> None:
        """A device does."""
        before = self.host.of(*span(n))
        verdict = self.host.named(by, span(n), sha(value))
        if verdict == "new":
            assert before is None
            assert self.host.of(*span(n)) == Word(sha(value), by)
        elif verdict == "wrong":
            assert before is not None
            assert not before.by
            self._disbelieve(by)
        elif verdict == "known":
            assert before is not None
            assert before.sha256 == sha(value)
        self.device.heard(message_of(span(n), self.host.of(*span(n))))

    def _disbelieve(self, by: str) -> None:
        for message in self.host.disbelieve(by):
            self.device.heard(message)

    @invariant()
    def host_wins(self) -> None:
        """PROTOCOL section 6: what the host holds itself it vouches for, whatever others say."""
        for where, sha256 in self.own.items():
            assert self.host.of(*where) == Word(sha256)

    @invariant()
    def no_liar_counts(self) -> None:
        """Nothing stands that somebody named who named something wrong."""
        assert not any(word.by in self.host.liars for word in words(self.host).values())

    @invariant()
    def device_knows(self) -> None:
        """A device believes what the host does."""
        assert words(self.device) == words(self.host)


TestWords = Words.TestCase
TestWords.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
