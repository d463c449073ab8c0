"""One lap after another: the host's layers, then each worker's, and back (PROTOCOL sections 5, 7 and 8)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from pooled_nb.errors import FrameRefused, PooledError
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.room.checkpoints import RECENT, Checkpoints
from pooled_nb.room.control import Riding
from pooled_nb.room.drafting import Drafting
from pooled_nb.room.flights import Flights
from pooled_nb.room.laps import Laps, Verdict
from pooled_nb.room.losses import AGAIN, LapFailed, LapLost
from pooled_nb.room.paces import FrameKind, kind_of
from pooled_nb.room.prefill import IN_FLIGHT, Cut, Fed, cut
from pooled_nb.shard import Columns, Control, Prompt, Shard

ENCODING = {"float16": Encoding.F16, "bfloat16": Encoding.BF16, "float32": Encoding.F32}
"""The wire carries the activations' own dtype, so a split computes bit for bit what one device does."""


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
    clock
        Time without what this device slept: no lap is late for that (PROTOCOL section 8).
    epoch
        Where the epochs of the chain before ended: these go on, so that its stale returns are told apart.
    keeps
        Every device of the chain applies checkpoint control (``ckpt`` of its ``ai-ready``).
    recent
        States after an answer that are kept then.
    drafting
        Decides how far to guess ahead; None: one token a lap.
    ran
        Called with kind and compute milliseconds of each frame of the host's layers.
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
        epoch: int = 0,
        keeps: bool = False,
        recent: int = RECENT,
        drafting: Drafting | None = None,
        ran: Callable[[FrameKind, float], None] = lambda kind, ms: None,
    ) -> None:
        self._ran = ran
        self.workers = tuple(workers)
        self.laps = Laps(epoch)
        self.fed = Fed()
        self.drafting = drafting
        self._riding = Riding()
        self.kept = Checkpoints(self._riding, recent, on=keeps)
        self.kept.lost()  # engines are fresh, and what a disk gave back is of another chain
        self._loaded = self._refused = False
        self._verified = 0, 0
        self._names = tuple(names)
        self._shard, self._sender = shard, sender
        self._flights = Flights(self.laps, clock=clock, rtt=rtt, late=self._late)
        self._enc, self._dim, self._width, self._cols = ENCODING[dtype], dim, width, cols
        self._failures = 0
        self._failure: LapFailed = LapLost("nothing ran yet")
        self._suspended = ""
        self._closed = False

    @property
    def last(self) -> str:
        """Name of the device that answers to the host; empty: the host holds every layer."""
        return self._names[-1] if self._names else ""

    @property
    def closed(self) -> bool:
        """Whether nothing ever runs over it again."""
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
            self._unfinished(failures, "the prompt was not finished")
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
            self._unfinished(failures, "a token was not finished")
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
        right = frame.enc is self._enc
        verdict = self._flights.returned(frame, frame.n * self._dim * self._enc.width if right else -1)
        if verdict is Verdict.WRONG:
            self.fail(f"{self._names[-1]} answered with a frame that was not asked for")
        elif verdict is Verdict.MISSED:
            self.lose(f"a frame to {self._names[-1]}, or its answer, was lost on the way")

    def refuse(self, why: str, then: str = AGAIN) -> None:
        """Fail, since a device did not take a frame; see `fail`."""
        self._refused = True
        self.fail(why, then)

    def fail(self, why: str, then: str = AGAIN) -> None:
        """Fail every lap in flight, since something is wrong: it costs the answer.

        The next frame resets the caches, and drops all checkpoints (PROTOCOL sections 5 and 7). ``why`` says
        what happened, ``then`` what is next.
        """
        self._break(LapFailed(why, then))

    def lose(self, why: str) -> None:
        """Fail every lap in flight as lost: its answer waits, and goes on over this chain or another."""
        self._break(LapLost(why))

    def suspend(self, why: str) -> None:
        """Nothing runs for now: laps in flight are lost, and new ones are at once, until `resume`."""
        self._suspended = why or "the room waits"
        self.lose(self._suspended)

    def resume(self) -> None:
        """Laps run again, from nothing: the first frame resets."""
        self._suspended = ""

    def close(self, why: str) -> None:
        """Suspend for good: the room deals anew, or is over. ``why`` says what happened."""
        self.suspend(why)
        self._closed = True

    def _break(self, failure: LapFailed) -> None:
        self._failures += 1
        self._failure = failure
        self._restart()
        self.kept.lost()
        self._flights.fail(self._failed)

    def _unfinished(self, failures: int, what: str) -> None:
        """What was under way ends here. Where laps failed meanwhile, their reason stays."""
        if failures == self._failures:
            self.lose(what)

    def _check(self, failures: int | None = None) -> int:
        """Raise where nothing runs, or where laps have failed since ``failures`` were counted."""
        if self._closed or self._suspended or failures not in (None, self._failures):
            raise self._failed()
        return self._failures

    def _failed(self) -> LapFailed:
        """Made anew for each who hears it: an error that is raised twice shows two ways at once."""
        if self._suspended:
            return LapLost(self._suspended)
        return type(self._failure)(self._failure.why, self._failure.next_step)

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
        self._ran(kind_of(batch=kind is Kind.HIDDEN_B, spec=control.spec), ran.ms)
        self._check(failures)
        if alone:
            future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
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
            self.lose(f"there is no link to {self._names[0]}")
            raise self._failed()
        self._check(failures)  # a link that breaks under it may have been told meanwhile
        return self._flights.out(frame, prefill=prefill)

    def _late(self, limit: float) -> None:
        where = " → ".join(self._names)
        self.lose(f"no answer from {where} within {limit:.0f} s")
