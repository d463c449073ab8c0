"""Let a fault befall a world: each kind of `faults.KINDS`, from its beginning to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pooled_nb.mesh.newcomer import Newcomer
from tests.sim.clocks import Machine
from tests.sim.faults import Fault
from tests.sim.hostlife import revive
from tests.sim.world import World


def befall(world: World, fault: Fault) -> None:
    """Begin it; what has an end ends by itself."""
    device = world.devices.get(fault.who)
    if fault.who and (device is None or device.machine.dead or device.away):
        return
    world.note("fate", repr(fault))
    DEEDS[fault.kind](world, fault)


def _later(world: World, s: float, then: Callable[[], object]) -> None:
    world.loop.call_later(s, then)


def _machine(world: World, fault: Fault) -> Machine:
    return world.devices[fault.who].machine


def _freeze(world: World, fault: Fault, *, network_first: bool = True) -> None:
    machine = _machine(world, fault)
    if machine.frozen:
        return
    machine.network_first = network_first
    machine.freeze()
    world.net.frozen(machine)
    _later(world, fault.s, machine.thaw)


def _stall(world: World, fault: Fault) -> None:
    _freeze(world, fault, network_first=False)


def _hidden(world: World, fault: Fault) -> None:
    machine = _machine(world, fault)
    machine.timer_grain = 1.0
    _later(world, fault.s, lambda: setattr(machine, "timer_grain", 0.0))


def _slow(world: World, fault: Fault) -> None:
    machine = _machine(world, fault)
    machine.slow = float(fault.how or 10)
    _later(world, fault.s, lambda: setattr(machine, "slow", 1.0))


def _partition(world: World, fault: Fault) -> None:
    _half(world, fault)
    _half(world, Fault(fault.at, "half", fault.other, fault.who, fault.s))


def _half(world: World, fault: Fault) -> None:
    world.net.cut(fault.who, fault.other)
    _later(world, fault.s, lambda: world.net.mend(fault.who, fault.other))


def _alone(world: World, fault: Fault) -> None:
    for other in [name for name in world.devices if name != fault.who]:
        _partition(world, Fault(fault.at, "partition", fault.who, other, fault.s))
    world.net.isolate(fault.who, away=True)
    _later(world, fault.s, lambda: world.net.isolate(fault.who, away=False))


def _fail(world: World, fault: Fault) -> None:
    world.net.fail(fault.who, fault.other, fault.how)


def _stripe(world: World, fault: Fault) -> None:
    world.net.stripe(fault.who, fault.other, fault.how, fault.s)


def _signaling(world: World, fault: Fault) -> None:
    world.net.signaling(False)
    _later(world, fault.s, lambda: world.net.signaling(True))


def _noise(world: World, fault: Fault) -> None:
    net = world.net
    before = net.loss, net.jitter
    net.loss, net.jitter = 0.2, 0.2

    def over() -> None:
        net.loss, net.jitter = before

    _later(world, fault.s, over)


def _kill(world: World, fault: Fault) -> None:
    world.end(world.devices[fault.who])


def _restart(world: World, fault: Fault) -> None:
    if fault.who == "host":
        revive(world, fault.s)
        return
    device = world.devices[fault.who]
    held = device.newcomer.credentials if device.newcomer else None
    _kill(world, fault)

    async def comes_back() -> None:
        await asyncio.sleep(fault.s)
        await world.join(fault.who, device.gb, Newcomer(held, random_bytes=world.random_bytes))

    world.doing.append(world.loop.create_task(comes_back()))


def _reboot(world: World, fault: Fault) -> None:
    revive(world, fault.s, politely=True)


def _leave(world: World, fault: Fault, *, politely: bool = False) -> None:
    device = world.devices[fault.who]
    device.goes = True

    async def goes() -> None:
        await device.machine.awake()
        await device.room.leave(after_answer=politely)
        device.left = True

    world.doing.append(device.machine.spawn(goes()))


def _politely(world: World, fault: Fault) -> None:
    _leave(world, fault, politely=True)


def _join(world: World, fault: Fault) -> None:
    name = f"j{sum(name[0] == 'j' for name in world.devices) + 1}"
    world.doing.append(world.loop.create_task(world.join(name, fault.s)))


def _shard(world: World, fault: Fault) -> None:
    shards = world.devices[fault.who].shards
    if shards:
        shards[-1].die("The shard's process was killed (signal 9).")


def _memory(world: World, fault: Fault) -> None:
    world.devices[fault.who].pinched |= fault.how != "refused"
    world.devices[fault.who].ills.loads.append("memory" if fault.how == "refused" else "killed")


def _frame(world: World, fault: Fault) -> None:
    world.devices[fault.who].tamper.next.append(fault.how)


DEEDS: dict[str, Callable[[World, Fault], None]] = {
    "freeze": _freeze,
    "stall": _stall,
    "hidden": _hidden,
    "slow": _slow,
    "partition": _partition,
    "half": _half,
    "alone": _alone,
    "fail": _fail,
    "stripe": _stripe,
    "signaling": _signaling,
    "noise": _noise,
    "kill": _kill,
    "restart": _restart,
    "reboot": _reboot,
    "leave": _leave,
    "politely": _politely,
    "join": _join,
    "shard": _shard,
    "memory": _memory,
    "frame": _frame,
}
