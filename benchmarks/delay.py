"""A delay in the wire: every datagram of this process's links, or every frame, leaves so much later.

``python -m benchmarks.delay MS ARGUMENTS…`` is ``pooled-nb ARGUMENTS…`` under it. It sits below everything
that a link is made of (ICE, DTLS, SCTP), where a long line would be, so what waits for answers waits twice.
``MSf`` (``50f``) delays whole frames instead: what a room costs over a link that is ready for them.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import Any

from aioice.ice import StunProtocol

from pooled_nb import cli
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.sending import Sending

_seconds = _frame_seconds = 0.0


def set_delay(ms: float, *, frames: bool = False) -> None:
    """Delay what is sent from now on, one way: datagrams, or whole ``frames``.

    Call it once before the first link, with 0 to delay later.
    """
    global _seconds, _frame_seconds
    _seconds, _frame_seconds = (0.0, ms / 1e3) if frames else (ms / 1e3, 0.0)
    StunProtocol.connection_made = _connection_made  # type: ignore[method-assign]
    Sending.send_frame = _send_frame  # type: ignore[method-assign]


class Late:
    """A datagram transport whose datagrams leave late, in order."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, bytes, Any]] = deque()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def sendto(self, data: bytes, addr: Any = None) -> None:
        """As a transport's."""
        if not _seconds and not self._waiting:
            self._transport.sendto(data, addr)
            return
        self._waiting.append((self._loop.time() + _seconds, bytes(data), addr))
        if len(self._waiting) == 1:
            self._loop.call_at(self._waiting[0][0], self._leave)

    def _leave(self) -> None:
        now = self._loop.time()
        while self._waiting and self._waiting[0][0] <= now:
            _, data, addr = self._waiting.popleft()
            if not self._transport.is_closing():
                self._transport.sendto(data, addr)
        if self._waiting:
            self._loop.call_at(self._waiting[0][0], self._leave)


_made = StunProtocol.connection_made


def _connection_made(self: StunProtocol, transport: asyncio.BaseTransport) -> None:
    late: Any = Late(transport)
    _made(self, late)


_send = Sending.send_frame


def _send_frame(self: Sending, to: str, frame: Frame) -> bool:
    if not _frame_seconds:
        return _send(self, to, frame)
    asyncio.get_running_loop().call_later(_frame_seconds, _send, self, to, frame)  # equal delays keep order
    return True


def main() -> int:
    """See the module."""
    ms = sys.argv[1]
    set_delay(float(ms.removesuffix("f")), frames=ms.endswith("f"))
    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
