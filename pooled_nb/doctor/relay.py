"""Whether the relay of ``POOLED_TURN`` lets this device in (PROTOCOL section 2, ICE)."""

from __future__ import annotations

import asyncio
import socket
import time
from urllib.parse import urlsplit

from msgspec import Struct

from pooled_nb.doctor.findings import Finding
from pooled_nb.errors import BadOption
from pooled_nb.mesh import turn
from pooled_nb.mesh.ice import TurnServer

ANSWER_S = 5.0
LEAVE_S = 1.0


class Relay(Struct, frozen=True, kw_only=True):
    """The configured relay, without its secret: ``place`` is host and port."""

    place: str = ""
    ms: float | None = None
    problem: str = ""
    readable: bool = True


async def look(setting: str) -> Relay | None:
    """Ask it for a relayed address, and give that back; None where none is configured."""
    try:
        server = turn.parse(setting)
    except BadOption:
        return Relay(problem="it cannot be read", readable=False)
    if server is None:
        return None
    place = urlsplit(server.url).path.rpartition("@")[2]
    began = time.monotonic()
    try:
        async with asyncio.timeout(ANSWER_S):
            await _allocate(server)
    except TimeoutError:
        return Relay(place=place, problem="no answer")
    except socket.gaierror:
        return Relay(place=place, problem="its name is not found")
    except OSError as error:
        return Relay(place=place, problem=error.strerror or "it cannot be reached")
    except Exception as error:
        # aioice's own errors repeat what was sent, the user's name with it.
        return Relay(place=place, problem=_refusal(error))
    return Relay(place=place, ms=(time.monotonic() - began) * 1e3)


async def _allocate(server: TurnServer) -> None:
    from aioice import turn as client

    where, _, more = server.url.partition("?")
    scheme, host, port = where.split(":")
    found = await asyncio.get_running_loop().getaddrinfo(host, int(port), family=socket.AF_INET)
    address = str(found[0][4][0])
    transport, _ = await client.create_turn_endpoint(
        asyncio.DatagramProtocol,
        server_addr=(address, int(port)),
        username=server.username or None,
        password=server.credential or None,
        ssl=scheme == "turns",
        transport=more.removeprefix("transport="),
    )
    transport.close()
    await asyncio.sleep(0.05)  # its goodbye goes out


def _refusal(error: Exception) -> str:
    response = getattr(error, "response", None)
    code = getattr(response, "attributes", {}).get("ERROR-CODE") if response is not None else None
    if isinstance(code, tuple) and code and code[0] in (401, 403, 441):
        return "it refuses this user or password"
    if isinstance(code, tuple) and code and isinstance(code[0], int):
        return f"it answers with error {code[0]}"
    return "no answer that makes sense"


def judge(seen: Relay | None) -> list[Finding]:
    """Facts in, findings out."""
    if seen is None:
        return []
    if not seen.readable:
        todo = "Write it as turn:USER:PASSWORD@HOST:PORT, or turns:… for one that speaks TLS."
        return [
            Finding(
                what="relay", mark="fail", result="POOLED_TURN names no relay that can be read", todo=todo
            )
        ]
    what = f"relay {seen.place}"
    if seen.problem:
        todo = "Check POOLED_TURN: host, port, user and password; many relays take a password for hours only."
        return [Finding(what=what, mark="fail", result=seen.problem, todo=todo)]
    return [Finding(what=what, mark="ok", result=f"lets this device in, {seen.ms or 0:.0f} ms")]
