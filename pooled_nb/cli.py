"""``pooled-nb``: a room from a terminal, without a notebook."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from types import FrameType

from pooled_nb._version import __version__
from pooled_nb.errors import PooledError

QUESTION = "What is the water cycle, in one sentence?"
"""Of the demo: one that its small model answers rightly, and to the end."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="pooled-nb",
        description="One open language model, split over the devices of a room.",
        epilog="A room lives as long as its host: Ctrl-C leaves, and the host's leaving closes it.",
    )
    top.add_argument("--version", action="version", version=f"pooled-nb {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    device = argparse.ArgumentParser(add_help=False)
    device.add_argument("--name", help="what others call this device")
    device.add_argument("--lend", metavar="GB", help="memory to lend, like 6GB")
    device.add_argument(
        "--signal",
        action="append",
        metavar="SERVER",
        help="a signaling server; may be repeated, tried in order",
    )
    device.add_argument("--folder", help="where the model's files lie")
    device.add_argument("--ask", metavar="TEXT", help="ask this, print the answer, and leave")
    device.add_argument("--max-tokens", type=int, metavar="N", help="the most tokens of an answer")

    host = commands.add_parser("host", parents=[device], help="open a room around a model")
    host.add_argument("model", help="a Hugging Face id, or a folder with safetensors files")
    host.add_argument(
        "--devices", type=int, metavar="N", help="start when N devices are here, this one counted"
    )
    host.add_argument("--split", choices=["speed", "memory"], default="speed", help="how layers are dealt")
    host.add_argument("--ctx", type=int, metavar="TOKENS", help="tokens of context")
    host.add_argument("--code", help="open the room under this code")
    host.add_argument("--lan", action="store_true", help="open the room to the local network")
    host.add_argument("--fast", action="store_true", help="faster, without the promise of equal tokens")
    host.add_argument("--dtype", help="numbers of the model, like bfloat16")

    join = commands.add_parser("join", parents=[device], help="join a room")
    join.add_argument("code", nargs="?", help="the code or link; asked for, unseen, when absent")
    join.add_argument("--role", choices=["auto", "worker", "guest"], default="auto", help="what to be")

    demo = commands.add_parser("demo", help="three kernels on this machine share one model and answer")
    demo.add_argument(
        "--devices", type=int, default=3, metavar="N", help="kernels, the host counted (default 3)"
    )
    demo.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct", help="the model")
    demo.add_argument("--ask", default=QUESTION, metavar="TEXT", help="the question")
    demo.add_argument("--max-tokens", type=int, default=64, metavar="N", help="the most tokens of the answer")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    0; 1 after an error in words; 130 after Ctrl-C and 141 when nobody reads the output any more, as in a
    shell. (2 is for usage.)
    """
    try:
        try:
            return _run(parser().parse_args(argv))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        _write_nowhere()
        return 141


def _run(args: argparse.Namespace) -> int:
    try:
        with _asked_to_end():
            if args.command == "demo":
                from pooled_nb.demo import run as demo

                return demo(
                    devices=args.devices, model=args.model, question=args.ask, max_tokens=args.max_tokens
                )
            from pooled_nb import terminal

            return terminal.host(args) if args.command == "host" else terminal.join(args)
    except PooledError as error:
        from pooled_nb.plain import visible

        print(f"pooled-nb: {visible(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _write_nowhere() -> None:
    """What is still buffered has no reader; Python would complain about it at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def _asked_to_end() -> Iterator[None]:
    """SIGTERM and SIGHUP end this program as Ctrl-C does, so that the room is left and not just lost."""
    asked = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        # Once: it may come to the process and again to its group, and leaving is bounded by itself.
        nonlocal asked
        if not asked:
            asked = True
            raise KeyboardInterrupt

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {name: signal.signal(getattr(signal, name), interrupt) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


if __name__ == "__main__":
    sys.exit(main())
