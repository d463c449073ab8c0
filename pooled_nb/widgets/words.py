"""What a room's panel says: its state in words, what to do next, who it is for. Pure.

A sentence says what is so, then what happens next or what to do; at most two (the mock's Wording).
"""

from __future__ import annotations

from typing import Any

from pooled_nb.room import sentences
from pooled_nb.room.core import Role, Status, Verb
from pooled_nb.widgets import download, told, trouble
from pooled_nb.widgets.chain import RUNNING, held, holders, layers_words
from pooled_nb.widgets.formats import begun, count, finite, gb, line, named, percent, say, sentence
from pooled_nb.widgets.numbers import lent_gb


def opening(progress: tuple[int | None, str]) -> dict[str, str]:
    """No room is there yet."""
    pct, words = progress
    about = line(words, 200).rstrip(".")
    if pct is not None:
        about = f"{about}, {percent(pct)} %" if about else f"{percent(pct)} %"
    return say("work", "Opening the room", begun(about))


def never(notice: str) -> dict[str, str]:
    """It was over before it was open."""
    return say("idle", "This room did not open", sentence(notice) or "Host or join it again.")


def closed(status: Status) -> dict[str, str]:
    """It is over for this device."""
    return say("idle", "Room closed", sentence(status.sentence))


def state(status: Status, role: Role | None) -> dict[str, str]:
    """What is so in an open room, and what happens next; the lobby may be far below, so it is named here."""
    if download.asked(status):
        return download.question(status)
    said = _state(status, role)
    if role != "host" or not status.lobby or status.state not in ("open", "online"):
        return said
    names = status.lobby[0].name if len(status.lobby) == 1 else f"{len(status.lobby)} devices"
    wait = "waits" if len(status.lobby) == 1 else "wait"
    return {**said, "about": line(f"{names} {wait} in the lobby.")}


def _state(status: Status, role: Role | None) -> dict[str, str]:
    if (said := told.said(status)) is not None:
        return said
    match status.state:
        case "closed":
            return closed(status)
        case "open":
            return _open(status, role)
        case "loading":
            return _loading(status)
        case "answering":
            return _answering(status)
        case "waiting":
            return trouble.waiting(status)
        case "degraded":
            return trouble.degraded(status)
        case "away":
            return trouble.away(status)
    if status.waits_for:
        return trouble.waiting(status)
    return say("good", "Online", waits(status.waiting) if status.waiting else "Nobody is asking.")


def waits(n: int) -> str:
    """How many questions wait."""
    return f"{count(n, 'question waits', 'questions wait')}." if n else "Nobody waits."


def _open(status: Status, role: Role | None) -> dict[str, str]:
    if role != "host":
        return say("idle", "Nothing is loaded yet", "Ask, and the room starts.")
    label, lenders, lent = line(status.label or status.model), len(holders(status)), lent_gb(status)
    need = finite(status.need_gb) or 0.0
    needs = f"{label} needs {gb(need)}" if need and label else ""
    if need > lent:
        more = "Invite a device or lend more."
        return say("warn", f"Short by {gb(need - lent)}", f"{needs}, the room lends {gb(lent)}. {more}")
    if len(status.devices) < 2:
        fits = f"{needs}, you lend {gb(lent)}." if needs else f"You lend {gb(lent)}."
        return say("idle", "Only you are here", f"{fits} Read the code aloud, or start alone.")
    lend = f"{count(lenders, 'device')} {'lends' if lenders == 1 else 'lend'} {gb(lent)}"
    return say("good", "Ready to start", f"{lend}, {needs}." if needs else f"{lend}.")


def _loading(status: Status) -> dict[str, str]:
    devices = holders(status)
    if not devices:
        return say("work", "Loading", sentence(status.sentence.removeprefix("Loading: ")))
    ready = sum(percent(d.progress) >= 100 for d in devices)
    then = " The answer goes on after that." if status.answering or status.mine else ""
    waits = [named(d.name) for d in devices if d.asks and not d.me]
    person = f" It waits for the person of {sentences.listed(waits[:3])}." if waits else ""
    own = f" {download.own_load(status)}".rstrip() if not waits else ""  # two lines hold it
    return say("work", "Loading", f"{ready} of {count(len(devices), 'device')} ready.{person}{own}{then}")


def _answering(status: Status) -> dict[str, str]:
    # A hidden answer comes without a name (PROTOCOL section 7, ai-visibility).
    who = "you" if status.mine else named(status.answering)
    return say("work", f"Answering {who}".rstrip(), waits(status.waiting))


_BUTTONS: dict[str, dict[Verb, str]] = {
    "open": {"start": "Start"},
    "loading": {"stop": "Stop"},
    "online": {"redeal": "Deal again", "reset": "New chat"},
    "answering": {"stop": "Stop"},
    "waiting": {"stop": "Stop"},
    "degraded": {"redeal": "Re-deal now", "start": "Re-deal now", "stop": "Stop"},
    "away": {"leave": "Leave"},
}
"""The next action of each state: a button is there only when pressing it makes sense."""
_MAIN = {"start", "redeal"}


def actions(status: Status) -> list[dict[str, Any]]:
    """Buttons for this person, now. The first that is allowed goes before another of the same words."""
    if download.asked(status):
        return download.answers(status)
    made: dict[str, dict[str, Any]] = {}
    if (parts := told.leaving(status)) in status.can:
        now = f"{parts} now".capitalize()
        made[now] = {"cmd": parts, "label": now, "main": False}
    for verb, label in _BUTTONS.get(status.state, {}).items():
        if verb not in status.can or (verb == "reset" and not status.used):
            continue
        made.setdefault(
            label, {"cmd": verb, "label": label, "main": verb in _MAIN and status.state != "online"}
        )
    return list(made.values())


def facts(status: Status, role: Role | None) -> str:
    """``30 layers · bfloat16, exact · 0.3 GB · you host``."""
    need = finite(status.need_gb) or 0.0
    exact = "exact" if status.exact else "not exact" if status.state in RUNNING else ""
    small = "int8 caches" if status.kv == "q8" else ""
    weights = sentences.QUANT.get(status.quant, "")
    kinds = (line(status.dtype, 20), weights, small, exact if status.layers else "")
    kind = ", ".join(part for part in kinds if part)
    parts = [count(status.layers, "layer") if status.layers else "", kind, gb(need) if need else ""]
    parts.append(sentences.DRAFTS.get(status.drafts, ""))
    parts.append(line(status.runs, 120) if status.state in RUNNING else "")
    return " · ".join(part for part in (*parts, _part(status, role)) if part)


def _part(status: Status, role: Role | None) -> str:
    me = next((d for d in status.devices if d.me), None)
    if role == "host":
        return "you host"
    if me is not None and (layers := held(me)):
        return f"you hold {layers_words(*layers)}"
    return f"you lend {gb(me.lends_gb)}" if role == "worker" and me is not None else "you are a guest"


def promise(status: Status) -> str:
    """What equal text the room promises (DESIGN section 5, rule 5); nothing before it runs."""
    if status.state not in ("online", "answering", "waiting"):
        return ""
    if status.exact:
        if weights := sentences.QUANT.get(status.quant):
            # Its class: exact within it, and other text than with weights of 16 bits.
            return f"same text as one device with {weights} ({status.quant}), not as with 16-bit ones"
        return "same text as one device"
    return "text may differ by split"


def guests(status: Status) -> list[dict[str, Any]]:
    """Who is here without layers: asks, waits, or why it holds none."""
    holding = {d.id for d in holders(status)}
    # Nobody's name: the answer is hidden, or none runs.
    asking = (
        next((d.id for d in status.devices if d.name == status.answering), None) if status.answering else None
    )
    waiting = set(status.queue)
    return [
        {
            "id": line(d.id),
            "name": line(d.name),
            "state": "asking" if d.id == asking else "waits" if d.name in waiting else "",
            "why": _OUT.get(d.out) or sentence(d.out, 200) or "asks only",
        }
        for d in status.devices
        if d.id not in holding and not d.gone
    ]


_OUT = {
    "unneeded": "not needed",
    "small": "lends too little for a layer",
    "late": "joined after the start",
}
"""Why a device holds no layers: the words of PROTOCOL section 6, and as people read it."""
