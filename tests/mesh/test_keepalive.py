"""PROTOCOL section 5: the zero byte on channel 78."""

from __future__ import annotations

import pytest

from pooled_nb.mesh.keepalive import BYTE, KeepAlive


def test_only_while_a_frame_was_carried() -> None:
    """PROTOCOL section 5, keep-alive: "while a link carried a frame in the last 1.5 s"."""
    ka = KeepAlive()
    assert not ka.due(0.0)
    assert ka.next(0.0) is None
    ka.carried(10.0)
    assert ka.due(10.0)
    ka.sent(10.0)
    assert not ka.due(10.009)
    assert ka.due(10.011)
    assert ka.due(11.5)
    assert not ka.due(11.6)
    assert ka.next(11.6) is None
    assert BYTE == b"\0"


def test_not_while_slices_are_sent() -> None:
    """PROTOCOL section 5, keep-alive: "whenever it has sent no slice for 10 ms"."""
    ka = KeepAlive()
    now = 0.0
    for _ in range(100):
        now += 0.009
        ka.carried(now)
        ka.sent(now)
        assert not ka.due(now + 0.0089)
    assert ka.next(now) == pytest.approx(now + 0.010)


def test_frames_that_only_come_in() -> None:
    """PROTOCOL section 5, keep-alive: each end sends; frames that come do not put it off."""
    ka = KeepAlive()
    sent = 0
    for ms in range(0, 1000, 5):
        ka.carried(ms / 1e3)
        if ka.due(ms / 1e3):
            ka.sent(ms / 1e3)
            sent += 1
    assert 90 <= sent <= 101


def test_the_setting() -> None:
    """PROTOCOL section 5, keep-alive: "setting ``keepalive_ms``, 0 off"."""
    off = KeepAlive(0)
    off.carried(1.0)
    assert not off.due(1.0)
    slow = KeepAlive(200)
    slow.carried(1.0)
    slow.sent(1.0)
    assert not slow.due(1.19)
    assert slow.due(1.21)
