"""This device's own questions to the host, matched with what comes back (PROTOCOL section 7)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_args

from pooled_nb.errors import PooledError, QueueFull
from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room.audience import ELSEWHERE
from pooled_nb.room.core import Done, Notice, Piece, Queued, Reason, Started, Stats
from pooled_nb.room.feed import Feed
from pooled_nb.room.rereading import Reading
from pooled_nb.room.telling import as_error
from pooled_nb.shard import Source

MAX_WHY = 2_000
"""Characters of a failure's words that are kept."""
MAX_ASKED = 32
"""Questions under way: a host takes three of one device (PROTOCOL section 7)."""
MAX_STOPPED = 8
"""Questions taken back that are remembered: the host may not have heard of it."""
SOURCES: tuple[Source, Source, Source] = ("", "draft", "lookup")
"""By ``d`` of ``ai-token``."""
REASONS: tuple[Reason, ...] = get_args(Reason)

OTHERWISE = "The host came back and answers otherwise; ask again."
WENT_ON = "The host went on to another answer."
AWAY = "The host does not answer; this goes on when it is back."
BACK = "The host is back."
STOPPED_AWAY = "stopped here while the host was away"
BEFORE = "taken back before it began"


@dataclass(slots=True)
class _Question:
    """One question: what was sent, and how far its answer is."""

    feed: Feed
    message: Message
    mid: int | None = None
    """Of the answer under way; None: none is, as far as this device knows."""
    begun: bool = False
    """Its reader was told that the answer began."""
    told: int = 0
    """The ``mid`` that its reader knows: a host that was started anew makes the answer under another."""
    unsure: bool = False
    """The link broke since the host spoke of it: it may wait, run, be answered, or be forgotten there."""
    stopping: bool = False
    reading: Reading = field(default_factory=Reading)


class Asked:
    """Questions under way. A host that does not echo ``rid`` answers the oldest one.

    Over a new link each is asked again under the ``rid`` it had, and the host, which knows it by that, tells
    its answer again from the beginning: what was shown is compared, and only what is new reaches the reader.
    """

    def __init__(self) -> None:
        self._questions: dict[str, _Question] = {}
        self._newest: str | None = None
        """The one that tokens without a ``mid`` belong to."""
        self._stopped: list[str] = []
        self._says: list[Message] = []

    @property
    def answering(self) -> bool:
        """Whether one of them is being answered, or was when the link broke."""
        return any(q.begun for q in self._questions.values())

    @property
    def rid(self) -> str | None:
        """Of the one that is being answered; else of the newest that waits; None: there is none."""
        begun = [rid for rid, q in self._questions.items() if q.begun]
        return next(reversed(begun or list(self._questions)), None)

    def add(self, feed: Feed, say: Callable[[str], Message]) -> tuple[str, Message]:
        """A question for the host: its ``rid``, and the message that asks it.

        Raises
        ------
        QueueFull
            Too many are under way.
        """
        if len(self._questions) >= MAX_ASKED:
            raise QueueFull(
                f"{MAX_ASKED} questions of this device wait already.", "Wait for an answer first."
            )
        rid = secrets.token_urlsafe(12)
        message = say(rid)
        self._questions[rid] = _Question(feed, message)
        return rid, message

    def forget(self, rid: str) -> None:
        """It is over, or never went out."""
        self._questions.pop(rid, None)

    def take_back(self, rid: str) -> chat.Stop:
        """Nobody reads this one any more: what tells the host."""
        self.forget(rid)
        self._stopped = [*self._stopped, rid][-MAX_STOPPED:]
        return chat.Stop(rid=rid)

    def stop(self) -> chat.Stop:
        """The person stops the one that is answered, or takes back the newest that waits."""
        rid = self.rid
        if rid is not None:
            self._questions[rid].stopping = True
        return chat.Stop(rid=rid)

    def stop_here(self) -> None:
        """As `stop`, while the host cannot hear it."""
        rid = self.rid
        if rid is not None:
            question = self._questions[rid]
            why = STOPPED_AWAY if question.begun else BEFORE
            question.feed.put(Done("abort", Stats(), why))
            self.take_back(rid)

    def close(self, error: PooledError) -> None:
        """The room is over: every question ends with this."""
        for question in self._questions.values():
            question.feed.refuse(error)
        self._questions = {}

    # -- the link to the host ----------------------------------------------------------------------

    def away(self) -> None:
        """The link to the host broke: whatever it says next of an answer says which question it is of."""
        for question in self._questions.values():
            question.mid, question.unsure = None, True
            question.feed.put(Notice(AWAY))

    def back(self) -> list[Message]:
        """It stands again: what to say, in this order: what was stopped, then each question as it was."""
        said: list[Message] = [chat.Stop(rid=rid) for rid in self._stopped]
        for rid, question in self._questions.items():
            question.feed.put(Notice(BACK))
            said.append(question.message)
            if question.stopping:
                said.append(chat.Stop(rid=rid))
        return said

    def says(self) -> list[Message]:
        """What the host must hear after what was read."""
        said, self._says = self._says, []
        return said

    def tell(self, why: str) -> None:
        """Something about the answer under way, for its reader."""
        for question in self._questions.values():
            if question.begun:
                question.feed.put(Notice(why[:MAX_WHY]))

    def is_replay(self, message: Message) -> bool:
        """Whether the host tells an answer again that may have begun while the link was broken, or before."""
        if not isinstance(message, chat.GenStart) or message.rid is None:
            return False
        question = self._questions.get(message.rid)
        return question is not None and question.unsure

    # -- what the host says ------------------------------------------------------------------------

    def read(self, message: Message, me: str) -> bool:
        """Take a message of the host; whether it was about a question of this device."""
        match message:
            case chat.Queued():
                return self._queued(message)
            case chat.Busy():
                return self._busy(message)
            case chat.GenStart():
                return self._start(message, me)
            case chat.Token():
                return self._token(message)
            case chat.GenDone():
                return self._done(message)
            case _:
                return False

    def _queued(self, message: chat.Queued) -> bool:
        found = self._find(message.rid)
        if found is None:
            return False
        _, question = found
        question.unsure = False
        if question.begun:
            question.feed.put(Notice(f"The host makes this answer again; place {message.pos} in its queue."))
        else:
            question.feed.put(Queued(message.pos))
        return True

    def _busy(self, message: chat.Busy) -> bool:
        found = self._find(message.rid)
        if found is None:
            return False
        rid, question = found
        self.forget(rid)
        if question.begun:
            # Stopped here while a host that came back had not begun it again: that is what was wished for.
            question.feed.put(Done("abort" if question.stopping else "error", Stats(), message.why[:MAX_WHY]))
        else:
            question.feed.refuse(as_error(message.code, message.why))
        return True

    def _start(self, message: chat.GenStart, me: str) -> bool:
        if message.rid in self._stopped:
            # It crossed the stop, or that was lost with the link.
            self._says.append(chat.Stop(rid=message.rid))
            return False
        # Its own `rid` names it under whatever id this device came back.
        if message.rid is None and message.asker != me:
            return False
        found = self._find(message.rid)
        if found is None:
            return False
        rid, question = found
        if not question.unsure:
            self._went_on(but=rid)
        first = not question.begun
        if not first:
            question.reading.again()
        if first or question.told != message.mid:  # else its reader could never continue it
            question.feed.put(Started(message.mid))
        if first and message.hidden:
            question.feed.put(Notice(ELSEWHERE))
        question.begun, question.told = True, message.mid
        question.mid, question.unsure, self._newest = message.mid, False, rid
        return True

    def _went_on(self, *, but: str) -> None:
        """One at a time: whatever ran is over, though nobody said so. Its reader must not wait."""
        for rid, question in list(self._questions.items()):
            if question.mid is not None and rid != but:
                question.feed.put(Done("error", Stats(), WENT_ON))
                self.forget(rid)

    def _token(self, message: chat.Token) -> bool:
        found = self._running(message.mid)
        if found is None:
            return False
        rid, question = found
        new = question.reading.take(message.text)
        if new is None:
            self._differs(rid, question)
        elif new:
            question.feed.put(Piece(new, SOURCES[message.d or 0]))
        return True

    def _done(self, message: chat.GenDone) -> bool:
        found = self._running(message.mid)
        if found is None:
            return False
        rid, question = found
        done = _done(message)
        # Stopped or failed before it was told to where it had been: what is shown stays.
        if question.reading.lacks and not message.hidden and done.reason not in ("abort", "error"):
            done = Done("error", Stats(), OTHERWISE)
        question.feed.put(done)
        self.forget(rid)
        return True

    def _differs(self, rid: str, question: _Question) -> None:
        question.feed.put(Done("error", Stats(), OTHERWISE))
        self._says.append(self.take_back(rid))

    def _running(self, mid: int | None) -> tuple[str, _Question] | None:
        running = ((rid, q) for rid, q in self._questions.items() if q.mid is not None)
        return next(
            (pair for pair in running if pair[1].mid == mid or (mid is None and pair[0] == self._newest)),
            None,
        )

    def _find(self, rid: str | None) -> tuple[str, _Question] | None:
        if rid is not None:
            return (rid, self._questions[rid]) if rid in self._questions else None
        return next(((rid, q) for rid, q in self._questions.items() if not q.begun), None)


def stats_of(message: chat.GenDone) -> Stats:
    """What an answer took; nothing where the host does not say."""
    nb = message.nb
    if nb is None:
        return Stats()
    return Stats(
        tokens=nb.tokens,
        prompt=nb.prompt,
        reused=nb.reused,
        drafted=nb.drafted,
        accepted=nb.accepted,
        ms=nb.ms,
        first_ms=nb.first_ms,
    )


def reason_of(message: chat.GenDone) -> Reason:
    """Why an answer ended; of a host that does not say it, as far as its other fields tell."""
    plain: Reason = "error" if message.failed else "max" if message.capped else "stop"
    return next((reason for reason in REASONS if reason == message.reason), plain)


def _done(message: chat.GenDone) -> Done:
    why = message.failed[:MAX_WHY] if isinstance(message.failed, str) else ""
    return Done(reason_of(message), stats_of(message), why, hidden=message.hidden)
