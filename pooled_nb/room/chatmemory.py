"""The conversation as a host keeps it for a restart, and back (PROTOCOL section 8, host resume).

What is kept is what everybody may see, and what this device's person asked: see `pooled_nb.room.memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from pooled_nb.mesh.messages import chat
from pooled_nb.room.conversation import Conversation, Item, Last
from pooled_nb.room.core import AskOptions
from pooled_nb.room.memory import MAX_ASKED, SavedChat, SavedExchange, SavedLast, SavedQuestion
from pooled_nb.room.planning import Question
from pooled_nb.room.queue import Entry
from pooled_nb.room.replays import Replay, Replays

NOBODY = "-"
"""The seat of who asked and has none any more. A pass has another id."""


def saved(
    conversation: Conversation,
    newest: int,
    *,
    me: str,
    keeps: Callable[[str], str | None],
    replaced: Last | None = None,
) -> SavedChat:
    """What is kept of a conversation.

    Parameters
    ----------
    newest
        The number of the newest answer.
    me
        This device's id: its person asked, and its seat is empty.
    keeps
        The seat of who asked, by id; empty: it has none; None: nothing of its is kept.
    replaced
        The answer to which one gave way that is not whole yet: a restart begins with it, and makes it anew.
    """
    if replaced:
        conversation = conversation.with_last(replaced)

    def seat_of(item: Item) -> str | None:
        if item.owner == me:
            return ""
        seat = keeps(item.owner) if item.mode == "all" else None
        return None if seat is None else seat or NOBODY

    seats = [(item, seat) for item in conversation.items if (seat := seat_of(item)) is not None]
    read = [seat_of(item) is not None for item in conversation.read]
    last = conversation.last
    shown = conversation.items[-1] if conversation.items else None
    # What it was asked with must be there in full: else what goes on would not be the same text.
    whole = last is not None and shown is not None and seat_of(shown) is not None and all(read)
    return SavedChat(
        exchanges=[
            SavedExchange(
                seat=seat,
                name=item.exchange.name,
                text=item.exchange.text,
                reply=item.exchange.reply,
                stats=item.exchange.stats,
                mid=item.exchange.mid or 0,
                mode=item.mode,
                rid=item.rid,
                reason=item.reason,
                before=item.before,
            )
            for item, seat in seats
        ],
        turns=[turn for i, kept in enumerate(read) if kept for turn in conversation.turns[2 * i : 2 * i + 2]],
        last=_saved_last(last) if last and whole else None,
        turns_of_last=conversation.turns_of_last if whole else 0,
        newest=newest,
    )


def _saved_last(last: Last) -> SavedLast:
    return SavedLast(
        turns=list(last.turns),
        options=last.options,
        how=last.how,
        thinking=last.thinking,
        ids=list(last.ids),
        used=last.used,
    )


def unanswered(
    running: Entry[Question] | None, waiting: Sequence[Entry[Question]], *, me: str
) -> list[SavedQuestion]:
    """This person's own questions of these, with the seeds that were drawn for them."""
    entries = [running, *waiting] if running else waiting
    mine = [e for e in entries if e.asker == me and e.question.again is None]
    return [
        SavedQuestion(text=e.question.text, options=_seeded(e.question), begun=e is running)
        for e in mine[:MAX_ASKED]
    ]


def _seeded(question: Question) -> AskOptions:
    if question.options.seed is not None:
        return question.options
    return msgspec.structs.replace(question.options, seed=question.seed)


def recall(
    chat_: SavedChat,
    conversation: Conversation,
    replays: Replays,
    *,
    me: str,
    owner_of: Callable[[str], str],
) -> None:
    """Bring back what was kept, into a conversation that has not begun.

    Parameters
    ----------
    owner_of
        The id under which a seat's device is known from now on; `Answering.renamed` says when it changes.
    """
    items = [_item(saved, me, owner_of) for saved in chat_.exchanges]
    turns = list(chat_.turns[: len(chat_.turns) // 2 * 2])
    conversation.items, conversation.turns = items, turns
    # Whose the turns are is not kept: all of them may be kept again, as those of this device's own.
    conversation.read = [Item(chat.Exchange(), me, "host") for _ in range(len(turns) // 2)]
    conversation.turns_of_last, conversation.last = 0, None
    if chat_.last and items:
        conversation.turns_of_last = min(chat_.turns_of_last // 2 * 2, len(turns))
        conversation.last = _last(chat_.last, items[-1])
        if conversation.turns_of_last:
            conversation.read[-1] = items[-1]
    for item in items:
        replays.add(item.owner, item.rid, _replay(item))


def _item(saved: SavedExchange, me: str, owner_of: Callable[[str], str]) -> Item:
    owner = me if not saved.seat else "" if saved.seat == NOBODY else owner_of(saved.seat)
    exchange = chat.Exchange(
        name=saved.name, text=saved.text, reply=saved.reply, stats=saved.stats[:2_000], mid=saved.mid
    )
    return Item(exchange, owner, saved.mode, saved.rid, saved.reason, saved.before)


def _last(saved: SavedLast, item: Item) -> Last:
    said = item.exchange
    return Last(
        of=object(),
        owner=item.owner,
        name=said.name,
        text=said.text,
        turns=list(saved.turns),
        options=saved.options,
        how=saved.how,
        thinking=saved.thinking,
        mode=item.mode,
        mid=said.mid or 0,
        reply=said.reply,
        ids=list(saved.ids),
        reason=item.reason,
        used=saved.used,
        stats=said.stats,
        rid=item.rid,
        before=item.before,
    )


def _replay(item: Item) -> Replay:
    said = item.exchange
    start = chat.GenStart(
        mid=said.mid or 0,
        name=said.name,
        text=said.text,
        asker=item.owner,
        cont=item.before > 0,
        rid=item.rid,
    )
    done = chat.GenDone(
        mid=said.mid,
        stats=said.stats,
        reason=item.reason,
        failed=said.stats if item.reason == "error" else None,
        capped=item.reason == "max",
    )
    return Replay(start, said.reply[item.before :], done, item.owner, item.mode)
