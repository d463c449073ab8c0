"""The socket under a `Client`: opens it, feeds the decider, does what it says. Runs on the mesh loop."""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
from collections.abc import Callable, Sequence

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.iostream import StreamClosedError, UnsatisfiableReadError
from tornado.simple_httpclient import HTTPStreamClosedError, HTTPTimeoutError
from tornado.websocket import (
    WebSocketClientConnection,
    WebSocketClosedError,
    WebSocketError,
    websocket_connect,
)

from pooled_nb.errors import RoomError, SignalingDown
from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.mesh.network import NoServer
from pooled_nb.mesh.peerjs import client, shapes
from pooled_nb.mesh.peerjs.quiet import quiet

log = logging.getLogger(__name__)

PING_S = 20.0
"""A server that vanished without closing is noticed by WebSocket pings, which any server answers."""


CLOSE_S = 1.0


class IdRefused(RoomError):
    """A server answered, and does not give this id: another holds it."""


class Session:
    """One id, registered at the first server of a list that answers, and kept there.

    Parameters
    ----------
    urls
        The whole WebSocket URL of each server, query included. Holds the token: never logged or shown.
    shown
        Each server as people know it.
    id
        The one that the URLs name.
    resumes
        Their token was kept from an earlier registration.
    on_message
        Called with every message about another device.
    on_outage
        Called with True when signaling is lost, False when it is back.
    """

    def __init__(
        self,
        clock: Clock,
        urls: Sequence[str],
        shown: Sequence[str],
        *,
        id: str,
        resumes: bool = False,
        on_message: Callable[[shapes.PeerMessage], None],
        on_outage: Callable[[bool], None],
    ) -> None:
        self._clock = clock
        self._urls = list(urls)
        self._shown = list(shown)
        self._on_message = on_message
        self._on_outage = on_outage
        self._client = client.Client(len(self._urls), id=id, resumes=resumes)
        self._registered: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._socket: WebSocketClientConnection | None = None
        self._socket_attempt = 0
        self._open: dict[int, asyncio.Future[None]] = {}
        self._dialing: dict[int, asyncio.Task[None]] = {}
        self._timer: Timer | None = None
        self.server = ""
        """The server that answered, as people know it."""
        self.index = 0
        """Its place in the list."""
        self.passed: tuple[str, ...] = ()
        """Those before it, and why they did not answer."""

    @property
    def is_up(self) -> bool:
        """Whether `send` may be called now."""
        return self._client.is_up and self._socket is not None

    async def register(self) -> None:
        """Try the servers in order; return when one holds our id.

        Raises
        ------
        NoServer
            None answered.
        IdRefused
            One answered no.
        """
        self._do(self._client.start(self._clock.now()))
        try:
            self.index = await self._registered
            self.server = self._shown[self.index]
        except BaseException:
            await self.close()
            raise

    def send(self, type: str, dst: str, payload: shapes.OfferPayload | shapes.AnswerPayload) -> None:
        """Send one message to the device ``dst``.

        Raises
        ------
        SignalingDown
            The server is not reachable now.
        """
        if not self.is_up:
            raise self.down()
        self._write(shapes.write(type, dst, payload))

    def hurry(self) -> None:
        """Do not wait for the next reconnection: somebody needs the server now."""
        self._do(self._client.hurry(self._clock.now()))

    def down(self) -> SignalingDown:
        """The error that says signaling is lost right now."""
        return SignalingDown(
            f"The signaling server {self.server} is not reachable.",
            "Links that are open go on; it is tried again every few seconds, so try this again in a moment.",
        )

    async def close(self) -> None:
        """Leave the server. Never raises, and leaves no task behind."""
        self._do(self._client.close())
        self._registered.cancel()
        tasks = list(self._dialing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # The closing handshake takes one round trip; tornado gives up on it by itself after 5 s.
        if self._open:
            await asyncio.wait(list(self._open.values()), timeout=CLOSE_S)

    def _do(self, actions: Sequence[client.Action]) -> None:
        for action in actions:
            match action:
                case client.Dial(attempt, index, limit):
                    task = asyncio.get_running_loop().create_task(self._dial(attempt, index, limit))
                    self._dialing[attempt] = task
                    task.add_done_callback(functools.partial(self._dialed, attempt))
                case client.Hang(attempt):
                    self._hang(attempt)
                case client.Write(text):
                    self._write(text)
                case client.Registered(index, tries):
                    self.passed = client.tried(self._shown, tries)
                    self._settle(index)
                case client.Refused(index, why):
                    self._settle(
                        IdRefused(
                            f"The signaling server {self._shown[index]} does not give this id: {why}.",
                            "Take another code, or wait 90 seconds if the room was just closed elsewhere.",
                        )
                    )
                case client.Exhausted(tries):
                    self._settle(
                        NoServer(
                            client.tried(self._shown, tries),
                            "Check the network, or name another server (--signal, signal=).",
                        )
                    )
                case client.Outage(down):
                    self._safely(functools.partial(self._on_outage, down))
                case client.Deliver(message):
                    self._safely(functools.partial(self._on_message, message))
        self._arm()

    def _dialed(self, attempt: int, task: asyncio.Task[None]) -> None:
        if self._dialing.get(attempt) is task:
            del self._dialing[attempt]

    async def _dial(self, attempt: int, index: int, limit: float) -> None:
        """Open the socket of one attempt and say how it went."""
        # Tornado cannot be told to stop connecting: the task that it starts for it is ended here, and its
        # socket at the same limit.
        request = HTTPRequest(
            self._urls[index],
            connect_timeout=limit,
            request_timeout=limit,
            # It answers a handshake, and with nothing else: what comes instead is not kept, nor unpacked,
            # and nobody is sent elsewhere.
            follow_redirects=False,
            decompress_response=False,
            streaming_callback=_ignore,
        )
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        early: list[str | bytes | None] | None = []

        def heard(text: str | bytes | None) -> None:
            if early is not None:
                # Read from the socket before this task got to know that it is open.
                early.append(text)
            elif text is None:
                self._open.pop(attempt, None)
                if not gone.done():
                    gone.set_result(None)
                self._lost(attempt, "socket-closed")
            else:
                self._do(self._client.received(attempt, text, self._clock.now()))

        others = asyncio.all_tasks()
        with quiet():
            connecting = asyncio.ensure_future(
                websocket_connect(
                    request,
                    on_message_callback=heard,
                    ping_interval=PING_S,
                    ping_timeout=PING_S,
                    max_message_size=shapes.MAX_TEXT,
                )
            )
        jobs = asyncio.all_tasks() - others
        try:
            socket = await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.done():
                _close_late(connecting)
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            raise
        except Exception as error:  # of tornado, TLS or the resolver: every one is an outage
            self._lost(attempt, _words(error))
            return
        if attempt not in self._dialing:
            socket.close()
            return
        self._socket, self._socket_attempt = socket, attempt
        self._open[attempt] = gone
        self._do(self._client.opened(attempt, self._clock.now()))
        first, early = early or [], None
        for text in first:
            heard(text)

    def _lost(self, attempt: int, why: str) -> None:
        if attempt == self._socket_attempt and self._socket is not None:
            self._socket.close()  # the server has gone; tornado still wants to be told
            self._socket = None
        self._do(self._client.lost(attempt, why, self._clock.now()))

    def _hang(self, attempt: int) -> None:
        if self._socket is not None and attempt == self._socket_attempt:
            self._socket.close()
            self._socket = None
        task = self._dialing.pop(attempt, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _write(self, text: str) -> None:
        if self._socket is None:
            return
        try:
            sent = self._socket.write_message(text)
        except WebSocketClosedError:
            self._lost(self._socket_attempt, "socket-closed")
        else:
            # A socket that dies under a write says so by closing too.
            sent.add_done_callback(lambda f: f.cancelled() or f.exception())

    def _settle(self, outcome: int | Exception) -> None:
        if self._registered.done():
            return
        if isinstance(outcome, int):
            self._registered.set_result(outcome)
        else:
            self._registered.set_exception(outcome)

    def _safely(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            log.exception("a signaling callback failed")

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (wake := self._client.wake) is not None:
            self._timer = self._clock.call_later(max(0.0, wake - self._clock.now()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._do(self._client.tick(self._clock.now()))


def _close_late(connecting: asyncio.Future[WebSocketClientConnection]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()


def _ignore(chunk: bytes) -> None:
    """Of an answer that is no handshake."""


def _words(error: Exception) -> str:
    """Name an outage as PeerJS does, with a hint for people; never the URL, which holds the token."""
    match error:
        case HTTPTimeoutError():
            return "no answer"
        case HTTPStreamClosedError():
            return "socket-closed"
        case HTTPClientError(code=code) if 300 <= code < 400:
            return f"server-error: it points elsewhere, HTTP {code}"
        case HTTPClientError(code=code):
            return "no answer" if code == 599 else f"server-error: HTTP {code}"
        case ssl.SSLCertVerificationError(verify_message=str() as why) if why:
            return f"ssl-unavailable: its certificate is not accepted, {why.rstrip('.')}"
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError() | ssl.SSLError(reason="WRONG_VERSION_NUMBER"):
            return "ssl-unavailable: it does not speak TLS"
        case ssl.SSLError():
            return "ssl-unavailable"
        case ConnectionRefusedError():
            return "network: connection refused"
        case StreamClosedError(real_error=OSError() as real):
            return _words(real)
        case StreamClosedError() | WebSocketError() | UnsatisfiableReadError():
            return "socket-error: this is no signaling server"
        case OSError(strerror=str() as why) if why:
            return f"network: {why}"
        case _:
            return "socket-error"
