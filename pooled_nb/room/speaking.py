"""One answer after another: prompt, tokens, what everyone hears of it, what is kept (PROTOCOL section 7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from pooled_nb.errors import BadQuestion, FrameRefused, PooledError
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.messages import chat
from pooled_nb.room.audience import Audience
from pooled_nb.room.chain import AGAIN, Chain, LapFailed
from pooled_nb.room.conversation import Conversation, Last
from pooled_nb.room.core import Done, Piece, Reason, Started, Stats
from pooled_nb.room.ending import Limits, describe, refusal, words
from pooled_nb.room.feed import Feed
from pooled_nb.room.generation import Step, generate
from pooled_nb.room.outbox import Outbox
from pooled_nb.room.pinning import system_end
from pooled_nb.room.planning import Plan
from pooled_nb.shard import Prompt, Shard, Source

log = logging.getLogger(__name__)

GUESSED: dict[Source, int | None] = {"": None, "draft": 1, "lookup": 2}
"""``d`` of ``ai-token``: absent where nothing was guessed."""


@dataclass(slots=True)
class Said:
    """What one answer brought so far; of one that goes on, only what is new."""

    began: float
    prompt: int
    ids: list[int] = field(default_factory=list)
    text: str = ""
    first_ms: float = 0.0
    reused: int = 0
    drafted: int = 0
    right: int = 0

    def take(self, step: Step, now: float) -> None:
        """What one lap brought."""
        self.first_ms = self.first_ms or (now - self.began) * 1e3
        self.reused = step.reused
        self.ids += step.tokens
        self.text += "".join(text for text, _ in step.pieces)
        self.drafted += step.drafted
        self.right += step.right

    def stats(self, now: float) -> Stats:
        """What it took, up to now."""
        return Stats(
            tokens=len(self.ids),
            prompt=self.prompt,
            reused=self.reused,
            drafted=self.drafted,
            accepted=self.right,
            ms=(now - self.began) * 1e3,
            first_ms=self.first_ms,
        )


class Speaking:
    """Makes the answer that is planned, and keeps it in the conversation.

    Attributes
    ----------
    stop
        End it after the lap in flight.
    forget
        A new chat began meanwhile: what is said is not kept.
    plan
        The answer under way, or None.
    mid
        The number of the answer under way; 0 until it begins.
    tps
        Tokens per second of the last one; 0: not measured.
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
        on_change: Callable[[], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self.stop = self.forget = False
        self.plan: Plan | None = None
        self.mid = 0
        self._newest = 0
        self.tps = 0.0
        self._name = name
        self._me, self._shard, self._outbox, self._clock = me, shard, outbox, clock
        self._conversation, self._on_change, self._on_failed = conversation, on_change, on_failed

    async def answer(
        self, plan: Plan, chain: Chain, ctx: int, gone: Callable[[], tuple[str, str]]
    ) -> tuple[str, str] | None:
        """Make one answer.

        Parameters
        ----------
        gone
            Code and words for why the room is not online any more, should that come meanwhile.

        Returns
        -------
        Code and words of ``ai-busy`` where it did not begin; else None.
        """
        self.plan, self.mid = plan, 0
        try:
            prompt = await self._shard().render(plan.prompt, thinking=plan.thinking, sampling=plan.how)
        except Exception as error:
            if not isinstance(error, PooledError):
                log.exception("a prompt could not be rendered")
            if isinstance(error, BadQuestion):
                return "bad", str(error)
            return "degraded", f"{self._name} says: {_words(error)}"
        if plan.begun is None and (why := refusal(len(prompt.ids), ctx)):
            return "ctx", why
        pin = await system_end(self._shard(), plan.prompt, prompt) if chain.wants_pin(prompt) else 0
        if (before := plan.begun or plan.replaces) and self._conversation.last is not before:
            return "bad", "A new chat began, so the answer is gone. Ask a question."
        if chain.closed:  # before an answer that is made anew takes another's place
            return gone()
        self._newest += 1
        self.mid = self._newest
        await self._speak(plan, chain, prompt, pin, ctx, gone)
        return None

    async def _speak(
        self,
        plan: Plan,
        chain: Chain,
        prompt: Prompt,
        pin: int,
        ctx: int,
        gone: Callable[[], tuple[str, str]],
    ) -> None:
        begun = plan.begun.ids if plan.begun else []
        said = Said(self._clock.now(), len(prompt.ids))
        audience = self._begin(plan)
        limits = Limits(len(prompt.ids) - len(begun), ctx, len(begun) + plan.length)
        why = ""
        reason: Reason = "error"
        if (before := plan.begun or plan.replaces) and before.ids:  # the state after it will be another
            chain.kept.unsave()
        steps = generate(
            chain,
            self._shard(),
            prompt,
            plan.how,
            limits,
            stopped=lambda: self.stop,
            now=self._clock.now,
            begun=begun,
            pin=pin,
        )
        try:
            async for step in steps:
                said.take(step, self._clock.now())
                for text, source in step.pieces:
                    if text:
                        audience.piece(chat.Token(text=text, d=GUESSED[source], mid=self.mid))
                        _put(plan, Piece(text, source))
                reason = step.reason or reason
        except LapFailed as error:  # its words name the device already
            why = str(error)
        except Exception as error:  # one answer fails with its words; the room lives
            if not isinstance(error, PooledError):
                log.exception("an answer failed")
            why = f"The answer stopped: {self._name} says: {_words(error)}"
        except asyncio.CancelledError:
            self._end(plan, audience, said, "error", ctx, len(chain.fed), gone()[1])
            raise
        if why:
            chain.fail(why)
            self._on_failed(why)
        elif said.ids and not self.forget:
            chain.save()
        self._end(plan, audience, said, "error" if why else reason, ctx, len(chain.fed), why)

    def _begin(self, plan: Plan) -> Audience:
        """Tell everyone; an answer that is made anew goes from the screens first."""
        if last := plan.replaces:
            Audience(self._outbox, self._me, last.owner, last.mode).regen(last.mid)
            self._conversation.drop_last()
        audience = Audience(self._outbox, self._me, plan.owner, plan.mode)
        audience.start(
            chat.GenStart(
                mid=self.mid,
                name=plan.name,
                text=plan.text,
                asker=plan.entry.asker,
                cont=plan.begun is not None,
                of=plan.begun.mid if plan.begun else None,
                rid=plan.entry.rid,
            )
        )
        _put(plan, Started(self.mid))
        self._on_change()
        return audience

    def _end(
        self, plan: Plan, audience: Audience, said: Said, reason: Reason, ctx: int, used: int, why: str
    ) -> None:
        begun = plan.begun
        stats = said.stats(self._clock.now())
        self.tps = stats.tps or self.tps
        ids = [*(begun.ids if begun else []), *said.ids]
        note = words(reason, ctx, len(ids), why)
        line = describe(stats, note, len(ids))
        if not self.forget:
            last = Last(
                of=plan.entry,
                owner=plan.owner,
                name=plan.name,
                text=plan.text,
                turns=plan.turns,
                options=plan.options,
                how=plan.how,
                thinking=plan.thinking,
                mode=plan.mode,
                mid=self.mid,
                reply=(begun.reply if begun else "") + said.text,
                ids=ids,
                reason=reason,
                used=said.prompt + len(said.ids),
                stats=line,
            )
            (self._conversation.grown if begun else self._conversation.answered)(last)
        audience.done(
            chat.GenDone(
                mid=self.mid,
                stats=line,
                reason=reason,
                ctx=chat.Used(used=0 if self.forget else used, max=ctx),
                failed=why or None,
                capped=reason == "max",
                nb=chat.NbStats(
                    tokens=stats.tokens,
                    prompt=stats.prompt,
                    reused=stats.reused,
                    drafted=stats.drafted,
                    accepted=stats.accepted,
                    ms=stats.ms,
                    first_ms=stats.first_ms,
                ),
            )
        )
        _put(plan, Done(reason, stats, note, list(said.ids)))
        self._on_change()


def _words(error: Exception) -> str:
    """What happened, and what a person does next: a refused frame is sent anew with the next question."""
    if not isinstance(error, PooledError):
        return f"{str(error).rstrip('.') or type(error).__name__}. {AGAIN}"
    return f"{error.what} {AGAIN if isinstance(error, FrameRefused) else error.next_step or AGAIN}"


def _put(plan: Plan, event: Started | Piece | Done) -> None:
    feed: Feed | None = plan.entry.question.feed
    if feed:
        feed.put(event)
