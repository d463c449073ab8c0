"""Options of the commands that open no room. Imports nothing heavy."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError


def models(models: ArgumentParser) -> None:
    """Options of ``pooled-nb models``."""
    models.add_argument(
        "words",
        nargs="*",
        metavar="VERB MODEL",
        help="list (the default); pull MODEL: fetch it ahead, an interrupted one goes on; delete MODEL: its "
        "revisions, or one; prune: what was not used for longest",
    )
    models.add_argument(
        "--layers",
        metavar="1-12",
        help="pull only these; from 1 on they come with what a host needs besides",
    )
    models.add_argument("--revision", metavar="REV", help="pull or delete this branch, tag or commit")
    models.add_argument("--keep", metavar="SIZE", help="prune until the range cache holds no more, like 20GB")
    models.add_argument("--yes", action="store_true", help="delete without asking")
    models.add_argument("--json", action="store_true", help="list: print one object")


def signal(signal: ArgumentParser) -> None:
    """Options of ``pooled-nb signal``."""
    signal.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="where to listen (default 127.0.0.1: this machine only; 0.0.0.0: every network it is on)",
    )
    signal.add_argument("--port", type=_port, default=9000, metavar="N", help="default 9000; 0: any free one")
    signal.add_argument("--path", default="/", help="the path of its address (default /)")
    signal.add_argument(
        "--key", default="peerjs", help="what its clients must name (default peerjs, as pooled_nb does)"
    )
    signal.add_argument("--certfile", metavar="FILE", help="speak TLS with this certificate (PEM)")
    signal.add_argument("--keyfile", metavar="FILE", help="its key, where the certificate's file has none")
    signal.add_argument(
        "--trust-proxy",
        action="store_true",
        help="a proxy stands in front, on this machine or beside it: limits count for the address that it "
        "says it saw (X-Forwarded-For)",
    )
    signal.add_argument(
        "--turn-uri",
        action="append",
        metavar="turn:HOST:PORT",
        help="give devices credentials of this relay, which end soon; may be repeated",
    )
    signal.add_argument(
        "--turn-secret-file",
        metavar="FILE",
        help="the secret that this server shares with the relay (coturn: static-auth-secret); without it "
        "POOLED_TURN_SECRET is taken",
    )
    signal.add_argument(
        "--turn-ttl",
        type=int,
        default=3600,
        metavar="SECONDS",
        help="how long credentials are good (default 3600)",
    )


def doctor(doctor: ArgumentParser) -> None:
    """Options of ``pooled-nb doctor``."""
    doctor.add_argument(
        "--signal",
        action="append",
        metavar="SERVER",
        help="also ask this signaling server; may be repeated (default: those of POOLED_SIGNAL)",
    )
    doctor.add_argument("--json", action="store_true", help="print one object")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 65_535:
        raise ArgumentTypeError(f"{text!r} is no port; use a number from 0 to 65535")
    return int(text)
