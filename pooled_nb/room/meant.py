"""Which answer is to be continued or made anew, while another may run (PROTOCOL section 7, ``ai-cmd``)."""

from __future__ import annotations

from pooled_nb.room import again
from pooled_nb.room.conversation import Last
from pooled_nb.room.core import Again
from pooled_nb.room.planning import Question
from pooled_nb.room.queue import Entry


def meant(
    mid: int | None,
    asker: str,
    *,
    last: Last | None,
    running: Entry[Question] | None,
    owner: str,
    newest: int,
) -> object:
    """What brings about the answer that is meant, last or under way; None where it is neither.

    Without ``mid`` it is the asker's own that runs, else the one before it.

    Parameters
    ----------
    last
        The newest answer of the conversation.
    running, owner, newest
        The question that runs, whose answer is under way, and its number.
    """
    if last and mid == last.mid:
        return last.of
    if running and mid in (None, newest) and (mid or asker in (running.asker, owner)):
        return running
    return last.of if last and mid is None else None


def why_not(
    what: Again,
    of: object,
    asker: str,
    *,
    host: bool,
    last: Last | None,
    running: Entry[Question] | None,
    owner: str,
    ctx: int,
) -> str | None:
    """Why this device may not have that answer continued, or made anew; judged again at its turn.

    ``of`` as of `meant`, which takes the others, too.
    """
    if running is None:
        no = again.why_not(what, last, asker=asker, host=host, ctx=ctx)
        return no or (None if last and last.of is of else again.gone(what))
    if not host and owner != asker:
        return again.not_yours(what)
    return None if of is running else again.gone(what)
