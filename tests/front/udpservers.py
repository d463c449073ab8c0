"""Small STUN and TURN servers on loopback: real packets, answers as a test wants them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from aioice import stun
from aioice.turn import make_integrity_key

Answer = Callable[[stun.Message, tuple[str, int]], stun.Message | bytes | None]


@contextlib.asynccontextmanager
async def answering(answer: Answer, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """Its port."""

    class Server(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            if data[0] & 0xC0:
                return  # what a channel of a relay carries
            said = answer(stun.parse_message(data), addr)
            if said is not None:
                self.transport.sendto(bytes(said), addr)  # type: ignore[attr-defined]

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Server, local_addr=(host, 0))
    try:
        yield transport.get_extra_info("sockname")[1]
    finally:
        transport.close()


def reply(request: stun.Message, **attributes: object) -> stun.Message:
    """Yes, with these attributes."""
    return _message(request, stun.Class.RESPONSE, attributes)


def refusal(request: stun.Message, code: int, **attributes: object) -> stun.Message:
    """No, with this error."""
    return _message(request, stun.Class.ERROR, {"ERROR_CODE": (code, "no"), **attributes})


def _message(request: stun.Message, kind: stun.Class, attributes: dict[str, object]) -> stun.Message:
    said = stun.Message(
        message_method=request.message_method, message_class=kind, transaction_id=request.transaction_id
    )
    for name, value in attributes.items():
        said.attributes[name.replace("_", "-")] = value
    return said


def binding(shift: int = 0) -> Answer:
    """A STUN server; behind a NAT that adds ``shift`` to the port."""
    return lambda request, addr: reply(request, XOR_MAPPED_ADDRESS=(addr[0], addr[1] + shift))


def relay(user: str, password: str) -> Answer:
    """A TURN server that knows one user."""
    key = make_integrity_key(user, "here", password)

    def answer(request: stun.Message, addr: tuple[str, int]) -> stun.Message:
        if request.attributes.get("USERNAME") != user or not request.check_message_integrity(key):
            return refusal(request, 401, REALM="here", NONCE=b"once")
        said = reply(
            request,
            LIFETIME=request.attributes.get("LIFETIME", 600),
            XOR_MAPPED_ADDRESS=addr,
            XOR_RELAYED_ADDRESS=("127.0.0.1", 50_000),
        )
        said.add_message_integrity(key)
        return said

    return answer


def full(user: str, password: str) -> Answer:
    """One that knows the user, and has no place for it: signed, or no client believes it (RFC 8489 9.2.5)."""
    key = make_integrity_key(user, "here", password)
    known = relay(user, password)

    def answer(request: stun.Message, addr: tuple[str, int]) -> stun.Message | bytes | None:
        said = known(request, addr)
        if isinstance(said, stun.Message) and said.message_class == stun.Class.RESPONSE:
            said = refusal(request, 486)
            said.add_message_integrity(key)
        return said

    return answer
