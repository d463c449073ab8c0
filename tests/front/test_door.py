"""Who comes into a room and by which ways, from Python, over a scripted room."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from rich.pretty import pretty_repr

import pooled_nb
from pooled_nb import door_text
from pooled_nb.errors import BadOption, NotReady, RoomClosed
from pooled_nb.job import Job
from pooled_nb.mesh.gatejoiner import WAITS_FOR_HOST
from pooled_nb.room.doorfacts import GateChoices, NetworkChoice, NetworkFacts, WireChoice
from pooled_nb.threads import mesh
from tests.front.scripted import Rooms

RELAY = "turn:ana:PLANTEDpassword@relay.example:3478"


def knock(rooms: Rooms, *names: str) -> None:
    async def at_the_door() -> None:
        rooms.core.ask_to_join(*names)

    mesh.run(at_the_door())


def test_a_host_asks_unless_told_otherwise(rooms: Rooms) -> None:
    """PROTOCOL section 4: a person is asked before a device comes in; off by choice only."""
    pooled_nb.host("m").leave()
    assert rooms.calls[-1][2]["gate"] == GateChoices(ask=True, starts="all")
    assert rooms.calls[-1][2]["network"] is None
    pooled_nb.host("m", ask=False, starts="host", stun="stun:a:1, stun:b:2", relay_only=True).leave()
    options = rooms.calls[-1][2]
    assert options["gate"] == GateChoices(ask=False, starts="host")
    assert options["network"] == NetworkChoice(stun=["stun:a:1", "stun:b:2"], relay_only=True)
    pooled_nb.join("4TK-G9P", lan=True, turn=RELAY, stun=[]).leave()
    options = rooms.calls[-1][2]
    assert options["lan"] is True
    assert options["network"].turn == RELAY
    assert options["network"].stun == []
    pooled_nb.join("4TK-G9P", transport="aiortc").leave()
    assert rooms.calls[-1][2]["network"] == NetworkChoice(transport="aiortc")
    wrongs = ({"ask": "yes"}, {"starts": "me"}, {"relay_only": 1}, {"turn": 5}, {"stun": 5})
    for wrong in (*wrongs, {"transport": "tcp"}, {"transport": 5}):
        with pytest.raises(BadOption):
            pooled_nb.host("m", **wrong)
    assert pooled_nb.current() is None


def test_who_waits_is_let_in_or_sent_away(rooms: Rooms) -> None:
    """PROTOCOL section 4: the host's person sees name and digits, allows or denies."""
    room = pooled_nb.host("m")
    assert room.lobby == []
    assert str(room.lobby) == "Nobody waits to be let in."
    with pytest.raises(NotReady, match="Nobody waits"):
        room.allow()
    knock(rooms, "leo")
    assert [line.name for line in room.lobby] == ["leo"]
    assert room.allow() is room
    assert rooms.core.log[-1] == ("allow", 1)
    knock(rooms, "ana 2", "ana 2", "Eve")
    with pytest.raises(BadOption, match=r"3 devices wait: 1 ana 2, 2 ana 2 and 3 Eve\. Say which"):
        room.allow()
    with pytest.raises(BadOption, match="Several that wait are called so: 1 ana 2 and 2 ana 2"):
        room.allow("ana 2")
    with pytest.raises(NotReady, match="bob does not wait"):
        room.deny("bob")
    room.deny(2)
    room.deny("eve")  # capitals do not matter where nothing else is meant
    room.allow("1")
    assert [entry for entry in rooms.core.log if entry[0] in ("allow", "deny")] == [
        ("allow", 1),
        ("deny", 2),
        ("deny", 3),
        ("allow", 1),
    ]
    knock(rooms, "2", "tim")
    room.allow("2")  # tim's number, which another one took for its name
    assert [line.name for line in room.lobby] == ["2"]
    room.deny("2")  # and now it can mean that one alone
    assert rooms.core.log[-1] == ("deny", 1)
    room.kick("<b>desk|top</b>")
    assert rooms.core.log[-1] == ("kick", "b")
    with pytest.raises(NotReady, match="Nobody else is here"):
        room.kick("desk")
    with pytest.raises(BadOption, match="your own device"):
        room.kick("laptop")


async def test_the_same_awaited_and_from_threads(rooms: Rooms) -> None:
    """DESIGN section 1: every call works synchronously and awaited, also where a loop is already running."""
    room = await pooled_nb.host("m", wait=False)
    knock(rooms, "leo", "ana")
    job = room.allow("leo", wait=False)
    assert isinstance(job, Job)
    assert await job is room
    assert await room.deny("ana") is room
    assert (await room.invite(wait=False)).link == (await room.invite()).link == room.invite().link
    assert (await room.gate(ask=False)).ask is False
    assert (await room.network(relay_only=True, wait=False)).relay_only is True
    knock(rooms, "tim")
    thread = threading.Thread(target=room.allow)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert rooms.core.lobby == []
    with pytest.raises(NotReady, match="Nobody waits"):
        await room.allow(wait=False)


def test_the_link_is_in_no_text(rooms: Rooms) -> None:
    """DESIGN section 7: the invite link is a secret; what shows itself never shows it, ``.link`` does."""
    room = pooled_nb.host("m")
    invite = room.invite()
    key = rooms.core.key
    assert key in invite.link
    assert str(invite.link) == f"{invite.link}"
    shown = [
        repr(invite),
        repr(invite.link),  # a cell that ends with it
        str(invite),
        f"{[invite]} {invite!r}",
        str(invite._repr_mimebundle_()),
        invite._repr_html_(),
        pretty_repr(invite),
        repr(room),
        str(room.status()),
        str(room._repr_mimebundle_()),
    ]
    assert not [text for text in shown if key in text]
    assert ".link holds it" in str(invite)
    assert room.renew_invite().link != invite.link
    assert rooms.core.log[-1] == "renew"


def test_the_gate_is_shown_and_set(rooms: Rooms) -> None:
    """PROTOCOL section 4: who comes in is the owner's choice, and can be changed while the room is open."""
    room = pooled_nb.host("m")
    assert room.gate().ask is True
    assert rooms.core.gate == GateChoices()
    now = room.gate(ask=False)
    now = room.gate(starts="host", older=True)
    assert now == room.gate()
    assert rooms.core.gate == GateChoices(ask=False, starts="host", older=True)
    assert "the code is enough" in str(now)
    assert str(now) in str(now._repr_mimebundle_()["text/plain"])
    with pytest.raises(BadOption):
        room.gate(starts="nobody")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="has no 'asks'"):
        room.gate(asks=False)  # type: ignore[call-overload]


def test_the_network_box(rooms: Rooms) -> None:
    """PROTOCOL section 2, ICE: a relay of the user's; its password is in no text (DESIGN section 7)."""
    room = pooled_nb.host("m")
    assert room.network().relay == ""
    assert [entry for entry in rooms.core.log if entry[0] == "network"] == []
    facts = room.network(turn=RELAY, stun="", remember=True)
    [(_, choice)] = [entry for entry in rooms.core.log if entry[0] == "network"]
    assert choice == NetworkChoice(turn=RELAY, stun=[], remember=True)
    assert facts.relay == "relay.example:3478"
    shown = f"{facts} {facts!r} {choice!r} {facts._repr_mimebundle_()} {pretty_repr(choice)}"
    assert "PLANTED" not in shown
    assert "relay.example:3478 (from your settings)" in shown


def test_only_the_host(rooms: Rooms) -> None:
    """PROTOCOL section 4: gate and invite are the host's alone; the network is everyone's."""
    room = pooled_nb.join("4TK-G9P")
    assert room.lobby == []
    calls: list[Any] = [room.allow, room.deny, room.invite, room.gate, lambda: room.kick("x")]
    for call in (*calls, room.renew_invite, lambda: room.gate(ask=False)):
        with pytest.raises(NotReady, match="Only the host"):
            call()
    assert room.network(relay_only=True).relay_only is True
    room.leave()
    for call in (*calls, room.network):
        with pytest.raises(RoomClosed):
            call()


def test_what_a_panel_says(rooms: Rooms) -> None:
    """`pooled_nb.widgets.sources.RoomSource`: buttons of the lobby and of the network box."""
    room = pooled_nb.host("m")
    knock(rooms, "leo", "ana")
    ends: list[str] = []
    told = threading.Semaphore(0)

    def done(why: str) -> None:
        ends.append(why)
        told.release()

    commands: list[tuple[str, dict[str, object]]] = [
        ("allow", {"number": 1}),
        ("deny", {"number": 9}),
        ("kick", {"id": "b"}),
        ("gate", {"ask": False}),
        ("network", {"turn": RELAY, "remember": False}),
        ("network", {"turn": RELAY, "relay_only": "PLANTED"}),
    ]
    for name, options in commands:
        room.command(name, options, done)
        assert told.acquire(timeout=10)
    assert [bool(why) for why in ends] == [False, True, False, False, False, True]
    assert "waits no longer" in ends[1]
    assert "PLANTED" not in str(ends)
    assert room.notices == []
    assert rooms.core.gate.ask is False
    junk: list[tuple[str, dict[str, object]]] = [("allow", {"number": "1"}), ("kick", {}), ("dance", {})]
    for name, options in junk:
        room.command(name, options)  # junk is nothing
    assert [line.name for line in room.lobby] == ["ana"]


def test_a_script_that_waits_for_devices_hears_of_who_waits_for_it(
    rooms: Rooms, capsys: pytest.CaptureFixture[str]
) -> None:
    """DESIGN section 1: every wait ends, or says what to do next; without a terminal on stderr, once."""
    room = pooled_nb.host("m")
    knock(rooms, "leo")
    began = room.start(devices=3, wait=False)
    said = room.progress[1]
    for _ in range(200):
        if "leo" in (said := room.progress[1]):
            break
        mesh.run(asyncio.sleep(0.02))
    assert said.startswith("2 of 3 devices are here; leo asks to join, with 482 020 on its screen.")
    began.cancel()
    threading.Timer(0.5, lambda: mesh.run(third(rooms))).start()
    room.start(devices=3)
    err = capsys.readouterr().err
    assert err.count("leo (Jupyter, CUDA, lends 8.0 GB) asks to join. Its screen must show 482 020.") == 1
    assert "room.allow() in another thread lets it in" in err


def test_a_script_that_joins_says_that_it_waits(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    """DESIGN section 1: every wait shows progress; without a terminal, that a person is waited for, once."""
    rooms.lobby, rooms.wait_s = f"{WAITS_FOR_HOST} Both screens must show 482 020.", 0.5
    pooled_nb.join("4TK-G9P")
    assert capsys.readouterr().err.splitlines() == [rooms.lobby]
    rooms.wait_s = 0.2
    pooled_nb.current().leave()
    pooled_nb.join("4TK-G9P", progress=False)
    assert capsys.readouterr().err == ""


async def third(rooms: Rooms) -> None:
    """A third device is here."""
    core, status = rooms.core, rooms.core.status
    more = status().devices
    core.status = lambda: _with(status(), [*more, more[1]])  # type: ignore[method-assign]


def _with(status: Any, devices: list[Any]) -> Any:
    import msgspec

    return msgspec.structs.replace(status, devices=devices)


def test_trust_is_said_plainly(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    """PROTOCOL section 4: it holds nothing: trust on first use, said plainly. Not kept in a saved panel."""
    room = pooled_nb.join("4TK-G9P")
    rooms.core.trust, rooms.core.digits = "first", "482 019"
    text = str(room.status())
    assert "nothing proved" in text
    assert "482 019" in text
    assert "482 019" in room._repr_markdown_()
    assert "482 019" not in str(room.saved())
    rooms.core.trust = "proved"
    assert "482 019" not in str(room.status())


def test_a_saved_panel_forgets_the_lobby(rooms: Rooms) -> None:
    """DESIGN section 7: who waited at some moment, and the digits to compare, are in no saved panel."""
    room = pooled_nb.host("m")
    knock(rooms, "leo", "eve")
    assert "482 020" in str(room.status())
    assert "eve (Jupyter" in str(room.status())
    kept = str(room.saved())
    assert "482 020" not in kept
    assert "leo" not in kept
    shown = room.lobby._repr_mimebundle_()
    assert all("482 021" in text and "eve" in text for text in shown.values())


def test_how_frames_travel_in_words(rooms: Rooms) -> None:
    """PROTOCOL section 5: stripes, small frames twice, keep-alive; and what is otherwise in the next room."""
    room = pooled_nb.host("m")
    facts = NetworkFacts(
        wire=WireChoice(stripes=3, twice=True, keepalive_ms=10.0, transport="aiortc"),
        later=WireChoice(stripes=0),
    )
    assert door_text.network(facts).splitlines()[-2:] == [
        "frames     4 connections per link it dials, small ones twice, keep-alive after 10 ms, over aiortc",
        "next room  1 connection per link it dials",
    ]
    alone = NetworkFacts(wire=WireChoice(stripes=0, twice=True, keepalive_ms=0.0, transport="wrtc"))
    said = "frames     1 connection per link it dials, keep-alive off, over wrtc"
    assert door_text.network(alone).splitlines()[-1] == said
    assert "frames" not in door_text.network(NetworkFacts())
    room.network(stripes=2, twice=False, keepalive_ms=5, transport="auto", remember=True)
    wished = NetworkChoice(stripes=2, twice=False, keepalive_ms=5, transport="auto", remember=True)
    assert rooms.core.log[-1] == ("network", wished)
    for wrong in ({"stripes": 9}, {"twice": "on"}, {"keepalive_ms": -1}):
        with pytest.raises(BadOption, match="Choose"):
            room.network(**wrong, remember=True)
    assert rooms.core.log[-1] == ("network", wished)
