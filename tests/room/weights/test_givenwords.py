"""What a device gave, in words."""

from __future__ import annotations

import pytest

from pooled_nb.mesh.messages.link import DeviceMeta, Member
from pooled_nb.room.weights.givenwords import given_words
from pooled_nb.room.weights.giving import Given

NAMES = {"a": "Ada", "b": "Leo", "c": "Mira", "d": "Noor"}
ROSTER = [
    Member(id=id, name=name, meta=DeviceMeta(ua="Jupyter", contrib_gb=0.0)) for id, name in NAMES.items()
]


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ({}, ""),
        ({"a": 999_999}, ""),
        ({"a": 2_000_000}, "This device gave 2 MB of weights to Ada."),
        ({"b": 10**9, "a": 2 * 10**8}, "This device gave 1.2 GB of weights to Ada and Leo."),
        ({"a": 10**9, "gone": 10**9}, "This device gave 2.0 GB of weights to Ada and 1 more."),
        ({"gone": 10**9}, "This device gave 1.0 GB of weights to others."),
        (
            dict.fromkeys(NAMES, 10**9),
            "This device gave 4.0 GB of weights to Ada, Leo, Mira and 1 more.",
        ),
    ],
)
def test_who_got_how_much(to: dict[str, int], words: str) -> None:
    """PROTOCOL section 6: what goes to other devices is shown to whoever gives it."""
    assert given_words(Given(bytes=sum(to.values()), to=to), ROSTER) == words
