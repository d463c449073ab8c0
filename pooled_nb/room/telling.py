"""Words to those who ask: their place, or why they get no answer (PROTOCOL section 7, ``ai-busy``)."""

from __future__ import annotations

from pooled_nb.errors import BadQuestion, NotReady, PooledError, QueueFull
from pooled_nb.mesh.messages import chat
from pooled_nb.room.core import Done, Queued, Stats
from pooled_nb.room.outbox import Outbox
from pooled_nb.room.planning import Question
from pooled_nb.room.queue import Entry


def refuse(outbox: Outbox, entry: Entry[Question], code: str, why: str) -> None:
    """It is not answered."""
    if entry.question.feed:
        entry.question.feed.refuse(as_error(code, why))
    else:
        outbox.send(entry.asker, chat.Busy(why=why[:2_000], code=code, rid=entry.rid))


def taken_back(outbox: Outbox, entry: Entry[Question]) -> None:
    """It was taken back while it waited."""
    if entry.question.feed:
        entry.question.feed.put(Done("abort", Stats(), "taken back before it began", []))
    else:
        outbox.send(entry.asker, chat.Busy(code="gone", why="The question was taken back.", rid=entry.rid))


def place(outbox: Outbox, entry: Entry[Question], number: int) -> None:
    """Its place in the queue, from 1."""
    if entry.question.feed:
        entry.question.feed.put(Queued(number))
    else:
        outbox.send(entry.asker, chat.Queued(pos=number, rid=entry.rid))


def as_error(code: str, why: str) -> PooledError:
    """The error that an ``ai-busy`` means for the asker."""
    if code == "queue":
        return QueueFull(why)
    if code in ("bad", "ctx"):
        return BadQuestion(why)
    return NotReady(why)
