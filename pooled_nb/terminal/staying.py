"""``pooled-nb host`` and ``pooled-nb join``: open a room, show what happens in it, answer, stay."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from pooled_nb import api, show
from pooled_nb.errors import BadOption, PooledError
from pooled_nb.terminal.commands import goodbye
from pooled_nb.terminal.deeds import answer, start
from pooled_nb.terminal.invitefile import kept_link, told
from pooled_nb.terminal.loading import wait
from pooled_nb.terminal.news import LOOK_S, News
from pooled_nb.terminal.screen import aside, here, say

if TYPE_CHECKING:
    import argparse

    from pooled_nb.answer import Answer
    from pooled_nb.room_view import Room


NOBODY_HERE = "Nobody can answer here: resume the room in a terminal that a person looks at."
NOBODY_ANSWERS = "Nobody can answer here: use --no-ask, or hand on the invite link with --invite-file."


def host(args: argparse.Namespace) -> int:
    """Open a room, wait for the devices that were asked for, answer, stay."""
    if args.devices is not None and args.devices < 1:
        raise BadOption(f"A room of {args.devices} devices is none.", "Use --devices 1 or more.")
    _check(args)
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
        kv=args.kv,
        quant=args.quant,
        draft=args.draft,
        speculate=not args.no_speculate,
        ask=not args.no_ask,
        starts=args.starts,
        give=False if args.no_give else None,
        stun=args.stun,
        relay_only=args.relay_only,
        transport=args.transport,
        wait=False,
    )
    room.lobby_hint = "" if _has_prompt() else NOBODY_ANSWERS
    with opened(room) as news, kept_link(room, args.invite_file) as look:
        news.on_look = look
        say(show.how_to_join(room.status()))
        if args.invite_file is not None:
            say(told(args.invite_file))
        elif room.lobby_hint and not args.no_ask:
            aside(f"Whoever comes is asked about, and {NOBODY_ANSWERS[0].lower()}{NOBODY_ANSWERS[1:]}")
        if args.devices is not None:
            start(room, args.devices)
        return _stay(room, news, args)


def resume(args: argparse.Namespace) -> int:
    """Take a room back, answer what its process left, stay."""
    _check(args)
    room = api.resume(args.code, name=args.name, lend=args.lend, wait=False)
    room.lobby_hint = "" if _has_prompt() else NOBODY_HERE
    with opened(room) as news:
        say(show.how_to_join(room.status()))
        for left in room.asked_again:
            say(f"> {left.question}")
            try:
                answer(room, partial(_itself, left))
            except KeyboardInterrupt:
                continue  # that answer was stopped; a room that was taken back goes on
            except PooledError as error:
                aside(here(str(error)))
        return _stay(room, news, args)


def join(args: argparse.Namespace) -> int:
    """Join a room, ask or lend, stay."""
    _check(args)
    room = api.join(
        args.code,
        role=args.role,
        name=args.name,
        lend=args.lend,
        signal=args.signal,
        lan=args.lan,
        folder=args.folder,
        give=False if args.no_give else None,
        stun=args.stun,
        relay_only=args.relay_only,
        transport=args.transport,
        wait=False,
    )
    with opened(room) as news:
        return _stay(room, news, args)


def _itself(answer: Answer) -> Answer:
    return answer


def _has_prompt() -> bool:
    """Whether somebody at this terminal can answer who asks to join."""
    return sys.stdin is not None and sys.stdin.isatty()


def _check(args: argparse.Namespace) -> None:
    """What would be refused once the room is there is refused before it is opened."""
    from pooled_nb.room.core import AskOptions
    from pooled_nb.room.questions import check_options, check_question

    options = AskOptions() if args.max_tokens is None else AskOptions(max_tokens=args.max_tokens)
    if args.ask is None:
        check_options(options)
    else:
        check_question(args.ask, options)


@contextlib.contextmanager
def opened(room: Room) -> Iterator[News]:
    """Open it, and leave it at the end whatever happens."""
    try:
        with wait("entering the room") as view:
            room.result(view=view)
        news = News(room)
        news.answers = _has_prompt()
        yield news
    finally:
        room.leave()


def _stay(room: Room, news: News, args: argparse.Namespace) -> int:
    news.tell()
    if args.ask is not None:
        answer(room, lambda: room.stream(args.ask, max_tokens=args.max_tokens))
        return 0
    try:
        if _has_prompt():
            from pooled_nb.terminal.converse import converse

            converse(room, news, args.max_tokens)
        else:
            while not room.left:
                news.tell()
                time.sleep(LOOK_S)
    except KeyboardInterrupt:
        pass
    if room.left:
        news.tell()
    else:
        aside(goodbye(room.code, room.role, news.others))
    return 0
