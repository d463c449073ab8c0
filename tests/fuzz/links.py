"""Any bytes on any channel of a whole link: control, wire, keep-alive (PROTOCOL sections 2, 3 and 5)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh import link as module
from pooled_nb.mesh.binarypack import PackError, pack
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.gate import Doorway, Side
from pooled_nb.mesh.link import Link
from pooled_nb.mesh.linkstate import LinkState
from pooled_nb.mesh.messages import write
from pooled_nb.mesh.messages.link import Admit, Hello
from pooled_nb.mesh.versions import PROTOCOL
from pooled_nb.mesh.wire import fallback, slices
from pooled_nb.mesh.wiresettings import WireSettings
from tests.fuzz import packs, values
from tests.mesh.opengate import OpenGate


class Clock:
    """Time that moves when told to; what is due then is called."""

    def __init__(self) -> None:
        self._now = 0.0
        self._timers: list[SimpleNamespace] = []

    def now(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        timer = SimpleNamespace(at=self._now + delay, call=callback, cancel=lambda: None)
        timer.cancel = lambda: self._timers.remove(timer) if timer in self._timers else None
        self._timers.append(timer)
        return timer

    async def sleep(self, delay: float) -> None:
        raise NotImplementedError

    def advance(self, seconds: float) -> None:
        self._now += seconds
        due = [timer for timer in self._timers if timer.at <= self._now]
        assert len(self._timers) < 20
        for timer in due:
            if timer in self._timers:
                self._timers.remove(timer)
                timer.call()


class Pipe:
    """A channel that forgets what is sent."""

    def __init__(self) -> None:
        self.on_open = self.on_message = self.on_close = self.on_low = None
        self.low_threshold = self.buffered = 0
        self.is_open = True

    def send(self, data: bytes) -> None:
        assert isinstance(data, bytes)
        if not self.is_open:
            raise LinkFailed("closed")

    def receive(self, data: bytes) -> None:
        if self.on_message is not None:
            self.on_message(data)  # type: ignore[misc]


class Owner:
    """`LinkOwner` that only counts."""

    def __init__(self) -> None:
        self.over = 0
        self.frames = 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_more: None

    def framed(self, link: Link, frame: Frame) -> None:
        assert link.is_admitted
        self.frames += 1

    def ended(self, link: Link, end: object) -> None:
        self.over += 1

    def spawn(self, job: Coroutine[Any, Any, None]) -> None:
        job.close()


def run(seed: str) -> None:
    """One link from open to end."""
    rng = Random(seed)
    clock, owner = Clock(), Owner()
    control, wire, keepalive = Pipe(), Pipe(), Pipe()
    side = rng.choice(tuple(Side))
    connection = SimpleNamespace(
        remote="them",
        connection_id="dc_1",
        label="dc_1",
        dialed=side is Side.JOINER,
        failure="",
        state="connected",
        path="direct",
        control=control,
        wire=wire,
        keepalive=keepalive,
        on_state=None,
        stats=lambda: None,
    )
    way = Doorway(side, "me", "them", connection.dialed, lambda: None)
    state = LinkState(
        side, connection.dialed, OpenGate(way), Hello(name="me", v=PROTOCOL), clock.now(), member=True
    )
    link = Link(1, connection, clock=clock, state=state, owner=owner, settings=WireSettings())  # type: ignore[arg-type]
    with _nothing_logged():
        link.start()
        link.wire.chained = rng.random() < 0.9
        if rng.random() < 0.9:
            for message in (Hello(name="x", v=PROTOCOL), Admit()):
                control.receive(pack(write(message)))
        for _ in range(rng.randint(1, 25)):
            _step(rng, clock, link, (control, wire, keepalive))
            assert link._inbox._bytes <= 17 << 20
        link.leave()
        clock.advance(1.0)
    assert owner.over == 1


def _step(rng: Random, clock: Clock, link: Link, pipes: tuple[Pipe, Pipe, Pipe]) -> None:
    control, wire, keepalive = pipes
    match rng.randrange(12):
        case 0:
            clock.advance(rng.choice((0.01, 0.25, 1.0, 16.0)))
            link.tick(clock.now())
        case 1:
            keepalive.receive(rng.choice((b"", b"\0", b"\0" * 5_000)))
        case 2 | 3 | 4:
            for data in _slices(rng):
                wire.receive(data)
        case 5 if rng.random() < 0.2:
            wire.is_open = False
            if wire.on_close is not None:
                wire.on_close()
        case 6:
            control.receive(_fallback(rng))
        case 7:
            link.send_frame(_frame(rng))
        case _:
            data = packs.valid(rng) if rng.random() < 0.3 else _message(rng)
            control.receive(packs.mutated(rng, data) if rng.random() < 0.5 else data)


def _message(rng: Random) -> bytes:
    try:
        return pack(values.message(rng))
    except PackError:
        return b""


def _frame(rng: Random) -> Frame:
    n = rng.choice((1, 2, 16))
    kind = Kind.HIDDEN_B if n > 1 else rng.choice((Kind.HIDDEN, Kind.HIDDEN_B, Kind.RET))
    payload = bytes(2 * n * rng.choice((1, 8, 400)))
    return Frame(kind=kind, pos=rng.randrange(99), n=n, payload=payload, enc=Encoding.F16)


def _slices(rng: Random) -> list[bytes]:
    made = slices.encode(_frame(rng), rng.choice((1, 2, 3, 2**32 - 1)))
    if rng.random() < 0.3:
        rng.shuffle(made)
    if rng.random() < 0.5:
        at = rng.randrange(len(made))
        raw = bytearray(made[at])
        for _ in range(rng.choice((1, 4))):
            raw[rng.randrange(min(len(raw), 32))] = rng.choice((0, 1, 255, rng.randrange(256)))
        made[at] = bytes(raw[: rng.choice((len(raw), 31, 5_000))])
    return made + ([rng.randbytes(rng.choice((0, 31, 33, 4_601)))] if rng.random() < 0.2 else [])


def _fallback(rng: Random) -> bytes:
    value = fallback.to_map(_frame(rng))
    for key in list(value):
        if rng.random() < 0.15:
            value[key] = values.any_value(rng)
    try:
        return pack(value)
    except PackError:
        return b""


@contextmanager
def _nothing_logged() -> Iterator[None]:
    """The link catches what must not happen, and logs it."""
    said: list[str] = []

    def note(record: logging.LogRecord) -> bool:
        said.append(f"{record.getMessage()}: {record.exc_info}")
        return False

    module.log.addFilter(note)
    try:
        yield
    finally:
        module.log.removeFilter(note)
    assert not said, said[0]
