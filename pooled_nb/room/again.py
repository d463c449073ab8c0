"""Whether the newest answer may be continued or made anew, and by whom (PROTOCOL section 7, ``ai-cmd``)."""

from __future__ import annotations

import msgspec

from pooled_nb.room.conversation import Last
from pooled_nb.room.core import Again, AskOptions

VERB: dict[Again, str] = {"continue": "continue", "regen": "make anew"}


def why_not(what: Again, last: Last | None, *, asker: str, host: bool, ctx: int) -> str | None:
    """Why this device may not have the newest answer continued or made anew, in words; None: it may."""
    if last is None:
        return f"There is no answer to {VERB[what]}. Ask a question first."
    if not host and asker != last.owner:
        return not_yours(what)
    return unfinished(last, ctx) if what == "continue" else None


def not_yours(what: Again) -> str:
    """Another device asked last."""
    return f"Only who asked last, or the host, can {VERB[what]} the answer. Ask a question of your own."


def unfinished(last: Last, ctx: int) -> str | None:
    """Why an answer has nothing to continue, in words; None: it may go on."""
    if last.reason == "stop":
        return "The answer is finished, so there is nothing to continue. Ask the next question."
    if last.reason == "error":
        return "The answer failed, so it cannot be continued. Make it anew, or ask again."
    if not last.ids:
        return "The answer was stopped before its first word. Make it anew, or ask again."
    if last.used >= ctx:
        return f"The context is full ({ctx} tokens), so the answer cannot go on. Begin a new chat."
    return None


def gone(what: Again) -> str:
    """The answer that was meant is not the newest any more, once its turn came."""
    done = "continued" if what == "continue" else "made anew"
    return f"That answer is not the newest any more, so it is not {done}. Ask its question again."


def possible(last: Last | None, *, asker: str, host: bool, ctx: int) -> list[Again]:
    """What makes sense now."""
    all_: tuple[Again, ...] = ("continue", "regen")
    return [what for what in all_ if why_not(what, last, asker=asker, host=host, ctx=ctx) is None]


def anew(before: AskOptions, given: AskOptions) -> AskOptions:
    """Options of an answer that is made anew: as its question was asked, but for what is given now.

    A style is numbers (it travels as such): a new one replaces those that were given.
    """
    changes = {name: value for name, value in msgspec.structs.asdict(given).items() if value is not None}
    changes.pop("fast")
    if given.style is not None:
        before = msgspec.structs.replace(before, temperature=None, top_k=None)
    return msgspec.structs.replace(before, **changes)
