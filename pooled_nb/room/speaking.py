"""One answer after another: prompt, tokens, what everyone hears of it, what is kept (PROTOCOL section 7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from pooled_nb.errors import BadQuestion, FrameRefused, PooledError, ShardDied, WrongArrived
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room import sentences
from pooled_nb.room.audience import Audience, so_far, stricter, view
from pooled_nb.room.chain import Chain
from pooled_nb.room.conversation import Conversation, Last
from pooled_nb.room.core import AnswerEvent, Done, Notice, Piece, Reason, Started, Visibility
from pooled_nb.room.ending import Limits, describe, refusal, words
from pooled_nb.room.generation import generate
from pooled_nb.room.ground import Ground
from pooled_nb.room.holding import Over, Tries, Wait
from pooled_nb.room.losses import AGAIN, LapFailed, LapLost
from pooled_nb.room.outbox import Outbox
from pooled_nb.room.pinning import system_end
from pooled_nb.room.planning import Plan
from pooled_nb.room.replays import Replay, Replays
from pooled_nb.room.running import Ready, Running, after, start_of
from pooled_nb.room.said import Said
from pooled_nb.shard import Prompt, Shard, Source

log = logging.getLogger(__name__)

GUESSED: dict[Source, int | None] = {"": None, "draft": 1, "lookup": 2}
"""``d`` of ``ai-token``: absent where nothing was guessed."""
GONE = "bad", "A new chat began, so the answer is gone. Ask a question."
BACK = "", "It was taken back before it began."
"""A question that its asker does not want any more."""


class Speaking:
    """Makes the answer that is planned, and keeps it in the conversation.

    Where laps are lost it waits, and goes on with the prompt and the tokens that are shown already, as if
    nothing had been: nothing shown changes (PROTOCOL section 8).

    Attributes
    ----------
    stop, forget
        See `halt`.
    plan
        The answer under way, or None.
    newest
        The number of the newest answer.
    tps
        Tokens per second of the last one; 0: not measured.
    tired
        Why the last one was given up, where it had waited as long as a wait may; else empty.
    """

    def __init__(
        self,
        *,
        me: str,
        name: str,
        shard: Callable[[], Shard],
        outbox: Outbox,
        clock: Clock,
        conversation: Conversation,
        ground: Ground,
        replays: Replays,
        on_change: Callable[[], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self.stop = self.forget = False
        self.plan: Plan | None = None
        self.newest = 0
        self.tps = 0.0
        self.tired = ""
        self._running: Running | None = None
        self._name = name
        self._me, self._shard, self._outbox = me, shard, outbox
        self._clock = clock
        self._ground, self._wait = ground, Wait(ground, clock, self._notice)
        self._conversation, self._replays = conversation, replays
        self._on_change, self._on_failed = on_change, on_failed

    @property
    def mid(self) -> int:
        """The number of the answer under way; 0 until it begins."""
        return self._running.start.mid if self._running else 0

    @property
    def replaced(self) -> Last | None:
        """The exchange that has given way to the answer under way; None: there is none."""
        return self.plan.replaces if self.plan and self._running and not self.forget else None

    @property
    def waits(self) -> str:
        """Why it waits, in a sentence; empty: it does not."""
        return self._wait.why

    def begin(self) -> None:
        """Another question is next."""
        self.stop = self.forget = False
        self.tired = ""

    def halt(self, *, forget: bool = False) -> None:
        """End it after the lap in flight, or now if it waits. ``forget``: it is of a chat that is over."""
        self.stop, self.forget = True, forget or self.forget
        self._ground.wake()

    def renamed(self, was: str, now: str) -> None:
        """A device came back under another id: an answer that it asked for is its own still."""
        if self.plan and self.plan.owner == was:
            self.plan.owner = now
        if self.replaced and self.replaced.owner == was:
            self.replaced.owner = now
        if running := self._running:
            if running.audience.owner == was:
                running.audience.owner = now
            if running.start.asker == was:
                running.start = msgspec.structs.replace(running.start, asker=now)

    def greet(self, device: str, rule: Visibility) -> list[Message]:
        """What a device that comes in now is told of the answer under way, by who may see answers now."""
        running = self._running
        if running is None or self.forget:
            return []
        owner = running.audience.owner
        to = view(device, owner, stricter(running.audience.mode, rule))
        if to == "mine" and running.start.asker != owner:
            to = "hidden"
        return so_far(running.start, running.said.text, None, to)

    async def answer(self, plan: Plan, ctx: int) -> tuple[str, str] | None:
        """Make one answer.

        Returns
        -------
        Code and words of ``ai-busy`` where it did not begin (`BACK`: nobody wants it), or had no end of its
        own; else None.
        """
        self.plan = plan
        tries = Tries()
        try:
            while True:
                times = self._ground.times
                ready = await self._prepare(plan, ctx)
                if isinstance(ready, tuple):
                    return ready
                if not isinstance(ready, str):
                    break
                over = await self._wait.whole(tries, ready, times, lambda: self.stop)
                self._on_change()
                if isinstance(over, Over):
                    return self._unsaid(plan, over)
            self.newest += 1
            await self._speak(plan, ready, ctx)
            return None
        except Exception as error:  # whatever it was: who asked does not wait for ever, and others are next
            log.exception("an answer could not be ended")
            return "degraded", f"{self._name} says: {_words(error)}"
        finally:
            self._running = None

    async def _prepare(self, plan: Plan, ctx: int) -> Ready | tuple[str, str] | str:
        """All that an answer begins with; or code and words where it cannot; or what it must wait for."""
        try:
            prompt = await self._shard().render(plan.prompt, thinking=plan.thinking, sampling=plan.how)
        except ShardDied as error:
            return self._died(error)
        except Exception as error:
            if not isinstance(error, PooledError):
                log.exception("a prompt could not be rendered")
            if isinstance(error, BadQuestion):
                return "bad", str(error)
            return "degraded", f"{self._name} says: {_words(error)}"
        if plan.begun is None and (why := refusal(len(prompt.ids), ctx)):
            return "ctx", why
        chain = self._ground.ready
        pin = await self._pin(plan, chain, prompt) if chain else 0
        if self._forgotten(plan):
            return GONE
        # Before an answer that is made anew takes another's place: there is something to make it on.
        return Ready(prompt, chain, pin) if chain and chain is self._ground.ready else "the room is not whole"

    def _unsaid(self, plan: Plan, over: Over) -> tuple[str, str]:
        """What becomes of a question that waited before it began."""
        if self._forgotten(plan):
            return GONE
        if over.reason == "abort":
            return BACK
        self.tired = over.why if over.long else ""
        return self._ground.gone or ("degraded", over.why)

    def _forgotten(self, plan: Plan) -> bool:
        """Whether the answer that is to go on, or to be made anew, is not there any more."""
        before = plan.begun or plan.replaces
        return before is not None and self._conversation.last is not before

    async def _pin(self, plan: Plan, chain: Chain, prompt: Prompt) -> int:
        return await system_end(self._shard(), plan.prompt, prompt) if chain.wants_pin(prompt) else 0

    async def _speak(self, plan: Plan, ready: Ready, ctx: int) -> None:
        prompt, chain, pin = ready.prompt, ready.chain, ready.pin
        before = plan.begun or plan.replaces
        begun = plan.begun.ids if plan.begun else []
        running = self._begin(plan, Said(self._clock.now(), len(prompt.ids)))
        said, tries = running.said, Tries()
        limits = Limits(len(prompt.ids) - len(begun), ctx, len(begun) + plan.length)
        if before and before.ids:  # the state after it will be another
            chain.kept.unsave()
        try:
            while True:
                times = self._ground.times
                try:
                    reason = await self._utter(plan, running, tries, chain, after(prompt, said), limits, pin)
                    break
                except LapLost as error:
                    lost = error.why
                except ShardDied as error:
                    lost = self._died(error)
                    chain.lose(lost)
                over = await self._wait.whole(tries, lost, times, lambda: self.stop)
                said.waited = tries.waited
                self._on_change()
                if isinstance(over, Over):
                    self.tired = over.why if over.long else ""
                    why = f"The answer stopped: {over.why}" if over.reason == "error" else ""
                    self._end(plan, running, over.reason, ctx, 0, why)
                    if why:
                        self._on_failed(why)
                    return
                chain, pin = over, await self._pin(plan, over, prompt)
        except LapFailed as error:  # its words name the device already
            self._fail(plan, running, chain, ctx, str(error))
        except asyncio.CancelledError:
            why = self._ground.gone[1] if self._ground.gone else "The answer stopped."
            self._end(plan, running, "error", ctx, len(chain.fed), why)
            raise
        except Exception as error:  # one answer fails with its words; the room lives
            if not isinstance(error, PooledError):
                log.exception("an answer failed")
            if isinstance(error, WrongArrived) and chain.last:  # by name, so that it can be mended
                said_so = f"{chain.last} sent NaN or infinity. Ask again, or deal without it."
            else:
                said_so = f"{self._name} says: {_words(error)}"
            self._fail(plan, running, chain, ctx, f"The answer stopped: {said_so}")
        else:
            if said.ids and not self.forget:
                chain.save()
            self._end(plan, running, reason, ctx, len(chain.fed))

    async def _utter(
        self,
        plan: Plan,
        running: Running,
        tries: Tries,
        chain: Chain,
        prompt: Prompt,
        limits: Limits,
        pin: int,
    ) -> Reason:
        """Generate from here on, as far as it goes, and show it."""
        said, mid = running.said, running.start.mid
        steps = generate(
            chain,
            self._shard(),
            prompt,
            plan.how,
            limits,
            stopped=lambda: self.stop,
            now=self._clock.now,
            begun=prompt.ids[limits.prompt :],
            pin=pin,
        )
        reason: Reason = "error"
        async for step in steps:
            tries.progress(len(step.tokens))
            said.take(step, self._clock.now())
            for text, source in step.pieces:
                if text:
                    running.audience.piece(chat.Token(text=text, d=GUESSED[source], mid=mid))
                    _put(plan, Piece(text, source))
            reason = step.reason or reason
        return reason

    def _begin(self, plan: Plan, said: Said) -> Running:
        """Tell everyone; an answer that is made anew goes from the screens first."""
        if last := plan.replaces:
            Audience(self._outbox, self._me, last.owner, last.mode).regen(last.mid)
            self._conversation.drop_last()
        start = start_of(plan, self.newest)
        audience = Audience(self._outbox, self._me, plan.owner, plan.mode)
        self._running = running = Running(start, audience, said)
        audience.start(start)
        _put(plan, Started(start.mid))
        self._on_change()
        return running

    def _fail(self, plan: Plan, running: Running, chain: Chain, ctx: int, why: str) -> None:
        """Something was wrong: it costs this answer, and what devices hold."""
        chain.fail(why)
        self._on_failed(why)
        self._end(plan, running, "error", ctx, len(chain.fed), why)

    def _end(self, plan: Plan, running: Running, reason: Reason, ctx: int, used: int, why: str = "") -> None:
        said = running.said
        stats = said.stats(self._clock.now())
        self.tps = stats.tps or self.tps
        tokens = len(said.ids) + (len(plan.begun.ids) if plan.begun else 0)
        note = words(reason, ctx, tokens, why)
        line = describe(stats, note, tokens, waited=said.waited)
        if not self.forget:
            last = running.last(plan, reason, line)
            (self._conversation.grown if plan.begun else self._conversation.answered)(last)
        done = running.done(reason, stats, line, chat.Used(used=0 if self.forget else used, max=ctx), why)
        self._running = None
        replay = Replay(running.start, said.text, done, plan.owner, plan.mode, gone=self.forget)
        self._replays.add(plan.entry.asker, plan.entry.rid, replay)
        running.audience.done(done)
        _put(plan, Done(reason, stats, note, list(said.ids)))
        self._on_change()

    def _died(self, error: ShardDied) -> str:
        """What happened to this device's shard, as part of a sentence."""
        return f"{self._name} says: {sentences.first(error.what)}"

    def _notice(self, sentence: str) -> None:
        """It waits, or goes on: its asker here hears why."""
        if self.plan:
            _put(self.plan, Notice(sentence))
        self._on_change()


def _words(error: Exception) -> str:
    """What happened, and what a person does next: a refused frame is sent anew with the next question."""
    if not isinstance(error, PooledError):
        return f"{str(error).rstrip('.') or type(error).__name__}. {AGAIN}"
    return f"{error.what} {AGAIN if isinstance(error, FrameRefused) else error.next_step or AGAIN}"


def _put(plan: Plan, event: AnswerEvent) -> None:
    if feed := plan.entry.question.feed:
        feed.put(event)
