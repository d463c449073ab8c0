"""``pooled-nb ask CODE TEXT``: one question as a guest. Standard output holds the answer alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import msgspec

from pooled_nb.errors import BadCode, BadQuestion, PooledError
from pooled_nb.mesh import codes
from pooled_nb.mesh.messages.chat import MAX_QUESTION
from pooled_nb.terminal.arguments import DRAWN

if TYPE_CHECKING:
    import argparse

    from pooled_nb.answer import Answer

THINKING: dict[str | None, bool | None] = {"on": True, "off": False, "auto": None, None: None}
_HOW = 'Write: pooled-nb ask CODE "TEXT", with - in place of the text to read it from standard input.'


class Wanted(NamedTuple):
    """Which room (None: that of POOLED_LINK, else it is asked for), and what is asked (``-``: to be read)."""

    code: str | None
    text: str


def ask(args: argparse.Namespace) -> int:
    """Join, ask, print, leave. 0; 1 where there is no whole answer; the caller says 130."""
    wanted = read(args.words, has_link=bool(os.environ.get("POOLED_LINK")))
    # Before the code is asked for, which may come from the same place.
    text = _from(sys.stdin) if wanted.text == "-" else wanted.text
    options = {
        "max_tokens": args.max_tokens,
        "seed": args.seed,
        "system": args.system,
        "style": args.style,
        "stop": args.stop,
        **{(name := each.replace("-", "_")): getattr(args, name) for each in DRAWN},
        "thinking": THINKING[args.thinking],
    }
    return _ask(
        args, wanted.code, text, {name: value for name, value in options.items() if value is not None}
    )


def read(words: Sequence[str], *, has_link: bool) -> Wanted:
    """Which of the words is the room, and which are the question.

    Parameters
    ----------
    has_link
        The room is known already (POOLED_LINK), so that one word alone is a question.

    Raises
    ------
    BadQuestion
        There is none.
    BadCode
        What stands in a code's place is none.
    """
    if not words or (len(words) == 1 and is_room(words[0]) and not has_link):
        raise BadQuestion("There is no question.", _HOW)
    head, rest = words[0], words[1:]
    if rest and is_room(head):
        return Wanted(head, " ".join(rest))
    if len(rest) == 1 and " " not in head and (rest[0] == "-" or " " in rest[0]):
        codes.parse(head)  # it stands where a code does: one that was mistyped is told as one
    return Wanted(None, " ".join(words))


def is_room(word: str) -> bool:
    """Whether a word is a code or a link."""
    try:
        codes.parse(word)
    except BadCode:
        return False
    return True


def _from(stream: TextIO | None) -> str:
    if stream is None:
        raise BadQuestion("There is no standard input to read the question from.", _HOW)
    if stream.isatty():
        end = "Ctrl-Z and Enter" if os.name == "nt" else "Ctrl-D"
        print(f"Type the question; {end} ends it.", file=sys.stderr, flush=True)
    try:
        # Far more than a room takes, so that what is too long is refused, and not cut; yet not without end.
        return stream.read(100 * MAX_QUESTION).strip("\r\n")
    except UnicodeDecodeError:
        raise BadQuestion("The question is no text.", "Save it as UTF-8.") from None


def _ask(args: argparse.Namespace, code: str | None, text: str, options: dict[str, Any]) -> int:
    from pooled_nb import api
    from pooled_nb.door_text import trust
    from pooled_nb.printed import print_answer
    from pooled_nb.room.core import AskOptions
    from pooled_nb.room.questions import check_question
    from pooled_nb.terminal.deeds import devices
    from pooled_nb.terminal.loading import wait
    from pooled_nb.terminal.screen import aside

    check_question(text, AskOptions(**options))  # before a room is bothered
    room = api.join(
        code,
        role="guest",
        name=args.name,
        signal=args.signal,
        lan=args.lan,
        stun=args.stun,
        relay_only=args.relay_only,
        transport=args.transport,
        wait=False,
    )
    answer: Answer | None = None
    try:
        with wait("joining the room") as view:
            room.result(view=view)
        status = room.status()
        aside(trust(status.trust, status.digits))
        answer = room.stream(text, **options)
        with wait("asking", lambda: devices(room)) as view:
            if args.json:
                answer.result(view=view, on_text=lambda piece: None)
            else:
                print_answer(answer, view, say=aside)
    except (PooledError, KeyboardInterrupt) as error:
        if args.json:
            print(as_json(room.code, text, answer, error))
        raise
    finally:
        room.leave()
    if args.json:
        print(as_json(room.code, text, answer))
    return 0 if answer.reason != "abort" else 1


def as_json(code: str, question: str, answer: Answer | None, error: BaseException | None = None) -> str:
    """One object: what came, and why there is no more."""
    stats = None if answer is None else answer.stats
    return msgspec.json.encode(
        {
            "room": code,
            "question": question,
            "text": answer.text if answer is not None else "",
            "tokens": answer.tokens if answer is not None else None,
            "stats": None if stats is None else {**msgspec.to_builtins(stats), "tps": round(stats.tps, 3)},
            "reason": _reason(answer, error),
            "error": str(error) if isinstance(error, PooledError) else "",
        }
    ).decode()


def _reason(answer: Answer | None, error: BaseException | None) -> str | None:
    if error is not None:
        return "error" if isinstance(error, PooledError) else "abort"
    return answer.reason if answer is not None else None
