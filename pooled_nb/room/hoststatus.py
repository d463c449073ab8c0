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
from pooled_nb.room.mending import Mending
from pooled_nb.room.weights.givenwords import given_words
from pooled_nb.room.weights.giving import Given
from pooled_nb.room.weights.supply import Supply
from pooled_nb.shard import QUANT_CLASSES


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
    mending: Mending,
    supply: Supply,
    given: Given,
    network: NetworkFacts,
    closing: str = "",
) -> Status:
    """See `RoomCore.status`. ``state`` and ``why`` as the room keeps them; ``closing``: it closes soon."""
    model, deal = dealer.model, dealer.deal
    busy = answering is not None and bool(answering.answering)
    waits = state == "online" and answering is not None and _waits(answering, mending)
    state = "waiting" if waits else "answering" if busy and state == "online" else state
    last = answering.conversation.last if answering else None
    lobby = gate.lobby if state != "closed" else []
    return Status(
        code=code,
        state=state,
        sentence=supply.question
        or _sentence_of(state, why or mending.sentence or closing, lobby, mesh, dealer, answering),
        model=model.repo,
        label=model.label,
        layers=model.layers,
        ctx=settings.ctx,
        used=answering.used if answering else 0,
        exact=dealer.exact and (deal is None or deal.one_sig),
        devices=_lines(state, mesh, dealer, mending),
        waiting=len(answering.queue) if answering else 0,
        queue=[entry.question.name for entry in answering.queue.waiting] if answering else [],
        answering=answering.answering if answering else "",
        mine=answering is not None and answering.mine,
        can=verbs(
            "host",
            state,
            changed=dealer.changed,
            asks=busy,
            chat=busy or bool(answering and answering.conversation.items),
            again=answering.possible() if answering else (),
            lobby=bool(lobby),
            others=len(mesh.roster) > 1,
            download=supply.asks,
        ),
        newest=last.mid if last else 0,
        settings=answering.settings if answering else ChatSettings(),
        tps=answering.tps if answering else 0.0,
        dtype=dealer.dtype,
        kv=settings.kv,
        quant=QUANT_CLASSES.get(settings.quant, ""),
        drafts=dealer.drafts if deal else "",
        runs=dealer.runs if deal else "",
        need_gb=dealer.need_gb,
        signaling=mesh.server,
        lobby=lobby,
        gate=gate.choices,
        network=network,
        waits_for=mending.waits_for if state in ("waiting", "online", "degraded") else [],
        loading=supply.words,
        asks=supply.consent.asks,
        unverified=supply.unverified if state not in ("open", "loading", "closed") else "",
        given=given_words(given, mesh.roster),
        redeal_in=mending.redeal_in if state == "degraded" else None,
    )


def _waits(answering: Answering, mending: Mending) -> bool:
    """Whether somebody is to be answered, and the room waits for a device."""
    asked = bool(answering.answering) or len(answering.queue) > 0
    return asked and (mending.held or mending.stopped or bool(answering.waits))


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
        asking = [start.loading.names[id] for id in start.loading.asking] if start else []
        waits = f" It waits for the person of {sentences.listed(sorted(asking))}." if asking else ""
        return f"Loading {dealer.model.label}: {start.loading.total if start else 0} %.{waits}"
    if state == "degraded":  # else it says itself what it misses
        return sentences.DEALS
    if state == "waiting" and answering and answering.waits:
        return answering.waits
    if state == "answering" and answering:
        return f"Answering {answering.answering}."
    if state == "online" and deal:
        names = [s.name for s in deal.seats]
        quant = QUANT_CLASSES.get(deal.quant, "")
        return sentences.online(names, one_sig=deal.one_sig, exact=dealer.exact, kv=deal.kv, quant=quant)
    return sentences.opened(len(mesh.roster) - 1, is_host=True)


def _lines(state: State, mesh: Mesh, dealer: Dealer, mending: Mending) -> list[DeviceLine]:
    """The roster, and after it who is missing of the deal."""
    lines = [_line(member, state, mesh, dealer, mending) for member in mesh.roster]
    here = {line.id for line in lines}
    missing = [s for s in dealer.deal.seats if s.id not in here] if dealer.deal else []
    lines += [
        DeviceLine(
            id=seat.id,
            name=seat.name,
            role="worker",
            kind="",
            lends_gb=0.0,
            layers=(seat.lo, seat.hi),
            gone=True,
        )
        for seat in missing
        if state not in ("loading", "closed")
    ]
    return lines


def _line(member: Member, state: State, mesh: Mesh, dealer: Dealer, mending: Mending) -> DeviceLine:
    deal, start = dealer.deal, dealer.start
    seat = deal.seat(member.id) if deal else None
    silent_s, patience_s = mending.silent(member.id) if seat else (0, 0)
    again = mending.loading.get(member.id)
    return device_line(
        member,
        mesh,
        layers=(seat.lo, seat.hi) if seat else None,
        held_gb=seat.gb if seat and again is None and state not in ("loading", "open", "closed") else 0.0,
        progress=start.loading.pct.get(member.id, 0) if start and seat else again,
        dealt=deal is not None,
        out=deal.reasons.get(member.id) or deal.out.get(member.id, "") if deal else "",
        silent_s=silent_s,
        patience_s=patience_s,
        asks=start is not None and member.id in start.loading.asking,
    )
