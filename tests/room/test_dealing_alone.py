"""DESIGN section 7: where the rules of a place forbid to compute together, the host holds every layer."""

import pytest

from pooled_nb.errors import ModelTooBig
from pooled_nb.room.dealing import make_deal
from tests.room.test_dealing import member
from tests.room.toy import MODEL


def test_alone_the_host_holds_every_layer() -> None:
    members = [member("h"), member("a", 100.0), member("g", 0.0)]
    deal = make_deal(members, "h", MODEL, split="alone", ctx=256, exact=True)
    assert [(s.id, s.lo, s.hi) for s in deal.seats] == [("h", 0, MODEL.layers)]
    assert deal.out == {"a": "unneeded", "g": "unneeded"}
    assert deal.one_sig


def test_alone_means_alone() -> None:
    """A model that the host cannot hold is refused, whoever could help."""
    with pytest.raises(ModelTooBig):
        make_deal([member("h", 1e-9), member("a", 100.0)], "h", MODEL, split="alone", ctx=256, exact=True)
