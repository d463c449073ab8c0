"""The room as the person of a device sees it that is not its host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.messages.link import Member
from pooled_nb.room import away, handing, sentences
from pooled_nb.room.core import ChatSettings, DeviceLine, Role, State, Status
from pooled_nb.room.doorfacts import NetworkFacts, Trust
from pooled_nb.room.lines import device_line
from pooled_nb.room.may import verbs
from pooled_nb.room.transcript import Transcript
from pooled_nb.room.weights.givenwords import given_words
from pooled_nb.room.weights.giving import Given
from pooled_nb.room.weights.supply import Supply
from pooled_nb.room.worker import Worker


@dataclass(frozen=True, slots=True)
class Known:
    """What the host said last: model, who holds what, how far each has loaded, how many wait, settings; why
    this device lends less than its person offered. ``leaving``: it goes once it is not needed. ``knocks``: a
    person decides whether it comes in.
    """

    ready: wire.ReadyAll | None
    held: wire.LayersHeld
    progress: Mapping[str, int]
    waiting: int
    settings: ChatSettings
    shared: str
    leaving: bool
    knocks: bool


def device_status(
    *,
    code: str,
    role: Role,
    state: State,
    why: str,
    mesh: Mesh,
    transcript: Transcript,
    worker: Worker | None,
    known: Known,
    supply: Supply,
    given: Given,
    mine: bool,
    trust: Trust,
    digits: str,
    network: NetworkFacts,
) -> Status:
    """See `RoomCore.status`. ``state`` and ``why`` as the room keeps them; ``mine`` as of `Status`."""
    answering, ready, held = transcript.answering, known.ready, known.held
    state = "answering" if answering and state == "online" else state
    return Status(
        code=code,
        state=state,
        sentence=away.at_the_door(digits)
        if state == "away" and known.knocks
        else supply.question or _sentence(state, why, worker, answering, known, mesh, mine=mine),
        model=ready.model if ready else "",
        label=ready.label if ready else "",
        layers=max((hi for _, hi in (held.ranges or {}).values()), default=0),
        ctx=ready.ctx if ready else 0,
        used=transcript.used,
        exact=held.same,
        devices=[_line(member, mesh, known, state) for member in mesh.roster],
        waiting=known.waiting,
        answering=answering,
        mine=mine,
        can=verbs(role, state, mine=mine, again=transcript.again(mesh.id), download=supply.asks),
        newest=transcript.newest,
        settings=known.settings,
        tps=transcript.tps,
        dtype=held.dtype or "",
        kv=held.kv or "f16",
        runs=worker.runs if worker and worker.layers else "",
        quant=held.quant or "",
        need_gb=sum(held.held.values()),
        signaling=mesh.server,
        trust=trust,
        digits=digits,
        network=network,
        loading=supply.words,
        asks=supply.consent.asks,
        unverified=supply.unverified if worker and worker.layers else "",
        given=given_words(given, mesh.roster),
        waits_for=[m.name for m in mesh.roster if m.id == mesh.creator] if state == "away" else [],
    )


def _sentence(
    state: State, why: str, worker: Worker | None, answering: str, known: Known, mesh: Mesh, *, mine: bool
) -> str:
    layers = worker.layers if worker else None
    if state == "closed":
        return why
    if state == "away":
        return away.sentence(mesh.knocking, layers=layers is not None, asked=mine)
    if known.leaving:
        return handing.HANDS if layers else handing.WAITS
    if worker and worker.trouble:
        # Its own words begin with the device, which was named.
        return f"This device holds no layers: {worker.trouble.replace('This device ', 'it ', 1)}"
    if why:
        return why
    if state == "loading":
        return f"Loading: {min(known.progress.values(), default=0)} %."
    if worker and worker.unlinked and layers:
        return f"{_holds(layers, known)} {worker.unlinked}".strip()
    if worker and worker.progress is not None:
        return f"This device loads its layers again: {worker.progress} %. The room waits for it."
    if state == "answering":
        return f"Answering {answering}."
    if state == "online":
        return " ".join(filter(None, ["Online.", _holds(layers, known), "Ask."]))
    if layers:
        return f"{_holds(layers, known)} The host goes on as soon as it can."
    return sentences.opened(0, is_host=False)


def _holds(layers: tuple[int, int] | None, known: Known) -> str:
    if layers is None:
        return ""
    holds = f"This device holds {sentences.layers_of(*layers)}"
    return f"{holds}, and lends less than it offered: {known.shared}" if known.shared else f"{holds}."


def _line(member: Member, mesh: Mesh, known: Known, state: State) -> DeviceLine:
    held = (known.held.ranges or {}).get(member.id)
    knocking = mesh.knocking if state == "away" and member.id == mesh.creator else None
    silent_s, patience_s = away.seconds(knocking) if knocking else (0, 0)
    return device_line(
        member,
        mesh,
        layers=(held[0], held[1]) if held else None,
        held_gb=known.held.held.get(member.name, 0.0),
        progress=known.progress.get(member.name),
        dealt=bool(known.held.ranges),
        out=known.held.out.get(member.name, ""),
        silent_s=silent_s,
        patience_s=patience_s,
    )
