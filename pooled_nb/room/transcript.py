"""What a device that is not the host knows of the chat: built from messages alone (PROTOCOL section 7)."""

from __future__ import annotations

from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room.conversation import SHOWN

MAX_TEXT = 1_000_000
"""Characters of one answer that are kept: a host that never ends one does not fill this device."""


class Transcript:
    """The last exchanges and the answer under way."""

    def __init__(self) -> None:
        self.items: list[chat.Exchange] = []
        self.answering = ""
        """Name of who is being answered, or nothing."""
        self.text = ""
        """The answer under way."""
        self.used = 0
        self._question: chat.GenStart | None = None

    def read(self, message: Message) -> bool:
        """Take a message of the host; whether something shown changed."""
        match message:
            case chat.GenStart():
                self._question, self.text = message, ""
                self.answering = message.name or "a question"
            case chat.Token() if self._question:
                self.text = (self.text + message.text)[:MAX_TEXT]
            case chat.GenDone():
                self._finish(message)
            case chat.History():
                self.items = list(message.items)[-SHOWN:]
            case chat.Reset():
                # The answer under way belongs to the old chat: its end adds nothing to the new one.
                self.items, self.text, self._question = [], "", None
            case _:
                return False
        return True

    def _finish(self, message: chat.GenDone) -> None:
        asked = self._question
        if asked and not asked.hidden and not message.hidden:
            item = chat.Exchange(
                name=asked.name, text=asked.text, reply=self.text, stats=message.stats, mid=asked.mid
            )
            self.items = [*self.items, item][-SHOWN:]
        self._question, self.answering, self.text = None, "", ""
        self.used = message.ctx.used or self.used
