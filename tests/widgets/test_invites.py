"""The invite link leaves the kernel in one message, to who asked, and is nowhere else (DESIGN section 7)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zxingcpp

from pooled_nb.errors import NotReady
from pooled_nb.room.doorfacts import Invite, LobbyLine, NetworkFacts
from pooled_nb.widgets.invites import answer, qr
from pooled_nb.widgets.painter import NAME, painter
from tests.widgets.conftest import FakeComm, until
from tests.widgets.fakes import LINK, FakeRoom, status
from tests.widgets.panels import of, room_panel

BOX = re.compile(r"M(\d+) (\d+)h(\d+)v1h-\d+z")
TURN = "turn:ana:p4ssw0rd-of-a-relay@turn.example.org:3478"
ALL = ["allow", "deny", "set", "invite", "kick", "network"]


def decoded(code: dict[str, Any], scale: int = 4) -> str:
    """What a phone reads from the picture, drawn as a browser draws the path: dark on light."""
    assert "".join(found[0] for found in BOX.finditer(code["d"])) == code["d"]
    picture = np.full((code["n"], code["n"]), 255, np.uint8)
    for x, y, w in (map(int, found.groups()) for found in BOX.finditer(code["d"])):
        assert max(x + w, y + 1) <= code["n"] - 4  # the quiet zone
        assert min(x, y) >= 4
        picture[y, x : x + w] = 0
    [found] = zxingcpp.read_barcodes(np.kron(picture, np.ones((scale, scale), np.uint8)))
    return str(found.text)


@pytest.mark.parametrize("text", [LINK, "pooled://room/r/4TKG9P?signal=" + "a" * 150 + "#k=" + "B" * 43, "x"])
def test_the_picture_is_the_link(text: str) -> None:
    """One path; a reader that knows nothing of us reads the link."""
    code = qr(text)
    assert code is not None
    assert decoded(code) == text
    assert len(code["d"]) < 20_000


@pytest.mark.parametrize(("link", "said"), [("http://127.0.0.1:9/r/4TKG9P#k=x", True), (LINK, False)])
def test_a_link_of_one_machine_says_so(link: str, said: bool) -> None:
    """A phone that scans it would look for the room on itself."""

    class Come:
        def error(self) -> None:
            return None

        def result(self) -> Invite:
            return Invite(code="4TKG9P", link=link)

    note = answer(1, Come())["note"]
    assert ("on this machine only" in note) is said


def test_a_text_that_no_picture_holds() -> None:
    """The sheet then goes without."""
    assert qr("x" * 3_000) is None


def test_the_fixture_of_the_page_is_what_the_kernel_says() -> None:
    """The tests in JavaScript use a picture of ours."""
    kept = json.loads((Path(__file__).parent / "js" / "invite.json").read_text(encoding="utf-8"))
    assert kept["qr"] == qr(kept["link"])


def test_one_message_to_who_asked_and_nothing_kept(comms: list[FakeComm]) -> None:
    """DESIGN section 7: the link is no trait and in no state, at any time; each view knows its own answer."""
    room = FakeRoom(status("online", can=ALL))
    panel = room_panel(room)
    of(panel).say(cmd="invite", id=7)
    until(lambda: of(panel).customs)
    [said] = of(panel).customs
    assert (said["t"], said["id"], said["code"], said["link"]) == ("invite", 7, "4TKG9P", LINK)
    assert decoded(said["qr"]) == LINK
    of(panel).say(cmd="renew", id=8)
    until(lambda: len(of(panel).customs) == 2)
    assert of(panel).customs[1]["link"] == LINK + "x"
    assert of(panel).customs[1]["id"] == 8
    room.become(status("answering", can=ALL))
    until(lambda: of(panel).state()["room"]["state"] == "answering")
    of(panel).receive({"method": "request_state"})  # a page that is reloaded
    until(lambda: "_esm" in of(panel).updates[-1])
    key = LINK.partition("#k=")[2]
    for words in (
        json.dumps(panel.get_state(), default=str),
        json.dumps(of(panel).opened, default=str),
        json.dumps(of(panel).updates, default=str),
        repr(vars(panel)),
        json.dumps(panel._repr_mimebundle_(), default=str),
    ):
        assert key not in words
    assert {name for name, _ in of(panel).sent} == {NAME}


def test_only_who_may_and_only_when_asked(comms: list[FakeComm]) -> None:
    """A guest's panel gives out nothing, nor does one whose room is over; a refusal is one sentence."""
    room = FakeRoom(status("online", can=["network"]), role="guest")
    panel = room_panel(room)
    for said in ({"cmd": "invite"}, {"cmd": "invite", "id": 1}, {"cmd": "renew", "id": 2}):
        of(panel).say(**said)
    until(lambda: not panel._inbox)
    room.become(status("online", can=ALL))
    of(panel).say(cmd="invite")  # of no view
    until(lambda: not panel._inbox)
    assert of(panel).customs == []
    room.refuses = NotReady("This device does not host the room.", "Ask its host.")
    for id, room.late in ((3, False), (4, True)):
        of(panel).say(cmd="invite", id=id)
        until(lambda wanted=id: [m["id"] for m in of(panel).customs][-1:] == [wanted])
        assert of(panel).customs[-1] == {
            "t": "invite",
            "id": id,
            "error": "This device does not host the room. Ask its host.",
        }


def test_a_page_that_asks_without_end(comms: list[FakeComm], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each link is a picture to make: five a second, and what is too much is dropped."""
    monkeypatch.setattr("pooled_nb.widgets.room_panel.INVITE_S", 0.02)
    panel = room_panel(FakeRoom(status("online", can=ALL)))
    for n in range(2_000):
        of(panel).say(cmd="invite", id=n)
    until(lambda: not panel._inbox and not panel._asked and not painter._turns._due)
    assert 1 <= len(of(panel).customs) <= 40
    of(panel).say(cmd="invite", id=5_000)
    until(lambda: of(panel).customs[-1]["id"] == 5_000)


def test_the_lobby_is_decided_by_what_is_there(comms: list[FakeComm]) -> None:
    """A click comes late, names a number that waits no longer, or what nobody offered: nothing is done."""
    room = FakeRoom(status("online", can=ALL, lobby=[LobbyLine(number=4, name="leo", digits="482 019")]))
    panel = room_panel(room)
    for said in (
        {"cmd": "allow", "id": 3},
        {"cmd": "allow"},
        {"cmd": "allow", "id": 4},
        {"cmd": "deny", "id": 4},
        {"cmd": "kick", "key": "mira"},
        {"cmd": "kick", "key": "studio"},  # this device
        {"cmd": "kick", "key": "nobody"},
        {"cmd": "gate", "key": "ask", "value": "off"},
        {"cmd": "gate", "key": "ask", "value": "maybe"},
        {"cmd": "gate", "key": "older", "value": "on"},
    ):
        of(panel).say(**said)
    until(lambda: not panel._inbox)
    assert [(name, options) for name, options, _ in room.commands] == [
        ("allow", {"number": 4}),
        ("deny", {"number": 4}),
        ("kick", {"id": "mira"}),
        ("gate", {"ask": False}),
    ]
    room.commands.clear()
    room.become(status("online", lobby=[LobbyLine(number=4, name="leo")]))
    for said in ({"cmd": "allow", "id": 4}, {"cmd": "kick", "key": "mira"}, {"cmd": "gate", "key": "ask"}):
        of(panel).say(**said)
    until(lambda: not panel._inbox)
    assert room.commands == []


def test_a_relay_goes_in_once_and_never_back(comms: list[FakeComm], caplog: pytest.LogCaptureFixture) -> None:
    """DESIGN section 7: a TURN server's text is passed on, and is in no trait, answer, repr or log."""
    room = FakeRoom(status("online", can=ALL))
    panel = room_panel(room)
    of(panel).say(cmd="network", id=5, turn=TURN, relay_only=True, remember=True)
    until(lambda: room.commands)
    assert room.commands[0][:2] == ("network", {"turn": TURN, "relay_only": True, "remember": True})
    told = room.told[0]
    assert told is not None
    told("That is no relay that can be read. Write it as turn:USER:PASSWORD@HOST:PORT")
    until(lambda: of(panel).customs)
    told("")
    until(lambda: len(of(panel).customs) == 2)
    room.become(status("online", can=ALL, network=NetworkFacts(relay="turn.example.org:3478")))
    told("")
    until(lambda: len(of(panel).customs) == 3)
    assert [(m["t"], m["id"], m["error"][:16], m["said"]) for m in of(panel).customs] == [
        ("done", 5, "That is no relay", ""),
        ("done", 5, "", "Saved. This room stays on its own network, so it uses no relay."),
        ("done", 5, "", "Saved. It counts for connections made from now on."),
    ]
    for said in (
        {"turn": "x" * 1_001, "id": 1},
        {"id": 2},
        {"id": 3, "remember": True},
        {"turn": "t"},
    ):
        of(panel).say(cmd="network", **said)
    until(lambda: not panel._inbox)
    assert len(room.commands) == 1
    for words in (
        json.dumps(panel.get_state(), default=str),
        json.dumps([data for _, data in of(panel).sent], default=str),
        repr(vars(panel)),
        caplog.text,
    ):
        assert "p4ssw0rd" not in words
