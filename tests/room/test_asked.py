import asyncio

import pytest

from pooled_nb.errors import BadQuestion, NotReady, QueueFull, RoomClosed
from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room.asked import Asked
from pooled_nb.room.core import Done, Piece, Queued, Started
from pooled_nb.room.feed import Feed

ME = "me"


def drain(feed: Feed) -> list[object]:
    async def read() -> list[object]:
        return [event async for event in feed]

    return asyncio.run(read())


def add(asked: Asked, feed: Feed, text: str = "q") -> str:
    """A question that went out: its ``rid``."""
    rid, message = asked.add(feed, lambda rid: chat.Ask(text=text, rid=rid))
    assert message == chat.Ask(text=text, rid=rid)
    return rid


def hear(asked: Asked, *messages: Message) -> None:
    for m in messages:
        asked.read(m, ME)


def test_two_questions_hear_their_own() -> None:
    """PROTOCOL section 7: ``rid`` names a question among the device's own; ``mid`` its answer."""
    asked, first, second = Asked(), Feed(), Feed()
    one, two = add(asked, first), add(asked, second)
    hear(
        asked,
        chat.Queued(pos=2, rid=two),
        chat.GenStart(mid=7, asker=ME, rid=one),
        chat.Token(text="a", mid=7),
        chat.Token(text="of another", mid=6),
        chat.GenDone(mid=7, reason="stop", nb=chat.NbStats(tokens=1, ms=5.0)),
        chat.GenStart(mid=8, asker="somebody"),
        chat.Token(text="theirs", mid=8),
        chat.GenDone(mid=8),
        chat.GenStart(mid=9, asker=ME, rid=two),
        chat.GenDone(mid=9, failed="a device is gone", reason="error"),
    )
    assert [type(e) for e in drain(first)] == [Started, Piece, Done]
    events = drain(second)
    assert events[:2] == [Queued(2), Started(9)]
    assert isinstance(events[2], Done)
    assert (events[2].reason, events[2].why) == ("error", "a device is gone")


def test_a_host_that_begins_anew_ends_what_ran() -> None:
    """PROTOCOL section 7: "One generation at a time": nobody waits for an end that will not come."""
    asked, first, second = Asked(), Feed(), Feed()
    one, two = add(asked, first), add(asked, second)
    assert (asked.rid, asked.answering) == (two, False), "the newest that waits is what a stop takes back"
    hear(asked, chat.GenStart(mid=1, asker=ME, rid=one))
    assert asked.answering
    assert asked.rid == one
    hear(asked, chat.GenStart(mid=2, asker=ME, rid=two))
    assert asked.rid == two
    end = drain(first)[-1]
    assert isinstance(end, Done)
    assert (end.reason, end.why) == ("error", "The host went on to another answer.")
    hear(asked, chat.Token(text="x", mid=2), chat.GenDone(mid=2, failed="y" * 100_000))
    assert asked.rid is None
    events = drain(second)
    assert isinstance(events[-1], Done)
    assert len(events[-1].why) == 2_000, "everything from the network is bounded"


def test_a_host_that_echoes_no_rid_answers_the_oldest() -> None:
    """PROTOCOL section 7: public hosts name the asker only, and no ``mid`` on tokens."""
    asked, feed = Asked(), Feed()
    add(asked, feed)
    hear(
        asked,
        chat.Queued(pos=1),
        chat.GenStart(mid=1, asker=ME),
        chat.Token(text="x"),
        chat.GenDone(capped=True),
    )
    events = drain(feed)
    assert events[:3] == [Queued(1), Started(1), Piece("x")]
    assert isinstance(events[3], Done)
    assert events[3].reason == "max"


@pytest.mark.parametrize(
    ("code", "error"),
    [("queue", QueueFull), ("bad", BadQuestion), ("ctx", BadQuestion), ("loading", NotReady)],
)
def test_a_refusal_is_an_error_in_the_hosts_words(code: str, error: type[Exception]) -> None:
    """PROTOCOL section 7, ``ai-busy {why, code}``."""
    asked, feed = Asked(), Feed()
    rid = add(asked, feed)
    hear(asked, chat.Busy(code=code, why="Not now.", rid=rid))
    with pytest.raises(error, match="Not now"):
        drain(feed)


def test_the_end_of_the_room_ends_every_question() -> None:
    """PROTOCOL section 3: ``bye``: nobody waits for ever."""
    asked, running, waiting = Asked(), Feed(), Feed()
    rid = add(asked, running)
    add(asked, waiting)
    hear(asked, chat.GenStart(mid=1, asker=ME, rid=rid))
    asked.close(RoomClosed("The room is over.", "Join another."))
    for feed in (running, waiting):
        with pytest.raises(RoomClosed):
            drain(feed)
