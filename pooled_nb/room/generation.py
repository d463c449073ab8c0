"""Which token next: prefill, then one lap a token, until something ends the answer (PROTOCOL section 7)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from pooled_nb.room.chain import Chain
from pooled_nb.room.core import Reason
from pooled_nb.room.ending import Limits
from pooled_nb.shard import Prompt, Sampling, Shard


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an answer. ``token`` is None where none was kept (the end token, a stop before the first).

    ``reason`` is set on the last step only; ``reused`` on the first.
    """

    token: int | None
    text: str
    reason: Reason | None = None
    reused: int = 0


async def generate(
    chain: Chain,
    shard: Shard,
    prompt: Prompt,
    sampling: Sampling,
    limits: Limits,
    stopped: Callable[[], bool],
    begun: Sequence[int] = (),
) -> AsyncIterator[Step]:
    """Generate an answer, step by step.

    Each token is drawn from the full model's logits with an RNG keyed by (seed, position), so that the
    stream does not depend on how the frames were cut. The end token is never run.

    Parameters
    ----------
    begun
        Tokens with which the prompt ends, of an answer that goes on. An answer that may go on holds back
        text that is no whole character yet, so that what comes later makes it whole.

    Raises
    ------
    LapFailed, WrongNumbers, ShardDied
    """
    ready = await chain.prefill(prompt, stopped)
    if ready is None:
        yield Step(None, "", "abort")
        return
    data, reused = ready
    pos, count, first = len(prompt.ids) - 1, len(begun), True
    while True:
        after = list(begun) if first else []
        drawn = await shard.sample(data, pos=pos, n=1, sampling=sampling, first=first, after=after)
        first = False
        token = None if drawn.end else drawn.tokens[0]
        count += token is not None
        reason = limits.after(count, end=drawn.end, stopped=stopped())
        text = drawn.text + (await shard.flush() if reason in ("stop", "ctx") else "")
        yield Step(token, text, reason, reused)
        if reason or token is None:
            return
        pos += 1
        data = await chain.decode(token, pos)
