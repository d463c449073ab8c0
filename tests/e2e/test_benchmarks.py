"""What benchmarks build on: a wire, caches, devices that arrive, what an asker heard and when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from benchmarks import chaos, delay, engine, gate
from benchmarks.rooms import inspect
from tests.e2e.chaos import Asked, Device
from tests.shard.tinychat import write_model


class _Wire(asyncio.DatagramTransport):
    """A transport that notes what leaves, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[tuple[float, bytes, Any]] = []
        self.done = asyncio.Event()

    def sendto(self, data: Any, addr: Any = None) -> None:
        self.left.append((asyncio.get_running_loop().time(), data, addr))
        if data == b"last":
            self.done.set()

    def is_closing(self) -> bool:
        return False


async def test_datagrams_leave_late_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 9: the delay is in the wire, below ICE; without one nothing waits."""
    wire = _Wire()
    late = delay.Late(wire)
    monkeypatch.setattr(delay, "_seconds", 0.0)
    late.sendto(b"at once", 1)
    assert [data for _, data, _ in wire.left] == [b"at once"]
    monkeypatch.setattr(delay, "_seconds", 0.02)
    sent = []
    for number in range(5):
        sent.append(asyncio.get_running_loop().time())
        late.sendto(bytes([number]), number)
        await asyncio.sleep(0.004)
    # A shorter delay never lets a datagram overtake another.
    monkeypatch.setattr(delay, "_seconds", 0.0)
    late.sendto(b"last", 5)
    await asyncio.wait_for(wire.done.wait(), 10)
    assert [addr for _, _, addr in wire.left[1:]] == list(range(6))
    assert all(left >= at + 0.02 for (left, _, _), at in zip(wire.left[1:6], sent, strict=True))


def test_caches_are_what_the_config_says(tmp_path: Path) -> None:
    """DESIGN section 9: within one bucket, as they are and in int8."""
    rows = engine.caches(inspect(str(write_model(tmp_path))))
    assert [row.ok for row in rows] == [True, True]
    assert rows[1].value < rows[0].value


def test_percentiles_are_values_that_were_measured() -> None:
    """DESIGN section 9: p99 of few is the largest of them."""
    values = [float(number) for number in range(200)]
    assert gate.percentile(values[::-1], 0.5) == 100.0
    assert gate.percentile(values, 0.99) == 198.0
    assert gate.percentile([7.0], 0.99) == 7.0


def test_a_wave_of_which_nobody_came_in_is_reported_too() -> None:
    """DESIGN section 9: one line for programs, whatever was measured."""
    nobody, some = gate.Arrival(lags=[60.0], busy=[1.0], failed=["x"]), gate.Arrival(seconds=[1.0])
    for came, bare in ((nobody, nobody), (nobody, some), (nobody, gate.Arrival())):
        rows = gate.rows_of(3, came, bare)
        assert not rows[0].ok
        assert [row.ok for row in rows if "late, p99" in row.what] == [False]
        json.dumps([msgspec.to_builtins(row) for row in rows], allow_nan=False)


async def test_devices_that_arrive_at_once_are_all_in_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROTOCOL section 4: with the invite key nobody is asked; the same without a room is the floor."""
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("POOLED_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(gate, "MODEL", str(write_model(tmp_path / "tiny")))
    bare, came = await gate.floor(3), await gate.with_gate(3)
    assert not bare.failed + came.failed
    assert len(bare.seconds) == len(came.seconds) == 3
    rows = gate.rows_of(3, came, bare)
    assert rows[0].ok
    assert all(row.value >= 0 for row in rows)
    assert min(came.cpu, bare.cpu, max(came.busy), max(came.lags)) > 0


def test_what_is_measured_is_the_first_token_after_a_moment() -> None:
    """DESIGN section 9: not one that was under way when it happened."""

    class Told:
        def until(self, holds: Callable[[], bool], _what: str, _seconds: float) -> None:
            assert holds()

    pieces = [(at, {"type": "piece", "text": "x"}) for at in (1.0, 2.0, 5.5, 5.6)]
    asked = Asked(cast(Device, Told()), 1, pieces)
    assert chaos.next_piece(asked, 2.0) == 3.5
    assert asked.gap == 3.5
