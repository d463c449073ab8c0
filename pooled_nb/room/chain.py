"""One lap after another: the host's layers, then each worker's, and back (PROTOCOL sections 5, 7 and 8)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from pooled_nb.errors import FrameRefused, PooledError
from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.room.checkpoints import RECENT, Checkpoints
from pooled_nb.room.control import Riding
from pooled_nb.room.drafting import Drafting
from pooled_nb.room.laps import Lap, Laps, Verdict
from pooled_nb.room.prefill import IN_FLIGHT, Cut, Fed, cut
from pooled_nb.shard import Columns, Control, Prompt, Shard

ENCODING = {"float16": Encoding.F16, "bfloat16": Encoding.BF16, "float32": Encoding.F32}
"""The wire carries the activations' own dtype, so a split computes bit for bit what one device does."""

AGAIN = "Ask again."


class LapFailed(PooledError):
    """A lap did not come back. The caches of the chain no longer count; the next frame resets them."""


class Sender(Protocol):
    """What a chain needs of the mesh."""

    def send_frame(self, to: str, frame: Frame) -> bool:
        """Send one frame; False when there is no link."""


class Chain:
    """The host's end of the chain.

    Parameters
    ----------
    workers
        Ids after the host, in layer order. Empty: the host holds every layer.
    names
        Their names, for sentences.
    dim
        Numbers of one hidden state.
    rtt
        Round trip of the worst link now, seconds.
    keeps
        Every device of the chain applies checkpoint control (``ckpt`` of its ``ai-ready``).
    recent
        States after an answer that are kept then.
    drafting
        Decides how far to guess ahead; None: one token a lap.
    """

    def __init__(
        self,
        *,
        shard: Shard,
        sender: Sender,
        clock: Clock,
        workers: Sequence[str],
        names: Sequence[str],
        dtype: str,
        dim: int,
        width: int,
        cols: int,
        rtt: Callable[[], float],
        keeps: bool = False,
        recent: int = RECENT,
        drafting: Drafting | None = None,
    ) -> None:
        self.workers = tuple(workers)
        self.laps = Laps()
        self.fed = Fed()
        self.drafting = drafting
        self._riding = Riding()
        self.kept = Checkpoints(self._riding, recent, on=keeps)
        self.kept.lost()  # engines are fresh, and what a disk gave back is of another chain
        self._loaded = self._refused = False
        self._verified = 0, 0
        self._names = tuple(names)
        self._shard, self._sender, self._clock, self._rtt = shard, sender, clock, rtt
        self._enc, self._dim, self._width, self._cols = ENCODING[dtype], dim, width, cols
        self._waiting: deque[tuple[Lap, asyncio.Future[bytes], Timer]] = deque()
        self._failures = 0
        self._why = ""
        self._next = AGAIN
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nothing runs over it any more."""
        return self._closed

    async def prefill(
        self, prompt: Prompt, stopped: Callable[[], bool], pin: int = 0
    ) -> tuple[bytes, int] | None:
        """Run what follows the longest state that the devices hold, up to 6 frames in flight.

        That is `fed`, or a checkpoint, or nothing. A checkpoint that a device lost costs a second try from
        the start: nothing has been shown yet.

        Parameters
        ----------
        pin
            The state after that many tokens, a system prompt, is kept for the chats that come; 0: none is.

        Returns
        -------
        The last column's hidden state and how many tokens needed no run; None when ``stopped`` said so
        between two frames.

        Raises
        ------
        LapFailed
        """
        self._refused = False
        try:
            return await self._prefill(prompt, stopped, pin)
        except PooledError as error:
            refused = self._refused or isinstance(error, FrameRefused)
            if not (refused and self._loaded):
                raise
        return await self._prefill(prompt, stopped, pin)

    async def _prefill(
        self, prompt: Prompt, stopped: Callable[[], bool], pin: int
    ) -> tuple[bytes, int] | None:
        failures = self._check()
        self._loaded = False
        if stopped():
            return None
        control = self._start(prompt)
        start = len(self.fed)
        pin = pin if start < pin < len(prompt.ids) else 0
        frames = cut(prompt.generated, start, cols=self._cols, width=self._width, at=pin)
        flying: deque[tuple[Cut, asyncio.Future[bytes]]] = deque()
        data = b""
        try:
            for c in frames:
                if c.pos > start and stopped():
                    break
                if len(flying) >= IN_FLIGHT:
                    data = await self._land(flying, prompt)
                self._check(failures)
                if 0 < c.pos == pin:
                    self.kept.pin(prompt.ids[:pin], prompt.generated[:pin])
                if c.pos > start:
                    control = self._next_control()
                control = msgspec.structs.replace(control, spec=not c.wide)
                tokens = prompt.ids[c.pos : c.pos + c.n]
                flying.append((c, await self._send(c, Kind.HIDDEN_B, tokens, control, prefill=True)))
            while flying:
                data = await self._land(flying, prompt)
            self._check(failures)
        except BaseException:
            self.fail("the prompt was not finished")
            raise
        return (data, start) if len(self.fed) == len(prompt.ids) else None

    def _start(self, prompt: Prompt) -> Control:
        """Choose what the prompt goes on from: `fed` holds it, and the first frame brings it about."""
        fed = self.fed.reusable(prompt.ids, prompt.generated)
        kept = self.kept.best(prompt.ids, prompt.generated, above=fed)
        self.kept.going(ld=kept.slot if kept else 0)
        if kept:
            self._loaded = True
            self.fed.hold(kept.ids, kept.generated)
            return self._riding.take(ld=kept.slot)
        if not fed:
            self._restart()
        return self._riding.take(reset=not fed)

    async def decode(self, token: int, pos: int) -> bytes:
        """One generated token through every layer: its column's hidden state.

        Raises
        ------
        LapFailed
            Also when the chain failed since the token was drawn: its caches no longer reach ``pos``.
        """
        return await self._lap(Cut(pos, 1, wide=False), Kind.HIDDEN, [token])

    async def verify(self, tokens: list[int], pos: int) -> bytes:
        """The last token and drafts after it through every layer, in one frame: each column's hidden state.

        `take_back` says afterwards which columns count.

        Parameters
        ----------
        tokens
            At most as many as one frame takes: see `prefill.drafts_from`.

        Raises
        ------
        LapFailed
            As of `decode`.
        """
        data = await self._lap(Cut(pos, len(tokens), wide=False), Kind.HIDDEN_B, tokens)
        self._verified = pos, len(tokens)
        return data

    def take_back(self, kept: int) -> None:
        """Only the first ``kept`` columns of the last verify frame were right: the others never were."""
        pos, n = self._verified
        if kept < n and len(self.fed) == pos + n:  # else it failed meanwhile: the caches hold nothing
            self.fed.cut(pos + kept)
            self._riding.roll_back(kept - 1)

    async def _lap(self, c: Cut, kind: Kind, tokens: list[int]) -> bytes:
        failures = self._check()
        if len(self.fed) != c.pos:
            raise self._failed()
        control = msgspec.structs.replace(self._next_control(), spec=kind is Kind.HIDDEN_B)
        try:
            data = await (await self._send(c, kind, tokens, control, prefill=False))
            self._check(failures)
        except BaseException:
            self.fail("a token was not finished")
            raise
        self.fed.extend(tokens, [True] * len(tokens))
        return data

    # -- checkpoints -------------------------------------------------------------------------------

    def save(self) -> None:
        """An answer is over: the next frame saves its state, which is `fed`."""
        self.kept.save(self.fed.ids, self.fed.generated)

    def new_chat(self) -> None:
        """Start from nothing, or from the system prompt."""
        self.fed.clear()
        self.kept.new_chat()

    def wants_pin(self, prompt: Prompt) -> bool:
        """Whether a prompt starts from nothing, and its system prompt could be kept."""
        if not self.kept.on or self.fed.reusable(prompt.ids, prompt.generated):
            return False
        return self.kept.best(prompt.ids, prompt.generated, above=0) is None

    # -- what comes back ---------------------------------------------------------------------------

    def on_return(self, sender: str, frame: Frame) -> None:
        """A frame came back; only the last worker's count."""
        if not self.workers or sender != self.workers[-1] or not frame.kind.is_return:
            return
        verdict, _ = self.laps.returned(frame, self._clock.now())
        if verdict is Verdict.STALE:
            return
        right = frame.enc is self._enc and len(frame.payload) == frame.n * self._dim * self._enc.width
        if verdict is Verdict.WRONG or not right:
            self.fail(f"{self._names[-1]} answered with a frame that was not asked for")
            return
        _, future, timer = self._waiting.popleft()
        timer.cancel()
        if not future.done():
            future.set_result(frame.payload)

    def refuse(self, why: str, then: str = AGAIN) -> None:
        """Fail, since a device did not take a frame; see `fail`."""
        self._refused = True
        self.fail(why, then)

    def fail(self, why: str, then: str = AGAIN) -> None:
        """Fail every lap in flight; the next frame resets the caches, and drops all checkpoints.

        PROTOCOL sections 5 and 7. ``why`` says what happened, ``then`` what is next.
        """
        self._failures += 1
        if not self._closed:
            self._why, self._next = why, then
        self._restart()
        self.kept.lost()
        waiting, self._waiting = self._waiting, deque()
        for _, future, timer in waiting:
            timer.cancel()
            if not future.done():
                future.set_exception(self._failed())
                future.exception()  # an answer that was given up asks nobody any more

    def close(self, why: str) -> None:
        """Fail for good: the room deals anew, or is over. ``why`` says what happened, and what is next."""
        self._closed = False
        self.fail(why, "")
        self._closed = True

    def _check(self, failures: int | None = None) -> int:
        """Raise where the chain is closed, or has failed since ``failures`` were counted."""
        if self._closed or failures not in (None, self._failures):
            raise self._failed()
        return self._failures

    def _failed(self) -> LapFailed:
        return LapFailed(f"The answer stopped: {self._why.rstrip('.')}.", self._next)

    def _next_control(self) -> Control:
        self.kept.going()
        return self._riding.take()

    def _restart(self) -> None:
        self.laps.raise_epoch()
        self.fed.clear()

    async def _land(self, flying: deque[tuple[Cut, asyncio.Future[bytes]]], prompt: Prompt) -> bytes:
        c, future = flying.popleft()
        data = await future
        end = c.pos + c.n
        self.fed.extend(prompt.ids[c.pos : end], prompt.generated[c.pos : end])
        return data

    async def _send(
        self, c: Cut, kind: Kind, tokens: list[int], control: Control, *, prefill: bool
    ) -> asyncio.Future[bytes]:
        """Run the host's layers, hand the frame to the first worker: a future of what comes back."""
        failures, epoch = self._failures, self.laps.epoch
        columns = Columns(pos=c.pos, n=c.n, wide=c.wide)
        alone = not self.workers
        ran = await self._shard.forward(columns, control, tokens=tokens, last=alone and prefill)
        self._check(failures)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if alone:
            future.set_result(ran.data)
            return future
        frame = Frame(
            kind,
            c.pos,
            c.n,
            ran.data,
            self._enc,
            epoch=epoch,
            last=prefill,
            **msgspec.structs.asdict(control),
        )
        if not self._sender.send_frame(self.workers[0], frame):
            self.fail(f"there is no link to {self._names[0]}")
            raise self._failed()
        lap = self.laps.sent(frame, prefill=prefill, now=self._clock.now())
        limit = self.laps.limit(lap, self._rtt())
        timer = self._clock.call_later(limit, lambda: self._late(limit))
        self._waiting.append((lap, future, timer))
        return future

    def _late(self, limit: float) -> None:
        where = " → ".join(self._names)
        self.fail(f"no answer from {where} within {limit:.0f} s")
