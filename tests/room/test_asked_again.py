"""Questions over a link to the host that broke and stands again (PROTOCOL sections 3, 7 and 8)."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.errors import NotReady, QueueFull
from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room.asked import AWAY, BACK, MAX_ASKED, OTHERWISE, Asked
from pooled_nb.room.core import AnswerEvent, Done, Notice, Piece, Queued, Started
from pooled_nb.room.feed import Feed
from pooled_nb.room.rereading import MAX_TEXT, Reading
from pooled_nb.room.transcript import Transcript

ME = "me"


class Reader:
    """A question, and what its reader was told."""

    def __init__(self, asked: Asked, text: str = "q") -> None:
        self.feed = Feed()
        self.rid, self.message = asked.add(self.feed, lambda rid: chat.Ask(text=text, rid=rid))

    @property
    def events(self) -> list[AnswerEvent]:
        async def read() -> list[AnswerEvent]:
            if self.feed.over:
                return [event async for event in self.feed]
            queue = self.feed._queue
            return [
                event for _ in range(queue.qsize()) if not isinstance(event := queue.get_nowait(), Exception)
            ]

        return asyncio.run(read())


def text(events: list[AnswerEvent]) -> str:
    return "".join(e.text for e in events if isinstance(e, Piece))


def hear(asked: Asked, *messages: Message) -> list[Message]:
    """What the device says to all that."""
    said: list[Message] = []
    for m in messages:
        asked.read(m, ME)
        said += asked.says()
    return said


def cut(whole: str, rng: random.Random) -> list[str]:
    """In pieces of any size, also empty ones."""
    at = sorted(rng.randrange(len(whole) + 1) for _ in range(rng.randrange(6)))
    return [whole[i:j] for i, j in zip([0, *at], [*at, len(whole)], strict=True)]


@given(whole=st.text(max_size=40), extra=st.text(max_size=20), seed=st.integers(0, 999))
def test_an_answer_told_again_is_shown_once(whole: str, extra: str, seed: int) -> None:
    """PROTOCOL section 8: "Nothing shown changes": character by character, however its pieces are cut."""
    rng, reading = random.Random(seed), Reading()
    shown = "".join(reading.take(piece) or "" for piece in cut(whole, rng))
    for _ in range(rng.randrange(1, 4)):
        reading.again()
        assert reading.lacks == bool(shown)
        pieces = cut(whole + extra, rng)
        some = pieces[: rng.randrange(len(pieces) + 1)]
        for piece in some:  # the link may break once more before all of it was told
            shown += reading.take(piece) or ""
        assert reading.lacks == (len("".join(some)) < len(shown))
    reading.again()
    for piece in cut(whole + extra, rng):
        new = reading.take(piece)
        assert new is not None
        shown += new
    assert shown == whole + extra
    assert not reading.lacks


@given(whole=st.text(min_size=1, max_size=20), at=st.integers(0, 19), seed=st.integers(0, 99))
def test_another_answer_is_found_out_at_its_first_letter(whole: str, at: int, seed: int) -> None:
    """PROTOCOL section 8: whatever was shown stays, so that another text is no continuation of it."""
    at %= len(whole)
    other = whole[:at] + chr(ord(whole[at]) ^ 1) + whole[at + 1 :]
    reading = Reading()
    reading.take(whole)
    reading.again()
    told = 0
    for piece in cut(other, random.Random(seed)):
        new = reading.take(piece)
        told += len(piece)
        assert (new is None) == (told > at)
        if new is None:
            return
    raise AssertionError("nobody noticed")


def test_an_answer_without_an_end_is_bounded() -> None:
    """Everything from the network is bounded: beyond what is kept, lengths are compared."""
    reading = Reading()
    for _ in range(3):
        reading.take("x" * 400_000)
    reading.again()
    assert reading.take("x" * MAX_TEXT) == ""
    assert reading.take("y" * 199_999) == ""
    assert reading.take("yz") == "z"
    assert len(reading._whole) == MAX_TEXT


def test_every_question_is_asked_again_in_its_order() -> None:
    """PROTOCOL section 3: who comes back keeps its place; each is known by the ``rid`` that it had."""
    asked = Asked()
    one, two, three = (Reader(asked, t) for t in ("one", "two", "three"))
    hear(asked, chat.GenStart(mid=4, asker=ME, rid=one.rid), chat.Token(text="Be", mid=4))
    hear(asked, chat.Busy(code="queue", why="Too many.", rid=three.rid))
    asked.away()
    assert asked.answering
    assert asked.back() == [one.message, two.message]
    with pytest.raises(QueueFull):
        three.events  # noqa: B018  # it is over
    assert [e.text for e in two.events if isinstance(e, Notice)] == [AWAY, BACK]


def test_an_answer_may_have_begun_while_the_link_was_broken() -> None:
    """PROTOCOL section 7: it waited, and is told after a newer one that runs: that stays on the screen."""
    asked, screen = Asked(), Transcript()
    q = Reader(asked)
    hear(asked, chat.Queued(pos=2, rid=q.rid))
    asked.away()
    screen.back(ME, ME)
    asked.back()
    told: list[Message] = [chat.GenStart(mid=6, asker="other", text="?"), chat.Token(text="the", mid=6)]
    told += [chat.GenStart(mid=5, asker=ME, rid=q.rid, text="q"), chat.Token(text="mine", mid=5)]
    told += [chat.GenDone(mid=5, reason="stop"), chat.Token(text="irs", mid=6)]
    for message in told:
        replay = asked.is_replay(message)
        asked.read(message, ME)
        screen.read(message, replay=replay)
    assert (screen.under_way, screen.text) == (6, "theirs")
    assert [(i.mid, i.reply) for i in screen.items] == [(5, "mine")]
    assert text(q.events) == "mine"


def test_an_answer_that_ran_is_read_on() -> None:
    """PROTOCOL section 8: "Nothing shown changes": the host tells it from the beginning, in other pieces."""
    asked = Asked()
    q = Reader(asked)
    hear(asked, chat.GenStart(mid=4, asker=ME, rid=q.rid), chat.Token(text="Be", mid=4, d=1))
    asked.away()
    start = chat.GenStart(mid=4, asker="the id of now", rid=q.rid)
    assert asked.is_replay(start)
    hear(asked, start)
    assert not asked.is_replay(start)
    hear(asked, chat.Token(text="Beca", mid=4), chat.Token(text="use", mid=4, d=2))
    hear(asked, chat.GenDone(mid=4, reason="stop"))
    events = [e for e in q.events if not isinstance(e, Notice)]
    assert events[:4] == [Started(4), Piece("Be", "draft"), Piece("ca", ""), Piece("use", "lookup")]
    assert isinstance(events[4], Done)
    assert events[4].reason == "stop"
    assert len(events) == 5


def test_a_replayed_answer_does_not_end_the_one_that_runs() -> None:
    """PROTOCOL section 7: while away its first question was answered, and its second is being answered."""
    asked = Asked()
    one, two = Reader(asked), Reader(asked)
    hear(asked, chat.GenStart(mid=4, asker=ME, rid=one.rid), chat.Token(text="a", mid=4))
    asked.away()
    asked.back()
    hear(
        asked,
        chat.GenStart(mid=5, asker=ME, rid=two.rid),
        chat.Token(text="x", mid=5),
        chat.GenStart(mid=4, asker=ME, rid=one.rid),
        chat.Token(text="ab", mid=4),
        chat.GenDone(mid=4, reason="stop"),
        chat.Token(text="y", mid=5),
        chat.GenDone(mid=5, reason="stop"),
    )
    assert text(one.events) == "ab"
    assert text(two.events) == "xy"


def test_a_host_that_started_anew_answers_again() -> None:
    """PROTOCOL section 8, host resume: another ``mid``, from the queue; the same text is not shown twice."""
    asked = Asked()
    q, other = Reader(asked), Reader(asked)
    hear(asked, chat.GenStart(mid=1, asker=ME, rid=q.rid), chat.Token(text="Bec", mid=1))
    asked.away()
    asked.back()
    # Somebody else's answer has the number that this one had.
    hear(asked, chat.GenStart(mid=1, asker="another"), chat.Token(text="theirs", mid=1), chat.GenDone(mid=1))
    hear(asked, chat.Queued(pos=1, rid=q.rid), chat.Queued(pos=2, rid=other.rid))
    hear(asked, chat.GenStart(mid=2, asker=ME, rid=q.rid))
    hear(asked, *(chat.Token(text=t, mid=2) for t in "Because"), chat.GenDone(mid=2, reason="stop"))
    events = q.events
    assert text(events) == "Because"
    assert [e.mid for e in events if isinstance(e, Started)] == [1, 2], "else it could not be continued"
    assert any(isinstance(e, Notice) and "place 1" in e.text for e in events)
    assert Queued(2) in other.events


@pytest.mark.parametrize("told", ["B", "Bus", "Be"], ids=["shorter", "another", "shorter by the end"])
def test_a_host_that_answers_otherwise_is_not_believed(told: str) -> None:
    """PROTOCOL section 8: "Nothing shown changes": the answer ends with what to do, and the host is told."""
    asked = Asked()
    q = Reader(asked)
    hear(asked, chat.GenStart(mid=1, asker=ME, rid=q.rid), chat.Token(text="Bec", mid=1))
    asked.away()
    asked.back()
    hear(asked, chat.GenStart(mid=2, asker=ME, rid=q.rid))
    said = hear(asked, *(chat.Token(text=t, mid=2) for t in told), chat.GenDone(mid=2, reason="stop"))
    assert said == ([chat.Stop(rid=q.rid)] if told == "Bus" else [])
    end = q.events[-1]
    assert isinstance(end, Done)
    assert (end.reason, end.why) == ("error", OTHERWISE)
    assert not asked.answering


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_ends_before_it_was_told_whole_keeps_what_is_shown(reason: str) -> None:
    """PROTOCOL section 7: it was stopped, or failed, over there: that is no other answer."""
    asked = Asked()
    q = Reader(asked)
    hear(asked, chat.GenStart(mid=1, asker=ME, rid=q.rid), chat.Token(text="Bec", mid=1))
    asked.away()
    hear(asked, chat.GenStart(mid=2, asker=ME, rid=q.rid), chat.GenDone(mid=2, reason=reason, failed="so"))
    events = q.events
    assert text(events) == "Bec"
    assert isinstance(events[-1], Done)
    assert (events[-1].reason, events[-1].why) == (reason, "so")


def test_what_was_stopped_while_away_is_not_asked_again() -> None:
    """PROTOCOL section 7, ``ai-stop``: the running one, then the newest that waits; the host hears of it."""
    asked = Asked()
    one, two, three = (Reader(asked) for _ in range(3))
    hear(asked, chat.GenStart(mid=4, asker=ME, rid=one.rid), chat.Token(text="a", mid=4))
    asked.away()
    asked.stop_here()
    asked.stop_here()
    assert asked.back() == [chat.Stop(rid=one.rid), chat.Stop(rid=three.rid), two.message]
    for reader in (one, three):
        end = reader.events[-1]
        assert isinstance(end, Done)
        assert end.reason == "abort"
    # Its answer is under way over there, and is told to who comes back.
    said = hear(asked, chat.GenStart(mid=4, asker=ME, rid=one.rid), chat.Token(text="ab", mid=4))
    assert said == [chat.Stop(rid=one.rid)]


def test_a_stop_that_was_lost_with_the_link_is_said_again() -> None:
    """PROTOCOL section 7: it was sent, nobody heard it; the host may have, and then its end comes anyway."""
    asked = Asked()
    q = Reader(asked)
    hear(asked, chat.GenStart(mid=4, asker=ME, rid=q.rid), chat.Token(text="a", mid=4))
    assert asked.stop() == chat.Stop(rid=q.rid)
    asked.away()
    assert asked.back() == [q.message, chat.Stop(rid=q.rid)]


def test_what_nobody_reads_any_more_is_not_asked_again() -> None:
    """PROTOCOL section 7: a cell that was interrupted closed its answer, before the link broke or after."""
    asked = Asked()
    one, two = Reader(asked), Reader(asked)
    asked.take_back(one.rid)
    asked.away()
    asked.take_back(two.rid)
    assert asked.back() == [chat.Stop(rid=one.rid), chat.Stop(rid=two.rid)]
    for _ in range(100):
        asked.take_back(Reader(asked).rid)
    assert len(asked.back()) <= 8


def test_a_refusal_of_what_had_begun_ends_it_with_what_is_shown() -> None:
    """PROTOCOL section 7, ``ai-busy``: a host that came back may not take it, in words."""
    asked = Asked()
    begun, waiting = Reader(asked), Reader(asked)
    hear(asked, chat.GenStart(mid=4, asker=ME, rid=begun.rid), chat.Token(text="a", mid=4))
    asked.away()
    asked.back()
    hear(asked, *(chat.Busy(code="degraded", why="Not now.", rid=r.rid) for r in (begun, waiting)))
    end = begun.events[-1]
    assert isinstance(end, Done)
    assert (end.reason, end.why) == ("error", "Not now.")
    with pytest.raises(NotReady, match="Not now"):
        waiting.events  # noqa: B018  # it is refused
    assert asked.back() == []


def test_what_was_stopped_before_it_began_again_is_no_failure() -> None:
    """PROTOCOL section 7, ``ai-stop``: a host that came back had it in its queue, and takes it out."""
    asked = Asked()
    q = Reader(asked)
    hear(asked, chat.GenStart(mid=4, asker=ME, rid=q.rid), chat.Token(text="a", mid=4))
    asked.away()
    asked.back()
    hear(asked, chat.Queued(pos=1, rid=q.rid))
    assert asked.stop() == chat.Stop(rid=q.rid)
    hear(asked, chat.Busy(code="gone", why="The question was taken back.", rid=q.rid))
    events = q.events
    assert isinstance(events[-1], Done)
    assert (events[-1].reason, text(events)) == ("abort", "a")


def test_an_answer_told_again_keeps_its_number() -> None:
    """PROTOCOL section 7, ``mid``: its reader hears once that it began."""
    asked = Asked()
    q = Reader(asked)
    for _ in range(2):
        hear(asked, chat.GenStart(mid=4, asker=ME, rid=q.rid), chat.Token(text="a", mid=4))
        asked.away()
        asked.back()
    assert [e.mid for e in q.events if isinstance(e, Started)] == [4]


def test_questions_are_bounded() -> None:
    """Nothing that a program does fills this device: a host takes three of one device at once."""
    asked = Asked()
    readers = [Reader(asked) for _ in range(MAX_ASKED)]
    with pytest.raises(QueueFull):
        Reader(asked)
    asked.forget(readers[0].rid)
    Reader(asked)
