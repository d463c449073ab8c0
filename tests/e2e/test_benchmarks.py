"""What benchmarks build on: a wire, caches, devices that arrive, carriers, what an asker heard and when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from benchmarks import chaos, delay, engine, gate, wire_room, wire_rows
from benchmarks.rooms import inspect
from benchmarks.wire_end import End
from benchmarks.wire_pairs import Timed
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


CARRIERS: dict[str, dict[str, Any]] = {
    "a link": {"kind": "link", "stripes": 0, "keepalive_ms": 0.0},
    "a link with a stripe": {"kind": "link", "stripes": 1},
    "aiortc alone": {"kind": "aiortc"},
    "TCP": {"kind": "tcp"},
}


@pytest.mark.parametrize("name", CARRIERS)
async def test_carriers_bring_everything_back(name: str) -> None:
    """DESIGN section 9: what is compared sends and hears the same; one round trip for each that was asked."""
    near, far = End(far=False), End(far=True)
    for end in (near, far):
        await end.do_make(name, **CARRIERS[name])
    try:
        answer = await far.do_meet(name, await near.do_listen(name))
        await near.do_met(name, answer["told"])
        for size in (1, 10_240, 163_840):
            assert len((await near.do_round(name, size, 2, 60.0))["s"]) == 2
        assert (await near.do_pour(name, 3))["mb"] == pytest.approx(0.196608)
        behind = await near.do_behind(name, 1, 60.0)
        assert all(len(behind[what]) == 1 for what in ("byte", "small", "frame"))
        assert behind["mb_s"] > 0
    finally:
        for end in (near, far):
            await end.do_close(name)


def test_goals_of_the_wire_are_those_of_our_link_beside_stock_aiortc() -> None:
    """DESIGN section 9: a ratio in one run; without the peer there is no ratio, and no goal is kept."""
    trips = {
        wire_rows.STOCK: Timed(ms=[10.0] * 4, cpu=0.04),
        wire_rows.LINK: Timed(ms=[6.0] * 4, cpu=0.02),
        wire_rows.TCP: Timed(ms=[0.1] * 4, cpu=0.001),
        wire_rows.WRTC_LINK: Timed(),
    }
    rows = wire_rows.round_rows("10 KB", trips, (0.6, 0.4))
    assert [row.ok for row in rows] == [None, None, True, False, None, None]
    assert [row.ratio for row in rows] == pytest.approx([None, None, 0.6, 0.5, 0.01, 0.025])
    alone = wire_rows.round_rows("10 KB", {wire_rows.LINK: trips[wire_rows.LINK]}, (0.6, 0.4))
    assert [(row.ratio, row.ok) for row in alone] == [(None, None)] * 2
    poured = {
        wire_rows.STOCK: Timed(ms=[1e3], cpu=2.0, mb=10.0),
        wire_rows.LINK: Timed(ms=[1e3], cpu=0.8, mb=10.0),
    }
    assert [row.ok for row in wire_rows.weight_rows(poured)] == [None, None, None, True]


def test_limits_of_the_wire_are_of_one_carrier_and_share() -> None:
    """DESIGN section 9: a median, or the percentile that the goal names."""
    slow = Timed(ms=[50.0] * 98 + [300.0] * 2)
    found = {wire_rows.STOCK_LINK: slow, wire_rows.STRIPED: slow}
    median = wire_rows.network_rows("80 KB", found, wire_rows.Limit(wire_rows.STRIPED, 150))
    tail = wire_rows.network_rows("10 KB", found, wire_rows.Limit(wire_rows.STRIPED, 100, 0.99))
    assert [row.ok for row in median] == [None, True]
    assert [row.ok for row in tail] == [None, False]
    looks = {what: Timed(ms=[30.0]) for what in ("byte", "small", "frame")}
    behind = wire_rows.behind_rows({wire_rows.LINK: {**looks, "weights": Timed(ms=[1.0], mb=5.0)}})
    assert [row.ok for row in behind] == [False, False, None]
    rows = wire_room.rows_of({"clean": [100.0, 100.0], wire_room.LOSES: [110.0, 130.0]})
    assert (rows[1].ratio, rows[1].ok) == (pytest.approx(100 / 120), False)
    for row in [*median, *tail, *behind, *rows]:
        json.dumps(msgspec.to_builtins(row), allow_nan=False)
