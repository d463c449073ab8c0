"""Whoever sends within one piece of work is called at its end, once."""

from __future__ import annotations

import threading

import pytest

from pooled_nb.mesh.together import Together


def test_nothing_waits_outside() -> None:
    assert not Together().waits(lambda: pytest.fail("nobody may call it"))


def test_each_is_called_once_at_the_end_of_the_outermost() -> None:
    together, called = Together(), []

    def one() -> None:
        called.append("one")

    def other() -> None:
        called.append("other")

    together.begin()
    assert together.waits(one)
    together.begin()
    assert together.waits(other)
    assert together.waits(one)
    together.end()
    assert called == []
    together.end()
    assert called == ["one", "other"]
    together.begin()
    together.end()
    assert called == ["one", "other"]
    assert not together.waits(one)


def test_who_fails_holds_nobody_up() -> None:
    together, called = Together(), []

    def fails() -> None:
        raise RuntimeError

    together.begin()
    together.waits(fails)
    together.waits(lambda: called.append(1))
    together.end()
    assert called == [1]


def test_a_thread_knows_nothing_of_another() -> None:
    together, waited = Together(), []
    together.begin()
    thread = threading.Thread(target=lambda: waited.append(together.waits(lambda: None)))
    thread.start()
    thread.join()
    assert waited == [False]
    together.end()
