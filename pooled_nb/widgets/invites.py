"""The invite link as a panel gives it out: one message, on a click, and nothing kept (DESIGN section 7)."""

from __future__ import annotations

from typing import Any

from pooled_nb.errors import PooledError
from pooled_nb.room.doorwords import HERE_ONLY
from pooled_nb.widgets.formats import sentence
from pooled_nb.widgets.sources import Coming

NONE_NOW = "This room gives out no link now."

QUIET = 4
"""Modules of light around the code, which readers need."""


def answer(id: int, coming: Coming) -> dict[str, Any]:
    """What the view that asked gets; ``id`` is its own question's.

    The link goes from the room into this one message: it is in no trait, so in no saved notebook.
    """
    error = coming.error()
    if error is not None:
        return refused(id, sentence(str(error)) if isinstance(error, PooledError) else NONE_NOW)
    invite = coming.result()
    note = HERE_ONLY if invite.here_only else ""
    return {
        "t": "invite",
        "id": id,
        "code": invite.code,
        "link": invite.link,
        "qr": qr(invite.link),
        "note": note,
    }


def refused(id: int, why: str) -> dict[str, Any]:
    """There is no link for who asked."""
    return {"t": "invite", "id": id, "error": why}


def qr(text: str) -> dict[str, Any] | None:
    """A QR code as one SVG path over ``n`` by ``n`` modules, with its quiet zone; None for a long text."""
    import segno

    try:
        code = segno.make_qr(text, error="m")
    except segno.DataOverflowError:
        return None
    rows = [bytes(row) for row in code.matrix]
    return {"n": len(rows) + 2 * QUIET, "d": "".join(_runs(row, y + QUIET) for y, row in enumerate(rows))}


def _runs(row: bytes, y: int) -> str:
    """Dark modules side by side as one box each."""
    out, x = [], 0
    while (start := row.find(1, x)) >= 0:
        end = row.find(0, start)
        x = len(row) if end < 0 else end
        out.append(f"M{start + QUIET} {y}h{x - start}v1h-{x - start}z")
    return "".join(out)
