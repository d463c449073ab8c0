"""The room as its host's person sees it."""

from __future__ import annotations

from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages.link import Member
from pooled_nb.room import doorwords, sentences
from pooled_nb.room.answering import Answering
from pooled_nb.room.core import ChatSettings, DeviceLine, State, Status
from pooled_nb.room.dealer import Dealer, Settings
from pooled_nb.room.doorfacts import LobbyLine, NetworkFacts
from pooled_nb.room.hostgate import HostGate
from pooled_nb.room.lines import device_line
from pooled_nb.room.may import verbs


def host_status(
    *,
    code: str,
    state: State,
    why: str,
    mesh: Mesh,
    settings: Settings,
    dealer: Dealer,
    answering: Answering | None,
    gate: HostGate,
    network: NetworkFacts,
) -> Status:
    """See `RoomCore.status`. ``state`` and ``why`` as the room keeps them."""
    model, deal = dealer.model, dealer.deal
    busy = answering is not None and bool(answering.answering)
    state = "answering" if busy and state == "online" else state
    last = answering.conversation.last if answering else None
    lobby = gate.lobby if state != "closed" else []
    return Status(
        code=code,
        state=state,
        sentence=_sentence_of(state, why, lobby, mesh, dealer, answering),
        model=model.repo,
        label=model.label,
        layers=model.layers,
        ctx=settings.ctx,
        used=answering.used if answering else 0,
        exact=dealer.exact and (deal is None or deal.one_sig),
        devices=[_line(member, state, mesh, dealer) for member in mesh.roster],
        waiting=len(answering.queue) if answering else 0,
        queue=[entry.question.name for entry in answering.queue.waiting] if answering else [],
        answering=answering.answering if answering else "",
        mine=answering is not None and answering.mine,
        can=verbs(
            "host",
            state,
            changed=dealer.changed,
            chat=busy or bool(answering and answering.conversation.items),
            again=answering.possible() if answering else (),
            lobby=bool(lobby),
            others=len(mesh.roster) > 1,
        ),
        newest=last.mid if last else 0,
        settings=answering.settings if answering else ChatSettings(),
        tps=answering.tps if answering else 0.0,
        dtype=dealer.dtype,
        kv=settings.kv,
        drafts=dealer.drafts if deal else "",
        need_gb=dealer.need_gb,
        signaling=mesh.server,
        lobby=lobby,
        gate=gate.choices,
        network=network,
    )


def _sentence_of(
    state: State, why: str, lobby: list[LobbyLine], mesh: Mesh, dealer: Dealer, answering: Answering | None
) -> str:
    waits = doorwords.waits(lobby)
    if waits and state == "open" and not why:
        return waits  # nothing else is to be done first
    return f"{why or _sentence(state, mesh, dealer, answering)} {waits}".strip()


def _sentence(state: State, mesh: Mesh, dealer: Dealer, answering: Answering | None) -> str:
    deal, start = dealer.deal, dealer.start
    if state == "loading":
        return f"Loading {dealer.model.label}: {start.loading.total if start else 0} %."
    if state == "answering" and answering:
        return f"Answering {answering.answering}."
    if state == "online" and deal:
        names = [s.name for s in deal.seats]
        return sentences.online(names, one_sig=deal.one_sig, exact=dealer.exact, kv=deal.kv)
    return sentences.opened(len(mesh.roster) - 1, is_host=True)


def _line(member: Member, state: State, mesh: Mesh, dealer: Dealer) -> DeviceLine:
    deal, start = dealer.deal, dealer.start
    seat = deal.seat(member.id) if deal else None
    return device_line(
        member,
        mesh,
        layers=(seat.lo, seat.hi) if seat else None,
        held_gb=seat.gb if seat and state in ("online", "answering") else 0.0,
        progress=start.loading.pct.get(member.id, 0) if start and seat else None,
        dealt=deal is not None,
        out=deal.reasons.get(member.id) or deal.out.get(member.id, "") if deal else "",
    )
