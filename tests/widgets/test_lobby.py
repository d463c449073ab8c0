"""Who wants in, who is let in, and how a joiner knows its host, as the trait `room` has it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pooled_nb.room.core import Status
from pooled_nb.room.doorfacts import GateChoices, LobbyLine, NetworkFacts
from pooled_nb.room.doorwords import TRUST
from pooled_nb.widgets.state import room_state
from tests.widgets.conftest import FakeComm, until
from tests.widgets.fakes import FakeRoom, status
from tests.widgets.panels import of as of_panel
from tests.widgets.panels import room_panel

NASTY = ["<script>1</script>", "\u202eevil", "n" * 500, "two\nlines\x1b[2J", "\ud800", "", "🙂" * 200]


def waiting(number: int, **more: Any) -> LobbyLine:
    given = {"name": f"d{number}", "kind": "NVIDIA RTX 4090", "lends_gb": 8.0, "digits": "482 019", **more}
    return LobbyLine(number=number, **given)


def of(now: Status, role: Any = "host", **more: Any) -> dict[str, Any]:
    return room_state(now, role, **more)


def test_the_host_sees_who_waits_one_at_a_time() -> None:
    """PROTOCOL section 4: name, what it is, six digits on both ends, and what to know besides."""
    room = of(status(lobby=[waiting(3, note="It comes back without its pass"), waiting(4, digits="")]))
    assert room["lobby"]["head"] == "In the lobby, 1 of 2. Same digits on their screen?"
    assert room["lobby"]["rows"][0] == {
        "number": 3,
        "name": "d3",
        "what": "NVIDIA RTX 4090, lends 8.0 GB",
        "digits": "482 019",
        "note": "It comes back without its pass.",
    }
    alone = of(status(lobby=[waiting(9, digits="", kind="", lends_gb=0.0)]))["lobby"]
    assert alone["head"] == "In the lobby. It can show no digits."
    assert alone["rows"][0]["what"] == "lends nothing"


@pytest.mark.parametrize(
    ("facts", "tone", "note"),
    [
        ({}, "idle", "Nobody waits. New devices ask here first."),
        ({"gate": GateChoices(ask=False)}, "warn", "Anyone with the code comes in. Asking is off."),
        (
            {"network": NetworkFacts(up=False), "gate": GateChoices(ask=False)},
            "warn",
            "Nobody new can join: no signaling server answers. The room goes on.",
        ),
    ],
)
def test_an_empty_lobby_has_one_line(facts: dict[str, Any], tone: str, note: str) -> None:
    """DESIGN section 7: the lobby is there from the start, so that nothing moves when somebody knocks."""
    room = of(status(**facts))
    assert (room["lobby"]["rows"], room["lobby"]["tone"], room["lobby"]["note"]) == ([], tone, note)
    assert of(status(lobby=[waiting(1)], **facts))["lobby"]["note"] == ""


def test_only_the_host_decides() -> None:
    """PROTOCOL section 4: what a joiner's panel shows of the gate is how it knows its host."""
    now = status(lobby=[waiting(1)], can=["allow", "deny", "invite", "set", "kick", "network"])
    for role in ("worker", "guest", None):
        room = of(now, role)
        assert (room["lobby"], room["gate"]["may"], room["invite"]) == (None, False, False)
    host = of(now)
    assert (host["gate"]["may"], host["invite"], host["network"]["may"]) == (True, True, True)
    over = of(now, left=True)
    assert (over["lobby"], over["gate"]["may"], over["invite"], over["network"]["may"]) == (
        None,
        *[False] * 3,
    )
    assert not any(row["kick"] for row in [*over["chain"], *over["guests"]])


@pytest.mark.parametrize(
    ("trust", "digits", "tone", "text", "shown"),
    [
        ("proved", "482 019", "good", "The host proved that it knows your invite link or pass.", ""),
        ("confirmed", "482 019", "good", "You compared the digits with the host's:", "482 019"),
        ("first", "482 019", "warn", "Trust on first use: the host's lobby must have shown", "482 019"),
        (
            *("first", "", "warn"),
            *("Trust on first use: nothing proves that this host is the one you mean.", ""),
        ),
        ("", "", "idle", "", ""),
    ],
)
def test_how_a_joiner_knows_its_host(trust: Any, digits: str, tone: str, text: str, shown: str) -> None:
    """PROTOCOL section 4: trust on first use is said plainly, with the digits to compare."""
    now = status(trust=trust, digits=digits)
    head = "Your host" if text else ""
    assert of(now, "guest")["trust"] == {"head": head, "text": text, "digits": shown, "tone": tone}
    assert of(now, "host")["trust"]["text"] == ""


def test_trust_on_first_use_is_told_once() -> None:
    """The place of the lobby says it, with the digits whole: the notice of it would only be cut below."""
    told = f"{TRUST['first']} Ask its person whether its screen showed 482 019."
    notices = ["ana left the room.", told]
    assert of(status(trust="first", digits="482 019"), "guest", notices=notices)["notice"] == notices[0]
    assert of(status(trust="proved"), "guest", notices=notices)["notice"] == told  # of a room before


def test_a_knock_is_told_once(comms: list[FakeComm]) -> None:
    """Screen readers: the lobby says who knocks; the room's notice of it is not shown too."""
    room = FakeRoom(status(lobby=[waiting(1, name="leo")]))
    room.notices = ["ana left the room.", "leo asks to join. Its screen shows 482 019."]
    panel = room_panel(room)
    assert panel.room["notice"] == "ana left the room."
    room.become(status("answering"))
    until(lambda: of_panel(panel).state()["room"]["state"] == "answering")
    assert panel.room["notice"] == "ana left the room."
    room.notices = [*room.notices, "leo left the room."]
    room.changed()
    until(lambda: of_panel(panel).state()["room"]["notice"] == "leo left the room.")


def test_who_may_be_thrown_out() -> None:
    """Others, by the host: devices of the chain and guests, never this device itself."""
    room = of(status(can=["kick"]))
    assert [(row["name"], row["kick"]) for row in room["chain"]] == [
        ("studio", False),
        ("mira", True),
        ("basement", True),
    ]
    assert [(row["name"], row["kick"]) for row in room["guests"]] == [("ana", True)]
    assert not any(row["kick"] for row in of(status())["chain"])


def test_a_lobby_of_bad_names_is_bounded() -> None:
    """Bad input: a full lobby, every name and note hostile; and more than a lobby holds."""
    rows = [
        waiting(n, name=NASTY[n % 7] * 9, kind=NASTY[n % 5] * 99, digits="9" * 999, note=NASTY[n % 3] * 999)
        for n in range(500)
    ]
    lobby = of(status(lobby=rows))["lobby"]
    assert (len(lobby["rows"]), lobby["more"]) == (8, 492)
    json.dumps(lobby, allow_nan=False, ensure_ascii=False).encode()
    for row in lobby["rows"]:
        assert len(row["name"]) <= 60
        assert len(row["what"]) <= 60
        assert len(row["digits"]) <= 12
        assert len(row["note"]) <= 301
        assert not {"\n", "\x1b", "\ud800"} & set("".join(str(x) for x in row.values()))
    assert of(status(lobby=[waiting(1, lends_gb=float("nan"))]))["lobby"]["rows"][0]["what"].endswith(
        "nothing"
    )


def test_the_band_names_who_waits() -> None:
    """The mock: the sentence says what is so, and what comes next; the lobby may be out of sight."""
    for state in ("open", "online"):
        assert (
            of(status(state=state, lobby=[waiting(1, name="leo")]))["say"]["about"]
            == "leo waits in the lobby."
        )
    two = of(status(lobby=[waiting(1), waiting(2)]))["say"]["about"]
    assert two == "2 devices wait in the lobby."
    assert "lobby" not in of(status(state="online"))["say"]["about"]
    assert "lobby" not in of(status(state="answering", lobby=[waiting(1)]))["say"]["about"]
