"""One of the two processes of a pair in `benchmarks.wire`; lines of JSON on standard input say what to do.

``python -m benchmarks.wire_end near|far``. The far one sends back what it hears; the near one measures. Each
line names what to ``do`` (a method of `End`, with what is to be handed to it) and is answered by one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
import traceback
from typing import Any

from benchmarks.wire_carriers import BULK, Bare, Carrier, Stream, Told
from benchmarks.wire_link import LinkCarrier
from pooled_nb.mesh import sctp
from pooled_nb.mesh.loop import new_loop
from pooled_nb.mesh.wiresettings import WireSettings

PIECES = 1 << 20
"""A small message with a number from here on is answered when so many pieces of weights have come."""
LATE_S = 30.0
"""An answer that takes longer is none."""
LOST_S = 2.0
"""A keep-alive byte that takes longer is lost."""
STEP_S = 0.02
"""Between two looks at what is behind weights."""


class End:
    """One end of any number of carriers, by name."""

    def __init__(self, *, far: bool) -> None:
        self._far = far
        self._carriers: dict[str, Carrier] = {}
        self._waits: dict[tuple[str, str, int], asyncio.Future[float]] = {}
        self._number = 0
        self._payload = b""
        """Of the frame that came back last."""
        self._pieces: dict[str, int] = {}
        self._owed: dict[str, int] = {}

    # -- what it is told ---------------------------------------------------------------------------

    async def do_make(
        self, name: str, kind: str, url: str = "", transport: str = "aiortc", **settings: Any
    ) -> None:
        """Make this end of a carrier; ``settings`` are a link's."""
        carrier: Carrier
        if kind == "link":
            carrier = LinkCarrier(WireSettings(**settings), url, transport)
        elif kind == "tcp":
            carrier = Stream()
        else:
            await sctp.settle()
            carrier = Bare()
        self._carriers[name] = carrier
        carrier.on_weights = lambda _number, _data: self._came(name)
        if self._far:
            carrier.on_frame = lambda number, data: carrier.frame(number, data, back=True)
            carrier.on_byte = lambda number, _data: carrier.byte(number)
            carrier.on_small = lambda number, _data: self._asked(name, number)
        else:
            carrier.on_frame = lambda number, data: self._back(name, number, data)
            carrier.on_byte = lambda number, _data: self._heard(name, "byte", number)
            carrier.on_small = lambda number, _data: self._heard(name, "small", number)

    async def do_listen(self, name: str) -> Told:
        """See `Carrier`."""
        return await self._carriers[name].listen()

    async def do_meet(self, name: str, told: Told) -> Told:
        """See `Carrier`."""
        answer = await self._carriers[name].meet(told)
        return {"told": answer, "opened": self._carriers[name].opened}

    async def do_met(self, name: str, told: Told) -> None:
        """See `Carrier`."""
        await self._carriers[name].met(told)

    async def do_tuned(self) -> Told:
        """Whether this process tunes its associations."""
        verdict = await sctp.settle()
        return {"tuned": verdict.tuned, "why": verdict.why}

    async def do_cpu(self) -> Told:
        """Seconds of CPU that this process has taken."""
        return {"cpu": time.process_time()}

    async def do_round(self, name: str, size: int, n: int, seconds: float) -> Told:
        """Send frames of that size and wait for each to come back: ``n`` of them, for so long at most."""
        carrier, payload = self._carriers[name], os.urandom(size)
        end, cpu = time.perf_counter() + seconds, time.process_time()
        times: list[float] = []
        while len(times) < n and (not times or time.perf_counter() < end):
            number = self._next()
            began = time.perf_counter()
            answer = self._wait(name, "frame", number)
            carrier.frame(number, payload, back=False)
            times.append(await asyncio.wait_for(answer, LATE_S) - began)
            if self._payload != payload:
                raise RuntimeError("a frame came back as another one")
        return {"s": times, "cpu": time.process_time() - cpu}

    async def do_pour(self, name: str, pieces: int) -> Told:
        """Send so many pieces of weights, until the last has come."""
        data = os.urandom(BULK)
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(pieces):
            await self._carriers[name].weights(data)
        await self._sync(name, pieces)
        return {"s": time.perf_counter() - began, "cpu": time.process_time() - cpu, "mb": pieces * BULK / 1e6}

    async def do_behind(self, name: str, n: int, seconds: float) -> Told:
        """Send weights without an end, and look ``n`` times how long the others take meanwhile."""
        carrier, data = self._carriers[name], os.urandom(BULK)
        sent = 0

        async def pour() -> None:
            nonlocal sent
            while True:
                await carrier.weights(data)
                sent += 1

        began = time.perf_counter()
        pouring = asyncio.create_task(pour())
        took: dict[str, list[float]] = {"byte": [], "small": [], "frame": []}
        try:
            await asyncio.sleep(0.3)  # until what may wait does
            while len(took["frame"]) < n and time.perf_counter() - began < seconds:
                for what, times in took.items():
                    await asyncio.sleep(STEP_S)
                    times.append(await self._look(name, what))
        finally:
            poured = time.perf_counter() - began
            pouring.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pouring
        mb = sent * BULK / 1e6
        await self._sync(name, sent)
        return {**took, "mb_s": mb / poured}

    async def do_close(self, name: str) -> None:
        """See `Carrier`."""
        await self._carriers.pop(name).close()

    # -- inside ------------------------------------------------------------------------------------

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _wait(self, name: str, what: str, number: int) -> asyncio.Future[float]:
        future = self._waits[name, what, number] = asyncio.get_running_loop().create_future()
        return future

    def _heard(self, name: str, what: str, number: int) -> None:
        future = self._waits.pop((name, what, number), None)
        if future is not None and not future.done():
            future.set_result(time.perf_counter())

    def _back(self, name: str, number: int, data: bytes) -> None:
        self._payload = data
        self._heard(name, "frame", number)

    async def _look(self, name: str, what: str) -> float:
        """Seconds until a keep-alive byte, small message or 10 KB frame is back; at most `LOST_S`."""
        carrier = self._carriers[name]
        number = self._next() % 256 if what == "byte" else self._next()
        answer, began = self._wait(name, what, number), time.perf_counter()
        if what == "byte":
            carrier.byte(number)
        elif what == "small":
            carrier.small(number)
        else:
            carrier.frame(number, bytes(10_240), back=False)
        try:
            return await asyncio.wait_for(answer, LOST_S) - began
        except TimeoutError:
            return LOST_S

    async def _sync(self, name: str, pieces: int) -> None:
        answer = self._wait(name, "small", PIECES + pieces)
        self._carriers[name].small(PIECES + pieces)
        await asyncio.wait_for(answer, 4 * LATE_S)

    def _came(self, name: str) -> None:
        self._pieces[name] = self._pieces.get(name, 0) + 1
        self._settle(name)

    def _asked(self, name: str, number: int) -> None:
        """Far: a small message is sent back; one that asks for weights, once they have come."""
        if number < PIECES:
            self._carriers[name].small(number)
        else:
            self._owed[name] = number
            self._settle(name)

    def _settle(self, name: str) -> None:
        owed = self._owed.get(name)
        if owed is not None and self._pieces.get(name, 0) >= owed - PIECES:
            del self._owed[name], self._pieces[name]
            self._carriers[name].small(owed)


async def main(far: bool) -> None:
    """Do what the lines say, until they end."""
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _what: None)
    end = End(far=far)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        try:
            answer = await getattr(end, f"do_{order.pop('do')}")(**order)
        except Exception as error:
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer or {}), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main(sys.argv[1] == "far"))
    os._exit(0)  # nothing is left to say
