"""The answer under way: what it began with, and what is said and kept of it (PROTOCOL section 7)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from pooled_nb.mesh.messages import chat
from pooled_nb.room.audience import Audience
from pooled_nb.room.chain import Chain
from pooled_nb.room.conversation import Last
from pooled_nb.room.core import Reason, Stats
from pooled_nb.room.planning import Plan
from pooled_nb.room.said import Said
from pooled_nb.shard import Prompt


@dataclass(frozen=True, slots=True)
class Ready:
    """What an answer begins with. ``pin``: see `Chain.prefill`."""

    prompt: Prompt
    chain: Chain
    pin: int


@dataclass(slots=True)
class Running:
    """The answer under way, from its ``ai-genstart`` on."""

    start: chat.GenStart
    audience: Audience
    said: Said

    def last(self, plan: Plan, reason: Reason, line: str) -> Last:
        """The answer as the conversation keeps it, with what was there before it went on."""
        begun, said = plan.begun, self.said
        return Last(
            of=plan.entry,
            owner=plan.owner,
            name=plan.name,
            text=plan.text,
            turns=plan.turns,
            options=plan.options,
            how=plan.how,
            thinking=plan.thinking,
            mode=plan.mode,
            mid=self.start.mid,
            reply=(begun.reply if begun else "") + said.text,
            ids=[*(begun.ids if begun else []), *said.ids],
            reason=reason,
            used=said.prompt + len(said.ids),
            stats=line,
            rid=plan.entry.rid,
            before=len(begun.reply) if begun else 0,
        )

    def done(self, reason: Reason, stats: Stats, line: str, ctx: chat.Used, why: str) -> chat.GenDone:
        """What everybody hears at its end; ``why`` where it failed."""
        return chat.GenDone(
            mid=self.start.mid,
            stats=line,
            reason=reason,
            ctx=ctx,
            failed=why or None,
            capped=reason == "max",
            nb=chat.NbStats(**msgspec.structs.asdict(stats)),
        )


def start_of(plan: Plan, mid: int) -> chat.GenStart:
    """What everybody hears at its start."""
    return chat.GenStart(
        mid=mid,
        name=plan.name,
        text=plan.text,
        asker=plan.entry.asker,
        cont=plan.begun is not None,
        of=plan.begun.mid if plan.begun else None,
        rid=plan.entry.rid,
    )


def after(prompt: Prompt, said: Said) -> Prompt:
    """The prompt, and what was said: tokens of an answer run at ``width``, now as then.

    They are put there as they are, and the prompt is not made again: a template may write what time it is.
    """
    if not said.ids:
        return prompt
    return Prompt(ids=[*prompt.ids, *said.ids], generated=[*prompt.generated, *[True] * len(said.ids)])
