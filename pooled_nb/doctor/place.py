"""What the owner of this machine allows, where that is known (DESIGN section 7)."""

from __future__ import annotations

from pooled_nb.doctor.findings import Finding
from pooled_nb.doctor.stun import TURN_STEP
from pooled_nb.places import Place


def judge(place: Place, *, relay: bool) -> list[Finding]:
    """Facts in, findings out."""
    if not place.name:
        return []
    found = []
    if place.rules:
        here = "join is a guest" if place.role == "guest" else ""
        alone = "host keeps the model on this device" if place.split == "alone" else ""
        defaults = " and ".join(part for part in (here, alone) if part)
        found.append(
            Finding(
                what=place.name,
                mark="warn",
                result=f"{place.rules}. So here {defaults}, unless you say otherwise",
                todo="Where your plan allows more: --role worker, --split speed.",
            )
        )
    if place.network:
        turn = "" if relay else f"Where devices elsewhere find no path, {TURN_STEP}."
        todo = place.network_step or turn
        found.append(Finding(what=f"{place.name}, network", mark="warn", result=place.network, todo=todo))
    return found
