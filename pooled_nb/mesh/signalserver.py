"""A PeerJS-compatible signaling server on tornado, embedded in the host (PROTOCOL section 2, DESIGN 4).

It only introduces devices: no room traffic passes through it. Any origin may connect, as with the original:
the id of a room is known only to who has its code, and the links prove themselves (PROTOCOL section 4).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import json
from socket import gaierror
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from pooled_nb.errors import SignalingDown
from pooled_nb.mesh.clock import Clock, LoopClock, Timer
from pooled_nb.mesh.peerjs.shapes import random_id
from pooled_nb.mesh.switchboard import Action, Drop, Limits, Send, Switchboard

TICK_S = 1.0
MAX_UNSENT = 2 * 1024 * 1024
"""Bytes that may wait for one slow member before it is dropped."""
PING_S = 25.0


class SignalServer:
    """A running server. Made by `start`, on the loop that is to run it.

    Attributes
    ----------
    host, port
        Where it listens.
    url
        The base WebSocket URL, as a server spec: ``ws://127.0.0.1:9000/``.
    """

    def __init__(self, clock: Clock, limits: Limits, path: str) -> None:
        self._clock = clock
        self._board = Switchboard(limits)
        self._limits = limits
        self._path = path
        self._sockets: dict[int, _Socket] = {}
        self._numbers = itertools.count(1)
        self._http: HTTPServer | None = None
        self._timer: Timer | None = None
        self._closed = False
        self.host = ""
        self.port = 0

    @classmethod
    async def start(
        cls,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        path: str = "/",
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> SignalServer:
        """Listen, and return once connections are taken.

        Parameters
        ----------
        host
            Address to listen on; loopback unless the person opened the room to the network.
        port
            0: any free one.
        path
            Where PeerJS finds it; begins and ends with ``/``.

        Raises
        ------
        SignalingDown
            The address or port cannot be had.
        """
        path = "/" + path.strip("/") + "/" if path.strip("/") else "/"
        server = cls(clock or LoopClock(), limits or Limits(), path)
        try:
            sockets = bind_sockets(port, host, reuse_port=False)
        except OSError as error:
            raise SignalingDown(
                f"No signaling server can be started on {host}:{port} ({error.strerror or error}).",
                _next_step(error, port),
            ) from None
        app = Application(
            [
                (f"{path}peerjs", _Socket, {"server": server}),
                (f"{path}([^/]+)/id", _NewId, {"key": server._limits.key}),
                (path, _About),
            ],
            # The request line holds tokens: it is never logged.
            log_function=lambda handler: None,
            websocket_max_message_size=server._limits.text,
            websocket_ping_interval=PING_S,
            websocket_ping_timeout=PING_S,
        )
        server._http = HTTPServer(
            app, max_buffer_size=1024 * 1024, max_header_size=16 * 1024, max_body_size=1024
        )
        server._http.add_sockets(sockets)
        server.host, server.port = sockets[0].getsockname()[:2]
        server._tick()
        return server

    @property
    def url(self) -> str:
        """See the class."""
        # Listening everywhere, it is found here by loopback.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host else host
        return f"ws://{host}:{self.port}{self._path}"

    def __len__(self) -> int:
        return len(self._board)

    async def close(self) -> None:
        """Stop listening and drop everybody. Never raises; a second call does nothing."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._http is None:
            return
        http, self._http = self._http, None
        http.stop()
        gone = [socket.gone for socket in self._sockets.values()]
        for socket in list(self._sockets.values()):
            socket.close()
        if gone:
            await asyncio.wait(gone, timeout=1.0)
        # Who did not answer the closing handshake is cut off.
        with contextlib.suppress(TimeoutError, OSError):
            await asyncio.wait_for(http.close_all_connections(), 1.0)

    def _tick(self) -> None:
        if self._closed:
            return
        self._do(self._board.tick(self._clock.now()))
        self._timer = self._clock.call_later(TICK_S, self._tick)

    def _joined(self, socket: _Socket, *, key: str, id: str, token: str) -> int:
        member = next(self._numbers)
        self._sockets[member] = socket
        self._do(self._board.join(member, key=key, id=id, token=token, now=self._clock.now()))
        return member

    def _received(self, member: int, text: str) -> None:
        self._do(self._board.receive(member, text, self._clock.now()))

    def _gone(self, member: int) -> None:
        self._sockets.pop(member, None)
        self._board.gone(member)

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(member, text):
                    if (socket := self._sockets.get(member)) is not None:
                        socket.push(text)
                case Drop(member):
                    if (socket := self._sockets.get(member)) is not None:
                        socket.close()


def _next_step(error: OSError, port: int) -> str:
    if isinstance(error, gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "Name an address of this machine: 127.0.0.1, or 0.0.0.0 for all of its networks."
    if error.errno in (errno.EACCES, errno.EPERM) and 0 < port < 1024:  # Windows says so of any port in use
        return "Ports below 1024 need an administrator's rights: name another one, like 9000."
    return "Close the program that uses this port, or name another one."


class _Socket(WebSocketHandler):
    def initialize(self, server: SignalServer) -> None:
        self._server = server
        self._member = 0
        self._unsent = 0
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def check_origin(self, origin: str) -> bool:
        return True

    def open(self, *args: str, **kwargs: str) -> None:
        self.set_nodelay(True)
        # Not get_query_argument: it raises on bytes that are no text, and tornado would log the token.
        said = self.request.query_arguments
        key, id, token = (
            said.get(name, [b""])[-1].decode("utf-8", "replace") for name in ("key", "id", "token")
        )
        self._member = self._server._joined(self, key=key, id=id, token=token)

    def on_message(self, message: str | bytes) -> None:
        if isinstance(message, str):
            self._server._received(self._member, message)

    def on_close(self) -> None:
        self._server._gone(self._member)
        if not self.gone.done():
            self.gone.set_result(None)

    def push(self, text: bytes) -> None:
        if self._unsent > MAX_UNSENT:
            self.close()
            return
        try:
            sent = self.write_message(text.decode())
        except WebSocketClosedError:
            return
        self._unsent += len(text)

        def done(future: Any) -> None:
            self._unsent -= len(text)
            if not future.cancelled():
                future.exception()

        asyncio.ensure_future(sent).add_done_callback(done)


class _Json(RequestHandler):
    def set_default_headers(self) -> None:
        self.set_header("Access-Control-Allow-Origin", "*")
        self.clear_header("Server")


class _NewId(_Json):
    def initialize(self, key: str) -> None:
        self._key = key

    def get(self, key: str) -> None:
        if key != self._key:
            self.set_status(401)
            return
        self.set_header("Content-Type", "text/html")
        self.write(random_id())


class _About(_Json):
    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.write(
            json.dumps(
                {
                    "name": "PeerJS Server",
                    "description": "A server side element to broker connections between PeerJS clients.",
                    "website": "https://peerjs.com/",
                }
            )
        )
