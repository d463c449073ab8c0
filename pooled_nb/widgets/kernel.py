"""What differs between kernels: how a click in a panel is heard while a cell blocks (DESIGN section 7).

A browser's message to a widget comes on the kernel's shell channel, where it waits behind the running cell.

- ipykernel 6 reads the channel on the main thread alone: a cell that waits for the room reads it itself.
- ipykernel 7 lets a frontend open a subshell, a thread of its own, for such messages; JupyterLab does. From
  7.4 on the kernel takes them from there to wherever this widget published last, which is the cell that
  blocks: `guard` leaves them where the frontend sent them.
- A frontend without subshells (VS Code, nbclassic, JupyterLab set so) sends them to the main thread also
  on ipykernel 7, which then reads for itself too.

Only messages that no cell waits behind are taken out of their order. All others stay in the kernel's own
queue, untouched and unread. Whatever looks other than it should is left to the kernel.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

AT_ONCE = frozenset({"comm_open", "comm_msg", "comm_close", "comm_info_request", "kernel_info_request"})
"""What is answered while a cell waits. A page that was reloaded asks the last two before it draws a panel."""

log = logging.getLogger("pooled_nb")

_reader: _Six | _Seven | None = None
_failed = False


def guard(widget: Any) -> None:
    """Leave a widget's messages on the subshell that its frontend chose; called once its comm is open."""
    comm: Any = getattr(widget, "comm", None)
    if hasattr(comm, "_reply_subshell_for"):
        with contextlib.suppress(Exception):
            comm._reply_subshell_for = lambda data, default: default


def pump() -> None:
    """Hear what widgets were told meanwhile: for the main thread, about every 30 ms while it waits in a cell.

    Never raises but for an interrupt, which ends that wait.
    """
    global _failed
    if _failed or threading.current_thread() is not threading.main_thread():
        return
    try:
        reader = _reader_of_this_kernel()
        if reader is not None:
            reader.read()
            while reader.heard:
                # A handler may be anybody's: what hangs in it is cut off by a second interrupt.
                with _uninterrupted(second=True):
                    reader.handle(reader.heard.popleft())
    except Exception:
        _failed = True  # a kernel unlike those we know: it hears the panel after the cell
        log.warning("this kernel hears no panel while a cell waits", exc_info=True)


def _reader_of_this_kernel() -> _Six | _Seven | None:
    global _reader
    base = sys.modules.get("ipykernel.kernelbase")
    if base is None or not base.Kernel.initialized():
        return None
    kernel = base.Kernel.instance()
    if kernel.session is None or kernel.session.pid != os.getpid():
        return None  # a fork: the sockets are its parent's
    if _reader is None or _reader.kernel is not kernel:
        if getattr(kernel, "shell_channel_thread", None) is not None:
            _reader = _Seven(kernel)
        elif hasattr(kernel, "msg_queue") and hasattr(kernel.shell_stream, "flush"):
            _reader = _Six(kernel)
    return _reader


class _Reader:
    """Reads the shell channel on the main thread, into the kernel's own queue or into ``heard``."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.heard: deque[list[Any]] = deque()

    def stream(self) -> Any:
        """Where replies go."""
        raise NotImplementedError

    def at_once(self, frames: list[Any]) -> bool:
        """Whether a message is one of `AT_ONCE`; one that cannot be read is the kernel's to judge."""
        try:
            _, parts = self.kernel.session.feed_identities(frames, copy=False)
            return self.kernel.session.unpack(parts[1].bytes)["msg_type"] in AT_ONCE
        except Exception:
            return False

    def handle(self, frames: list[Any]) -> None:
        """Handle one as the kernel would, but for the parent, which stays the cell that waits."""
        kernel = self.kernel
        try:
            idents, parts = kernel.session.feed_identities(frames, copy=False)
            message = kernel.session.deserialize(parts, content=True, copy=False)
        except Exception:
            log.warning("a message with a wrong signature, or none, was dropped", exc_info=True)
            return
        kernel._publish_status("busy", "shell", parent=message)
        try:
            _finish(kernel.shell_handlers[message["msg_type"]](self.stream(), idents, message))
        except Exception:
            log.warning("a widget's message failed", exc_info=True)
        finally:
            kernel._publish_status_and_flush("idle", "shell", self.stream(), parent=message)
            kernel._publish_status("busy", "shell")  # for the cell still runs


class _Six(_Reader):
    """ipykernel 6: a stream that fills a queue, both of the main thread."""

    _seen = -1

    def stream(self) -> Any:
        return self.kernel.shell_stream

    def read(self) -> None:
        import zmq

        queue = self.kernel.msg_queue
        with _uninterrupted():
            self.kernel.shell_stream.flush(zmq.POLLIN)
            for _ in range(queue.qsize()):
                number, dispatch, args = queue.get_nowait()
                new, self._seen = number > self._seen, max(number, self._seen)
                if new and dispatch == self.kernel.dispatch_shell and self.at_once(args[0]):
                    self.heard.append(args[0])
                else:
                    queue.put_nowait((number, dispatch, args))


class _Seven(_Reader):
    """ipykernel 7: a thread reads the channel; the main one has a stream of what is for it."""

    def stream(self) -> Any:
        return self._manager().get_subshell_to_shell_channel_socket(None)

    def _manager(self) -> Any:
        return self.kernel.shell_channel_thread.manager

    def read(self) -> None:
        import zmq

        stream = self._manager().get_shell_channel_to_subshell_pair(None).to_stream
        with _uninterrupted():
            own = stream._recv_callback

            def sort(frames: list[Any]) -> Any:
                return self.heard.append(frames) if self.at_once(frames) else own(frames)

            stream.on_recv(sort, copy=False)
            try:
                stream.flush(zmq.POLLIN)
            finally:
                stream.on_recv(own, copy=False)


def _finish(result: Any) -> None:
    """Run a handler's coroutine to its end: those of `AT_ONCE` await nothing."""
    if inspect.iscoroutine(result):
        try:
            result.send(None)
        except StopIteration:
            return
        result.close()
        raise RuntimeError("this kernel's handler waits for something")


@contextlib.contextmanager
def _uninterrupted(*, second: bool = False) -> Iterator[None]:
    """Hold an interrupt back until each message is where it belongs; with ``second``, only the first one."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):  # ignored, or not Python's: it raises nothing here
        yield
        return
    held: list[tuple[Any, ...]] = []

    def hold(*args: Any) -> None:
        if held and second:
            held.clear()
            before(*args)
        held.append(args)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            before(*held[0])
