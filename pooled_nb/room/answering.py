"""The host's side of asking: take questions, answer one at a time, tell everyone (PROTOCOL section 7)."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pooled_nb.errors import BadQuestion, NotReady, PooledError, QueueFull
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room.chain import Chain
from pooled_nb.room.conversation import Conversation
from pooled_nb.room.core import AskOptions, Done, Piece, Queued, Reason, Started, Stats
from pooled_nb.room.ending import DEFAULT_MAX_TOKENS, Limits, refusal, words
from pooled_nb.room.feed import Feed
from pooled_nb.room.generation import generate
from pooled_nb.room.queue import AskQueue, Entry, Refusal
from pooled_nb.shard import Prompt, Sampling, Shard

log = logging.getLogger(__name__)

IDLE_S = 5.0
"""Seconds that a failed answer gets to end by itself: longer than a lap of one token, mostly."""


class Outbox(Protocol):
    """What answering needs of the mesh."""

    def send(self, to: str, message: Message) -> bool:
        """To one device."""

    def broadcast(self, message: Message, *, but: str | None = None) -> None:
        """To all devices."""


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked, and by whom. ``feed`` is set when this device asks."""

    text: str
    name: str
    options: AskOptions
    feed: Feed | None = None


class Answering:
    """Owns the queue, the conversation and the one running answer.

    ``chain`` is None while the room is not online; ``why_not`` then says why, with its ``ai-busy`` code.
    """

    def __init__(
        self,
        *,
        shard: Callable[[], Shard],
        outbox: Outbox,
        clock: Clock,
        ctx: Callable[[], int],
        on_change: Callable[[], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self.conversation = Conversation()
        self.queue: AskQueue[Question] = AskQueue()
        self.chain: Chain | None = None
        self.why_not: tuple[str, str] = ("open", "The room has not started. The host starts it.")
        self._shard, self._outbox, self._clock, self._ctx = shard, outbox, clock, ctx
        self._on_change, self._on_failed = on_change, on_failed
        self.holding = False
        """The room is starting: questions wait for it."""
        self._mid = 0
        self._stop = False
        self._forget = False
        self._task: asyncio.Task[None] | None = None

    @property
    def answering(self) -> str:
        """Name of who is being answered, or nothing."""
        return self.queue.running.question.name if self.queue.running else ""

    @property
    def used(self) -> int:
        """Tokens in the caches."""
        return len(self.chain.fed) if self.chain else 0

    # -- asking ------------------------------------------------------------------------------------

    def offer(self, asker: str, rid: str | None, question: Question) -> None:
        """Take a question, or refuse it in words."""
        entry = Entry(asker, rid, question)
        if not question.text.strip():
            self._refuse(entry, "bad", "The question is empty.")
            return
        if self.chain is None and not self.holding:
            self._refuse(entry, *self.why_not)
            return
        place = self.queue.offer(entry)
        if isinstance(place, Refusal):
            self._refuse(entry, place.code, place.why)
            return
        if self._go():
            pass
        elif question.feed:
            question.feed.put(Queued(place))
        else:
            self._outbox.send(asker, chat.Queued(pos=place, rid=rid))
        self._queue_changed()

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
            self._stop = True
            return
        taken = entry if rid or feed else self.queue.take_back(asker)
        if taken and ((rid or feed) is None or self.queue.remove(taken)):
            self._taken_back(taken)
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
        self._stop = self._forget = self.queue.running is not None
        self.conversation.clear()
        if self.chain and self.queue.running is None:
            self.chain.fed.clear()
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
            self._stop = self._forget = False
            self._queue_changed()
            self._places()
            try:
                await self._answer(entry)
            except asyncio.CancelledError:
                self._refuse(entry, *self.why_not)
                raise
            finally:
                self.queue.end()
                self._queue_changed()

    async def _answer(self, entry: Entry[Question]) -> None:
        question, chain, ctx = entry.question, self.chain, self._ctx()
        if chain is None:
            self._refuse(entry, *self.why_not)
            return
        try:
            how = sampling(question.options)
            prompt = await self._shard().render(self.conversation.ask(question.text))
        except Exception as error:
            if not isinstance(error, PooledError):
                log.exception("a prompt could not be rendered")
            self._refuse(entry, "bad" if isinstance(error, BadQuestion) else "degraded", str(error))
            return
        if why := refusal(len(prompt.ids), ctx):
            self._refuse(entry, "ctx", why)
            return
        self._mid += 1
        mid = self._mid
        name, text, asker, rid = question.name, question.text, entry.asker, entry.rid
        self._outbox.broadcast(chat.GenStart(mid=mid, name=name, text=text, asker=asker, rid=rid))
        if question.feed:
            question.feed.put(Started(mid))
        self._on_change()
        await self._generate(entry, chain, prompt, how, mid, ctx)

    async def _generate(
        self, entry: Entry[Question], chain: Chain, prompt: Prompt, how: Sampling, mid: int, ctx: int
    ) -> None:
        options = entry.question.options
        limits = Limits(len(prompt.ids), ctx, options.max_tokens or DEFAULT_MAX_TOKENS)
        began = self._clock.now()
        ids: list[int] = []
        text, why, first_ms, reused = "", "", 0.0, 0
        reason: Reason = "error"
        steps = generate(chain, self._shard(), prompt, how, limits, lambda: self._stop)
        try:
            async for step in steps:
                first_ms = first_ms or (self._clock.now() - began) * 1e3
                reused = step.reused
                if step.token is not None:
                    ids.append(step.token)
                if step.text:
                    text += step.text
                    self._piece(entry, mid, step.text)
                reason = step.reason or reason
        except PooledError as error:
            why = str(error)
        except Exception as error:  # one answer fails with its words; the room lives
            log.exception("an answer failed")
            why = f"The answer failed: {error}"
        except asyncio.CancelledError:
            self._done(entry, mid, "error", Stats(), [], "", self.why_not[1])
            raise
        if why:
            reason = "error"
            chain.fail(why)
            self._on_failed(why)
        stats = Stats(
            tokens=len(ids),
            prompt=len(prompt.ids),
            reused=reused,
            ms=(self._clock.now() - began) * 1e3,
            first_ms=first_ms,
        )
        self._done(entry, mid, reason, stats, ids, text, why)

    def _piece(self, entry: Entry[Question], mid: int, text: str) -> None:
        self._outbox.broadcast(chat.Token(text=text, mid=mid))
        if entry.question.feed:
            entry.question.feed.put(Piece(text))

    def _done(
        self,
        entry: Entry[Question],
        mid: int,
        reason: Reason,
        stats: Stats,
        ids: list[int],
        text: str,
        why: str,
    ) -> None:
        question = entry.question
        line = describe(stats, words(reason, self._ctx(), stats.tokens, why))
        kept = ids if reason != "error" else []
        if not self._forget:  # a new chat began meanwhile
            self.conversation.answered(question.text, text, kept, name=question.name, mid=mid, stats=line)
        self._outbox.broadcast(
            chat.GenDone(
                mid=mid,
                stats=line,
                reason=reason,
                ctx=chat.Used(used=self.used, max=self._ctx()),
                failed=why or None,
                capped=reason == "max",
                nb=chat.NbStats(
                    tokens=stats.tokens,
                    prompt=stats.prompt,
                    reused=stats.reused,
                    ms=stats.ms,
                    first_ms=stats.first_ms,
                ),
            )
        )
        if question.feed:
            question.feed.put(Done(reason, stats, words(reason, self._ctx(), stats.tokens, why), list(ids)))
        self._on_change()

    # -- words to askers ---------------------------------------------------------------------------

    def _refuse(self, entry: Entry[Question], code: str, why: str) -> None:
        if entry.question.feed:
            entry.question.feed.refuse(as_error(code, why))
        else:
            self._outbox.send(entry.asker, chat.Busy(why=why, code=code, rid=entry.rid))

    def _taken_back(self, entry: Entry[Question]) -> None:
        if entry.question.feed:
            entry.question.feed.put(Done("abort", Stats(), "taken back before it began", []))
        else:
            self._outbox.send(
                entry.asker, chat.Busy(code="gone", why="The question was taken back.", rid=entry.rid)
            )

    def _places(self) -> None:
        for place, entry in enumerate(self.queue.waiting, 1):
            if entry.question.feed:
                entry.question.feed.put(Queued(place))
            else:
                self._outbox.send(entry.asker, chat.Queued(pos=place, rid=entry.rid))

    def _queue_changed(self) -> None:
        self._outbox.broadcast(chat.Queue(n=len(self.queue)))
        self._on_change()


def sampling(options: AskOptions) -> Sampling:
    """The sampler of one question: greedy without a temperature; a seed is drawn if none is given."""
    if not options.temperature:
        return Sampling()
    seed = options.seed if options.seed is not None else secrets.randbelow(2**31)
    return Sampling(
        temperature=options.temperature, top_k=options.top_k or 0, top_p=options.top_p or 1.0, seed=seed
    )


def as_error(code: str, why: str) -> PooledError:
    """The error that an ``ai-busy`` means for the asker."""
    if code == "queue":
        return QueueFull(why)
    if code in ("bad", "ctx"):
        return BadQuestion(why)
    return NotReady(why)


def describe(stats: Stats, note: str) -> str:
    """The line for people under an answer."""
    parts = [f"{stats.tokens} tokens"]
    if stats.tps:
        parts.append(f"{stats.tps:.1f} tokens/s")
    if stats.first_ms:
        parts.append(f"first after {stats.first_ms / 1e3:.1f} s")
    if note:
        parts.append(note)
    return " · ".join(parts)
