"""The shard's process: reads calls from its standard input, does one at a time, writes what comes of it.

It ends when its input closes, in the middle of whatever it does: the kernel that owned it is gone. A process
that a cell forked holds the pipe open all the same, so it also looks whether its parent is still the same.
Run as ``python -m pooled_nb.shard.child``, by `pooled_nb.shard.process` only.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, BinaryIO

from pooled_nb.shard import protocol
from pooled_nb.shard.faults import as_pooled_error
from pooled_nb.shard.leaving import begun, leave
from pooled_nb.shard.stopping import Stops
from pooled_nb.shard.threads import limit_environment

if TYPE_CHECKING:
    from pooled_nb.shard.desk import Desk

_LOOK_S = 0.5


def main() -> None:
    """Serve until the input closes."""
    calls, replies = _take_pipes()
    limit_environment(os.environ)
    # An interrupt is meant for a cell (DESIGN section 3).
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    waiting: queue.SimpleQueue[protocol.Call] = queue.SimpleQueue()
    stops = Stops()
    threading.Thread(target=_read, args=(calls, waiting, stops), name="pooled-pipe", daemon=True).start()
    if sys.platform != "win32":  # there a parent's id never changes
        # The kernel says who it is: it may be gone before this line is reached.
        parent = int(sys.argv[1]) if len(sys.argv) > 1 else os.getppid()
        threading.Thread(target=_watch, args=(parent,), name="pooled-parent", daemon=True).start()

    desk: Desk | None = None
    while True:
        call = waiting.get()

        def progress(pct: int, words: str, number: int = call.id) -> None:
            _write(replies, protocol.pack(protocol.progressed(number, pct, words)))

        try:
            if desk is None:
                # Imported after the thread limits stand: torch reads them when it loads.
                from pooled_nb.shard.desk import Desk

                desk = Desk()
            result = desk.run(call.job, progress, stops.of(call.id))
            reply = protocol.pack(protocol.done(call.id, result))
        except Exception as error:
            reply = protocol.pack(protocol.failed(call.id, as_pooled_error(error)))
        stops.ended(call.id)
        _write(replies, reply)


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Take both pipes for ourselves: prints go to the standard error, and nobody else reads the calls."""
    calls = os.fdopen(os.dup(0), "rb", buffering=1 << 16)
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    if sys.platform == "win32":  # pragma: no cover
        import msvcrt

        for pipe in (calls, replies):
            msvcrt.setmode(pipe.fileno(), os.O_BINARY)
    return calls, replies


def _read(calls: BinaryIO, waiting: queue.SimpleQueue[protocol.Call], stops: Stops) -> None:
    """Hand calls over, and what cancels them.

    Ends the whole process when the pipe closes, or says what no kernel of ours says.
    """
    try:
        while head := calls.read(protocol.HEAD):
            body = calls.read(protocol.body_length(head))
            asked = protocol.unpack_asked(body)
            if isinstance(asked, protocol.Cancel):
                stops.ask(asked.id)
            else:
                waiting.put(asked)
    except Exception as error:
        print(f"pooled-shard: the kernel's pipe broke: {error}", file=sys.stderr, flush=True)
        leave(1)
    # Not sys.exit: the main thread may sit in a computation or a download for minutes.
    leave(0)


def _watch(parent: int) -> None:
    """End the process once the kernel is gone: an orphan gets another parent."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    leave(0)


def _write(replies: BinaryIO, reply: bytes) -> None:
    if begun.is_set():
        return
    try:
        rest = memoryview(reply)
        while rest:
            rest = rest[replies.write(rest) :]
    except OSError:
        leave(0)


if __name__ == "__main__":
    main()
