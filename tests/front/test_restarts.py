"""The end of a kernel, heard of from kernels of any kind (PROTOCOL section 8, host resume)."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pooled_nb import restarts


class Kernel:
    """As ipykernel's, in what matters here."""

    def __init__(self) -> None:
        self.ended: list[tuple[bool, dict[str, Any]]] = []

    def do_shutdown(self, restart: bool, **named: Any) -> dict[str, Any]:
        self.ended.append((restart, named))
        return {"status": "ok", "restart": restart}


class Waits(Kernel):
    """One whose method is awaited."""

    async def do_shutdown(self, restart: bool) -> dict[str, Any]:  # type: ignore[override]  # both are there
        return super().do_shutdown(restart)


class Fixed:
    """One in which nothing can be set."""

    __slots__ = ()

    def do_shutdown(self, restart: bool) -> str:
        return f"ended {restart}"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """What is heard; nothing of it stays after the test."""
    heard: list[bool] = []
    hooks: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
    monkeypatch.setattr(restarts, "_pid", None)
    monkeypatch.setattr(restarts, "_ends", None)
    monkeypatch.setattr(atexit, "register", lambda hook, *args: hooks.append((hook, args)))
    yield heard
    for hook, args in hooks:
        hook(*args)
    assert heard[-1:] == [False], "the interpreter's exit tells in any case, and knows no reason"
    assert len(hooks) == 1


def within(kernel: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is that of such a kernel; None: of a terminal."""
    shell = SimpleNamespace() if kernel is None else SimpleNamespace(kernel=kernel)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]


@pytest.mark.parametrize("again", [True, False])
def test_a_kernel_says_whether_it_starts_again(
    again: bool, told: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROTOCOL section 8: once, however often a room was entered; and the kernel ends as it would have."""
    kernel = Kernel()
    within(kernel, monkeypatch)
    for _ in range(3):
        restarts.at_end(told.append)
    assert kernel.do_shutdown(again, why="x") == {"status": "ok", "restart": again}
    assert told == [again]
    assert kernel.ended == [(again, {"why": "x"})]


async def test_one_whose_method_is_awaited(told: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 8: it is told before anything of the kernel ends."""
    kernel = Waits()
    within(kernel, monkeypatch)
    restarts.at_end(told.append)
    ends = kernel.do_shutdown(restart=True)
    assert told == [True]
    assert await ends == {"status": "ok", "restart": True}


@pytest.mark.parametrize("kernel", [None, SimpleNamespace(), Fixed(), SimpleNamespace(do_shutdown="no")])
def test_where_no_kernel_tells_the_exit_does(
    kernel: object, told: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 3: a terminal, a kernel of another kind: nothing breaks, and the room is closed."""
    within(kernel, monkeypatch)
    restarts.at_end(told.append)
    if isinstance(kernel, Fixed):
        assert kernel.do_shutdown(True) == "ended True"
    assert told == []


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()])
def test_a_kernel_ends_though_leaving_failed(
    error: BaseException, told: list[bool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """DESIGN section 3: no room keeps a kernel from ending."""
    kernel = Kernel()
    within(kernel, monkeypatch)

    def fails(again: bool) -> None:
        raise error

    restarts.at_end(fails)
    assert kernel.do_shutdown(True)["restart"]
    assert "leaving the room failed" in caplog.text
    restarts.at_end(told.append)


def test_a_forked_child_ends_nothing_of_its_parents(
    told: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 3: the child has the hooks, and no room."""
    kernel = Kernel()
    within(kernel, monkeypatch)
    restarts.at_end(told.append)
    own = os.getpid()
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: own + 1)
        kernel.do_shutdown(True)
    assert told == []
    assert kernel.ended == [(True, {})]
