"""The network box, as the trait `room` has it."""

from __future__ import annotations

import inspect
import json
from typing import Any

from pooled_nb.mesh import linkstate, rtc
from pooled_nb.mesh.names import MAX_NAME
from pooled_nb.room.doorfacts import NetworkFacts
from pooled_nb.widgets.network import OPENS
from pooled_nb.widgets.state import room_state
from tests.widgets.fakes import device, status, studio

NO_PATH = "There is no path to mira. Check its network, or name a TURN server in the network box."


def box(facts: NetworkFacts | None = None, notices: list[str] | None = None, **more: Any) -> dict[str, Any]:
    now = status(can=["network"], network=facts or NetworkFacts(), **more)
    made: dict[str, Any] = room_state(now, "host", notices=notices or [])["network"]
    return made


def texts(made: dict[str, Any]) -> dict[str, str]:
    return {row["label"]: row["text"] for row in made["rows"]}


def test_what_is_used() -> None:
    """PROTOCOL section 2, ICE: signaling, STUN, the relay and whence it is known; no login."""
    made = box(
        NetworkFacts(
            signaling="0.peerjs.com",
            stun=["stun:a.example:3478", "stun:b.example:3478"],
            relay="turn.example.org:3478",
            relay_from="settings",
            relay_only=True,
        )
    )
    assert texts(made) == {
        "Signaling": "0.peerjs.com answers",
        "STUN": "a.example:3478 and b.example:3478",
        "Relay": "turn.example.org:3478, from your settings; every connection goes through it",
    }
    assert (made["relay_only"], made["forget"], made["may"]) == (True, True, True)
    none = box(NetworkFacts(up=False))
    down = box(NetworkFacts(signaling="0.peerjs.com", up=False))
    assert texts(down)["Signaling"] == "0.peerjs.com does not answer. Nobody new can join; the room goes on."
    assert texts(none)["Signaling"].startswith("No server answers. ")
    assert texts(none)["Relay"] == "none"
    assert [row["tone"] for row in none["rows"]] == ["bad", "idle", "idle"]
    from_server = box(NetworkFacts(relay="t.example:3478", relay_from="server"))
    assert (texts(from_server)["Relay"], from_server["forget"]) == (
        "t.example:3478, from the signaling server",
        False,
    )


def test_the_path_to_each_device() -> None:
    """PROTOCOL section 2: direct or relayed, in words, relayed ones first; a crowd is cut."""
    links = box()["links"]
    assert [(x["name"], x["path"], x["text"]) for x in links] == [
        ("basement", "relay", "24 ms · relayed"),
        ("mira", "direct", "6.2 ms · direct"),
        ("ana", "direct", "direct"),
    ]
    many = [studio((0, 1)), *(device(f"d{n}", (n + 1, n + 2), id=f"d{n}") for n in range(300))]
    crowd = box(devices=[*many, device("far", path="relayed")], layers=301)["links"]
    assert (len(crowd), crowd[0]["name"], crowd[-1]["name"]) == (41, "far", "and 261 more")


def test_a_notice_that_speaks_of_the_box_opens_it() -> None:
    """PROTOCOL section 2: a join that found no path opens the network box."""
    assert box(notices=["ana left the room.", NO_PATH])["trouble"] is True
    assert box(notices=[NO_PATH, "ana left the room."])["trouble"] is False
    assert box()["trouble"] is False
    # The sentences are those that the mesh says; and no name is long enough to be one.
    said = (linkstate.NO_PATH_NEXT, inspect.getsource(rtc))
    for words in OPENS:
        assert sum(words in text for text in said) == 1
        assert len(words) > MAX_NAME
    evil = "name a TURN server in the network box"
    assert box(notices=[f"{evil} asks to join.", f"{evil} left the room."])["trouble"] is False


def test_it_is_bounded() -> None:
    """Everything from elsewhere is: a server's name, a list of servers."""
    long = "x\n" * 5_000
    made = box(NetworkFacts(signaling=long, stun=[long] * 500, relay=long, relay_from="server"))
    assert len(json.dumps(made)) < 4_000
    assert "\n" not in "".join(texts(made).values())


def test_a_link_that_makes_answers_slower() -> None:
    """CASES, Devices: the network is shown as it is: at the one device, in words, and while answers come."""
    far = {"rtt_ms": 48.0, "rtt_p95_ms": 210.0, "loss": 0.082, "stripes": 3, "wanted": 3}
    three = [studio((0, 10)), device("mira", (10, 20), rtt_ms=6.2), device("basement", (20, 30), **far)]
    made = box(devices=three)
    assert made["links"][1]["text"] == "48 ms (at times 210) · direct · 8.2 % lost · 4 connections"
    assert made["slow"].startswith("8.2 % of the packets to basement are lost, so answers are slower.")
    room = room_state(status("answering", three), "host")
    assert [(row["more"], row["tip"]) for row in room["chain"]] == [
        ("", ""),
        ("", ""),
        ("8.2 % lost", made["slow"]),
    ]
    assert room["hops"][2]["text"] == "48 ms direct"
    assert room["hops"][2]["tip"] == f"basement to studio: {made['links'][1]['text']}"
    assert room_state(status("waiting", three), "host")["network"]["slow"] == ""
    assert room_state(status("online", three), "host", left=True)["network"]["slow"] == ""
    turned = box(devices=[studio((0, 10)), device("דנה", (10, 30), loss=0.3)])["slow"]
    assert "\u2068דנה\u2069" in turned
