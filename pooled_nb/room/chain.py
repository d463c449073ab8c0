"""One lap after another: the host's layers, then each worker's, and back (PROTOCOL sections 5, 7 and 8)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from pooled_nb.errors import PooledError
from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.room.laps import Lap, Laps, Verdict
from pooled_nb.room.prefill import IN_FLIGHT, Cut, Fed, cut
from pooled_nb.shard import Columns, Control, Prompt, Shard

ENCODING = {"float16": Encoding.F16, "bfloat16": Encoding.BF16, "float32": Encoding.F32}
"""The wire carries the activations' own dtype, so a split computes bit for bit what one device does."""


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
    ) -> None:
        self.workers = tuple(workers)
        self.laps = Laps()
        self.fed = Fed()
        self._names = tuple(names)
        self._shard, self._sender, self._clock, self._rtt = shard, sender, clock, rtt
        self._enc, self._dim, self._width, self._cols = ENCODING[dtype], dim, width, cols
        self._waiting: deque[tuple[Lap, asyncio.Future[bytes], Timer]] = deque()
        self._failures = 0
        self._why = ""
        self._next = "Ask again."
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nothing runs over it any more."""
        return self._closed

    async def prefill(self, prompt: Prompt, stopped: Callable[[], bool]) -> tuple[bytes, int] | None:
        """Run what follows `fed`, up to 6 frames in flight.

        Returns
        -------
        The last column's hidden state and how many tokens needed no run; None when ``stopped`` said so
        between two frames.

        Raises
        ------
        LapFailed
        """
        failures = self._check()
        start = self.fed.reusable(prompt.ids, prompt.generated)
        reset = start == 0
        if reset:
            self._restart()
        frames = cut(prompt.generated, start, cols=self._cols, width=self._width)
        flying: deque[tuple[Cut, asyncio.Future[bytes]]] = deque()
        data = b""
        try:
            for i, c in enumerate(frames):
                if stopped():
                    break
                if len(flying) >= IN_FLIGHT:
                    data = await self._land(flying, prompt)
                control = Control(reset=reset and i == 0, spec=not c.wide)
                tokens = prompt.ids[c.pos : c.pos + c.n]
                self._check(failures)
                flying.append((c, await self._send(c, Kind.HIDDEN_B, tokens, control, prefill=True)))
            while flying:
                data = await self._land(flying, prompt)
            self._check(failures)
        except BaseException:
            self.fail("the prompt was not finished")
            raise
        return (data, start) if len(self.fed) == len(prompt.ids) else None

    async def decode(self, token: int, pos: int) -> bytes:
        """One generated token through every layer: its column's hidden state.

        Raises
        ------
        LapFailed
            Also when the chain failed since the token was drawn: its caches no longer reach ``pos``.
        """
        failures = self._check()
        if len(self.fed) != pos:
            raise self._failed()
        c = Cut(pos, 1, wide=False)
        try:
            data = await (await self._send(c, Kind.HIDDEN, [token], Control(), prefill=False))
            self._check(failures)
        except BaseException:
            self.fail("a token was not finished")
            raise
        self.fed.extend([token], [True])
        return data

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

    def fail(self, why: str) -> None:
        """Fail every lap in flight; the next frame resets the caches (PROTOCOL section 5)."""
        self._failures += 1
        self._why = self._why if self._closed else why
        self._restart()
        waiting, self._waiting = self._waiting, deque()
        for _, future, timer in waiting:
            timer.cancel()
            if not future.done():
                future.set_exception(self._failed())
                future.exception()  # an answer that was given up asks nobody any more

    def close(self, why: str) -> None:
        """Fail for good: the room deals anew, or is over. ``why`` says what happened, and what is next."""
        self._closed = False
        self._next = ""
        self.fail(why)
        self._closed = True

    def _check(self, failures: int | None = None) -> int:
        """Raise where the chain is closed, or has failed since ``failures`` were counted."""
        if self._closed or failures not in (None, self._failures):
            raise self._failed()
        return self._failures

    def _failed(self) -> LapFailed:
        return LapFailed(f"The answer stopped: {self._why.rstrip('.')}.", self._next)

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
        """Run the host's layers, hand the frame to the first worker: a future of the last column."""
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
            spec=control.spec,
            reset=control.reset,
            epoch=epoch,
            last=prefill,
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
