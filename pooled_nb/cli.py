"""``pooled-nb``: a room from a terminal, without a notebook."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from pooled_nb.errors import PooledError

if TYPE_CHECKING:
    import argparse


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    0; 1 after an error in words; 130 after Ctrl-C and 141 when nobody reads the output any more, as in a
    shell. (2 is for usage.)
    """
    _print_anything()
    try:
        try:
            return _run(sys.argv[1:] if argv is None else list(argv))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        _write_nowhere()
        return 141


def _run(argv: list[str]) -> int:
    from pooled_nb.terminal import arguments

    if not argv:
        arguments.parser().print_help()
        return 0
    try:
        args = arguments.parse(argv)
        with _asked_to_end():
            return _command(args)
    except PooledError as error:
        from pooled_nb.terminal.screen import aside

        aside(f"pooled-nb: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


def _command(args: argparse.Namespace) -> int:
    # Each imports what it needs, and no more: `pooled-nb status` loads neither aiortc nor torch.
    match args.command:
        case "demo":
            from pooled_nb.demo import run as demo

            return demo(devices=args.devices, model=args.model, question=args.ask, max_tokens=args.max_tokens)
        case "ask":
            from pooled_nb.terminal.asking import ask

            return ask(args)
        case "status":
            from pooled_nb.terminal.rooms_here import status

            return status(args)
        case "models":
            from pooled_nb.terminal.models import models

            return models(args)
        case "signal":
            from pooled_nb.terminal.serving import serve

            return serve(args)
        case "doctor":
            from pooled_nb.doctor import run as doctor

            return doctor(args)
        case _:
            from pooled_nb.terminal import staying

            stay = {"host": staying.host, "resume": staying.resume, "join": staying.join}
            return stay[args.command](args)


def _print_anything() -> None:
    """A letter that a terminal's encoding lacks is drawn as ``?``: no output fails by it."""
    for stream in (sys.stdout, sys.stderr):
        if (change := getattr(stream, "reconfigure", None)) is not None:
            change(errors="replace")


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

    # Windows has no SIGHUP, and tells of a closed console window by SIGBREAK.
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
    # What is ignored stays so: nohup asks for that.
    wanted = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
