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

    def read(self, message: Message) -> bool:
        """Take a message of the host; whether something shown changed."""
        match message:
            case chat.GenStart():
                self._begin(message)
            case chat.Token() if self._question and not self._question.hidden:
                self.text = (self.text + message.text)[:MAX_TEXT]
            case chat.GenDone():
                self._finish(message)
            case chat.Regen():
                if self._shows(message.mid):
                    self.items = self.items[:-1]
                    self._shown, self._keep_owner = False, True
            case chat.History():
                self.items = list(message.items)[-SHOWN:]
                self._shown, self._owner = bool(self.items), ""
            case chat.Reset():
                # The answer under way belongs to the old chat: its end adds nothing to the new one.
                self.items, self.text, self._question = [], "", None
                self._shown, self._keep_owner, self._owner = False, False, ""
            case _:
                return False
        return True

    def _shows(self, mid: int | None) -> bool:
        """Whether the last item is that answer; a host that names none means the newest."""
        return self._shown and mid in (None, self.items[-1].mid)

    def _begin(self, message: chat.GenStart) -> None:
        self._goes_on = message.cont and not message.hidden and self._shows(message.of)
        if message.cont and not self._goes_on:
            # Its beginning is not on this screen: the rest alone would look like the whole.
            message = msgspec.structs.replace(message, hidden=True)
        self._question, self.text = message, ""
        self.answering = message.name or "a question"
        if self._goes_on:
            self.text = self.items[-1].reply
        elif not self._keep_owner:
            self._owner = message.asker or ""
        self._keep_owner = False

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
