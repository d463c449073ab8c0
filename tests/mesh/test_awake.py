"""How long a device has slept, and that it judges nobody for that time (PROTOCOL section 8)."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.mesh.awake import Awake, AwakeClock
from pooled_nb.mesh.deadline import GRACE_S
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from pooled_nb.mesh.liveness import LATE_S, TICK_S
from pooled_nb.mesh.messages import chat
from tests.mesh.machines import OnMachine, machines
from tests.mesh.recorder import ROOM
from tests.sim.clock import simulate
from tests.sim.faults import FaultyNetwork

SLEEPS = pytest.mark.parametrize("network_first", [True, False])


def test_what_counts_as_sleep() -> None:
    """PROTOCOL section 8: "a timer that fired late (tick > 1.2 s)": the rest of the gap was slept, and others
    have 2 s from then on to be heard.
    """
    awake = Awake(100.0)
    assert not awake.tick(100.5)
    assert not awake.tick(101.69)
    assert awake.slept(101.69) == 0.0
    assert awake.judges(101.68 + LATE_S)
    assert not awake.judges(101.71 + LATE_S)
    assert awake.slept(111.69) == pytest.approx(10.0 - TICK_S)  # under way
    assert awake.tick(121.69)
    assert awake.slept(121.69) == awake.slept(122.0) == pytest.approx(20.0 - TICK_S)
    assert not awake.judges(121.69)
    for now in (122.2, 122.7, 123.2):
        assert not awake.tick(now)
        assert not awake.judges(now)
    awake.tick(123.7)
    assert awake.judges(121.7 + GRACE_S)


@given(st.lists(st.tuples(st.floats(0.0, 40.0), st.booleans()), max_size=40))
def test_never_less(steps: list[tuple[float, bool]]) -> None:
    """PROTOCOL section 8: sleep is a sum that never falls, and time awake never goes back, whenever asked."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        clock = AwakeClock(_Loop())
        late: list[bool] = []
        clock.begin(late.append)
        slept = was = 0.0
        began = loop.time()
        for seconds, stall in steps:
            if stall:
                loop.pass_time(seconds)  # type: ignore[attr-defined]
            else:
                await asyncio.sleep(seconds)
            assert clock.slept >= slept
            assert clock.now() >= was
            slept, was = clock.slept, clock.now()
        assert slept <= loop.time() - began
        for each in (clock.stop, lambda: clock.begin(late.append), clock.stop):
            loop.pass_time(2.0)  # type: ignore[attr-defined]
            each()
            assert clock.slept >= slept
            assert clock.now() >= was
            slept, was = clock.slept, clock.now()

    simulate(scenario)


class _Loop:
    """A clock of whatever loop runs."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def call_later(self, delay: float, callback: object) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay, callback)  # type: ignore[arg-type]

    async def sleep(self, delay: float) -> None:
        await asyncio.sleep(delay)


@SLEEPS
def test_a_creator_that_froze_judges_nobody(network_first: bool) -> None:
    """PROTOCOL section 8: a freeze of 20 s of the creator drops nobody. Who heard nothing of it for 15 s
    knocks (it holds layers), and keeps its seat; a guest has not noticed.
    """

    async def scenario() -> None:
        net = FaultyNetwork()
        host, worker, guest = await machines(net, "host", "worker", "guest")
        worker.machine.context.run(worker.recorder.mesh.chain, [ROOM])
        host.machine.context.run(host.recorder.mesh.chain, [worker.recorder.mesh.id])
        await host.freeze(20, network_first=network_first)
        await asyncio.sleep(8)
        assert host.recorder.gone == []
        assert host.recorder.names == ["host", "worker", "guest"]
        assert 19 <= host.recorder.mesh.clock.slept <= 20
        assert worker.recorder.diary[-3:] == ["away host", "roster", "back"]
        assert host.recorder.was[-1] == worker.recorder.mesh.id
        assert guest.recorder.away == guest.recorder.closed == []
        for one in (worker, guest):
            assert host.recorder.mesh.send(one.recorder.mesh.id, chat.Queue(n=1))
        await asyncio.sleep(1)
        assert worker.recorder.messages == guest.recorder.messages == [(ROOM, chat.Queue(n=1))]
        for one in (guest, worker, host):
            await one.leave()

    simulate(scenario)


@SLEEPS
def test_a_link_that_broke_while_its_creator_froze(network_first: bool) -> None:
    """PROTOCOL sections 3 and 8: the 15 s of silence of a worker, whose link broke meanwhile, begin no sooner
    than its creator listens again.
    """

    async def scenario() -> None:
        net = FaultyNetwork()
        host, worker = await machines(net, "host", "worker")
        host.machine.context.run(host.recorder.mesh.chain, [worker.recorder.mesh.id])
        freezes = asyncio.create_task(host.freeze(20, network_first=network_first))
        await asyncio.sleep(0.01)  # nothing of it waits to be read
        net.isolate("worker", away=True)
        net.fail("host", "worker", "all")
        await freezes
        await asyncio.sleep(1)
        assert [name for name, _ in host.recorder.away] == ["worker"]
        assert (quiet := host.recorder.mesh.silence(worker.recorder.mesh.id))
        assert quiet < 6
        await asyncio.sleep(8)
        assert host.recorder.gone == []
        net.isolate("worker", away=False)
        await asyncio.sleep(3)
        assert host.recorder.was[-1] == worker.recorder.mesh.id
        assert worker.recorder.diary[-1] == "back"
        for one in (worker, host):
            await one.leave()

    simulate(scenario)


@SLEEPS
def test_a_creator_that_froze_as_a_seat_ran_out(network_first: bool) -> None:
    """PROTOCOL section 8: who came back while its creator was frozen has the 2 s after that to be let in: a
    second of its patience was left.
    """

    async def scenario() -> None:
        net = FaultyNetwork(latency=0.15)
        host, worker = await machines(net, "host", "worker")
        host.machine.context.run(host.recorder.mesh.chain, [worker.recorder.mesh.id])
        net.isolate("worker", away=True)
        net.fail("host", "worker", "all")
        while (host.recorder.mesh.silence(worker.recorder.mesh.id) or 0) < 14.3:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        freezes = asyncio.create_task(host.freeze(10, network_first=network_first))
        await asyncio.sleep(1)
        net.isolate("worker", away=False)
        await freezes
        await asyncio.sleep(5)
        assert host.recorder.gone == []
        assert worker.recorder.diary[-1] == "back"
        for one in (worker, host):
            await one.leave()

    simulate(scenario)


@SLEEPS
@pytest.mark.parametrize("seconds", [2.0, 14.0, 20.0, 50.0])
def test_a_device_that_froze_judges_nobody(seconds: float, network_first: bool) -> None:
    """PROTOCOL section 8: a device that froze says no link dead by its late timers. A freeze of 20 s or more
    had it dropped (silent 15 s); it knocks with its pass, and is in under its name.
    """

    async def scenario() -> None:
        net = FaultyNetwork()
        host, one, two = await machines(net, "host", "one", "two")
        await two.machine.spawn(two.recorder.mesh.connect(one.recorder.mesh.id))
        await one.freeze(seconds, network_first=network_first)
        await asyncio.sleep(5)
        assert host.recorder.names == one.recorder.names
        assert sorted(host.recorder.names) == ["host", "one", "two"]
        assert [name for name, _, _ in host.recorder.gone] == (["one"] if seconds > 15 else [])
        assert one.recorder.closed == []
        assert all("nothing was heard" not in why for _, why in one.recorder.away)
        assert all("nothing was heard" not in why for _, why, _ in one.recorder.gone)
        assert one.recorder.diary.count("back") == (seconds > 15)
        for each in (one, two, host):
            await each.leave()

    simulate(scenario)


@SLEEPS
def test_a_creator_that_sleeps_keeps_seats(network_first: bool) -> None:
    """PROTOCOL sections 3 and 8: the 45 s of a seat are those of a creator that is awake."""

    async def scenario() -> None:
        net = FaultyNetwork()
        host, one = await machines(net, "host", "one")
        net.isolate("one", away=True)
        net.fail("host", "one", "all")
        await asyncio.sleep(20)
        assert host.recorder.away == [("one", "the path broke")]
        await host.freeze(60, network_first=network_first)
        await asyncio.sleep(20)
        assert host.recorder.gone == []
        assert (quiet := host.recorder.mesh.silence(one.recorder.mesh.id))
        assert 38 < quiet < 43
        net.isolate("one", away=False)
        await asyncio.sleep(4)
        assert host.recorder.gone == []
        assert host.recorder.was[-1] == one.recorder.mesh.id
        assert one.recorder.diary[-1] == "back"
        for each in (one, host):
            await each.leave()

    simulate(scenario)


@SLEEPS
@pytest.mark.parametrize("at", [0.005, 0.03, 0.05, 0.07, 0.09])
def test_a_creator_that_froze_while_somebody_joined(at: float, network_first: bool) -> None:
    """PROTOCOL section 8: a link that is coming to be is not given up by a creator's late timer."""

    async def scenario() -> None:
        net = FaultyNetwork()
        host, one = await machines(net, "host", "one")
        late = OnMachine(net, "late")
        joining = late.machine.spawn(late.recorder.mesh.join("4TKG9P", ["local"]))
        await asyncio.sleep(at)
        assert not joining.done()
        await host.freeze(12, network_first=network_first)
        await joining
        await asyncio.sleep(1)
        assert host.recorder.names == late.recorder.names == ["host", "one", "late"]
        assert host.recorder.gone == []
        for each in (late, one, host):
            await each.leave()

    simulate(scenario)


@SLEEPS
def test_a_device_that_slept_as_it_knocked(network_first: bool) -> None:
    """PROTOCOL section 8: the quarter of an hour in which a host may come back is one of a device that is
    awake: a lid that was closed for an hour gives nothing up.
    """

    async def scenario() -> None:
        net = FaultyNetwork()
        host, one = await machines(net, "host", "one")
        token, secrets = host.recorder.mesh.token, host.recorder.gates.keeper.secrets
        await host.machine.spawn(host.recorder.mesh.abandon())
        await asyncio.sleep(30)
        await one.freeze(3_600, network_first=network_first)
        await asyncio.sleep(20)
        assert (knocking := one.recorder.mesh.knocking)
        assert 45 < knocking[0] < 52
        again = OnMachine(net, "host", gates=Gatekeeper(GateSettings(ask=False), saved=secrets))
        await again.create(token=token)
        await asyncio.sleep(20)
        assert one.recorder.diary[-1] == "back"
        assert again.recorder.names == ["host", "one"]
        for each in (one, again):
            await each.leave()

    simulate(scenario, limit=10_000)


@SLEEPS
def test_a_device_that_froze_as_it_dialed(network_first: bool) -> None:
    """PROTOCOL section 8: the 15 s in which a host has to answer a dial are no verdict of a device that
    slept: its late timer waits for what came meanwhile.
    """

    async def scenario() -> None:
        net = FaultyNetwork()
        host, one = await machines(net, "host", "one")
        late = OnMachine(net, "late")
        joining = late.machine.spawn(late.recorder.mesh.join("4TKG9P", ["local"]))
        await asyncio.sleep(0.025)
        sleeps = asyncio.create_task(host.freeze(14))
        await asyncio.sleep(0.5)
        assert not joining.done()
        await late.freeze(17, network_first=network_first)
        await sleeps
        await joining
        assert host.recorder.names == ["host", "one", "late"]
        for each in (late, one, host):
            await each.leave()

    simulate(scenario)
