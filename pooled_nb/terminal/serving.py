"""``pooled-nb signal``: our signaling server alone. It introduces devices; no traffic of rooms passes it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pooled_nb.errors import BadOption, SignalingDown
from pooled_nb.mesh import specs
from pooled_nb.mesh.addresses import own_addresses
from pooled_nb.mesh.loop import new_loop
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.switchboard import Limits
from pooled_nb.terminal.screen import aside, say

if TYPE_CHECKING:
    import argparse

MAX_KEY = 64


def serve(args: argparse.Namespace) -> int:
    """Run until Ctrl-C, or until it is told to end."""
    path = checked_path(args.path)
    if not args.key or len(args.key) > MAX_KEY or not args.key.isascii() or not args.key.isalnum():
        raise BadOption("A key has letters and digits only.", f"Leave --key out: pooled_nb uses {specs.KEY}.")
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(args.host, args.port, path, args.key))
    aside("The signaling server has ended. Links between devices go on.")
    return 0


async def _serve(host: str, port: int, path: str, key: str) -> None:
    server = await SignalServer.start(host=host, port=port, path=path, limits=Limits(key=key))
    try:
        places = reachable(host, server.host, own_addresses())
        for line in told(places, server.port, path, key):
            say(line)
        with _ends() as over:
            await over.wait()
    finally:
        await server.close()


def checked_path(path: str) -> str:
    """Begins and ends with ``/``.

    Raises
    ------
    BadOption
        A client could not write it.
    """
    whole = f"/{path.strip('/')}/" if path.strip("/") else "/"
    try:
        specs.parse(f"ws://127.0.0.1:9000{whole}")
    except SignalingDown:
        raise BadOption("This path is not plain.", "Use letters, digits and /, like --path /rooms.") from None
    return whole


def reachable(asked: str, bound: str, own: Sequence[str]) -> list[str]:
    """By which addresses it is reached, the best for others first.

    Parameters
    ----------
    asked
        Where it was told to listen, as typed.
    bound
        Where it listens.
    own
        This machine's addresses on its networks.
    """
    try:
        everywhere = ipaddress.ip_address(bound).is_unspecified
    except ValueError:
        everywhere = False
    if everywhere:
        return [*own, "127.0.0.1"]
    return [asked if asked and asked != "localhost" else bound]


def told(places: Sequence[str], port: int, path: str, key: str) -> list[str]:
    """The exact lines to type elsewhere."""
    values = [_spec(place, port, path) for place in places]
    lines = [f"A signaling server runs at {values[0]}"]
    here = _is_loopback(places[0])
    where = "On this machine" if here else "On each device"
    lines.append(f"{where}: pooled-nb host MODEL --signal {values[0]}")
    lines.append(f"{' ' * len(where)}  pooled-nb join CODE --signal {values[0]}")
    if len(values) > 1:
        lines.append(f"It also answers at {', '.join(values[1:])}")
    if here:
        lines.append("Other machines do not reach it; --host 0.0.0.0 opens it to this machine's networks.")
    if key != specs.KEY:
        lines.append(
            f"Its key is {key}: devices of pooled_nb name {specs.KEY}, so only other PeerJS clients get in."
        )
    return [*lines, "Ctrl-C ends it."]


def _spec(place: str, port: int, path: str) -> str:
    host = f"[{place}]" if ":" in place else place
    return f"ws://{host}:{port}{path}"


def _is_loopback(place: str) -> bool:
    try:
        return ipaddress.ip_address(place).is_loopback
    except ValueError:
        return place == "localhost"


@contextlib.contextmanager
def _ends() -> Iterator[asyncio.Event]:
    """Set by Ctrl-C and SIGTERM, on the loop: nothing is cut off in the middle.

    Windows has no such handlers; there both raise KeyboardInterrupt, which ends the loop the same way.
    """
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    taken = []
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is None:
            continue
        before = signal.getsignal(number)
        try:
            loop.add_signal_handler(number, over.set)
        except (NotImplementedError, RuntimeError, ValueError):
            continue
        taken.append((number, before))
    try:
        yield over
    finally:
        for number, before in taken:
            loop.remove_signal_handler(number)
            signal.signal(number, before)
