"""A PeerJS-compatible signaling server on tornado, embedded in the host (PROTOCOL section 2, DESIGN 4).

It only introduces devices: no room traffic passes through it. Any origin may connect, as with the original:
the id of a room is known only to who has its code, and the links prove themselves (PROTOCOL section 4).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import re
import ssl
import sys
from dataclasses import replace
from socket import gaierror
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.iostream import IOStream
from tornado.netutil import bind_sockets
from tornado.web import Application

from pooled_nb.errors import SignalingDown
from pooled_nb.mesh import quota
from pooled_nb.mesh.clock import Clock, LoopClock, Timer
from pooled_nb.mesh.peerjs.quiet import quiet
from pooled_nb.mesh.signalhttp import About, NewId, Plain, RoomPage, Socket, Turn
from pooled_nb.mesh.switchboard import Action, Drop, Limits, Send, Switchboard
from pooled_nb.mesh.turnmint import TurnMint

TICK_S = 1.0
PING_S = 25.0
MAX_HEADER = 16 * 1024
MAX_BODY = 1024
"""Of a request: none of those that are answered needs one."""
FAIR = 64 * 1024
"""Bytes that may wait for a member even where much waits for others."""


class SignalServer:
    """A running server. Made by `start`, on the loop that is to run it.

    Attributes
    ----------
    host, port
        Where it listens.
    url
        The base WebSocket URL, as a server spec: ``ws://127.0.0.1:9000/``.
    """

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        path: str,
        *,
        secure: bool = False,
        trusts_proxy: bool = False,
        mint: TurnMint | None = None,
    ) -> None:
        self._clock = clock
        limits = replace(limits, sockets=min(limits.sockets, _descriptors() // 2))
        self._board = Switchboard(limits)
        self._limits = limits
        self._path = path
        self._secure = secure
        self._trusts_proxy = trusts_proxy
        self._sockets: dict[int, Socket] = {}
        self._streams: dict[IOStream, str | None] = {}
        """Open connections, and whose limits each counts for."""
        self._unsent = 0
        self._numbers = itertools.count(1)
        self._http: _Listener | None = None
        self._timer: Timer | None = None
        self._closed = False
        self.key = limits.key
        self.mint = mint
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
        tls: ssl.SSLContext | None = None,
        trusts_proxy: bool = False,
        mint: TurnMint | None = None,
    ) -> SignalServer:
        """Listen, and return once connections are taken.

        Parameters
        ----------
        host
            Address to listen on; loopback unless the person opened the room to the network.
            ``0.0.0.0``: every network; ``::``: with IPv6.
        port
            0: any free one.
        path
            Where PeerJS finds it; begins and ends with ``/``.
        tls
            Speak TLS, with this certificate; see `pooled_nb.mesh.tls`.
        trusts_proxy
            A proxy stands in front, on this machine or beside it: limits count for the address that it says
            it saw (``X-Forwarded-For``, the last one).
        mint
            Answer ``POST {path}api/turn`` with its credentials.

        Raises
        ------
        SignalingDown
            The address or port cannot be had.
        """
        path = "/" + path.strip("/") + "/" if path.strip("/") else "/"
        server = cls(
            clock or LoopClock(),
            limits or Limits(),
            path,
            secure=tls is not None,
            trusts_proxy=trusts_proxy,
            mint=mint,
        )
        try:
            # None: every address of both families. A socket on "::" would take no IPv4.
            sockets = bind_sockets(port, None if host == "::" else host, reuse_port=False)
        except OSError as error:
            raise SignalingDown(
                f"No signaling server can be started on {host}:{port} ({error.strerror or error}).",
                _next_step(error, port),
            ) from None
        server._listen(tls)
        assert server._http is not None
        with quiet():  # a log line for each bad handshake would be a flood of its own
            server._http.add_sockets(sockets)
        server.host, server.port = sockets[0].getsockname()[:2]
        server._tick()
        return server

    def _listen(self, tls: ssl.SSLContext | None) -> None:
        front: dict[str, Any] = {"front": self}
        path = re.escape(self._path)
        app = Application(
            [
                (f"{path}peerjs", Socket, front),
                (f"{path}([^/]+)/id", NewId, front),
                (f"{path}api/turn", Turn, front),
                (f"{path}(?:r|room)/([^/]+)/?", RoomPage, front),
                (path, About, front),
            ],
            default_handler_class=Plain,
            default_handler_args=front,
            # The request line holds tokens: it is never logged.
            log_function=lambda handler: None,
            websocket_max_message_size=self._limits.text,
            websocket_ping_interval=PING_S,
            websocket_ping_timeout=PING_S,
        )
        self._http = _Listener(
            app,
            ssl_options=tls,
            max_buffer_size=1024 * 1024,
            max_header_size=MAX_HEADER,
            max_body_size=MAX_BODY,
            # Also for the handshake of TLS, and between two requests of one connection.
            idle_connection_timeout=self._limits.handshake_s,
            body_timeout=self._limits.handshake_s,
        )
        self._http.owner = self

    @property
    def url(self) -> str:
        """See the class."""
        # Listening everywhere, it is found here by loopback.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host else host
        return f"{'wss' if self._secure else 'ws'}://{host}:{self.port}{self._path}"

    @property
    def held(self) -> dict[str, int]:
        """How much it holds, by name: nothing of it may grow without end."""
        members, waiting, waiting_bytes, addresses = self._board.held
        return {
            "members": members,
            "waiting": waiting,
            "waiting_bytes": waiting_bytes,
            "addresses": addresses,
            "sockets": len(self._sockets),
            "streams": len(self._streams),
            "unsent": self._unsent,
        }

    def __len__(self) -> int:
        return len(self._board)

    def renew(self, tls: ssl.SSLContext) -> None:
        """Show this certificate to new connections. Those that are open go on."""
        if self._http is not None:
            self._http.ssl_options = tls

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
        for stream in list(self._streams):
            stream.close()
        with contextlib.suppress(TimeoutError, OSError):
            await asyncio.wait_for(http.close_all_connections(), 1.0)

    # what its connections report

    def accepted(self, stream: IOStream, peer: str) -> bool:
        """A connection came in; False: it is cut off."""
        address = None if self._trusts_proxy and quota.is_proxy(peer) else quota.group(peer)
        if not self._board.accept(address, self._clock.now()):
            return False
        self._streams[stream] = address
        return True

    def released(self, stream: IOStream) -> None:
        """A connection closed. Said twice, it counts once."""
        if stream in self._streams:
            self._board.released(self._streams.pop(stream))

    def visitor(self, request: HTTPServerRequest) -> tuple[str | None, bool]:
        """See `signalhttp.Front`."""
        peer = request.remote_ip or ""
        if self._trusts_proxy and quota.is_proxy(peer):
            said = quota.forwarded(request.headers.get("X-Forwarded-For", ""))
            return quota.group(said or peer), True
        return quota.group(peer), False

    def asks(self, address: str | None, *, mint: bool = False) -> bool:
        """See `signalhttp.Front`."""
        now = self._clock.now()
        return self._board.quota.mint(address, now) if mint else self._board.quota.spend(address, 0, now)

    def joined(
        self, socket: Socket, *, key: str, id: str, token: str, address: str | None, is_forwarded: bool
    ) -> int:
        """See `signalhttp.Front`."""
        member = next(self._numbers)
        self._sockets[member] = socket
        self._do(
            self._board.join(
                member,
                key=key,
                id=id,
                token=token,
                now=self._clock.now(),
                address=address,
                is_forwarded=is_forwarded,
            )
        )
        return member

    def received(self, member: int, text: str) -> None:
        """See `signalhttp.Front`."""
        self._do(self._board.receive(member, text, self._clock.now()))

    def noise(self, member: int, size: int) -> None:
        """See `signalhttp.Front`."""
        self._do(self._board.noise(member, size, self._clock.now()))

    def gone(self, member: int, stream: IOStream | None) -> None:
        """See `signalhttp.Front`."""
        self._sockets.pop(member, None)
        self._board.gone(member)
        if stream is not None:
            self.released(stream)

    def may_wait(self, socket: Socket, size: int) -> bool:
        """See `signalhttp.Front`. Where too much waits in all, who holds little of it goes on."""
        limits = self._limits
        if socket.unsent > limits.unsent or (self._unsent > limits.unsent_all and socket.unsent > FAIR):
            return False
        self._unsent += size
        return True

    def sent(self, size: int) -> None:
        """See `signalhttp.Front`."""
        self._unsent -= size

    def _tick(self) -> None:
        if self._closed:
            return
        self._do(self._board.tick(self._clock.now()))
        # A net below what connections report: a place that is not given back would be lost for good.
        for stream in [stream for stream in self._streams if stream.closed()]:
            self.released(stream)
        self._timer = self._clock.call_later(TICK_S, self._tick)

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(member, text):
                    if (socket := self._sockets.get(member)) is not None:
                        socket.push(text)
                case Drop(member):
                    if (socket := self._sockets.get(member)) is not None:
                        socket.close()


class _Listener(HTTPServer):
    """Tornado's, which asks before it reads anything of a new connection."""

    owner: SignalServer

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        peer = address[0] if isinstance(address, tuple) and address else ""
        if not self.owner.accepted(stream, str(peer)):
            stream.close()
            return
        super().handle_stream(stream, address)

    def on_close(self, server_conn: Any) -> None:
        super().on_close(server_conn)
        # A WebSocket has taken its stream along, and says itself when it is gone.
        if server_conn.stream.closed():
            self.owner.released(server_conn.stream)


def _next_step(error: OSError, port: int) -> str:
    if isinstance(error, gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "Name an address of this machine: 127.0.0.1, or 0.0.0.0 for all of its networks."
    if error.errno in (errno.EACCES, errno.EPERM) and 0 < port < 1024:  # Windows says so of any port in use
        return "Ports below 1024 need an administrator's rights: name another one, like 9000."
    return "Close the program that uses this port, or name another one."


def _descriptors() -> int:
    """How many files and sockets this process may have open: without one left, nobody could be refused."""
    if sys.platform == "win32":
        return 1 << 20  # sockets are no files there
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft > 0 else 1 << 20
