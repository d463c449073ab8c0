"""Which token next: prefill, then lap after lap, until something ends the answer (PROTOCOL section 7)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from pooled_nb.room.chain import Chain
from pooled_nb.room.core import Reason
from pooled_nb.room.drafting import Drafting
from pooled_nb.room.ending import Limits
from pooled_nb.room.prefill import drafts_from
from pooled_nb.shard import Prompt, Sampled, Sampling, Shard, Source, Want


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an answer: what one lap brought.

    Attributes
    ----------
    tokens
        Those the answer keeps: none of an end token, or of a stop before the first.
    pieces
        Text they add, by where it was guessed.
    reason
        Set on the last step only.
    reused
        Tokens of the prompt that needed no run; the same on each step.
    drafted, right
        Drafts that the lap tried, and how many of them were right.
    """

    tokens: Sequence[int] = ()
    pieces: Sequence[tuple[str, Source]] = ()
    reason: Reason | None = None
    reused: int = 0
    drafted: int = 0
    right: int = 0


async def generate(
    chain: Chain,
    shard: Shard,
    prompt: Prompt,
    sampling: Sampling,
    limits: Limits,
    stopped: Callable[[], bool],
    now: Callable[[], float],
    begun: Sequence[int] = (),
    pin: int = 0,
) -> AsyncIterator[Step]:
    """Generate an answer, step by step.

    Each token is drawn from the full model's logits with an RNG keyed by (seed, position), and a draft
    counts only where it equals what was drawn: so the stream depends neither on how the frames were cut, nor
    on what was guessed. A lap never has more drafts than the answer may still get. The end token is never
    run, but as a draft that is taken back.

    Parameters
    ----------
    now
        Seconds; what laps took decides how far to guess ahead.
    begun
        Tokens with which the prompt ends, of an answer that goes on. An answer that may go on holds back
        text that is no whole character yet, so that what comes later makes it whole.
    pin
        See `Chain.prefill`.

    Raises
    ------
    LapFailed, WrongNumbers, ShardDied
    """
    ready = await chain.prefill(prompt, stopped, pin)
    if ready is None:
        yield Step(reason="abort")
        return
    data, reused = ready
    guess = Guess(chain.drafting)
    pos, count, first = len(prompt.ids) - 1, len(begun), True
    while True:
        began = now()
        drawn = await shard.sample(
            data,
            pos=pos,
            n=1 + len(guess.drafts),
            sampling=sampling,
            first=first,
            after=list(begun) if first else None,
            seen=prompt.ids if first else None,
            drafts=guess.drafts or None,
            # This one is drawn in any case, and after the drafts comes one more.
            want=guess.want(limits.left(count) - 2),
        )
        if guess.drafts:
            chain.take_back(len(drawn.tokens))
        right = guess.learn(drawn, now() - began)
        first = False
        tokens = drawn.tokens[:-1] if drawn.end else drawn.tokens
        count += len(tokens)
        reason = limits.after(count, end=drawn.end or drawn.stopped, stopped=stopped())
        pieces = guess.pieces(drawn, right)
        if reason in ("stop", "ctx") and not drawn.stopped:
            pieces.append((await shard.flush(), ""))
        yield Step(tokens, pieces, reason, reused, len(guess.drafts), right)
        if reason:
            return
        pos += len(drawn.tokens)
        guess.next(drawn, min(limits.left(count) - 1, drafts_from(pos)))
        began = now()
        if guess.drafts:
            data = await chain.verify([tokens[-1], *guess.drafts], pos)
        else:
            data = await chain.decode(tokens[-1], pos)
        guess.ran(now() - began)


class Guess:
    """The drafts of the lap under way, and what `Drafting` learns of it; without one there never are any."""

    def __init__(self, drafting: Drafting | None) -> None:
        self.drafts: list[int] = []
        self._source: Source = ""
        self._drafting = drafting
        self._asked = False
        if drafting:
            drafting.begin()

    def want(self, room: int) -> Want | None:
        """What the next frame may have of drafts."""
        want = self._drafting.want(room) if self._drafting else None
        self._asked = bool(want and want.draft)
        return want

    def next(self, drawn: Sampled, room: int) -> None:
        """Take the guesses that came with the tokens, as far as the frame has room for them."""
        self.drafts = drawn.drafts[: max(0, room)]
        self._source = drawn.source if self.drafts else ""

    def ran(self, seconds: float) -> None:
        """The frame came back."""
        if self._drafting:
            self._drafting.lap(1 + len(self.drafts), seconds)

    def learn(self, drawn: Sampled, seconds: float) -> int:
        """Tokens were drawn: how many drafts were right."""
        pairs = zip(self.drafts, drawn.tokens, strict=False)
        right = next((i for i, (draft, token) in enumerate(pairs) if draft != token), len(drawn.tokens))
        right = min(right, len(self.drafts))
        if self._drafting:
            guessed = len(drawn.drafts) if drawn.source == "draft" else 0
            asked = self._asked and drawn.source != "lookup"
            self._drafting.sampled(1 + len(self.drafts), seconds, guessed, asked=asked)
            self._drafting.tried(self._source, right, wrong=right < min(len(self.drafts), len(drawn.tokens)))
        return right

    def pieces(self, drawn: Sampled, right: int) -> list[tuple[str, Source]]:
        """The text of the drafts that were right, and of what was drawn after them."""
        texts = "".join(drawn.texts[:right]), "".join(drawn.texts[right:])
        return [piece for piece in zip(texts, (self._source, ""), strict=True) if piece[0]]
