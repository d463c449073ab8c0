"""What a browser may say to a panel."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.widgets.heard import Custom, heard


def comm(data: Any) -> dict[str, Any]:
    return {"content": {"comm_id": "c", "data": data}, "buffers": []}


def custom(content: Any) -> Any:
    return heard(comm({"method": "custom", "content": content}))


def test_what_our_javascript_says() -> None:
    """SEAMS of the panels: a verb, a setting, a sync, a view that is here; and a page that was reloaded."""
    assert custom({"cmd": "start"}) == Custom("start")
    assert custom({"cmd": "set", "key": "style", "value": "focused"}) == Custom("set", "style", "focused")
    assert custom({"cmd": "sync", "id": 3}) == Custom("sync", id=3)
    assert custom({"cmd": "here", "more": [1, 2]}) == Custom("here")
    assert heard(comm({"method": "request_state"})) == "request_state"


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        "stop",
        {},
        {"cmd": 1},
        {"cmd": ""},
        {"cmd": "x" * 21},
        {"cmd": "set", "key": "k" * 81},
        {"cmd": "set", "key": "style", "value": {"a": 1}},
        {"cmd": "sync", "id": "3"},
        {"cmd": "sync", "id": -1},
        {"cmd": "sync", "id": 1.5},
        {"cmd": "stop", "\ud800": 1},  # half a character, which JSON may carry
    ],
)
def test_anything_else_is_not_heard(content: Any) -> None:
    """DESIGN section 7: what comes from a browser is typed and bounded."""
    assert custom(content) is None


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"method": "update", "state": {"room": {}}},
        {"method": "eval"},
        {"method": "\ud800"},
        {"content": {}},
    ],
)
def test_traits_go_one_way(data: Any) -> None:
    """A browser sets nothing in the kernel."""
    assert heard(comm(data)) is None


words = st.text(st.characters(exclude_categories=()))  # with halves of characters


@settings(deadline=None)
@given(st.recursive(st.none() | st.integers() | words, lambda x: st.lists(x) | st.dictionaries(words, x)))
def test_it_never_raises(anything: Any) -> None:
    """Whatever arrives."""
    for message in (
        anything,
        {"content": anything},
        comm(anything),
        comm({"method": "custom", "content": anything}),
    ):
        assert heard(message) is None or isinstance(heard(message), (str, Custom))


def test_a_relay_is_heard_of_one_command_alone() -> None:
    """DESIGN section 7: a TURN server is a secret: bounded, of the network box only, in no repr."""
    turn = "turn:ana:p4ssw0rd@turn.example.org"
    said = custom({"cmd": "network", "id": 1, "turn": turn, "relay_only": True})
    assert (said.turn, said.relay_only, said.remember) == (turn, True, False)
    assert "p4ssw0rd" not in repr(said) + str(said) + str(said.__rich_repr__())
    assert custom({"cmd": "network", "turn": "x" * 1_000}) is not None
    for wrong in (
        {"cmd": "set", "turn": turn},
        {"cmd": "network", "turn": "x" * 1_001},
        {"cmd": "network", "turn": 1},
    ):
        assert custom(wrong) is None
