"""The room as the person of a device sees it that is not its host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.messages.link import Member
from pooled_nb.room import sentences
from pooled_nb.room.core import ChatSettings, DeviceLine, Role, State, Status
from pooled_nb.room.doorfacts import NetworkFacts, Trust
from pooled_nb.room.lines import device_line
from pooled_nb.room.may import verbs
from pooled_nb.room.transcript import Transcript
from pooled_nb.room.worker import Worker


@dataclass(frozen=True, slots=True)
class Known:
    """What the host said last: model, who holds what, how far each has loaded, how many wait, settings."""

    ready: wire.ReadyAll | None
    held: wire.LayersHeld
    progress: Mapping[str, int]
    waiting: int
    settings: ChatSettings


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
        sentence=_sentence(state, why, worker, answering, known),
        model=ready.model if ready else "",
        label=ready.label if ready else "",
        layers=max((hi for _, hi in (held.ranges or {}).values()), default=0),
        ctx=ready.ctx if ready else 0,
        used=transcript.used,
        exact=held.same,
        devices=[_line(member, mesh, known) for member in mesh.roster],
        waiting=known.waiting,
        answering=answering,
        mine=mine,
        can=verbs(role, state, mine=mine, again=transcript.again(mesh.id)),
        newest=transcript.newest,
        settings=known.settings,
        tps=transcript.tps,
        dtype=held.dtype or "",
        kv=held.kv or "f16",
        need_gb=sum(held.held.values()),
        signaling=mesh.server,
        trust=trust,
        digits=digits,
        network=network,
    )


def _sentence(state: State, why: str, worker: Worker | None, answering: str, known: Known) -> str:
    if worker and worker.trouble and state != "closed":
        return f"This device holds no layers: {worker.trouble}"
    if why:
        return why
    if state == "loading":
        return f"Loading: {min(known.progress.values(), default=0)} %."
    if state == "answering":
        return f"Answering {answering}."
    if state == "online":
        mine = worker.layers if worker else None
        holds = f" This device holds layers {sentences.layer_range(*mine)}." if mine else ""
        return f"Online.{holds} Ask."
    return sentences.opened(0, is_host=False)


def _line(member: Member, mesh: Mesh, known: Known) -> DeviceLine:
    held = (known.held.ranges or {}).get(member.id)
    return device_line(
        member,
        mesh,
        layers=(held[0], held[1]) if held else None,
        held_gb=known.held.held.get(member.name, 0.0),
        progress=known.progress.get(member.name),
        dealt=bool(known.held.ranges),
        out=known.held.out.get(member.name, ""),
    )
