"""A yes that a person typed to a name counts for the device whose digits it compared (PROTOCOL section 4)."""

from __future__ import annotations

import pytest

from pooled_nb import whom
from pooled_nb.errors import NotReady
from pooled_nb.mesh.gatekeeper import Gatekeeper
from pooled_nb.room.doorfacts import LobbyLine
from pooled_nb.room.lines import lobby_line
from tests.mesh.gatetools import pair


def shown(keeper: Gatekeeper) -> list[LobbyLine]:
    return [lobby_line(request) for request in keeper.lobby]


@pytest.mark.parametrize("id", ["device-0001", "device-0002"])
def test_a_name_that_was_looked_at_names_no_later_link(id: str) -> None:
    """The one whose digits were compared is gone before its name is typed: its link broke, or a lying server
    opened another under its id. Whoever asks under the same name is not let in by that yes.
    """
    keeper = Gatekeeper()
    link = pair(keeper, name="sam")
    (seen,) = shown(keeper)
    if id != "device-0001":
        link.creator.gate.closed()
    pair(keeper, id=id, name="sam")
    (other,) = shown(keeper)
    assert other.digits != seen.digits
    with pytest.raises(NotReady):
        whom.waiting(shown(keeper), seen.name)
    assert whom.waiting(shown(keeper), other.name) == other
    # Nor after any more of them.
    for _ in range(5):
        pair(keeper, id=id, name="sam")
        with pytest.raises(NotReady):
            whom.waiting(shown(keeper), seen.name)


def test_a_name_is_free_again_once_it_was_let_in() -> None:
    """A device that was let in and left asks under its own name."""
    keeper = Gatekeeper()
    for now in (1.0, 2.0):
        link = pair(keeper, name="sam")
        (request,) = keeper.lobby
        assert request.name == "sam"
        keeper.decide(request.number, allow=True)
        link.at(now)
        assert [passed.name for passed in link.creator.passes] == ["sam"]
        link.creator.gate.closed()


def test_who_asks_again_is_called_in_the_room_as_it_was_allowed() -> None:
    """What the person said yes to is what it reads afterwards."""
    keeper = Gatekeeper()
    pair(keeper, name="sam").creator.gate.closed()
    link = pair(keeper, name="sam")
    (request,) = keeper.lobby
    assert request.name == "sam 2"
    keeper.decide(request.number, allow=True)
    link.at(1.0)
    assert [passed.name for passed in link.creator.passes] == ["sam 2"]
