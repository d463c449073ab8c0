"""A room in a terminal: what ``pooled-nb host`` and ``pooled-nb join`` do once the arguments are read."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pooled_nb import api, show
from pooled_nb.errors import BadOption, PooledError
from pooled_nb.plain import visible
from pooled_nb.printed import print_answer
from pooled_nb.progress import PlainWaiting, TerminalWaiting, Waiting
from pooled_nb.typed import refuse_secret

if TYPE_CHECKING:
    import argparse

    from pooled_nb.room_view import Room

LOOK_S = 0.25
"""How often the room is looked at for news."""


def host(args: argparse.Namespace) -> int:
    """Open a room, wait for the devices that were asked for, answer, stay."""
    if args.devices is not None and args.devices < 1:
        raise BadOption(f"A room of {args.devices} devices is none.", "Use --devices 1 or more.")
    room = api.host(
        args.model,
        code=args.code,
        name=args.name,
        lend=args.lend,
        split=args.split,
        ctx=args.ctx,
        exact=not args.fast,
        signal=args.signal,
        lan=args.lan,
        folder=args.folder,
        dtype=args.dtype,
        wait=False,
    )
    with _open(room) as news:
        print(show.how_to_join(room.status()), flush=True)
        if args.devices is not None:
            _start(room, args.devices)
        return _stay(room, news, args)


def join(args: argparse.Namespace) -> int:
    """Join a room, ask or lend, stay."""
    refuse_secret(args.code, "pooled-nb join")
    room = api.join(
        args.code,
        role=args.role,
        name=args.name,
        lend=args.lend,
        signal=args.signal,
        folder=args.folder,
        wait=False,
    )
    with _open(room) as news:
        return _stay(room, news, args)


@contextlib.contextmanager
def _open(room: Room) -> Iterator[News]:
    """Open it, and leave it at the end whatever happens."""
    try:
        with _wait("entering the room") as view:
            room.result(view=view)
        yield News(room)
    finally:
        room.leave()


def _stay(room: Room, news: News, args: argparse.Namespace) -> int:
    news.tell()
    if args.ask is not None:
        _answer(room, args.ask, args.max_tokens)
        return 0
    try:
        if sys.stdin is not None and sys.stdin.isatty():
            _converse(room, news, args.max_tokens)
        else:
            while not room.left:
                news.tell()
                time.sleep(LOOK_S)
    except KeyboardInterrupt:
        print("Leaving.", file=sys.stderr)
    else:
        news.tell()
    return 0


def _answer(room: Room, text: str, max_tokens: int | None) -> None:
    """Ask, stream to stdout; what it took goes to stderr."""
    with _wait("asking") as view:
        answer = room.stream(text, max_tokens=max_tokens)
        print_answer(answer, view, say=lambda line: print(line, file=sys.stderr, flush=True))


COMMANDS = "/status, /start, /reset, /leave, or a question"


def _converse(room: Room, news: News, max_tokens: int | None) -> None:
    """Read questions and a few commands until the person or the room ends it."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.patch_stdout import patch_stdout

    session: PromptSession[str] = PromptSession()
    print(f"Type {COMMANDS}. Ctrl-C stops an answer, Ctrl-D leaves.")
    pressed = False
    while not room.left:
        try:
            with patch_stdout(), _news_meanwhile(room, news, session):
                text = session.prompt("> ").strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            # Meant for an answer that ended this very moment, perhaps: a room is not lost by that.
            if pressed:
                return
            pressed = True
            print("Ctrl-C once more leaves.")
            continue
        pressed = False
        try:
            if text.startswith("/"):
                if not _command(room, text):
                    return
            elif text:
                _answer(room, text, max_tokens)
        except KeyboardInterrupt:
            continue  # that answer was stopped; the room goes on
        except PooledError as error:
            print(visible(str(error)))


def _command(room: Room, text: str) -> bool:
    match text:
        case "/status":
            print(room.status())
        case "/start":
            _start(room, None)
        case "/reset":
            room.reset()
        case "/leave":
            return False
        case _:
            print(f"There is no {text}. Type {COMMANDS}.")
    return True


@contextlib.contextmanager
def _news_meanwhile(room: Room, news: News, session: Any) -> Iterator[None]:
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


def _wait(words: str) -> Waiting:
    return TerminalWaiting(words) if sys.stderr.isatty() else PlainWaiting(words)


def _start(room: Room, devices: int | None) -> None:
    with _wait("dealing the layers") as view:

        def tick() -> None:
            view.report(*room.progress)
            view.tick()

        room.start(devices=devices, wait=False).result(tick=tick)


class News:
    """Says what has changed in a room since it was last asked to."""

    def __init__(self, room: Room, say: Callable[[str], None] | None = None) -> None:
        self._room = room
        self._say = say or (lambda line: print(visible(line), flush=True))
        self._sentence = ""
        self._names: dict[str, str] = {}
        self._notices: list[str] = []

    def tell(self) -> None:
        """Print it."""
        status = self._room.status()
        names = {device.id: device.name for device in status.devices if not device.me}
        if status.state != "closed":
            for gone in self._names.keys() - names.keys():
                self._say(f"- {self._names[gone]} left")
            for new in [id for id in names if id not in self._names]:
                self._say(f"+ {names[new]} is here")
            self._names = names
        notices = self._room.notices
        for notice in notices:
            if not any(notice is old for old in self._notices) and notice != status.sentence:
                self._say(notice)
        self._notices = notices
        if status.sentence != self._sentence:
            self._sentence = status.sentence
            self._say(status.sentence)
