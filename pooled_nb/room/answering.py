"""The host's side of asking: take questions, answer one at a time, tell everyone (PROTOCOL section 7)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from pooled_nb.mesh.clock import SOON, Clock
from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room import again, chatmemory, telling
from pooled_nb.room.chain import Chain
from pooled_nb.room.conversation import Conversation
from pooled_nb.room.core import Again, ChatSettings
from pooled_nb.room.feed import Feed
from pooled_nb.room.ground import Ground
from pooled_nb.room.holding import NEXT, WAIT_S
from pooled_nb.room.meant import meant, why_not
from pooled_nb.room.memory import SavedChat, SavedQuestion, SavedRunning
from pooled_nb.room.outbox import Outbox
from pooled_nb.room.patience import Patience
from pooled_nb.room.planning import Question, plan
from pooled_nb.room.queue import AskQueue, Entry, Refusal
from pooled_nb.room.replays import NEW_CHAT, Replays
from pooled_nb.room.speaking import BACK, Speaking
from pooled_nb.room.style import draw_seed, seed_of
from pooled_nb.shard import Shard

IDLE_S = 5.0
"""Seconds that a failed answer gets to end by itself: longer than a lap of one token, mostly."""
CLOSE_S = 0.2
"""The same where the room closes: a kernel that ends has a second, and its goodbye comes after this."""


class Answering:
    """Owns the queue, the conversation and the one running answer.

    Its room says what there is to compute with: `online`, `hold` while a device may come back or the room
    deals anew (the running answer waits, and others queue), `offline` when there is nothing to wait for.
    ``why_not`` says then why nobody is answered, with its ``ai-busy`` code. ``settings`` count from the next
    answer on.

    Parameters
    ----------
    clock
        Time without what this device slept: nothing is late for that.
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
        self.why_not: tuple[str, str] = ("open", "The room has not started. The host starts it.")
        self.holding = False
        """The room is starting: questions wait for it."""
        self.turns_away: tuple[str, str] | None = None
        """Code and words for why new questions are not even taken; None: they are."""
        self._ground, self._replays = Ground(), Replays()
        self._clock = clock
        self._patience = Patience(clock, self._impatient)
        self._me, self._outbox, self._ctx, self._on_change = me, outbox, ctx, on_change
        self._speaking = Speaking(
            me=me,
            name=name,
            shard=shard,
            outbox=outbox,
            clock=clock,
            conversation=self.conversation,
            ground=self._ground,
            replays=self._replays,
            on_change=on_change,
            on_failed=on_failed,
        )
        self._task: asyncio.Task[None] | None = None
        self.expected: tuple[str, str, str] | None = None
        """Asker, ``rid`` and name of what ran when the process before died: asked again, it is first."""

    @property
    def chain(self) -> Chain | None:
        """The newest chain, also while it is suspended; None: there is none."""
        return self._ground.chain

    @property
    def epoch(self) -> int:
        """Where the epochs of the next chain go on."""
        return self._ground.chain.laps.epoch if self._ground.chain else self._ground.epoch

    @property
    def waits(self) -> str:
        """Why the running answer waits, in a sentence; empty: it does not, or none runs."""
        return (self._ground.held or self._speaking.waits) if self.queue.running else ""

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
        if self._knows(asker, rid):
            return
        # A device that asks again, perhaps a host that was started anew, gets the text it would have had.
        seed = draw_seed() if question.feed or rid is None else seed_of(rid)
        question = dataclasses.replace(question, mode=self.settings.visibility, seed=seed)
        if question.again:
            question = dataclasses.replace(question, of=self._meant(question.mid, asker))
        entry = Entry(asker, rid, question)
        if not question.again and not question.text.strip():
            self._refuse(entry, "bad", "The question is empty.")
            return
        if question.again and (why := self._why_not_again(question.again, question.of, asker)):
            self._refuse(entry, "bad", why)
            return
        closed = self.chain is None and not self.holding and not self._ground.held
        if no := self.turns_away or (self.why_not if closed else None):
            self._refuse(entry, *no)
            return
        first = self.expected is not None and (asker, rid) == self.expected[:2]
        place = self.queue.offer(entry, first=first)
        self.expected = None if first else self.expected
        if isinstance(place, Refusal):
            self._refuse(entry, place.code, place.why)
            return
        if not self._go():
            telling.place(self._outbox, entry, place)
        self._queue_changed()

    def _knows(self, asker: str, rid: str | None) -> bool:
        """Whether a question is one that this device asked before, and sends again since it came back.

        It hears where that stands. Of one that runs `greet` has told.
        """
        known = self.queue.find(lambda e: e.asker == asker and e.rid == rid) if rid is not None else None
        if known and (place := self.queue.place(known)):
            telling.place(self._outbox, known, place)
        elif known and self._speaking.forget:  # a new chat began, and nobody told it
            self._refuse(known, "gone", NEW_CHAT)
        told = [] if known else self._replays.find(asker, rid, self.settings.visibility)
        for message in told:
            self._outbox.send(asker, message)
        return known is not None or bool(told)

    def turn_away(self, asker: str, rid: str | None, question: Question, code: str, why: str) -> None:
        """Refuse a question for a reason of the room's."""
        self._refuse(Entry(asker, rid, question), code, why)

    def _meant(self, mid: int | None, asker: str) -> object:
        last, running = self.conversation.last, self.queue.running
        return meant(mid, asker, last=last, running=running, owner=self._owner, newest=self._speaking.mid)

    @property
    def _owner(self) -> str:
        """Whose answer is under way."""
        plan, running = self._speaking.plan, self.queue.running
        return plan.owner if plan else running.asker if running else ""

    def _why_not_again(self, what: Again, of: object, asker: str) -> str | None:
        return why_not(
            what,
            of,
            asker,
            host=asker == self._me,
            last=self.conversation.last,
            running=self.queue.running,
            owner=self._owner,
            ctx=self._ctx(),
        )

    def online(self, chain: Chain) -> None:
        """The room can answer, over this chain: what waits goes on, and those in the queue are next."""
        self.holding = False
        self._ground.stand(chain)
        self._watch()
        self._go()
        self._on_change()

    def hold(self, why: str) -> None:
        """Nothing can be computed for now, and ``why``, in a sentence: what runs waits, and others queue."""
        self._ground.hold(why)
        self._watch()
        self._on_change()

    def _go(self) -> bool:
        """Begin to answer, if it can and somebody waits."""
        idle = self.queue.running is None and (self._task is None or self._task.done())
        if self._ground.ready is None or not idle or not len(self.queue):
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
            self._speaking.halt()
            return
        taken = entry if rid or feed else self.queue.take_back(asker)
        if taken and ((rid or feed) is None or self.queue.remove(taken)):
            telling.taken_back(self._outbox, taken)
            self._queue_changed()

    def not_awaited(self) -> None:
        """A device does not respond: an answer that is stopped waits for no lap (section 8, Stop)."""
        if self.queue.running and self._speaking.stop and self.chain:
            self.chain.lose("it was stopped")

    def _named(self, asker: str, rid: str | None, feed: Feed | None) -> Entry[Question] | None:
        if feed:
            return self.queue.find(lambda e: e.question.feed is feed)
        return self.queue.find(lambda e: e.asker == asker and e.rid == rid)

    def left(self, asker: str) -> None:
        """A device left: its waiting questions go; a running answer goes on, the others see it."""
        if self.expected and self.expected[0] == asker:
            self.expected = None
        if self.queue.drop(asker):
            self._queue_changed()

    def renamed(self, was: str, now: str) -> None:
        """A device came back under another id: its questions and answers are its own still."""
        if was != now:
            for known in (self.queue, self._speaking, self.conversation, self._replays):
                known.renamed(was, now)
            if self.expected and self.expected[0] == was:
                self.expected = (now, *self.expected[1:])

    def greet(self, id: str) -> list[Message]:
        """What a device that comes in, or back, is told of the queue and of the answer under way."""
        waiting = chat.Queue(n=len(self.queue))
        return [waiting, *self._speaking.greet(id, self.settings.visibility)]

    def reset(self) -> None:
        """New chat: screens clear now, caches by the next frame."""
        if self.queue.running:
            self._speaking.halt(forget=True)
        self._replays.new_chat()
        self.conversation.clear()
        if self.chain and self.queue.running is None:
            self.chain.new_chat()
        self._outbox.broadcast(chat.Reset())
        self._on_change()

    async def close(self, why: str) -> None:
        """Nobody is answered any more."""
        self.offline("gone", why)
        await self.idle(CLOSE_S)

    async def idle(self, seconds: float = IDLE_S) -> None:
        """Wait until the answer that `offline` failed has ended, or the one that `hold` held rests.

        Then the shard is free. One that does not end is cancelled; one that is held is not: its last work
        in the shard comes before the load that follows.
        """
        task = self._task
        if task is None or task is asyncio.current_task():
            return
        until = self._clock.now() + seconds
        task.add_done_callback(lambda _: self._ground.wake())
        while not task.done() and (left := until - self._clock.now()) > SOON:
            if self._ground.held and self._speaking.waits:
                return
            await self._ground.changed(self._clock, left)
        if not task.done() and not self._ground.held:
            task.cancel()
            await asyncio.wait([task])

    def offline(self, code: str, why: str) -> None:
        """The room is not online any more: the running answer fails, those that wait are refused."""
        self.holding = False
        self.why_not = (code, why)
        self._ground.give_up(code, why)
        self._refuse_all(code, why)

    def _refuse_all(self, code: str, why: str) -> None:
        waiting = self.queue.clear()
        for entry in waiting:
            self._refuse(entry, code, why)
        if waiting:
            self._queue_changed()

    def _watch(self) -> None:
        """While the room waits and no answer does, the queue gives up as an answer would (section 8)."""
        held = bool(self._ground.held)
        self._patience.watch(waits=held and self.queue.running is None and len(self.queue) > 0)

    def _impatient(self) -> None:
        why = f"{self._ground.held.rstrip('.')}. It waited {WAIT_S / 60:.0f} min; {NEXT}"
        self._refuse_all("degraded", why)

    # -- answering ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while self._ground.ready and (entry := self.queue.begin()):
            self._speaking.begin()
            self._queue_changed()
            for number, waiting in enumerate(self.queue.waiting, 1):
                telling.place(self._outbox, waiting, number)
            try:
                refused = await self._answer(entry)
                if refused == BACK:
                    telling.taken_back(self._outbox, entry)
                elif refused:
                    self._refuse(entry, *refused)
            except asyncio.CancelledError:
                self._refuse(entry, *self.why_not)
                raise
            finally:
                self._speaking.plan = None
                if self._speaking.forget and self.chain:  # also where the answer had not begun yet
                    self.chain.new_chat()
                self.queue.end()
                if self._speaking.tired:
                    self._refuse_all("degraded", self._speaking.tired)
                self._queue_changed()

    async def _answer(self, entry: Entry[Question]) -> tuple[str, str] | None:
        """Answer one question: None, or code and words where it is not answered."""
        ctx = self._ctx()
        planned = plan(entry, self.conversation, self.settings, host=self._me, ctx=ctx)
        if isinstance(planned, str):
            return "bad", planned
        return await self._speaking.answer(planned, ctx)

    # -- memory ------------------------------------------------------------------------------------

    def chat(self, keeps: Callable[[str], str | None]) -> SavedChat:
        """What a restart of this host keeps of the conversation: see `chatmemory.saved`."""
        now = self._speaking
        return chatmemory.saved(
            self.conversation, now.newest, me=self._me, keeps=keeps, replaced=now.replaced
        )

    def recall(self, chat: SavedChat, owner_of: Callable[[str], str]) -> None:
        """Go on with the conversation of before a restart: see `chatmemory.recall`."""
        chatmemory.recall(chat, self.conversation, self._replays, me=self._me, owner_of=owner_of)
        self._speaking.newest = max(self._speaking.newest, chat.newest)
        self._on_change()

    def own_questions(self) -> list[SavedQuestion]:
        """Questions of this device's person without an answer, next first, with the seeds they were drawn."""
        return chatmemory.unanswered(self.queue.running, self.queue.waiting, me=self._me)

    def running(self, seat_of: Callable[[str], str | None]) -> SavedRunning | None:
        """Another device's question, whose answer is under way, or is expected again since a restart."""
        entry = self.queue.running
        now = (entry.asker, entry.rid, entry.question.name) if entry else self.expected
        if now is None or now[0] == self._me or not now[1]:
            return None
        seat = seat_of(now[0])
        return SavedRunning(seat=seat, rid=now[1], name=now[2]) if seat else None

    def _refuse(self, entry: Entry[Question], code: str, why: str) -> None:
        telling.refuse(self._outbox, entry, code, why)

    def _queue_changed(self) -> None:
        self._watch()
        self._outbox.broadcast(chat.Queue(n=len(self.queue)))
        self._on_change()
