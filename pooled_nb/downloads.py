"""Asks the person at this cell or terminal whether this device may download what a load needs."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from pooled_nb._notebook import in_notebook
from pooled_nb.confirming import YES, can_ask
from pooled_nb.errors import NotReady
from pooled_nb.plain import visible
from pooled_nb.progress import Waiting
from pooled_nb.room.core import Status

NO = frozenset({"n", "no"})


class Asks(Protocol):
    """What this needs of a room."""

    def seen(self) -> Status | None:
        """As it was at the last change."""

    def allow_download(self, yes: bool) -> Any:
        """The answer."""


class Downloads:
    """Of one wait: each question is asked once, by the thread that waits."""

    def __init__(self, room: Asks) -> None:
        self._room = room
        self._asked: object = None

    def ask(self, view: Waiting) -> None:
        """Ask if something is asked, and somebody is here; an answer that is neither is no answer."""
        status = self._room.seen()
        ask = status.asks if status is not None else None
        if ask is None or ask == self._asked or not can_ask():
            self._asked = ask
            return
        self._asked = ask
        view.close()  # nothing may move over a question
        said = f"{visible(ask.text)} [y/n] "
        try:
            if in_notebook():
                typed = input(said)
            else:
                print(said, end="", file=sys.stderr, flush=True)
                typed = input()
        except (EOFError, NotImplementedError):
            return
        word = typed.strip().lower()
        if word in YES or word in NO:
            try:
                self._room.allow_download(word in YES)
            except NotReady as error:  # it was answered elsewhere, or too late
                print(visible(str(error)), file=sys.stderr, flush=True)
        else:
            self._asked = None
