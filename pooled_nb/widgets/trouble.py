"""What a room's panel says while a device is waited for, is gone, or the host does not answer. Pure.

PROTOCOL section 8: nothing that is shown changes, and the answer goes on where it is; so the words say whom
it waits for, what happens next by itself, and what one may do at once. Numbers that count down come with each
new status; a screen reader hears each state once.
"""

from __future__ import annotations

from pooled_nb.room import sentences
from pooled_nb.room.core import Status
from pooled_nb.widgets.chain import Range, back, gaps, held, layers_words, told_gone
from pooled_nb.widgets.formats import line, named, percent, say, sentence

GAPS = 4
"""Ranges without a device that a sentence names; the chain shows them all."""
ITSELF = "deals again by itself"
"""What everybody but the host hears of it, in place of the seconds."""
HEALS = ("the room waits ", "they make ")
"""How a sentence goes on about what is on its way: no new deal is due, and none is to be made."""
NAMES = 3
"""Devices that a headline names."""


def waiting(status: Status) -> dict[str, str]:
    """Nobody is given up yet: the answer, or the next one, waits for these."""
    names = status.waits_for
    if not names:
        return say("warn", "Waiting", sentence(status.sentence))
    here = [d for d in status.devices if d.name in names and back(d, status)]
    one = len(names) == 1
    if len(here) == len(names):
        far = f", {percent(here[0].progress)} %" if one and here[0].progress else ""
        return _back(names, far, "The answer goes on" if status.state == "waiting" else "The room goes on")
    return say("warn", f"Waiting for {_listed(names)}", _why(status, names))


def _back(names: list[str], far: str, then: str) -> dict[str, str]:
    one = len(names) == 1
    does = "It loads its layers" if one else "They load their layers"
    return say("work", f"{_listed(names)} {'is' if one else 'are'} back", f"{does}{far}. {then} after that.")


def _why(status: Status, names: list[str]) -> str:
    first = sentences.first(status.sentence)
    then = "The answer goes on where it is" if status.state == "waiting" else "Questions are answered"
    if first and " stopped responding" not in first:  # a link, which the room tells best
        return f"{sentence(first)} {then}{'' if status.state == 'waiting' else ' after that'}."
    one = len(names) == 1
    does = f"{'It' if one else 'They'} stopped responding."
    return f"{does} {then} when {_listed(names)} {'is' if one else 'are'} back."


def degraded(status: Status) -> dict[str, str]:
    """Layers have no device: who is missing, and when they are dealt again."""
    here = [d.name for d in status.devices if back(d, status)]
    lost = _lost(status)
    if here and not lost:
        return _back(here, "", "The answer goes on" if status.answering else "The room goes on")
    # The host's sentence ends with a step of its own; here the button is that step.
    head, _, does = sentences.first(status.sentence).partition("; ")
    missing = _missing(status) or f"{does[:1].upper()}{does[1:]}"  # `they make a new one`, of a link
    what = lost or line(head, 200) or "A device is gone"
    if not lost and does.startswith(HEALS) and status.sentence.endswith(f"; {does}."):
        goes_on = "The answer goes on" if status.answering or status.mine else "The room goes on"
        return say("work", what, f"{missing}. {goes_on} after that.")
    return say("bad", what, _next(status, missing, known=bool(lost)))


def _lost(status: Status) -> str:
    """Who is gone, and how it went where one is."""
    told = _told(status)
    names = [d.name for d in status.devices if d.gone]
    if told is not None and names in ([], [told[0]]):
        return f"{named(told[0])} {told[1]}"
    return f"{_listed(names)} {'is' if len(names) == 1 else 'are'} gone" if names else ""


def _told(status: Status) -> tuple[str, str, Range] | None:
    """As `told_gone`; None where its layers have a device again."""
    told = told_gone(status)
    if told is None or any(held(d) == told[2] and not d.gone for d in status.devices):
        return None
    return told


def _missing(status: Status) -> str:
    """``Layers 21–30 have no device``; empty where nobody knows which."""
    told = _told(status)
    without: list[Range] = gaps(status) or ([told[2]] if told else [])
    missing = [layers_words(lo, hi) for lo, hi in without[:GAPS]]
    if more := sum(hi - lo for lo, hi in without[GAPS:]):
        missing.append(f"{more:,} more")
    if not missing:
        return ""
    words = sentences.listed(missing)
    one = len(missing) == 1 and missing[0].startswith("layer ")
    return f"{words[:1].upper()}{words[1:]} {'has' if one else 'have'} no device"


def _next(status: Status, missing: str, *, known: bool) -> str:
    """What is missing, and what happens by itself, else what to do."""
    may = {"redeal", "start"} & set(status.can)
    first = f"{missing}. " if missing else ""
    if status.redeal_in is not None:
        then = ", then the answer goes on" if status.answering or status.mine else ""
        return f"{first}Deals again in {max(0, status.redeal_in):,} s{then}."
    if may:
        return f"{first}Deal again over the devices that are here."
    told, itself = _told(status), ITSELF in status.sentence
    lost = [d.name for d in status.devices if d.gone] or ([told[0]] if told is not None else [])
    if known and lost and (told is None or told[1] == "dropped"):
        back = "it is back" if len(lost) == 1 else "they are back"
        who = "the room deals again" if itself else "the host deals again"
        return f"{missing or 'Nothing is answered'} until {back}, or {who}."
    return f"{first}{'The room deals again by itself.' if itself else 'The host can deal again.'}"


def away(status: Status) -> dict[str, str]:
    """The link to the host is lost, and this device knocks (PROTOCOL section 3, dead links)."""
    host = next((d.name for d in status.devices if d.role == "host" and not d.me), "")
    head, _, rest = status.sentence.partition("; ")
    if not rest or ". " in head:
        head, rest = sentences.first(status.sentence), sentences.rest(status.sentence)
    keeps = any(d.me and held(d) for d in status.devices)
    rest = rest.partition("; %pooled")[0]  # the button is that step
    about = sentence(rest[:1].upper() + rest[1:]) or (
        "This device knocks, and keeps its layers." if keeps else "This device knocks."
    )
    what = f"{named(host)} does not answer" if host else line(head, 200) or "The host does not answer"
    return say("warn", what, about)


def _listed(names: list[str]) -> str:
    few = [named(name) for name in names[:NAMES]]
    return sentences.listed([*few, f"{len(names) - NAMES:,} more"] if len(names) > NAMES else few)
