"""This device's own questions to the host, matched with what comes back (PROTOCOL section 7)."""

from __future__ import annotations

import secrets
from typing import get_args

from pooled_nb.errors import PooledError
from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room.audience import ELSEWHERE
from pooled_nb.room.core import Done, Notice, Piece, Queued, Reason, Started, Stats
from pooled_nb.room.feed import Feed
from pooled_nb.room.telling import as_error
from pooled_nb.shard import Source

MAX_WHY = 2_000
"""Characters of a failure's words that are kept."""
SOURCES: tuple[Source, Source, Source] = ("", "draft", "lookup")
"""By ``d`` of ``ai-token``."""
REASONS: tuple[Reason, ...] = get_args(Reason)


class Asked:
    """Questions under way. A host that does not echo ``rid`` answers the oldest one."""

    def __init__(self) -> None:
        self._waiting: dict[str, Feed] = {}
        self._running: tuple[int, Feed] | None = None
        self._rid: str | None = None

    @property
    def answering(self) -> bool:
        """Whether one of them is being answered."""
        return self._running is not None

    @property
    def rid(self) -> str | None:
        """Of the one that is being answered; None: there is none."""
        return self._rid if self._running else None

    def add(self, feed: Feed) -> str:
        """A question was sent: its ``rid``."""
        rid = secrets.token_urlsafe(12)
        self._waiting[rid] = feed
        return rid

    def forget(self, feed: Feed) -> None:
        """Nobody reads this one any more."""
        self._waiting = {rid: f for rid, f in self._waiting.items() if f is not feed}
        if self._running and self._running[1] is feed:
            self._running = None

    def close(self, error: PooledError) -> None:
        """The room is over: every question ends with this."""
        feeds = [*self._waiting.values(), *([self._running[1]] if self._running else [])]
        for feed in feeds:
            feed.refuse(error)
        self._waiting, self._running = {}, None

    def read(self, message: Message, me: str) -> bool:
        """Take a message of the host; whether it was about a question of this device."""
        match message:
            case chat.Queued():
                feed = self._find(message.rid)
                if feed:
                    feed.put(Queued(message.pos))
                return feed is not None
            case chat.Busy():
                feed = self._find(message.rid)
                if feed:
                    self.forget(feed)
                    feed.refuse(as_error(message.code, message.why))
                return feed is not None
            case chat.GenStart() if message.asker == me:
                feed = self._find(message.rid)
                if feed:
                    self._rid = next(rid for rid, waiting in self._waiting.items() if waiting is feed)
                    self.forget(feed)
                    # One at a time: whatever ran is over, though nobody said so. Its reader must not wait.
                    self._put(Done("error", Stats(), "The host went on to another answer."))
                    self._running = message.mid, feed
                    feed.put(Started(message.mid))
                    if message.hidden:
                        feed.put(Notice(ELSEWHERE))
                return feed is not None
            case chat.Token() if self._is_mine(message.mid):
                self._put(Piece(message.text, SOURCES[message.d or 0]))
                return True
            case chat.GenDone() if self._is_mine(message.mid):
                self._put(_done(message))
                self._running = None
                return True
            case _:
                return False

    def _put(self, event: Piece | Done) -> None:
        if self._running:
            self._running[1].put(event)

    def _is_mine(self, mid: int | None) -> bool:
        return self._running is not None and mid in (None, self._running[0])

    def _find(self, rid: str | None) -> Feed | None:
        if rid is not None:
            return self._waiting.get(rid)
        return next(iter(self._waiting.values()), None)


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
