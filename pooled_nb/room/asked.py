"""This device's own questions to the host, matched with what comes back (PROTOCOL section 7)."""

from __future__ import annotations

import secrets

from pooled_nb.errors import PooledError
from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room.answering import as_error
from pooled_nb.room.core import Done, Piece, Queued, Reason, Started, Stats
from pooled_nb.room.feed import Feed


class Asked:
    """Questions under way. A host that does not echo ``rid`` answers the oldest one."""

    def __init__(self) -> None:
        self._waiting: dict[str, Feed] = {}
        self._running: tuple[int, Feed] | None = None

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
                    self.forget(feed)
                    self._running = message.mid, feed
                    feed.put(Started(message.mid))
                return feed is not None
            case chat.Token() if self._is_mine(message.mid):
                self._put(Piece(message.text))
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


def _done(message: chat.GenDone) -> Done:
    nb = message.nb
    stats = Stats()
    if nb:
        stats = Stats(tokens=nb.tokens, prompt=nb.prompt, reused=nb.reused, ms=nb.ms, first_ms=nb.first_ms)
    reasons: dict[str, Reason] = {
        "stop": "stop",
        "max": "max",
        "ctx": "ctx",
        "abort": "abort",
        "error": "error",
    }
    plain: Reason = "error" if message.failed else "max" if message.capped else "stop"
    why = message.failed if isinstance(message.failed, str) else ""
    return Done(reasons.get(message.reason or "", plain), stats, why)
