"""One device as people see it: of the roster, or one that waits to be let in."""

from __future__ import annotations

from pooled_nb.mesh.gatekeeper import Request
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages.link import DeviceMeta, Member
from pooled_nb.mesh.names import clean, without_digits
from pooled_nb.mesh.telemetry import NOTHING
from pooled_nb.room.core import DeviceLine, Role
from pooled_nb.room.doorfacts import LobbyLine

OURS = "Jupyter"
"""The ``ua`` of every device of ours, a terminal's too (PROTOCOL section 3): it tells nobody apart."""


def device_line(
    member: Member,
    mesh: Mesh,
    *,
    layers: tuple[int, int] | None,
    held_gb: float,
    progress: int | None,
    out: str,
    dealt: bool,
    silent_s: int = 0,
    patience_s: int = 0,
    asks: bool = False,
) -> DeviceLine:
    """What the roster, the link and the deal say of one device.

    Parameters
    ----------
    layers
        0-based, hi exclusive; None: it holds none.
    progress
        Percent while it loads.
    out
        Why it holds no layers, as ``ai-layers`` says it.
    dealt
        Whether layers were dealt: before that, who lends is going to be a worker.
    silent_s, patience_s, asks
        See `DeviceLine`.
    """
    me = member.id == mesh.id
    facts = None if me else mesh.facts(member.id)
    recent = facts.recent if facts else NOTHING
    meta = member.meta
    lends = not dealt and meta.webgpu and (meta.contrib_gb or 0) > 0
    role: Role = "host" if member.id == mesh.creator else "worker" if layers or lends else "guest"
    return DeviceLine(
        id=member.id,
        name=member.name,
        role=role,
        kind=_kind(meta),
        lends_gb=meta.contrib_gb or 0.0,
        layers=layers,
        held_gb=held_gb,
        progress=progress,
        rtt_ms=milliseconds(recent.rtt_s),
        rtt_p95_ms=milliseconds(recent.rtt_p95_s),
        loss=share(recent.loss),
        queued_bytes=facts.queued if facts else 0,
        stripes=facts.stripes if facts else 0,
        wanted=facts.wanted if facts else 0,
        path="" if me else facts.path if facts else "unknown",
        out=out,
        me=me,
        silent_s=silent_s,
        patience_s=patience_s,
        asks=asks,
    )


def milliseconds(seconds: float | None) -> float | None:
    """Of a round trip, in steps that a person notices: a panel does not move for each microsecond."""
    if seconds is None:
        return None
    ms = seconds * 1e3
    return round(ms, 1) if ms < 10 else float(round(ms)) if ms < 100 else float(round(ms, -1))


def share(part: float | None) -> float | None:
    """Of packets, in steps of a tenth of a percent, from 10 % on of one percent."""
    return None if part is None else round(part, 3 if part < 0.1 else 2)


def lobby_line(request: Request) -> LobbyLine:
    """What a device says of itself that asks to be let in."""
    meta = request.meta
    return LobbyLine(
        number=request.number,
        name=request.name,
        kind=_said(_kind(meta) or (meta.ua if meta.ua != OURS else "") or ""),
        lends_gb=(meta.contrib_gb or 0.0) if meta.webgpu else 0.0,
        digits=request.digits,
        note=request.note,
    )


def _said(kind: str) -> str:
    """What a stranger says that it is, in one short line: it stands in brackets in a sentence of ours."""
    kind = kind.translate({ord("("): " ", ord(")"): " "})
    return without_digits(clean(kind)) if kind.strip() else ""


def _kind(meta: DeviceMeta) -> str:
    return meta.gpu or (meta.nb.device if meta.nb else "") or ""
