"""The host's side of asking: take questions, answer one at a time, tell everyone (PROTOCOL section 7)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.messages import chat
from pooled_nb.room import again, telling
from pooled_nb.room.chain import Chain
from pooled_nb.room.conversation import Conversation
from pooled_nb.room.core import Again, ChatSettings
from pooled_nb.room.feed import Feed
from pooled_nb.room.outbox import Outbox
from pooled_nb.room.planning import Question, plan
from pooled_nb.room.queue import AskQueue, Entry, Refusal
from pooled_nb.room.speaking import Speaking
from pooled_nb.shard import Shard

IDLE_S = 5.0
"""Seconds that a failed answer gets to end by itself: longer than a lap of one token, mostly."""


class Answering:
    """Owns the queue, the conversation and the one running answer.

    ``chain`` is None while the room is not online; ``why_not`` then says why, with its ``ai-busy`` code.
    ``settings`` count from the next answer on.
    """

    def __init__(
        self,
        *,
        me: str,
        name: str,
        shard: Callable[[], Shard],
        outbox: Outbox,
        clock: Clock,
        ctx: Callable[[], int],
        on_change: Callable[[], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self.conversation = Conversation()
        self.settings = ChatSettings()
        self.queue: AskQueue[Question] = AskQueue()
        self.chain: Chain | None = None
        self.why_not: tuple[str, str] = ("open", "The room has not started. The host starts it.")
        self.holding = False
        """The room is starting: questions wait for it."""
        self._me, self._outbox, self._ctx, self._on_change = me, outbox, ctx, on_change
        self._speaking = Speaking(
            me=me,
            name=name,
            shard=shard,
            outbox=outbox,
            clock=clock,
            conversation=self.conversation,
            on_change=on_change,
            on_failed=on_failed,
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def answering(self) -> str:
        """Name of who is being answered, or nothing."""
        running, plan = self.queue.running, self._speaking.plan
        return plan.name if plan else running.question.name if running else ""

    @property
    def mine(self) -> bool:
        """Whether the running answer is one that this device asked for."""
        return self.queue.running is not None and self.queue.running.asker == self._me

    @property
    def used(self) -> int:
        """Tokens in the caches."""
        return len(self.chain.fed) if self.chain else 0

    @property
    def tps(self) -> float:
        """Tokens per second of the last answer; 0: not measured."""
        return self._speaking.tps

    def possible(self) -> list[Again]:
        """What the host's person may do with the newest answer now."""
        last = self.conversation.last
        return again.possible(last, asker=self._me, host=True, ctx=self._ctx())

    # -- asking ------------------------------------------------------------------------------------

    def offer(self, asker: str, rid: str | None, question: Question) -> None:
        """Take a question, or the wish to continue an answer or make it anew; or refuse it in words."""
        question = dataclasses.replace(question, mode=self.settings.visibility)
        if question.again:
            question = dataclasses.replace(question, of=self._meant(question.mid, asker))
        entry = Entry(asker, rid, question)
        if not question.again and not question.text.strip():
            self._refuse(entry, "bad", "The question is empty.")
            return
        if question.again and (why := self._why_not_again(question.again, question.of, asker)):
            self._refuse(entry, "bad", why)
            return
        if self.chain is None and not self.holding:
            self._refuse(entry, *self.why_not)
            return
        place = self.queue.offer(entry)
        if isinstance(place, Refusal):
            self._refuse(entry, place.code, place.why)
            return
        if not self._go():
            telling.place(self._outbox, entry, place)
        self._queue_changed()

    def turn_away(self, asker: str, rid: str | None, question: Question, code: str, why: str) -> None:
        """Refuse a question for a reason of the room's."""
        self._refuse(Entry(asker, rid, question), code, why)

    def _meant(self, mid: int | None, asker: str) -> object:
        """What brings about the answer that is meant, last or under way; None where it is neither.

        Without ``mid`` it is the asker's own that runs, else the one before it.
        """
        running, last = self.queue.running, self.conversation.last
        if last and mid == last.mid:
            return last.of
        if running and mid in (None, self._speaking.mid) and (mid or asker in (running.asker, self._owner)):
            return running
        return last.of if last and mid is None else None

    @property
    def _owner(self) -> str:
        """Whose answer is under way."""
        plan, running = self._speaking.plan, self.queue.running
        return plan.owner if plan else running.asker if running else ""

    def _why_not_again(self, what: Again, of: object, asker: str) -> str | None:
        """Why this device may not have that answer continued, or made anew; judged again at its turn."""
        last, host = self.conversation.last, asker == self._me
        if self.queue.running is None:
            no = again.why_not(what, last, asker=asker, host=host, ctx=self._ctx())
            return no or (None if last and last.of is of else again.gone(what))
        if not host and self._owner != asker:
            return again.not_yours(what)
        return None if of is self.queue.running else again.gone(what)

    def online(self, chain: Chain) -> None:
        """The room can answer: those that waited for the start are next."""
        self.chain, self.holding = chain, False
        self._go()

    def _go(self) -> bool:
        """Begin to answer, if it can and somebody waits."""
        idle = self.queue.running is None and (self._task is None or self._task.done())
        if self.chain is None or not idle or not len(self.queue):
            return False
        self._task = asyncio.create_task(self._run(), name="pooled-answering")
        return True

    def stop(
        self, asker: str, *, host: bool = False, rid: str | None = None, feed: Feed | None = None
    ) -> None:
        """End the asker's running answer after the lap in flight, or take back a waiting question.

        With ``rid`` or ``feed`` exactly that question; else the running one (the host may stop anybody's),
        else the asker's newest that waits (PROTOCOL section 7).
        """
        entry = self._named(asker, rid, feed) if rid or feed else self.queue.running
        if entry is None and (rid or feed):
            return
        if entry and entry is self.queue.running and (host or entry.asker == asker):
            self._speaking.stop = True
            return
        taken = entry if rid or feed else self.queue.take_back(asker)
        if taken and ((rid or feed) is None or self.queue.remove(taken)):
            telling.taken_back(self._outbox, taken)
            self._queue_changed()

    def _named(self, asker: str, rid: str | None, feed: Feed | None) -> Entry[Question] | None:
        if feed:
            return self.queue.find(lambda e: e.question.feed is feed)
        return self.queue.find(lambda e: e.asker == asker and e.rid == rid)

    def left(self, asker: str) -> None:
        """A device left: its waiting questions go; a running answer goes on, the others see it."""
        if self.queue.drop(asker):
            self._queue_changed()

    def reset(self) -> None:
        """New chat: screens clear now, caches by the next frame."""
        self._speaking.stop = self._speaking.forget = self.queue.running is not None
        self.conversation.clear()
        if self.chain and self.queue.running is None:
            self.chain.new_chat()
        self._outbox.broadcast(chat.Reset())
        self._on_change()

    async def close(self, why: str) -> None:
        """Nobody is answered any more."""
        self.offline("gone", why)
        await self.idle()

    async def idle(self) -> None:
        """Wait until the answer that `offline` failed has ended, so that the shard is free."""
        if self._task and self._task is not asyncio.current_task():
            _, late = await asyncio.wait([self._task], timeout=IDLE_S)
            for task in late:
                task.cancel()
            await asyncio.wait([self._task])

    def offline(self, code: str, why: str) -> None:
        """The room is not online any more: the running answer fails, those that wait are refused."""
        chain, self.chain = self.chain, None
        self.holding = False
        self.why_not = (code, why)
        if chain:
            chain.close(why)
        waiting = self.queue.clear()
        for entry in waiting:
            self._refuse(entry, code, why)
        if waiting:
            self._queue_changed()

    # -- answering ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while entry := self.queue.begin():
            self._speaking.stop = self._speaking.forget = False
            self._queue_changed()
            for number, waiting in enumerate(self.queue.waiting, 1):
                telling.place(self._outbox, waiting, number)
            try:
                if refused := await self._answer(entry):
                    self._refuse(entry, *refused)
            except asyncio.CancelledError:
                self._refuse(entry, *self.why_not)
                raise
            finally:
                self._speaking.plan = None
                if self._speaking.forget and self.chain:  # also where the answer had not begun yet
                    self.chain.new_chat()
                self.queue.end()
                self._queue_changed()

    async def _answer(self, entry: Entry[Question]) -> tuple[str, str] | None:
        """Answer one question: None, or code and words where it is not answered."""
        chain, ctx = self.chain, self._ctx()
        if chain is None:
            return self.why_not
        planned = plan(entry, self.conversation, self.settings, host=self._me, ctx=ctx)
        if isinstance(planned, str):
            return "bad", planned
        return await self._speaking.answer(planned, chain, ctx, lambda: self.why_not)

    def _refuse(self, entry: Entry[Question], code: str, why: str) -> None:
        telling.refuse(self._outbox, entry, code, why)

    def _queue_changed(self) -> None:
        self._outbox.broadcast(chat.Queue(n=len(self.queue)))
        self._on_change()
