"""What must hold after every run, whatever befell the room."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pooled_nb.room.conversation import Last
from pooled_nb.room.core import Notice
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.memory import SavedChat
from tests.sim.clocks import HERE

if TYPE_CHECKING:
    from tests.sim.story import Story
    from tests.sim.world import Device, Heard, World

MAY_REFUSE = (
    "must stay for the answer",  # the context is full
    "can continue the answer",  # another's
    "can make anew the answer",
    "There is no answer",
    "The answer is finished",
    "No answer",
    "wait already",
    "You left the room",
    "is leaving the room",
    "this device knocks",
    "no link to the host now",
    "The room is over",
    "room is closed",
    "A new chat began",
    "is not the newest any more",
    "The question was taken back",
)
"""Words of refusals that any room may give."""
TOO_SMALL = ("memory lent is short", "not started", "missing")
"""Words of refusals in a room whose host alone cannot hold the model."""
WRONG_FRAME = ("not asked for", "NaN or infinity", "hidden states", "position", "columns", "bytes", "frame")
CALM = ("online", "open", "degraded", "closed")
NEED_GB = 0.66
"""What the model takes on a host that holds all of it."""


def all_over(world: World) -> list[str]:
    """No question is lost: each has ended, one way or the other."""
    return [
        f"{h.who} asked {h.text or h.what!r} at {h.asked_at:.1f} s and never heard the end (of {h.said!r})"
        for h in world.heard
        if not h.over
    ]


def is_able(world: World) -> bool:
    """Whether the devices that are here could hold the model, so that the room must be able to answer."""
    host = world.devices["host"]
    return host.here and (_holds(world) or host.room.status().state == "online")


def _holds(world: World) -> bool:
    """Whether the host alone can hold the model; one whose load was killed gives half of its share."""
    host = world.devices["host"]
    return host.gb >= NEED_GB and not host.pinched


def unsettled(world: World) -> str:
    """What is not in order yet; nothing: the room is at peace."""
    host = world.devices["host"]
    here = [device for device in world.devices.values() if device.here]
    for device in here:
        status = device.room.status()
        if device.joined and status.state not in CALM:
            return f"{device.name} is {status.state}: {status.sentence}"
        if device.joined and device.room.mesh.name.partition(" ")[0] != device.name:
            return f"{device.name} has the name, or the seat, of {device.room.mesh.name}"
        if status.waiting or status.answering:
            return f"{device.name} shows {status.waiting} that wait, and an answer to {status.answering!r}"
    if not host.here:
        return f"{here[0].name} is in a room without a host" if here else ""
    roster = [member.id for member in host.room.mesh.roster]
    wanted = [device.room.mesh.id for device in here if device.joined or device is host]
    if sorted(roster) != sorted(wanted):
        return f"the roster is {roster}, and here are {wanted}"
    for device in here:
        if device.joined and [member.id for member in device.room.mesh.roster] != roster:
            return f"{device.name} has the roster {[m.id for m in device.room.mesh.roster]}, not {roster}"
    state = host.room.status().state
    if state == "degraded" and _holds(world):
        return f"the host is degraded, and could deal: {host.room.status().sentence}"
    for device in here:
        if device.joined and state in ("online", "open") and device.room.status().state != state:
            return f"{device.name} is {device.room.status().state}, and the host {state}"
    return _unstriped(world, here)


def _unstriped(world: World, here: list[Device]) -> str:
    """Each link that is part of a chain has its stripes again (PROTOCOL section 5), and no other has any."""
    for device in here:
        links = device.room.mesh._links
        wanting = links.stripes.wanting() if links is not None else {}
        for link in links.book.admitted if links is not None else ():
            n = len(links.stripes.carriers(link)) if links is not None and link.state.dialed else 0
            wanted = world.shape.stripes if link.key in wanting else 0
            if n != wanted:
                return f"{device.name} has {n} stripes to {link.remote}, not {wanted}"
    return ""


def questions(world: World, story: Story) -> list[str]:
    """Nobody is answered twice; what an asker was shown is what the host said."""
    wrong: list[str] = []
    lasts: dict[int, list[Last]] = {}
    counted: dict[str, int] = {}
    regens = 0
    for what, last in world.said:
        if isinstance(last, SavedChat):  # what was not saved yet is answered again, and is not twice
            kept = {exchange.text for exchange in last.exchanges}
            counted = {text: n for text, n in counted.items() if text in kept}
        elif isinstance(last, Last):
            lasts.setdefault(last.mid, []).append(last)
            counted[last.text] = counted.get(last.text, 0) + (what == "answered")
        regens += what == "dropped"
    if sum(n - 1 for n in counted.values()) > regens:
        wrong.append(f"a question was answered twice: {[text for text, n in counted.items() if n > 1]}")
    for heard in world.heard:
        wrong += _excused(heard, world, story)
        if not story.befalls and any(isinstance(event, Notice) for _, event in heard.events):
            wrong.append(f"{heard.who} was told something, and nothing had befallen the room")
        if heard.over and heard.outcome == "nothing":
            wrong.append(f"{heard.who} asked {heard.text!r}: the events ended without an end")
        if heard.mid:
            again = any(what == "recalled" for what, _ in world.said)
            wrong += _same(heard, lasts.get(heard.mid, []), again=again)
        if heard.refused and not heard.refused.rstrip().endswith("."):
            wrong.append(f"{heard.who} was refused without a sentence: {heard.refused!r}")
        if sum(type(e).__name__ == "Done" for _, e in heard.events) > 1:
            wrong.append(f"{heard.who} heard two ends of {heard.text!r}")
    return wrong


def _excused(heard: Heard, world: World, story: Story) -> list[str]:
    """An answer that ends with an error, and a question that is refused, need a reason."""
    done = heard.done
    if heard.refused and not any(words in heard.refused for words in MAY_REFUSE):
        short = not _holds(world) and any(words in heard.refused for words in TOO_SMALL)
        if not short:
            return [f"{heard.who} asked {heard.text!r} and was refused: {heard.refused}"]
    if done is None or done.reason != "error" or world.devices[heard.who].goes:
        return []
    ended = heard.events[-1][0]
    lied = any(f.kind == "frame" and f.at <= ended for f in story.befalls)
    if lied and any(words in done.why for words in WRONG_FRAME):
        return []
    if not _holds(world) and ended - heard.asked_at > 300:
        return []
    if "answers otherwise" in done.why and _lost_its_turn(heard.who, story):
        return []
    return [f"{heard.who} asked {heard.text!r}, and it ended with an error: {done.why}"]


def _lost_its_turn(who: str, story: Story) -> bool:
    """Whether a host that began anew answered others first, since this asker was cut off or slept then."""
    anew = [f.at for f in story.befalls if f.kind == "reboot" or (f.kind == "restart" and f.who == "host")]
    return any(who in (f.who, f.other) and f.at + f.s > at for f in story.befalls for at in anew)


def _same(heard: Heard, lasts: list[Last], *, again: bool) -> list[str]:
    """A host that was restarted may use a number again: then one of its answers must be this one. Where the
    second of two ended early, with an error, what the first one said stays shown.
    """
    done = heard.done
    if not lasts or heard.what == "continue" or (again and done is not None and done.reason == "error"):
        return []
    said = [last.reply for last in lasts]
    whole = done is not None and done.reason in ("stop", "max", "ctx")
    if not any(reply == heard.said if whole else reply.startswith(heard.said) for reply in said):
        return [f"{heard.who} heard {heard.said!r} of answer {heard.mid}, and the host said {said!r}"]
    return []


async def nothing_left(world: World) -> list[str]:
    """Everybody has left: no task, no timer, no registration and no connection is there any more."""
    wrong: list[str] = []
    for _ in range(3):
        await asyncio.sleep(0)
    for machine in world.machines:
        if machine.dead:
            continue
        if machine.tasks:
            wrong.append(f"{machine.name} left tasks: {[str(task)[:200] for task in machine.tasks]}")
        if machine.clock.timers:
            timers = [timer.what for timer in machine.clock.timers]
            wrong.append(f"{machine.name} left timers: {timers}")
    for end in world.net.open_ends():
        wrong.append(
            f"a connection from {end.own} to {end.remote} ({end.label or 'link'}) was left {end.state}"
        )
    for device in world.devices.values():
        if not device.machine.dead:
            status = device.room.status()
            if status.state != "closed" or not status.sentence:
                wrong.append(f"{device.name} left, and is {status.state} ({status.sentence!r})")
    assert HERE.get() is None
    host = world.devices["host"]
    if isinstance(host.room, HostRoom) and not host.machine.dead and host.room.answering.queue.running:
        wrong.append("a question still runs")
    return wrong
