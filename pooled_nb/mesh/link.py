"""One link at work: a connection, its messages and its wire; `LinkState` decides (PROTOCOL section 3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh.binarypack import MAX_BYTES, PackError, pack
from pooled_nb.mesh.chunks import Assembler, Chunker, Close
from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.mesh.credit import Credit
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.gate import Side
from pooled_nb.mesh.linkactions import Action, Admitted, Answered, Deliver, End, Notice, Send
from pooled_nb.mesh.linkstate import LinkState, State
from pooled_nb.mesh.linkwire import OWN, LinkWire
from pooled_nb.mesh.messages import Message, read, write
from pooled_nb.mesh.messages.link import Ping
from pooled_nb.mesh.network import Connection
from pooled_nb.mesh.pace import CREATOR, DEVICE, STRANGER, Budget, Inbox, cost
from pooled_nb.mesh.wire import Priority, fallback
from pooled_nb.mesh.wiresettings import WireSettings

log = logging.getLogger(__name__)

MAX_BUFFERED = 16 << 20
"""Bytes of control messages that may wait for a device that takes none; then its link is given up."""


class LinkOwner(Protocol):
    """What a link tells the mesh. Never raises."""

    def opened(self, link: Link) -> None:
        """The control channel is open."""

    def heard(self, link: Link) -> None:
        """Something was received."""

    def answered(self, link: Link, ts: object) -> None:
        """A ping was answered."""

    def admitted(self, link: Link) -> None:
        """The link and the room may speak."""

    def released(self, link: Link) -> None:
        """Frames that its wire brought count from now on."""

    def delivered(self, link: Link, message: Message) -> None:
        """A message for the room or the roster."""

    def framed(self, link: Link, frame: Frame) -> None:
        """A frame for the room."""

    def noticed(self, link: Link, text: str) -> None:
        """A sentence for people."""

    def ended(self, link: Link, end: End) -> None:
        """The link ended; nothing follows."""

    def spawn(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a job that ends with the mesh."""


def packed(message: Message) -> bytes:
    """A message as BinaryPack bytes.

    Raises
    ------
    PackError
        It is no message that can be packed, or above what may cross a link (section 2).
    """
    data = pack(write(message))
    if len(data) > MAX_BYTES:
        raise PackError(f"a message of {len(data)} bytes, where {MAX_BYTES} may cross a link")
    return data


class Link:
    """A link to ``remote``. Made by the mesh; `start` sets it going.

    Attributes
    ----------
    ended
        How it ended, once it has.
    is_over
        Whether the connection below is closed, too.
    admitted_at
        Clock seconds; 0 until it was.
    hurries
        It is given up after 15 s also where paths are still being tried: another one is dialed then.
    on_settled
        Called once it is admitted, or has ended.
    """

    def __init__(
        self,
        key: int,
        connection: Connection,
        *,
        clock: Clock,
        state: LinkState,
        owner: LinkOwner,
        settings: WireSettings,
    ) -> None:
        self.key = key
        self.remote = connection.remote
        self.state = state
        self.ended: End | None = None
        self.is_over = False
        self.admitted_at = 0.0
        self.hurries = False
        self.on_settled: Callable[[], object] | None = None
        self._connection = connection
        self._clock = clock
        self._owner = owner
        self._chunker, self._assembler = Chunker(), Assembler()
        self._inbox = Inbox(STRANGER, clock.now())
        self._reading = False
        self._resume: Timer | None = None
        self._cut: str | None = None
        """Why the connection ended, while messages that came before still wait to be read."""
        self._taken = 0
        self._linger: Timer | None = None
        self._shutting = False
        self.wire = LinkWire(
            clock,
            on_frame=lambda frame: owner.framed(self, frame),
            on_failed=lambda why: self._run(state.broken(why)),
            heard=lambda: owner.heard(self),
            control=connection.control,
            chunker=self._chunker,
            on_broken=lambda: self._broken("the connection broke"),
            settings=settings,
        )

    @property
    def connection(self) -> Connection:
        """The connection below, for what it knows: path, label, who dialed."""
        return self._connection

    @property
    def is_admitted(self) -> bool:
        """Whether the room and this link may speak."""
        return self.state.state is State.ADMITTED

    def start(self) -> None:
        """Listen to the connection; what it has received already is handled now."""
        connection, control = self._connection, self._connection.control
        connection.on_state = self._on_state
        control.on_open = self._on_open
        control.on_close = lambda: self._broken("it closed the link")
        if control.is_open:
            self._on_open()
        self.wire.add(OWN, connection.wire, connection.keepalive)
        control.on_message = self._on_message
        if connection.state in ("failed", "closed"):
            self._on_state(connection.state)

    # -- what the mesh asks ------------------------------------------------------------------------

    def send(self, message: Message, data: bytes | None = None) -> bool:
        """Send a room's message; ``data`` is it packed, where that was done. False unless it is on its way.

        Raises
        ------
        PackError
            See `packed`.
        """
        return self.is_admitted and self._send_packed(packed(message) if data is None else data)

    def send_frame(self, frame: Frame) -> bool:
        """Send a frame; False unless it is on its way. Raises ValueError as `LinkWire.send` does."""
        return self.is_admitted and self.wire.send(frame)

    async def send_bulk(
        self, message: Message, data: bytes, priority: Priority, credit: Credit | None
    ) -> bool:
        """Send a large message, ``data`` packed, once there is room; see `Mesh.send_bulk`."""
        if not self.is_admitted:
            return False
        size = len(getattr(message, "data", None) or b"")
        return await self.wire.send_bulk(data, priority, credit=credit, size=size)

    def ping(self, ts: int) -> None:
        """Ask whether it is there; in any state from ``open`` on."""
        if self.state.state not in (State.CONNECTING, State.CLOSED):
            self._say(Ping(ts=ts))

    def roster(self, member: bool) -> None:
        """The device is, or is not, in the roster."""
        self._run(self.state.roster(member, self._clock.now()))

    def silent(self, why: str) -> None:
        """Drop it: nothing was heard."""
        self._run(self.state.silent(why))

    def refuse(self, reason: str, *, closed: bool = False) -> None:
        """Say ``bye`` and close (creator only)."""
        self._run(self.state.refuse(reason, closed=closed))

    def leave(self) -> None:
        """Say ``leaving`` and close."""
        self._run(self.state.leave())

    def drop(self) -> None:
        """Close without a word: another link to this device takes over."""
        self._run(self.state.replaced())

    def tick(self, now: float) -> None:
        """Time passes."""
        # Also once it is connected: what is left of the handshakes may take long over a bad path.
        trying = self._connection.state in ("new", "connecting", "connected") and not self.hurries
        self._run(self.state.tick(now, trying=trying))
        self.wire.tick(now)

    # -- what the connection says ------------------------------------------------------------------

    def _on_open(self) -> None:
        if self.state.state is State.CONNECTING:
            self._owner.opened(self)
            self._run(self.state.opened(self._clock.now()))

    def _on_state(self, state: str) -> None:
        if state == "failed":
            self._broken(self._connection.failure or "the connection failed", failed=True)
        elif state == "closed":
            self._broken("it closed the link")

    def _broken(self, why: str, *, failed: bool = False) -> None:
        if self.ended is not None:
            if self._linger is not None:
                self._shut()  # it has heard the last word
        elif self._resume is not None:
            self._cut = self._cut or why  # its last words may be among what waits
        else:
            self._run(self.state.broken(why, failed=failed))

    def _on_message(self, data: bytes) -> None:
        if self.ended is not None:
            return
        if self.state.state is State.CONNECTING:  # some stacks hand over the first message before `open`
            self._on_open()
        self._owner.heard(self)
        if not self._inbox.put(data):
            self._run(self.state.flooded())
        else:
            self._read_on()

    @property
    def _budget(self) -> Budget:
        if not self.state.in_room:
            return STRANGER
        return CREATOR if self.state.side is Side.JOINER else DEVICE

    def _read_on(self) -> None:
        """Read what came, as fast as this link may (`pace`)."""
        if self._reading or self._resume is not None:
            return
        self._reading = True
        try:
            self._inbox.budget = self._budget
            while self.ended is None and (data := self._inbox.take(self._clock.now())) is not None:
                self._read_one(data)
                self._inbox.spent(cost(self._assembler.values, len(data)))
                self._inbox.budget = self._budget
        finally:
            self._reading = False
        if self.ended is not None:
            return
        if (wait := self._inbox.wait()) is not None:
            self._resume = self._clock.call_later(wait, self._resumed)
        elif self._cut is not None:
            self._run(self.state.broken(self._cut))

    def _resumed(self) -> None:
        self._resume = None
        self._read_on()

    def _read_one(self, data: bytes) -> None:
        try:
            self._read(data)
        except Exception:
            # Nothing that a peer sends raises. If it does, that is our mistake and this link's end.
            log.exception("a message of %s could not be handled", self.remote)
            self._run(self.state.broken("a message of it could not be handled"))

    def _read(self, data: bytes) -> None:
        self._taken += len(data)
        value = self._assembler.feed(data, admitted=self.state.in_room)
        if value is None:
            return
        size, self._taken = self._taken, 0
        if isinstance(value, Close):
            self._run(self.state.broken("it closed the link"))
        elif fallback.is_frame(value):
            if self.is_admitted:
                self.wire.control(value)
        elif (message := read(value)) is not None:
            self._run(self.state.message(message, size, self._clock.now()))

    # -- inside ------------------------------------------------------------------------------------

    def _run(self, actions: list[Action]) -> None:
        for action in actions:
            if self.ended is not None:
                return
            match action:
                case Send(message):
                    self._say(message)
                case Answered(ts):
                    self._owner.answered(self, ts)
                case Admitted():
                    self.admitted_at = self._clock.now()
                    self._owner.admitted(self)
                    if self.ended is None:
                        self.wire.release()
                    if self.ended is None:
                        self._owner.released(self)
                        self._settled()
                case Deliver(message):
                    self._owner.delivered(self, message)
                case Notice(text):
                    self._owner.noticed(self, text)
                case End():
                    self._finish(action)

    def _say(self, message: Message) -> None:
        self._send_packed(packed(message))

    def _send_packed(self, data: bytes) -> bool:
        if self._cut is not None:
            return False
        control = self._connection.control
        if control.buffered > MAX_BUFFERED:
            self._run(self.state.broken("it takes no messages any more"))
            return False
        try:
            for piece in self._chunker.split(data):
                control.send(piece)
        except LinkFailed:
            self._run(self.state.broken("the connection broke"))
            return False
        return True

    def _finish(self, end: End) -> None:
        self.ended = end
        self.wire.close()
        self._inbox.clear()
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        if end.linger:
            self._linger = self._clock.call_later(end.linger, self._shut)
        else:
            self._shut()
        self._owner.ended(self, end)
        self._settled()

    def _settled(self) -> None:
        call, self.on_settled = self.on_settled, None
        if call is not None:
            call()

    def _shut(self) -> None:
        if self._shutting:
            return
        self._shutting = True
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        self._owner.spawn(self._close())

    async def _close(self) -> None:
        try:
            await self._connection.close()
        finally:
            self.is_over = True
