"""What the signaling server's addresses answer: tornado's handlers, thin (PROTOCOL section 2).

``{path}peerjs`` is the WebSocket, ``{path}KEY/id`` draws an id, ``{path}r/CODE`` is a page for people, and
``{path}api/turn`` gives credentials of a relay. Request lines hold tokens, so nothing here logs one.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from tornado.iostream import IOStream, StreamClosedError
from tornado.web import HTTPError, RequestHandler
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from pooled_nb.errors import BadCode
from pooled_nb.mesh import codes, roompage
from pooled_nb.mesh.peerjs.shapes import random_id
from pooled_nb.mesh.turnmint import TurnMint

log = logging.getLogger(__name__)

TOO_OFTEN = 429


class Front(Protocol):
    """The server, as its handlers see it."""

    key: str
    mint: TurnMint | None

    def visitor(self, request: Any) -> tuple[str | None, bool]:
        """Whose limits this request counts for, and whether a proxy said so."""

    def asks(self, address: str | None, *, mint: bool = False) -> bool:
        """Whether one more request from there may be answered."""

    def joined(
        self, socket: Socket, *, key: str, id: str, token: str, address: str | None, is_forwarded: bool
    ) -> int:
        """A socket opened; returns its number."""

    def received(self, member: int, text: str) -> None:
        """It said something."""

    def noise(self, member: int, size: int) -> None:
        """It sent what is no message."""

    def gone(self, member: int, stream: IOStream | None) -> None:
        """It closed."""

    def may_wait(self, socket: Socket, size: int) -> bool:
        """Whether this much more may wait for a member that reads slowly."""

    def sent(self, size: int) -> None:
        """It no longer waits."""


class _Quiet(RequestHandler):
    """One that never logs a request: its line, and so the usual message, holds a token."""

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        if isinstance(value, (HTTPError, UnicodeError, StreamClosedError)):
            log.debug("a request was no good: %s", type(value).__name__)
        else:
            log.error("a handler of the signaling server failed", exc_info=value)


class Socket(_Quiet, WebSocketHandler):
    """One member."""

    def initialize(self, front: Front) -> None:
        """Tornado's own constructor, as it were."""
        self._front = front
        self._member = 0
        self._stream: IOStream | None = None
        self.unsent = 0
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def check_origin(self, origin: str) -> bool:
        """Any: as with the original, a page of any origin may use it."""
        return True

    def prepare(self) -> None:
        """Handshakes count for their address, as messages do."""
        self._address, self._is_forwarded = self._front.visitor(self.request)
        if not self._front.asks(self._address):
            self.set_status(TOO_OFTEN)
            self.finish()

    def open(self, *args: str, **kwargs: str) -> None:
        """The handshake is done."""
        self._stream = self.ws_connection.stream if self.ws_connection is not None else None
        self.set_nodelay(True)
        # Not get_query_argument: it raises on bytes that are no text, and tornado would log the token.
        said = self.request.query_arguments
        key, id, token = (
            said.get(name, [b""])[-1].decode("utf-8", "replace") for name in ("key", "id", "token")
        )
        self._member = self._front.joined(
            self, key=key, id=id, token=token, address=self._address, is_forwarded=self._is_forwarded
        )

    def on_message(self, message: str | bytes) -> None:
        """A whole message came."""
        if isinstance(message, str):
            self._front.received(self._member, message)
        else:
            self._front.noise(self._member, len(message))

    def on_ping(self, data: bytes) -> None:
        """Tornado answers it."""
        self._front.noise(self._member, len(data))

    def on_pong(self, data: bytes) -> None:
        """Ours was answered, or somebody plays."""
        self._front.noise(self._member, len(data))

    def on_close(self) -> None:
        """It is gone."""
        self._front.gone(self._member, self._stream)
        if not self.gone.done():
            self.gone.set_result(None)

    def push(self, text: bytes) -> None:
        """Send it, unless too much waits for this member: it is cut off then."""
        if not self._front.may_wait(self, len(text)):
            self.cut()
            return
        try:
            sent = self.write_message(text.decode())
        except WebSocketClosedError:
            self._front.sent(len(text))
            return
        self.unsent += len(text)

        def done(future: Any) -> None:
            self.unsent -= len(text)
            self._front.sent(len(text))
            if not future.cancelled():
                future.exception()

        asyncio.ensure_future(sent).add_done_callback(done)

    def cut(self) -> None:
        """Close without a handshake: whoever does not read would not answer one, and holds memory."""
        if self._stream is not None:
            self._stream.close()


class Plain(_Quiet):
    """What all of the other answers share; also the answer to a path that is none."""

    def initialize(self, front: Front) -> None:
        """Tornado's own constructor, as it were."""
        self._front = front

    def set_default_headers(self) -> None:
        """For pages of any origin, and for nobody's cache."""
        self.clear_header("Server")
        self.set_header("Access-Control-Allow-Origin", "*")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")

    def prepare(self) -> None:
        """Requests count for their address, as messages do."""
        self._address, _ = self._front.visitor(self.request)
        if not self._front.asks(self._address):
            self._deny(TOO_OFTEN, "Too many requests from this address.")

    def get(self, *args: str) -> None:
        """There is nothing here."""
        self._deny(404, "There is nothing here.")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """One line, without what was asked for."""
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{self._reason}\n")

    def _deny(self, status: int, why: str) -> None:
        self.set_status(status)
        if status == TOO_OFTEN:
            self.set_header("Retry-After", "60")
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{why}\n")


class NewId(Plain):
    """``GET {path}KEY/id``: PeerJS lets its server draw the id of a client that names none."""

    def get(self, *args: str) -> None:
        """Draw one."""
        if not hmac.compare_digest(args[0].encode(), self._front.key.encode()):
            self.set_status(401)
            return
        self.set_header("Content-Type", "text/html")
        self.write(random_id())


class About(Plain):
    """``GET {path}``: what PeerJS's own server says of itself."""

    def get(self, *args: str) -> None:
        """Say it."""
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


class RoomPage(Plain):
    """``GET {path}r/CODE``: what a person sees who opens an invite link in a browser."""

    def get(self, *args: str) -> None:
        """The page; a code that is none has no page."""
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", roompage.POLICY)
        try:
            code = codes.parse(args[0]).code
        except BadCode:
            self.set_status(404)
            self.finish(roompage.NO_ROOM)
            return
        self.finish(roompage.page(code))


class Turn(Plain):
    """``POST {path}api/turn``: credentials of a relay that end soon (PROTOCOL section 2, ICE)."""

    wall: Callable[[], float] = staticmethod(time.time)

    def options(self, *args: str) -> None:
        """A page of another origin asks whether it may ask."""
        self.set_header("Access-Control-Allow-Methods", "POST")
        self.set_header("Access-Control-Allow-Headers", "Content-Type")
        self.set_header("Access-Control-Max-Age", "600")
        self.set_status(204)
        self.finish()

    def post(self, *args: str) -> None:
        """Make some; 404 where this server knows no relay."""
        mint = self._front.mint
        if mint is None:
            self._deny(404, "This server gives no credentials of a relay.")
            return
        if not self._front.asks(self._address, mint=True):
            self._deny(TOO_OFTEN, "Too many requests from this address.")
            return
        self.set_header("Content-Type", "application/json")
        # Wall time is meant: the relay compares the name with its own (see `turnmint`).
        self.finish(json.dumps(mint.answer(secrets.token_hex(8), self.wall())))
