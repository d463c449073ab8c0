from itertools import product
from typing import get_args

import pytest

from pooled_nb.room.core import Again, Role, State, Verb
from pooled_nb.room.may import verbs

BOTH: list[Again] = ["continue", "regen"]
STATES: tuple[State, ...] = get_args(State)
ALWAYS: list[Verb] = ["set", "invite", "close", "network", "leave"]
"""What a host may do in each state."""
ROLES: tuple[Role, ...] = get_args(Role)


@pytest.mark.parametrize(
    ("state", "can"),
    [
        ("open", ["start", *ALWAYS]),
        ("loading", ALWAYS),
        ("online", ALWAYS),
        ("answering", ["stop", *ALWAYS]),
        ("waiting", ["redeal", "stop", *ALWAYS]),
        ("degraded", ["redeal", *ALWAYS]),
        ("closed", []),
    ],
)
def test_the_host_in_every_state(state: State, can: list[Verb]) -> None:
    """DESIGN section 7: what is offered is what makes sense now; the most obvious comes first."""
    assert verbs("host", state) == can


def test_the_host_of_a_room_that_was_asked() -> None:
    """DESIGN section 7: a new deal once devices came, a new chat once there is one, the newest answer."""
    everything = verbs("host", "online", changed=True, chat=True, again=BOTH)
    assert everything == ["redeal", "continue", "regen", "reset", *ALWAYS]
    assert verbs("host", "answering", changed=True, chat=True, again=BOTH, mine=True) == [
        "stop", "reset", *ALWAYS,
    ]  # fmt: skip
    assert "reset" in verbs("host", "degraded", chat=True)
    assert verbs("host", "degraded", asks=True) == ["redeal", "stop", *ALWAYS], (
        "an answer that waits is given up"
    )
    assert verbs("host", "loading", asks=True) == ["stop", *ALWAYS]
    assert "stop" not in verbs("host", "online", asks=True)
    assert "reset" not in verbs("host", "loading", chat=True)


@pytest.mark.parametrize("role", ["worker", "guest"])
def test_who_is_no_host(role: Role) -> None:
    """DESIGN section 7: they stop their own answer, go on with their own, and leave."""
    for state in STATES:
        leaves = ["network", "leave"] if state != "closed" else []
        assert verbs(role, state, changed=True, chat=True) == leaves
        held = state in ("answering", "waiting", "degraded", "loading", "away")
        assert verbs(role, state, mine=True) == (["stop"] if held else []) + leaves
        assert verbs(role, state, again=BOTH) == (BOTH if state == "online" else []) + leaves


def test_the_door_comes_first_while_somebody_waits() -> None:
    """DESIGN section 7, lobby: its host's person lets in, sends away, invites and throws out; nobody else."""
    for state in STATES:
        can = verbs("host", state, lobby=True, others=True)
        assert can[:2] == (["allow", "deny"] if state != "closed" else [])
        assert ("kick" in can, "invite" in can) == ((state != "closed"),) * 2
        assert "kick" not in verbs("host", state, lobby=True)
    for role in ("worker", "guest"):
        assert not {"allow", "deny", "kick", "invite"} & set(verbs(role, "online", lobby=True, others=True))


def test_no_verb_comes_twice_and_a_closed_room_has_none() -> None:
    """DESIGN section 7: a button is there only when pressing it makes sense, and never twice."""
    switches = (False, True)
    for role, state, mine, changed, chat in product(ROLES, STATES, switches, switches, switches):
        can = verbs(role, state, mine=mine, changed=changed, chat=chat, again=BOTH, lobby=mine, others=chat)
        assert len(can) == len(set(can))
        assert set(can) <= set(get_args(Verb))
        assert (can == []) == (state == "closed")
        assert not {"start", "redeal"} <= set(can)
