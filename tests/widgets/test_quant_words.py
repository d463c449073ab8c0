"""Panels of a room whose linear weights are kept in fewer bits."""

from __future__ import annotations

from pooled_nb.widgets.state import room_state
from tests.widgets.fakes import status


def test_the_class_and_its_promise() -> None:
    """DESIGN section 5, rule 5: which promise about equal text holds is said, and in which class."""
    state = room_state(status("online", quant="int8-row", kv="q8"), "host")
    assert state["facts"] == "30 layers · bfloat16, int8 weights, int8 caches, exact · 0.3 GB · you host"
    assert state["promise"] == "same text as one device with int8 weights (int8-row), not as with 16-bit ones"
    plain = room_state(status("online"), "host")
    hostile = room_state(status("online", quant="<b>"), "host")
    assert (hostile["facts"], hostile["promise"]) == (plain["facts"], plain["promise"])
