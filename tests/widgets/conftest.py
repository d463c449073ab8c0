"""Panels without a kernel: their comms keep what was sent."""

from __future__ import annotations

import os
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

WAIT_S = 20.0


class FakeComm:
    """The kernel's end of a comm."""

    def __init__(self, data: dict[str, Any] | None = None, comm_id: str | None = None, **_: Any) -> None:
        self.comm_id = comm_id or uuid.uuid4().hex
        self.opened = (data or {}).get("state", {})
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.closed = False
        self._heard: Callable[[dict[str, Any]], None] = lambda _: None
        self._on_close: Callable[[dict[str, Any]], None] = lambda _: None

    def send(self, data: dict[str, Any], buffers: Any = None) -> None:
        assert not buffers  # Colab drops them (DESIGN section 7)
        self.sent.append((threading.current_thread().name, data))

    def on_msg(self, heard: Callable[[dict[str, Any]], None]) -> None:
        self._heard = heard

    def on_close(self, heard: Callable[[dict[str, Any]], None]) -> None:
        self._on_close = heard

    def close(self) -> None:
        self.closed = True

    # What a page does.

    def receive(self, data: Any) -> None:
        self._heard({"content": {"comm_id": self.comm_id, "data": data}, "buffers": []})

    def say(self, **content: Any) -> None:
        self.receive({"method": "custom", "content": content})

    def close_by_page(self) -> None:
        self.closed = True
        self._on_close({})

    # What a test looks at.

    @property
    def customs(self) -> list[dict[str, Any]]:
        return [data["content"] for _, data in list(self.sent) if data["method"] == "custom"]

    @property
    def updates(self) -> list[dict[str, Any]]:
        return [data["state"] for _, data in list(self.sent) if data["method"] == "update"]

    def state(self) -> dict[str, Any]:
        """The traits as a page has them."""
        state = dict(self.opened)
        for update in self.updates:
            state |= update
        return state


@pytest.fixture
def comms(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeComm]]:
    """Every comm that was opened; none of them and no thread is left after the test."""
    from ipywidgets.widgets import widget

    from pooled_nb.widgets.painter import painter

    made: list[FakeComm] = []

    def create(**options: Any) -> FakeComm:
        made.append(FakeComm(**options))
        return made[-1]

    monkeypatch.setattr(widget.comm, "create_comm", create)
    yield made
    for one in list(widget._instances.values()):
        one.close()
    assert painter.join(WAIT_S)


def until(true: Callable[[], Any], seconds: float = WAIT_S) -> None:
    """Wait for it; fails when it does not come true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.005)


@pytest.fixture
def in_child() -> Callable[[Callable[[], bool]], bool]:
    """Run it in a forked child; whether it gave true there."""

    def run(do: Callable[[], bool]) -> bool:
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other threads run: that is the point
            pid = os.fork()
        if pid == 0:
            done = b"n"
            try:
                done = b"y" if do() else b"n"
            finally:
                os.write(write, done)
                os._exit(0)
        os.close(write)
        os.waitpid(pid, 0)
        with os.fdopen(read, "rb") as end:
            return end.read() == b"y"

    return run
