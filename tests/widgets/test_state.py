"""The trait `room`: its shape, what it draws of a room, and what it never carries."""

from __future__ import annotations

import json
import math
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.room.core import ChatSettings, DeviceLine, State, Status
from pooled_nb.room.doorfacts import LobbyLine, NetworkFacts
from pooled_nb.widgets.settings import chosen
from pooled_nb.widgets.state import room_state
from tests.widgets.fakes import device, status, studio

KEYS = [
    *(
        "v",
        "code",
        "label",
        "facts",
        "role",
        "state",
        "say",
        "pct",
        "actions",
        "join",
        "layers",
        "chain",
        "hops",
    ),
    *("rest", "numbers", "strip", "guests", "queue", "settings", "promise", "notice", "saved"),
    *("invite", "lobby", "gate", "trust", "network"),
]


def test_one_shape_for_every_state() -> None:
    """The browser only draws: every key is there in every state."""
    for now in (None, status("open"), status("loading"), status("online"), status("closed")):
        assert sorted(room_state(now, "host")) == sorted(KEYS)


def test_the_chain_while_it_runs() -> None:
    """Layers count from 1 on screen, both ends included, and from 0, hi exclusive, for drawing."""
    room = room_state(status("online"), "host")
    assert [row["name"] for row in room["chain"]] == ["studio", "mira", "basement"]
    first, _, last = room["chain"]
    assert first == {
        "id": "studio",
        "name": "studio",
        "you": True,
        "host": True,
        "kind": "computer",
        "lo": 0,
        "hi": 10,
        "layers": "layers 1–10",
        "state": "ready",
        "tone": "good",
        "word": "ready",
        "more": "",
        "tip": "",
        "pct": 100,
        "used": 0.1,
        "lent": 6.0,
        "memory": "0.1 / 6.0 GB",
        "kick": False,
    }
    assert last["more"] == "relayed"
    assert room["rest"] == 0
    assert {row["word"] for row in room_state(status("answering"), "host")["chain"]} == {"computing"}
    one = room_state(status("online", [studio((0, 1)), device("b", (1, 30))]), "host")
    assert [row["layers"] for row in one["chain"]] == ["layer 1", "layers 2–30"]


def test_hops_are_measured_by_their_own_ends() -> None:
    """One hop after each device, the last back to the host; a link between two others is not known here."""
    hops = room_state(status("online"), "host")["hops"]
    assert [hop["text"] for hop in hops] == ["6.2 ms direct", "–", "24 ms relay"]
    assert [hop["path"] for hop in hops] == ["direct", "unknown", "relay"]
    assert hops[0]["tip"] == "studio to mira: 6.2 ms · direct"
    assert hops[2]["tip"] == "basement to studio: 24 ms · relayed"
    assert room_state(status("online", [studio((0, 30))]), "host")["hops"] == []
    unmeasured = [studio((0, 10)), device("mira", (10, 30), path="unknown")]
    assert [h["text"] for h in room_state(status("online", unmeasured), "host")["hops"]] == ["–", "–"]


def test_loading_is_counted_by_device() -> None:
    """While it loads: each device's percent, and how much of the whole is there."""
    two = [studio((0, 10), progress=100), device("mira", (10, 30), progress=62)]
    room = room_state(status("loading", two), "host")
    assert [(r["state"], r["word"], r["pct"]) for r in room["chain"]] == [
        ("ready", "ready", 100),
        ("loading", "loading 62 %", 62),
    ]
    assert [(n["value"], n["unit"], n["label"]) for n in room["numbers"]] == [
        ("75", "%", "loaded"),
        ("1", "of 2", "devices ready"),
        ("0.3", "GB", "needed"),
    ]
    assert room["pct"] == 75
    assert room_state(None, None, (30, "reading"))["pct"] == 30
    strip = room["strip"]
    assert (strip["left"], strip["right"]) == ("loaded by device", "75 %")
    assert [(p["kind"], p["i"]) for p in strip["parts"]] == [("full", 0), ("full", 1), ("lack", None)]
    assert sum(p["w"] for p in strip["parts"]) == pytest.approx(1, abs=0.001)


def test_before_a_deal_the_chain_is_who_lends() -> None:
    """Roster order, the host first, with about the layers that a deal would give by memory."""
    devices = [device("mira", lends_gb=6.0), studio(lends_gb=12.0), device("ana", role="guest", lends_gb=0.0)]
    room = room_state(status("open", devices, need_gb=16.4), "host")
    rows = room["chain"]
    assert [(r["name"], r["lo"], r["hi"], r["word"]) for r in rows] == [
        ("studio", 0, 20, "not dealt yet"),
        ("mira", 20, 30, "not dealt yet"),
    ]
    assert {r["layers"] for r in rows} == {""}
    assert [(n["value"], n["unit"], n["label"]) for n in room["numbers"]] == [
        ("16.4", "GB", "needed"),
        ("18.0", "GB", "lent"),
        ("2", "devices", "can hold layers"),
    ]
    assert room["strip"]["right"] == "1.6 GB to spare"
    assert room["strip"]["mark"] == pytest.approx(16.4 / 18, abs=0.001)
    assert [g["name"] for g in room["guests"]] == ["ana"]
    unknown = room_state(status("open", devices, layers=0), "guest")["chain"]
    assert [(r["lo"], r["hi"]) for r in unknown] == [(None, None), (None, None)]
    short = room_state(status("open", devices, need_gb=20.1), "host")["strip"]
    assert (short["right"], short["mark"], short["parts"][-1]["kind"]) == ("2.1 GB short", None, "lack")


def test_running_numbers() -> None:
    """Four numbers; a dash where nothing was measured, never 0."""
    room = room_state(status("online", used=3120, tps=18.24), "host")
    assert [(n["value"], n["unit"], n["label"]) for n in room["numbers"]] == [
        ("18.2", "", "tokens per second"),
        ("3,120", "of 8,192", "context"),
        ("3", "devices", "hold layers"),
        ("24", "ms", "slowest link"),
    ]
    assert (room["strip"]["left"], room["strip"]["right"]) == ("memory used by device", "0.3 of 18.0 GB lent")
    alone = room_state(status("online", [studio((0, 30))]), "host")["numbers"]
    assert [n["value"] for n in alone] == ["–", "0", "1", "–"]
    assert room_state(status("answering"), "guest")["numbers"][1]["value"] == "–"


def test_a_dropped_device_keeps_its_place() -> None:
    """Degraded: the layers that have no device stand where they belong, with the name of who held them."""
    here = [studio((0, 10)), device("basement", (20, 30))]
    gone = "mira left; layers 11–20 are missing. Start the room again."
    room = room_state(status("degraded", here, sentence=gone), "host")
    assert [(r["name"], r["state"], r["word"]) for r in room["chain"]] == [
        ("studio", "ready", "ready"),
        ("mira", "dropped", "left"),
        ("basement", "ready", "ready"),
    ]
    assert [h["path"] for h in room["hops"]] == ["down", "down", "direct"]
    assert room["rest"] == 0
    both = room_state(status("degraded", [studio((0, 10))], sentence=gone), "host")
    assert ([row["name"] for row in both["chain"]], both["rest"]) == (["studio", "mira"], 10)
    unnamed = room_state(status("degraded", here, sentence="Something broke."), "host")
    assert (len(unnamed["chain"]), unnamed["rest"]) == (2, 10)


def test_guests_and_the_queue() -> None:
    """Who asks and who waits, and why a device holds nothing."""
    devices = [
        studio((0, 30)),
        device("ana", role="guest", lends_gb=0.0),
        device("joão", role="guest", lends_gb=0.0),
        device("late one", role="guest", out="late"),
        device("ill one", role="guest", out="the download failed"),
    ]
    now = status("answering", devices, answering="ana", queue=["joão"], waiting=1)
    room = room_state(now, "host")
    assert [(g["name"], g["state"], g["why"]) for g in room["guests"]] == [
        ("ana", "asking", "asks only"),
        ("joão", "waits", "asks only"),
        ("late one", "", "joined after the start"),
        ("ill one", "", "the download failed."),
    ]
    assert room["queue"] == {"waiting": 1, "names": ["joão"], "text": "1 question waits."}


def test_a_hidden_answer_carries_neither_name_nor_number() -> None:
    """PROTOCOL section 7, ai-visibility: the others see that there is an answer, and no more."""
    room = room_state(status("answering", answering="", queue=[], waiting=1), "guest")
    assert room["say"]["what"] == "Answering"
    assert [g["state"] for g in room["guests"]] == [""]
    unnamed = [studio((0, 30)), device("", id="", role="guest", lends_gb=0.0)]
    assert room_state(status("answering", unnamed), "guest")["guests"][0]["state"] == ""
    assert room["queue"]["names"] == []
    assert room["numbers"][0]["value"] == "–"


def test_settings_and_what_a_choice_means() -> None:
    """The host's choices; a number that is none of those offered is shown and cannot be chosen."""
    now = ChatSettings(style="focused", max_tokens=300, thinking=True, system="be brief and secret")
    room = room_state(status("online", settings=now, can=["set"]), "host")
    assert "secret" not in json.dumps(room)
    made = room["settings"]
    assert made["may"] is True
    values = {group["key"]: group["value"] for group in made["groups"]}
    assert values == {
        "style": "focused",
        "max_tokens": "300",
        "persona": "plain",
        "visibility": "all",
        "thinking": "on",
        "redeal": "on",
    }
    labels = ["Style", "Length", "Wording", "Who sees it", "Thinking", "After a drop"]
    assert [g["label"] for g in made["groups"]] == labels
    guest = room_state(status("online", settings=now), "guest")["settings"]["groups"]
    assert [g["label"] for g in guest] == labels[:-1]  # what stays on the host
    assert ["300", "300 tokens"] in made["groups"][1]["options"]
    odd = room_state(status("online", settings=ChatSettings(style="x" * 9_000)), "host")  # type: ignore[arg-type] # on purpose
    assert len(json.dumps(odd["settings"])) < 2_000
    assert chosen("max_tokens", "512") == {"max_tokens": 512}
    assert chosen("thinking", "auto") == {"thinking": None}
    assert chosen("style", "creative") == {"style": "creative"}
    assert chosen("redeal", "off") == {"redeal": False}
    for key, value in (("max_tokens", "300"), ("system", "x"), ("style", "__class__"), ("", "")):
        assert chosen(key, value) is None


def test_names_are_text_cut_and_harmless() -> None:
    """CASES, Names: emoji, right-to-left, 200 characters, line breaks, markup: text, cut, one line."""
    names = [
        "🙂" * 200,
        "\u202eevil\x1b[31m",
        "two\nlines\tand tabs",
        "<script>alert(1)</script>",
        "\ud800half",
    ]
    devices = [studio((0, 10)), *(device(n, (10 + i, 11 + i), id=str(i)) for i, n in enumerate(names))]
    room = room_state(status("online", devices), "host")
    shown = [row["name"] for row in room["chain"][1:]]
    assert shown[0] == "🙂" * 59 + "…"
    assert "\x1b" not in shown[1]
    assert shown[2] == "two lines and tabs"
    assert shown[3] == "<script>alert(1)</script>"  # text: the browser puts it where text goes
    assert shown[4] == "?half"
    json.dumps(room, allow_nan=False, ensure_ascii=False).encode()


def test_a_name_from_the_right_turns_no_sentence() -> None:
    """CASES, Names: right-to-left inside of our words is isolated."""
    room = room_state(status("answering", answering="דנה"), "host")
    assert room["say"]["what"] == "Answering \u2068דנה\u2069"
    out = room_state(status("answering", answering="\u2069\u202eדנה\u2066"), "host")  # none gets out of it
    assert out["say"]["what"] == "Answering \u2068דנה\u2069"
    two = [studio((0, 10)), device("דנה", (10, 30))]
    assert (
        room_state(status("online", two), "host")["hops"][0]["tip"] == "studio to \u2068דנה\u2069: – direct"
    )


def test_bounds() -> None:
    """Sizes are bounded whatever others send: 100 devices, 100 guests, 60 characters a name."""
    many = [studio((0, 1)), *(device(f"d{i}" * 40, (i + 1, i + 2)) for i in range(400))]
    guests = [device(f"g{i}" * 40, role="guest", lends_gb=0.0) for i in range(400)]
    words = "x" * 100_000
    now = status(
        *("online", [*many, *guests]),
        layers=401,
        label=words,
        sentence=words,
        queue=[words] * 400,
        dtype=words,
    )
    room = room_state(now, "host", notices=[words])
    assert len(room["chain"]) == 100
    assert len(room["guests"]) == 101
    assert room["guests"][0]["name"].startswith("g0")  # who holds layers is no guest, drawn or not
    assert room["guests"][-1]["name"].startswith("and ")
    assert max(len(row["name"]) for row in room["chain"]) <= 60
    assert len(json.dumps(room)) < 100_000


def test_ranges_without_a_device_are_named_up_to_a_few() -> None:
    """A sentence stays one, however many devices have gone."""
    holes = [studio((0, 1)), *(device(f"d{i}", (2 * i + 1, 2 * i + 2)) for i in range(1, 900))]
    about = room_state(status("degraded", holes, layers=1800, sentence="x broke."), "host")["say"]["about"]
    assert about.startswith("Layers 2–3, layer 5, layer 7, layer 9 and 895 more have no device.")


def test_absurd_sizes_are_no_numbers() -> None:
    """What no device can have is not measured: neither does a sum break, nor do 300 digits reach a page."""
    two = [studio(lends_gb=1.7e308), device("mira", lends_gb=1.7e308, rtt_ms=1e300)]
    room = room_state(status("open", two, need_gb=1e300, tps=1e300), "host")
    assert len(json.dumps(room)) < 5_000
    assert [row["memory"] for row in room["chain"]] == ["0.0 / 0.0 GB"] * 2
    assert "e+" not in json.dumps(room)
    run = room_state(status("online", [studio((0, 30), held_gb=1e300, lends_gb=4.0)], tps=1e300), "host")
    assert run["chain"][0]["memory"] == "0.0 / 4.0 GB"
    assert run["numbers"][0]["value"] == "–"


def test_a_closed_room_keeps_its_last_numbers() -> None:
    """Nothing moves that was not asked to: what is known of a closed room is what was known last."""
    before = status("online", used=3120, tps=18.24)
    closed = status("closed", used=0, sentence="The host closed the room")
    kept, now = room_state(closed, "host", before=before), room_state(before, "host")
    assert kept["state"] == "closed"
    assert (kept["numbers"], kept["strip"]) == (now["numbers"], now["strip"])
    assert len(kept["numbers"]) == 4
    left = room_state(before, "host", left=True, before=before)
    assert (left["state"], left["numbers"]) == ("closed", now["numbers"])
    assert room_state(before, "host", before=status("loading"))["numbers"] == now["numbers"]  # only when over
    unknown = room_state(closed, "host")
    assert (unknown["numbers"], unknown["strip"]["parts"]) == ([], [])


numbers = st.one_of(st.none(), st.floats(), st.just(math.inf))
lines = st.builds(
    DeviceLine,
    id=st.text(max_size=8),
    name=st.text(max_size=80),
    role=st.sampled_from(["host", "worker", "guest"]),
    kind=st.text(max_size=8),
    lends_gb=st.floats(),
    layers=st.one_of(st.none(), st.tuples(st.integers(0, 40), st.integers(0, 40))),
    held_gb=st.floats(),
    progress=st.one_of(st.none(), st.integers(-5, 200)),
    rtt_ms=numbers,
    rtt_p95_ms=numbers,
    loss=numbers,
    queued_bytes=st.integers(0, 2**40),
    stripes=st.integers(0, 8),
    wanted=st.integers(0, 8),
    path=st.sampled_from(["direct", "relayed", "unknown", "", "odd"]),
    out=st.text(max_size=20),
    me=st.booleans(),
    silent_s=st.integers(-5, 90),
    patience_s=st.integers(-5, 90),
    gone=st.booleans(),
)
statuses = st.builds(
    Status,
    code=st.text(max_size=12),
    state=st.sampled_from(get_args(State)),
    sentence=st.one_of(st.text(max_size=80), st.just("a; b dropped; layers 3–9 are missing. Go on.")),
    label=st.text(max_size=20),
    layers=st.integers(0, 40),
    devices=st.lists(lines, max_size=6),
    waits_for=st.lists(st.text(max_size=80), max_size=6),
    redeal_in=st.one_of(st.none(), st.integers(-5, 90)),
    need_gb=st.floats(),
    tps=st.floats(),
    waiting=st.integers(0, 12),
    queue=st.lists(st.text(max_size=20), max_size=4),
    answering=st.text(max_size=20),
    can=st.lists(
        st.sampled_from(["start", "redeal", "stop", "set", "allow", "deny", "kick", "invite", "network"]),
        max_size=4,
    ),
    signaling=st.text(max_size=20),
    lobby=st.lists(
        st.builds(
            LobbyLine,
            number=st.integers(0, 99),
            name=st.text(max_size=70),
            kind=st.text(max_size=20),
            lends_gb=st.floats(),
            digits=st.text(max_size=20),
            note=st.text(max_size=20),
        ),
        max_size=10,
    ),
    trust=st.sampled_from(["", "proved", "confirmed", "first"]),
    digits=st.text(max_size=20),
    network=st.builds(
        NetworkFacts,
        signaling=st.text(max_size=20),
        up=st.booleans(),
        stun=st.lists(st.text(max_size=20), max_size=9),
        relay=st.text(max_size=20),
        relay_from=st.sampled_from(["", "settings", "environment", "server"]),
        relay_only=st.booleans(),
    ),
)


@settings(deadline=None)
@given(statuses, st.sampled_from([None, "host", "worker", "guest"]), st.booleans())
def test_whatever_a_room_says_can_be_sent(now: Status, role: Any, left: bool) -> None:
    """Everything from the network is untrusted: no status makes a panel fail, or what JSON refuses."""
    room = room_state(now, role, left=left)
    json.dumps(room, allow_nan=False, ensure_ascii=False).encode()
    assert sorted(room) == sorted(KEYS)
    assert (room["lobby"] is None) is (role != "host" or left or now.state == "closed")
    for row in room["chain"]:
        assert row["state"] in ("held", "loading", "ready", "computing", "stopped", "dropped", "unknown")
        assert row["lo"] is None or 0 <= row["lo"] < row["hi"] <= 40
    assert len(room["hops"]) in (0, len(room["chain"]))
    assert all(0 <= part["w"] <= 1 for part in room["strip"]["parts"])
