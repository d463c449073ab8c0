"""What a device that is not the host knows of the chat: built from messages alone (PROTOCOL section 7)."""

from __future__ import annotations

import msgspec

from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room.asked import reason_of, stats_of
from pooled_nb.room.conversation import SHOWN
from pooled_nb.room.core import Again

MAX_TEXT = 1_000_000
"""Characters of one answer that are kept: a host that never ends one does not fill this device."""


class Transcript:
    """The last exchanges and the answer under way.

    Attributes
    ----------
    answering
        Name of who is being answered, or nothing.
    text
        The answer under way; of one that goes on, with what was there.
    tps
        Tokens per second of the last answer whose numbers this device was told; 0: of none.
    """

    def __init__(self) -> None:
        self.items: list[chat.Exchange] = []
        self.answering = ""
        self.text = ""
        self.used = 0
        self.tps = 0.0
        self._question: chat.GenStart | None = None
        self._owner = ""
        self._keep_owner = False
        self._shown = False
        """The newest exchange is the last item: it was no hidden one."""
        self._open = False
        """It may go on."""
        self._goes_on = False
        self._before: chat.GenStart | None = None
        """The answer that was under way when the link to the host broke."""
        self._aside: chat.GenStart | None = None
        """An answer that is told again while a newer one is on the screen; ``_heard`` is its text."""
        self._heard = ""

    @property
    def under_way(self) -> int:
        """``mid`` of the answer under way, shown or not; 0: there is none."""
        return self._question.mid if self._question else 0

    @property
    def newest(self) -> int:
        """``mid`` of the newest answer, under way or last, where it is shown; else 0."""
        if asked := self._question:
            return 0 if asked.hidden else asked.mid
        return (self.items[-1].mid or 0) if self._shown and self.items else 0

    def again(self, me: str) -> list[Again]:
        """What this device's person may do with the newest answer: nothing where it is another's."""
        if not self._shown or self._question or not me or self._owner != me:
            return []
        return ["continue", "regen"] if self._open else ["regen"]

    def back(self, was: str, now: str) -> None:
        """The link to the host broke and stands again; this device was ``was`` there, and is ``now``.

        What was under way may have ended meanwhile, and nobody would say so: if it has not, the host begins
        to tell it again.
        """
        self._before, self._question = self._question, None
        self.answering = self.text = ""
        self._goes_on, self._aside = False, None
        if was and self._owner == was:
            self._owner = now

    def read(self, message: Message, *, replay: bool = False) -> bool:
        """Take a message of the host; whether something shown changed.

        ``replay``: it begins an answer that this device asked for before the link to the host broke, and
        that may have begun, or be over, by now (`Asked.is_replay`).
        """
        match message:
            case chat.GenStart():
                return self._begin(message, replay=replay)
            case chat.Token() if self._aside and message.mid == self._aside.mid:
                self._heard = (self._heard + message.text)[:MAX_TEXT]
            case chat.Token() if self._question and not self._question.hidden:
                if message.mid not in (None, self._question.mid):
                    return False
                self.text = (self.text + message.text)[:MAX_TEXT]
            case chat.GenDone() if self._aside and message.mid == self._aside.mid:
                return self._finish_aside(self._aside, message)
            case chat.GenDone():
                if self._question and message.mid not in (None, self._question.mid):
                    return False
                self._finish(message)
            case chat.Regen():
                if self._shows(message.mid):
                    self.items = self.items[:-1]
                    self._shown, self._keep_owner = False, True
            case chat.History():
                self._take_history(message)
            case chat.Reset():
                # The answer under way belongs to the old chat: its end adds nothing to the new one.
                self.items, self.text, self._question, self._aside = [], "", None, None
                self._shown, self._keep_owner, self._owner = False, False, ""
            case _:
                return False
        return True

    def _shows(self, mid: int | None) -> bool:
        """Whether the last item is that answer; a host that names none means the newest."""
        return self._shown and mid in (None, self.items[-1].mid)

    def _take_history(self, message: chat.History) -> None:
        """What there was, for a newcomer; who comes back knows already whose the last one is."""
        before = self.items[-1].mid if self._shown and self.items else None
        self.items = list(message.items)[-SHOWN:]
        self._shown = bool(self.items)
        if before is None or not self.items or self.items[-1].mid != before:
            self._owner = ""

    def _begin(self, message: chat.GenStart, *, replay: bool) -> bool:
        mids = [item.mid for item in self.items if item.mid is not None]
        newest = max(mids, default=0)
        if self._is_over(message) or (replay and message.mid < max(newest, self.under_way)):
            # Told to its asker once more: it is on the screen, or belongs before what is.
            self._aside, self._heard = message, ""
            return False
        if mids and message.mid <= newest:  # the host counts anew: it began another chat
            self.items, self._shown = [], False
        before, self._before = self._before or self._question, None
        same = before is not None and before.mid == message.mid
        self._goes_on = message.cont and not message.hidden and self._shows(message.of)
        if message.cont and not self._goes_on:
            # Its beginning is not on this screen: the rest alone would look like the whole.
            message = msgspec.structs.replace(message, hidden=True)
        self._question, self.text = message, ""
        self.answering = message.name or "a question"
        if self._goes_on:
            self.text = self.items[-1].reply
        elif not (self._keep_owner or same):
            self._owner = message.asker or ""
        self._keep_owner = False
        return True

    def _is_over(self, message: chat.GenStart) -> bool:
        """Whether the screen shows that answer as one that has ended."""
        known = next((item for item in self.items if item.mid == message.mid), None)
        return known is not None and not message.hidden and message.text in (None, known.text)

    def _finish_aside(self, asked: chat.GenStart, message: chat.GenDone) -> bool:
        """An answer was told again to its end: it is shown where it belongs, unless it is shown already."""
        self._aside = None
        if asked.hidden or message.hidden or asked.cont or any(i.mid == asked.mid for i in self.items):
            return False
        item = chat.Exchange(
            name=asked.name or "",
            text=asked.text or "",
            reply=self._heard,
            stats=message.stats or "",
            mid=asked.mid,
        )
        later = [i for i in self.items if (i.mid or 0) > asked.mid]
        earlier = [i for i in self.items if (i.mid or 0) <= asked.mid]
        self.items = [*earlier, item, *later][-SHOWN:]
        return True

    def _finish(self, message: chat.GenDone) -> None:
        asked, self._question = self._question, None
        if asked and not asked.hidden and not message.hidden:
            before = self.items.pop() if self._goes_on else None
            item = chat.Exchange(
                name=asked.name or (before.name if before else ""),
                text=asked.text or (before.text if before else ""),
                reply=self.text,
                stats=message.stats or "",
                mid=asked.mid,
            )
            self.items = [*self.items, item][-SHOWN:]
            self._open = reason_of(message) in ("max", "abort") and bool(self.text)
            self._shown = True
        else:  # not seen here, or not from its start
            self._shown = False
        self.answering, self.text, self._goes_on = "", "", False
        self.used = message.ctx.used if message.ctx else self.used
        self.tps = stats_of(message).tps or self.tps
