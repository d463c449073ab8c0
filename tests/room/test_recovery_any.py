"""Whatever happens to the devices of a deal, in whatever order: it ends whole, or dealt anew, once."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.room.dealing import Seat
from pooled_nb.room.recovery import (
    REDEAL_S,
    SOON_S,
    Action,
    Degrade,
    Hold,
    Moved,
    Recovery,
    Redeal,
    Relink,
    Reload,
    Whole,
)

NAMES = ("attic", "barn", "cellar")
OPS = ("away", "gone", "left", "back", "renamed", "unloaded", "break", "answer", "deny", "wait")


@dataclass
class Device:
    """A worker as it really is."""

    id: str
    name: str
    key: str
    present: bool = True
    gone: bool = False
    loads: tuple[str, str] | None = None
    """What it is loading: ids before and after, as the newest ``ai-load`` said."""
    holds: tuple[str, str] | None = None
    link: bool = True
    """Its link to the next worker."""


@dataclass
class World:
    """Three workers, and a host that obeys `Recovery`."""

    recovery: Recovery = field(default_factory=Recovery)
    now: float = 0.0
    count: int = 0
    drops: int = 0
    redeals: int = 0
    over: bool = False
    relinks: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.devices = [Device(name[0], name, f"k{name}") for name in NAMES]
        ids = ["h", *(d.id for d in self.devices), "host"]
        for i, device in enumerate(self.devices):
            device.holds = ids[i], ids[i + 2]
        seats = [Seat("h", "host", 0, 1, 0.1)]
        seats += [Seat(d.id, d.name, i + 1, i + 2, 0.1, d.key) for i, d in enumerate(self.devices)]
        self.ids = [s.id for s in seats]
        self.recovery.online(seats, self.now)

    def neighbours(self, id: str) -> tuple[str, str]:
        i = self.ids.index(id)
        return self.ids[i - 1], (*self.ids, "host")[i + 1]

    def obey(self, actions: list[Action]) -> None:
        for action in actions:
            assert not self.over, "nothing comes after a deal was asked for"
            match action:
                case Moved():
                    self.ids[self.ids.index(action.was)] = action.id
                case Reload():
                    device = self.of(action.id)
                    assert device.present
                    device.loads, device.holds = self.neighbours(action.id), None
                    self.relinks.pop(action.id, None)
                case Relink():
                    assert self.of(action.id).present
                    self.relinks[action.id] = action.next
                case Hold() | Degrade():
                    assert action.why.endswith(".")
                    assert not self.whole
                case Whole():
                    assert self.whole
                case Redeal():
                    self.redeals += 1
                    self.over = True
        if not self.over:
            assert (self.recovery.health == "whole") <= self.whole
            assert (self.recovery.sentence == "") == (self.recovery.health == "whole")
            left = self.recovery.redeal_in(self.now)
            assert left is None or 0 <= left <= REDEAL_S + 1e-6

    @property
    def whole(self) -> bool:
        """Everybody is here, holds the deal as it is now, and is linked to the next."""
        held = [d.present and d.holds == self.neighbours(d.id) for d in self.devices]
        return all(held) and all(d.link for d in self.devices[:-1])

    def of(self, id: str) -> Device:
        return next(d for d in self.devices if d.id == id)

    def lose(self, device: Device, *, links: bool) -> None:
        """The host has lost it; with ``links`` its neighbours have, too, and say so where they are heard."""
        device.present, device.loads = False, None
        self.relinks.pop(device.id, None)
        for before, after in pairwise(self.devices):
            if links and device in (before, after):
                told = before.link and before.present
                before.link = False
                if told:
                    self.obey(self.recovery.link_lost(before.id, after.name, self.now))

    def do(self, op: str, device: Device) -> None:
        r, now, i = self.recovery, self.now, self.devices.index(device)
        match op:
            case "away" if device.present:
                self.lose(device, links=False)
                self.obey(r.away(device.id, now))
            case "gone" | "left" if not device.gone:
                self.lose(device, links=True)
                device.gone, device.holds = True, None if op == "left" else device.holds
                self.drops += 1
                self.obey(r.gone(device.id, f"{device.name} {op}.", now, left=op == "left"))
            case "back" | "renamed":
                self.lose(device, links=op == "renamed" or device.gone)
                was = "" if device.gone else device.id
                if op == "renamed":
                    self.count += 1
                    device.id, device.holds = f"{device.name[0]}{self.count}", None
                device.present, device.gone = True, False
                self.obey(r.back(device.id, device.name, now, was=was, key=device.key))
            case "unloaded" if device.present and device.holds:
                device.holds = None
                self.drops += 1
                self.obey(r.unloaded(device.id, f"{device.name} says: killed.", now))
            case "break" if i < 2 and device.link:
                device.link = False
                if device.present:
                    self.obey(r.link_lost(device.id, self.devices[i + 1].name, now))
            case "answer":
                self.answer(device)
            case "deny" if device.present and (wanted := self.relinks.pop(device.id, None)):
                self.obey(r.linked(device.id, wanted, now, ok=False))
            case "wait":
                self.wait(3.7)

    def answer(self, device: Device) -> None:
        """A device does what it was told, as far as it can."""
        i = self.devices.index(device)
        if not device.present:
            return
        after = self.devices[i + 1] if i < 2 else None
        if device.loads:
            before, wanted = device.loads
            device.loads = None
            if after and not (after.present and after.id == wanted):
                self.obey(self.recovery.linked(device.id, wanted, self.now, ok=False))
                return
            device.link, device.holds = True, (before, wanted)
            self.obey(self.recovery.ready(device.id, self.now))
        elif wanted := self.relinks.pop(device.id, ""):
            ok = after is not None and after.present and after.id == wanted
            if ok and device.holds:
                device.link, device.holds = True, (device.holds[0], wanted)
            self.obey(self.recovery.linked(device.id, wanted, self.now, ok=ok))

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while not self.over and (at := self.recovery.next_at(self.now)) is not None and at <= until:
            self.now = at
            self.obey(self.recovery.tick(self.now))
        self.now = max(self.now, until)
        if not self.over:
            self.obey(self.recovery.tick(self.now))


steps = st.lists(st.tuples(st.sampled_from(OPS), st.integers(0, 2)), max_size=40)


def run(story: list[tuple[str, int]]) -> World:
    world = World()
    for op, i in story:
        if world.over:
            break
        world.do(op, world.devices[i])
    return world


@settings(max_examples=400, deadline=None)
@given(steps, st.booleans())
def test_no_order_of_events_leaves_it_stuck(story: list[tuple[str, int]], kind: bool) -> None:
    """PROTOCOL sections 3, 6, 8: whole exactly when it is; else a new deal, once, by itself.

    ``kind``: devices do what they are told, from then on; else they do nothing at all any more.
    """
    world = run(story)
    for device in world.devices:  # the mesh ends every absence, one way or the other
        if not world.over and not device.present and not device.gone:
            world.do("back" if kind else "gone", device)
    for _ in range(40):
        if kind:
            for device in world.devices:
                if not world.over:
                    world.answer(device)
        if world.over or world.recovery.health == "whole":
            break
        world.wait(10.0)
    assert world.over or (world.recovery.health == "whole" and world.whole)
    assert world.redeals == world.over


@settings(max_examples=200, deadline=None)
@given(steps)
def test_one_drop_brings_one_deal(story: list[tuple[str, int]]) -> None:
    """PROTOCOL section 8: while one is asked for, nothing else is; and none without a reason."""
    world = run(story)
    if world.over:
        assert world.recovery.dealing
        assert world.recovery.tick(world.now + 1_000) == []
        assert world.recovery.redeal_in(world.now) is None
    else:
        assert world.redeals == 0


@settings(max_examples=200, deadline=None)
@given(steps)
def test_with_the_setting_off_it_never_deals_by_itself(story: list[tuple[str, int]]) -> None:
    """PROTOCOL section 8, auto re-deal (setting, on)."""
    world = World()
    world.recovery.allow(False, 0.0)
    for op, i in story:
        world.do(op, world.devices[i])
    for device in world.devices:  # the mesh ends every absence
        if not device.present and not device.gone:
            world.do("gone", device)
    world.wait(500.0)
    assert world.redeals == 0
    if world.recovery.health == "degraded" and not world.recovery.loading:
        world.obey(world.recovery.allow(True, world.now))
        left = world.recovery.redeal_in(world.now)
        assert left is not None
        assert left >= REDEAL_S - SOON_S
