"""Questions and commands at a terminal, and above the prompt what happens meanwhile."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pooled_nb.errors import PooledError
from pooled_nb.terminal import deeds, door
from pooled_nb.terminal.commands import (
    Ask,
    Door,
    Order,
    Say,
    Set,
    help_lines,
    once_more,
    read,
    settings_lines,
)
from pooled_nb.terminal.news import LOOK_S, News
from pooled_nb.terminal.screen import here, say

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from pooled_nb.room_view import Room


def converse(room: Room, news: News, max_tokens: int | None) -> None:
    """Read questions and commands until the person or the room ends it."""
    from prompt_toolkit import PromptSession

    session: PromptSession[str] = PromptSession()
    say("Type a question, or /help. Ctrl-C stops an answer, Ctrl-D leaves.")
    pressed = ""
    while not room.left:
        try:
            line = _line(room, news, session)
        except (EOFError, KeyboardInterrupt) as key:
            # Ctrl-C was meant for an answer that ended this very moment, perhaps; and Ctrl-D on the host
            # takes the room from the others. Neither is done by one key too many.
            name = "Ctrl-D" if isinstance(key, EOFError) else "Ctrl-C"
            if room.left or pressed == name or not (name == "Ctrl-C" or _takes_it_from_others(room, news)):
                return
            pressed = name
            say(once_more(name, room.role, news.others))
            continue
        pressed = ""
        try:
            if not _do(room, news, line, max_tokens):
                return
        except KeyboardInterrupt:
            continue  # that answer was stopped; the room goes on
        except PooledError as error:
            say(here(str(error)))


def _line(room: Room, news: News, session: PromptSession[str]) -> str:
    from prompt_toolkit.patch_stdout import patch_stdout

    with patch_stdout(), _news_meanwhile(room, news, session):
        return session.prompt("> ")


def _takes_it_from_others(room: Room, news: News) -> bool:
    return room.role == "host" and news.others > 0


def _do(room: Room, news: News, line: str, max_tokens: int | None) -> bool:
    """Do what the line says; False when the person leaves."""
    match read(line, room.role):
        case Ask(text):
            deeds.answer(room, lambda: room.stream(text, max_tokens=max_tokens))
        case Say(words):
            say(words)
        case Set(changes) if changes:
            room.set(**changes)
            say("\n".join(settings_lines(room.settings, room.role)))
        case Set(_):
            say("\n".join(settings_lines(room.settings, room.role)))
        case Door(what, rest):
            news.decided(door.do(room, what, rest))
        case Order("leave"):
            return False
        case Order("leave politely"):
            deeds.leave_politely(room)
            return False
        case Order(what):
            _order(room, news, what)
    return True


def _order(room: Room, news: News, what: str) -> None:
    match what:
        case "status":
            say(str(room.status()))
        case "start":
            deeds.start(room)
            news.repeat()
        case "redeal":
            deeds.redeal(room)
            news.repeat()
        case "stop":
            room.stop()
        case "new":
            room.reset()
            say("A new chat begins.")
        case "continue":
            deeds.answer(room, lambda: room.continue_(wait=False))
        case "again":
            deeds.answer(room, lambda: room.regenerate(wait=False))
        case "help":
            say("\n".join(help_lines(room.role)))


@contextlib.contextmanager
def _news_meanwhile(room: Room, news: News, session: PromptSession[Any]) -> Iterator[None]:
    """While the prompt waits, print above it what happens; a room that ends also ends the prompt."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            news.tell()
            if room.left and session.app.loop is not None:
                with contextlib.suppress(Exception):  # it ended by itself this very moment
                    session.app.loop.call_soon_threadsafe(lambda: session.app.exit(exception=EOFError))
                return

    thread = threading.Thread(target=look, name="pooled-news", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
