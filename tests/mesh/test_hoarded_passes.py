"""What throwing a device out does not end: passes that it gathered before under other names (PROTOCOL 4)."""

from __future__ import annotations

from pooled_nb.mesh.gatekeeper import Gatekeeper
from pooled_nb.mesh.newcomer import Newcomer
from tests.mesh.gatetools import invited, pair


def visit(keeper: Gatekeeper, name: str, id: str) -> tuple[Newcomer, str]:
    """Come in with the link under this name, and go; the pass of that visit, and its seat."""
    newcomer = invited(keeper)
    link = pair(keeper, newcomer, id=id, name=name)
    link.creator.gate.closed()
    return newcomer, link.creator.passes[0].seat


def test_passes_of_other_names_outlive_a_throwing_out() -> None:
    """Nothing ties the passes of one device to each other: who held the link may have come under several
    names. docs/attacks.md says so; the same name's are all ended.
    """
    keeper = Gatekeeper()
    same, _ = visit(keeper, "eve", "e-1")
    other, _ = visit(keeper, "eva", "e-2")
    here = invited(keeper)
    link = pair(keeper, here, id="e-3", name="eve")
    keeper.revoke(link.creator.passes[0].seat)
    keeper.deny("e-3")
    keeper.renew_key()
    link.creator.gate.closed()
    for gone in (here, same):
        assert pair(keeper, gone, id="e-4", name="eve").creator.kinds[-1] == "lobby"
    assert pair(keeper, other, id="e-5", name="eva").creator.passes[0].came_back
