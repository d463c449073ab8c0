"""``pooled-nb signal``: our signaling server alone. It introduces devices; no traffic of rooms passes it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pooled_nb.errors import BadOption, SignalingDown
from pooled_nb.mesh import specs, turnmint
from pooled_nb.mesh.addresses import own_addresses
from pooled_nb.mesh.loop import new_loop
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.switchboard import Limits
from pooled_nb.mesh.tls import Certificate
from pooled_nb.mesh.turnmint import TurnMint
from pooled_nb.terminal.screen import aside, say

if TYPE_CHECKING:
    import argparse

MAX_KEY = 64
RENEW_S = 60.0
"""How often the certificate's files are looked at."""
SECRET = "POOLED_TURN_SECRET"


def serve(args: argparse.Namespace) -> int:
    """Run until Ctrl-C, or until it is told to end."""
    path = checked_path(args.path)
    if not args.key or len(args.key) > MAX_KEY or not args.key.isascii() or not args.key.isalnum():
        raise BadOption("A key has letters and digits only.", f"Leave --key out: pooled_nb uses {specs.KEY}.")
    if args.keyfile and not args.certfile:
        raise BadOption("--keyfile needs the certificate, too.", "Name it with --certfile FILE.")
    certificate = Certificate(args.certfile, args.keyfile) if args.certfile else None
    mint = relay(args.turn_uri or (), args.turn_secret_file, args.turn_ttl)
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(args, path, certificate, mint))
    aside("The signaling server has ended. Links between devices go on.")
    return 0


async def _serve(
    args: argparse.Namespace, path: str, certificate: Certificate | None, mint: TurnMint | None
) -> None:
    server = await SignalServer.start(
        host=args.host,
        port=args.port,
        path=path,
        limits=Limits(key=args.key),
        tls=certificate.context if certificate is not None else None,
        trusts_proxy=args.trust_proxy,
        mint=mint,
    )
    try:
        places = reachable(args.host, server.host, own_addresses())
        if certificate is not None:
            # A client takes the certificate only under a name that stands in it.
            places = certificate.names() or places
        for line in told(places, server.port, path, args.key, certificate is not None):
            say(line)
        if mint is not None:
            say(f"It gives credentials of the relay {mint.uris[0]}, each good for {mint.ttl_s} s.")
        say("Ctrl-C ends it.")
        with _ends() as over:
            await _until(over, server, certificate)
    finally:
        await server.close()


async def _until(over: asyncio.Event, server: SignalServer, certificate: Certificate | None) -> None:
    """Wait for the end; take a renewed certificate meanwhile."""
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), RENEW_S if certificate is not None else None)
            return
        try:
            if certificate is not None and certificate.renewed():
                server.renew(certificate.context)
                aside("The certificate was renewed: new connections take the new one.")
        except BadOption as error:
            aside(f"{error} The one before stays in use.")


def relay(uris: Sequence[str], secret_file: str | None, ttl_s: int) -> TurnMint | None:
    """What makes credentials of a relay, by the options; None where there is none.

    The secret comes from a file or the environment, never from the command line: others see that.

    Raises
    ------
    BadOption
        One of them makes no sense, or is missing.
    """
    if not uris:
        if secret_file:
            raise BadOption("A relay's secret was named, and no relay.", "Add --turn-uri turn:HOST:3478.")
        return None
    if secret_file:
        secret = turnmint.secret_of(_read(secret_file))
    elif text := os.environ.get(SECRET, ""):
        secret = turnmint.secret_of(os.fsencode(text))
    else:
        raise BadOption(
            "A relay was named without the secret that this server shares with it.",
            f"Name its file with --turn-secret-file FILE, or set {SECRET}.",
        )
    return TurnMint(uris=tuple(uris), secret=secret, ttl_s=ttl_s)


def _read(file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            if sys.platform != "win32" and os.fstat(opened.fileno()).st_mode & stat.S_IROTH:
                aside(f"Everybody on this machine can read {file}: chmod o-r {file} ends that.")
            return opened.read(2 * turnmint.MAX_SECRET)
    except OSError as error:
        raise BadOption(
            f"The file {file} cannot be read ({error.strerror or error}).",
            "Name one that holds the relay's secret alone.",
        ) from None


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


def told(places: Sequence[str], port: int, path: str, key: str, secure: bool = False) -> list[str]:
    """The exact lines to type elsewhere."""
    values = [_spec(place, port, path, secure) for place in places]
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
    return lines


def _spec(place: str, port: int, path: str, secure: bool) -> str:
    host = f"[{place}]" if ":" in place else place
    return f"{'wss' if secure else 'ws'}://{host}:{port}{path}"


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
        if before is signal.SIG_IGN:
            continue  # nohup, or a shell's background: whoever started it so wants it to stay
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
