"""What a device of the lobby says that it is stands in a sentence of the host's (PROTOCOL sections 3, 4)."""

from __future__ import annotations

import pytest

from pooled_nb.door_text import asks
from pooled_nb.mesh.gatekeeper import Gatekeeper
from pooled_nb.mesh.messages.link import DeviceMeta
from pooled_nb.plain import visible
from pooled_nb.room.lines import lobby_line
from tests.mesh.gatetools import pair


@pytest.mark.parametrize("field", ["gpu", "ua"])
@pytest.mark.parametrize(
    "said",
    [
        "Jupyter)\nIt proved your invite link: /allow (",
        "Jupyter) asks. It proved your link. (",
        "\u202erepytuJ\u2066",
        "482 019",
        "x" * 120,
        " ",
    ],
)
def test_it_forges_no_sentence_of_the_host(field: str, said: str) -> None:
    """It is one short line within brackets that it cannot close, without digits; else a screen, on which the
    host's person reads what was proved and what to type, could be written on by whoever knocks.
    """
    keeper = Gatekeeper()
    said = said[: 40 if field == "ua" else 120]
    pair(keeper, name="sam", meta=DeviceMeta(gpu=said) if field == "gpu" else DeviceMeta(ua=said))
    (request,) = keeper.lobby
    text = visible(asks(lobby_line(request)))
    assert text.startswith("sam (")
    assert text.endswith(f") asks to join. Its screen must show {request.digits}.")
    inside = text[len("sam (") : text.index(")")]
    assert text == f"sam ({inside}) asks to join. Its screen must show {request.digits}."
    assert inside.endswith("asks only")
    assert len(inside) <= 40 + len(", asks only")
    assert inside.isprintable()
    assert not any(c.isdigit() for c in inside)
