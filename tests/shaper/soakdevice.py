"""One of the two devices of `tests.shaper.soak`: a process with a mesh, and no model.

``python -m tests.shaper.soakdevice``, told by lines of JSON on its input. It sends numbered frames of mixed
sizes, control messages and parts of weights without an end, and looks at all that comes: what each must be
follows from its number, so what is lost, doubled, reordered or altered is seen.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import random
import sys
import threading
import time
from typing import Any

import psutil

from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.loop import new_loop
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.chat import Token
from pooled_nb.mesh.messages.weights import Wpart
from pooled_nb.mesh.wire import Priority
from tests.e2e.kernel import kernel
from tests.mesh.recorder import CODE, ROOM, Recorder
from tests.mesh.rtctools import until

SIZES = (64, 1_152, 9_216, 9_216, 18_432, 82_944, 164_000)
"""Bytes: a small model's column, that of larger ones, verify frames, prompts."""
FRAMES_OUT, BYTES_OUT = 48, 800_000
"""Sent and not confirmed by the other program, at most."""
TELL_S = 0.02
PART = 32_768
PART_EVERY_S = 0.05
PAUSE_EVERY_S, PAUSE_S = 2.0, 1.0
"""So often all is waited for, and for so long no frame goes: bulk goes only while none waits."""
UP_S = 60.0
REPORT_S = 2.0
ERRORS = 5
"""That are kept; one is enough to fail."""
DRAIN_S = 120.0


def frame_of(sender: str, number: int) -> Frame:
    """The frame of this number."""
    draw = random.Random(f"{sender} {number}")
    kind = draw.choice((Kind.HIDDEN, Kind.HIDDEN_B))
    n = draw.randint(1, 16) if kind is Kind.HIDDEN_B else 1
    unit = 2 * n
    size = max(unit, draw.choice(SIZES) // unit * unit)
    return Frame(kind=kind, pos=number, n=n, payload=draw.randbytes(size), enc=Encoding.BF16)


def part_of(sender: str, number: int) -> Wpart:
    """The part of weights of this number."""
    data = random.Random(f"part {sender} {number}").randbytes(PART)
    return Wpart(id="soak", off=number * PART, data=data)


class Stream:
    """What comes of one kind, by its number."""

    def __init__(self, what: str) -> None:
        self.what, self.got, self.bytes = what, 0, 0
        self.errors: list[str] = []

    def take(self, number: int, size: int, *, whole: bool) -> None:
        """One came that says that it has this number; ``whole``: it is what one of that number must be."""
        if number != self.got:
            how = "lost or overtaken" if number > self.got else "twice or late"
            self.fail(f"{self.what} {number} came where {self.got} was due: {how}")
        elif not whole:
            self.fail(f"{self.what} {number} is altered")
        self.got, self.bytes = max(self.got, number + 1), self.bytes + size

    def fail(self, why: str) -> None:
        if len(self.errors) < ERRORS:
            self.errors.append(why)


class Device:
    """The device and what it counts."""

    def __init__(self, room: Recorder, me: str) -> None:
        self.room, self.me, self.other = room, me, "joiner" if me == "host" else "host"
        self.to = ""
        self.frames, self.words, self.parts = Stream("frame"), Stream("message"), Stream("part")
        self.sent = self.sent_bytes = self.told = self.parted = 0
        self.confirmed = self.confirmed_bytes = self.confirmed_parts = 0
        self.stopping = False
        self._confirms = asyncio.Event()
        room.on_frame = self._on_frame  # type: ignore[method-assign]
        room.on_message = self._on_message  # type: ignore[method-assign]

    # -- what comes

    def _on_frame(self, sender: str, frame: Frame) -> None:
        self.frames.take(frame.pos, len(frame.payload), whole=frame == frame_of(self.other, frame.pos))

    def _on_message(self, sender: str, message: Message) -> None:
        if isinstance(message, Token):
            number, self.confirmed, self.confirmed_bytes, self.confirmed_parts = json.loads(message.text)
            self.words.take(number, len(message.text), whole=True)
            self._confirms.set()
        elif isinstance(message, Wpart):
            number = (message.off or 0) // PART
            self.parts.take(number, PART, whole=message == part_of(self.other, number))

    # -- what goes

    async def send_frames(self) -> None:
        """As fast as they are confirmed, with pauses."""
        pause_at = time.monotonic() + PAUSE_EVERY_S
        while not self.stopping:
            if time.monotonic() > pause_at:
                while self.confirmed < self.sent and not self.stopping:
                    await self._confirmed()
                await asyncio.sleep(PAUSE_S)
                pause_at = time.monotonic() + PAUSE_EVERY_S
            while self._may_send:
                frame = frame_of(self.me, self.sent)
                if not self.room.mesh.send_frame(self.to, frame):
                    self.frames.fail(f"frame {self.sent} was not taken")
                    return
                self.sent, self.sent_bytes = self.sent + 1, self.sent_bytes + len(frame.payload)
                await asyncio.sleep(0)
            await self._confirmed()

    @property
    def _may_send(self) -> bool:
        frames, size = self.sent - self.confirmed, self.sent_bytes - self.confirmed_bytes
        return not self.stopping and frames < FRAMES_OUT and size < BYTES_OUT

    async def _confirmed(self) -> None:
        self._confirms.clear()
        await self._confirms.wait()

    async def tell(self) -> None:
        """Control messages, which confirm what came; to the end."""
        while True:
            text = json.dumps([self.told, self.frames.got, self.frames.bytes, self.parts.got])
            if not self.room.mesh.send(self.to, Token(text=text)):
                self.words.fail(f"message {self.told} was not taken")
                return
            self.told += 1
            await asyncio.sleep(TELL_S)

    async def send_parts(self) -> None:
        """Bulk behind all else."""
        while not self.stopping:
            part = part_of(self.me, self.parted)
            if not await self.room.mesh.send_bulk(self.to, part, Priority.WEIGHTS):
                self.parts.fail(f"part {self.parted} was not taken")
                return
            self.parted += 1
            await asyncio.sleep(PART_EVERY_S)

    async def drain(self) -> None:
        """Send nothing new, and wait until all arrived."""
        self.stopping = True
        end = time.monotonic() + DRAIN_S
        while (self.confirmed, self.confirmed_parts) != (self.sent, self.parted):
            if time.monotonic() > end or self.errors:
                got = f"{self.confirmed} of {self.sent} frames, {self.confirmed_parts} of {self.parted} parts"
                self.frames.fail(f"{got} arrived")
                return
            await asyncio.sleep(0.05)

    # -- what is said of it

    @property
    def errors(self) -> list[str]:
        """What went wrong so far."""
        room = self.room
        ends = [f"{what} {name}: {why}" for what, name, why in [("gone", *gone[:2]) for gone in room.gone]]
        ends += [f"away {name}: {why}" for name, why in room.away] + [f"closed: {why}" for why in room.closed]
        facts = room.mesh.facts(self.to)
        ends += ["the link fell back to control messages"] if facts is not None and facts.fallback else []
        return [*self.frames.errors, *self.words.errors, *self.parts.errors, *ends]

    def report(self) -> dict[str, Any]:
        """All of it, now."""
        facts = self.room.mesh.facts(self.to)
        links = self.room.mesh._links
        link = links.book.used(self.to) if links is not None else None
        carriers = (
            [link.connection, *links.stripes.carriers(link)] if links is not None and link is not None else []
        )
        stats = [s for c in carriers if (s := c.stats()) is not None]
        return {
            "at": time.monotonic(),
            "rss_mb": psutil.Process().memory_info().rss / 1e6,
            "frames": self.frames.got,
            "bytes": self.frames.bytes,
            "messages": self.words.got,
            "parts": self.parts.got,
            "stripes": facts.stripes if facts is not None else 0,
            "queued": facts.queued if facts is not None else 0,
            "packets": sum(s.sent for s in stats),
            "resent": sum(s.resent for s in stats),
            "errors": self.errors,
        }


async def run(me: str, url: str) -> None:
    """The device's life."""
    orders: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(orders.put_nowait, line.strip())
        loop.call_soon_threadsafe(orders.put_nowait, "end")

    threading.Thread(target=read, name="orders", daemon=True).start()
    room = kernel(me, ask=False)
    device = Device(room, me)
    if me == "host":
        await room.mesh.create(CODE, [url])
        say(heard="up")
        await until(lambda: room.admitted, UP_S)
        device.to = next(member.id for member in room.mesh.roster if member.id != ROOM)
    else:
        await room.mesh.join(CODE, [url])
        device.to = ROOM
    room.mesh.chain([device.to])
    await until(lambda: (facts := room.mesh.facts(device.to)) is not None and facts.stripes == 3, UP_S)
    say(heard="striped")
    jobs: list[asyncio.Task[None]] = []
    while (order := await until_next(orders, device if jobs else None)) != "end":
        if order == "go":
            jobs = [
                asyncio.create_task(job) for job in (device.send_frames(), device.tell(), device.send_parts())
            ]
        elif order == "drain":
            await device.drain()
            say(heard="drained", **device.report())
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
    await room.mesh.leave()


async def until_next(orders: asyncio.Queue[str], device: Device | None) -> str:
    """The next order; reports until it comes."""
    while True:
        try:
            return await asyncio.wait_for(orders.get(), REPORT_S)
        except TimeoutError:
            if device is not None:
                gc.collect()
                say(heard="report", **device.report())


def say(**what: Any) -> None:
    """One line for who started this."""
    print(json.dumps(what), flush=True)


def main() -> None:
    """See the module."""
    logging.basicConfig(format=f"{sys.argv[1]} %(asctime)s %(name)s: %(message)s")
    logging.getLogger("pooled_nb").setLevel(logging.INFO)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run(sys.argv[1], sys.argv[2]))
    os._exit(0)  # a thread may still read


if __name__ == "__main__":
    main()
