"""What a room's panel shows while a device is waited for, is gone, or the host does not answer.

PROTOCOL section 8, word by word: whom the answer waits for and how long, what happens by itself, and the one
button that makes sense. The words of the mock.
"""

from __future__ import annotations

from typing import Any

import pytest

from pooled_nb.room import away, handing, sentences
from pooled_nb.room.core import DeviceLine, Role, Status
from pooled_nb.widgets.state import room_state
from tests.widgets.fakes import device, status, studio


def here(**basement: Any) -> list[DeviceLine]:
    """The host, mira, basement as given, and a guest."""
    return [
        studio((0, 10), held_gb=0.1),
        device("mira", (10, 20), held_gb=0.1, rtt_ms=6.2),
        device("basement", (20, 30), **{"held_gb": 0.1, **basement}),
        device("ana", role="guest", lends_gb=0.0),
    ]


TWO = [studio((0, 10)), device("mira", (10, 20))]
SILENT = {"silent_s": 6, "patience_s": 15}
GONE = {"gone": True, "held_gb": 0.0, "lends_gb": 0.0}
DROPPED = sentences.gone("basement", (20, 30), left=False)
RELINKS = sentences.relinking(["mira", "basement"])
HOST: dict[str, Any] = {"can": ["redeal", "set", "kick", "close", "leave"]}


def said(now: Status, role: Role = "host") -> tuple[str, str, str, list[str]]:
    room = room_state(now, role)
    return (*room["say"].values(), [button["label"] for button in room["actions"]])


@pytest.mark.parametrize(
    ("now", "role", "want"),
    [
        (
            status(
                *("waiting", here(**SILENT)),
                waits_for=["basement"],
                sentence=sentences.stopped_responding("basement", 6, 15),
                can=["stop", "set"],
            ),
            "host",
            (
                "warn",
                "Waiting for basement",
                "It stopped responding. The answer goes on where it is when basement is back.",
                ["Stop"],
            ),
        ),
        (
            status("waiting", here(**SILENT), waits_for=["mira", "basement"], can=["stop"]),
            "host",
            (
                "warn",
                "Waiting for mira and basement",
                "They stopped responding. The answer goes on where it is when mira and basement are back.",
                ["Stop"],
            ),
        ),
        (
            status(
                *("waiting", here()), waits_for=["basement"], sentence="The link to basement broke. Wait."
            ),
            "host",
            (
                "warn",
                "Waiting for basement",
                "The link to basement broke. The answer goes on where it is.",
                [],
            ),
        ),
        (
            status("waiting", here(progress=62), waits_for=["basement"], can=["stop"]),
            "host",
            (
                "work",
                "basement is back",
                "It loads its layers, 62 %. The answer goes on after that.",
                ["Stop"],
            ),
        ),
        (
            status("waiting", here(), sentence="Something is waited for", can=["stop", "redeal"]),
            "host",
            ("warn", "Waiting", "Something is waited for.", ["Stop"]),
        ),
        (
            status("online", here(**SILENT), waits_for=["basement"], can=["set"]),
            "host",
            (
                "warn",
                "Waiting for basement",
                "It stopped responding. Questions are answered when basement is back.",
                [],
            ),
        ),
        (
            status("degraded", here(**GONE), sentence=DROPPED, redeal_in=42, answering="ana", **HOST),
            "host",
            (
                "bad",
                "basement dropped",
                "Layers 21–30 have no device. Deals again in 42 s, then the answer goes on.",
                ["Re-deal now"],
            ),
        ),
        (
            status("degraded", here(**GONE), sentence=DROPPED, redeal_in=1, can=["redeal", "stop"]),
            "host",
            (
                "bad",
                "basement dropped",
                "Layers 21–30 have no device. Deals again in 1 s.",
                ["Re-deal now", "Stop"],
            ),
        ),
        (
            status("degraded", here(**GONE), sentence=f"{DROPPED} %pooled redeal deals.", **HOST),
            "host",
            (
                "bad",
                "basement dropped",
                "Layers 21–30 have no device. Deal again over the devices that are here.",
                ["Re-deal now"],
            ),
        ),
        (
            status("degraded", here(progress=8), sentence=DROPPED, answering="ana", **HOST),
            "host",
            (
                "work",
                "basement is back",
                "It loads its layers. The answer goes on after that.",
                ["Re-deal now"],
            ),
        ),
        (
            status(
                "degraded",
                [studio((0, 10)), *(device(n, r, **GONE) for n, r in (("a", (10, 20)), ("b", (20, 30))))],
                sentence=sentences.several_gone(["a", "b"], [(10, 20), (20, 30)]),
                redeal_in=9,
            ),
            "host",
            (
                "bad",
                "a and b are gone",
                "Layers 11–30 have no device. Deals again in 9 s.",
                [],
            ),
        ),
        (
            status("degraded", TWO, sentence=DROPPED),
            "guest",
            (
                "bad",
                "basement dropped",
                "Layers 21–30 have no device until it is back, or the host deals again.",
                [],
            ),
        ),
        (
            status("degraded", TWO, sentence=sentences.degraded_there(DROPPED, auto=True)),
            "guest",
            (
                "bad",
                "basement dropped",
                "Layers 21–30 have no device until it is back, or the room deals again.",
                [],
            ),
        ),
        (
            status("degraded", TWO, sentence=sentences.gone("basement", (20, 30), left=True)),
            "guest",
            ("bad", "basement left", "Layers 21–30 have no device. The host can deal again.", []),
        ),
        (
            status("degraded", TWO, sentence=sentences.several_gone(["a", "b"], [(10, 20), (20, 30)])),
            "guest",
            ("bad", "a and b are gone", "Layers 21–30 have no device. The host can deal again.", []),
        ),
        (
            status("degraded", sentence=f"{sentences.unlinked('mira', 'basement')} Deal again."),
            "guest",
            ("bad", "The link between mira and basement is gone", "The host can deal again.", []),
        ),
        (
            status(
                "degraded",
                sentence=sentences.degraded_there(sentences.unlinked("mira", "basement"), auto=True),
            ),
            "guest",
            ("bad", "The link between mira and basement is gone", "The room deals again by itself.", []),
        ),
        (
            status("degraded", sentence=f"{sentences.relinking(['mira', 'basement'])} Deal.", redeal_in=9),
            "host",
            (
                "bad",
                "The link between mira and basement is gone",
                "They make a new one. Deals again in 9 s.",
                [],
            ),
        ),
        *(
            (
                status("degraded", sentence=said, answering="ana", **of),
                role,
                (
                    "work",
                    "The link between mira and basement is gone",
                    "They make a new one. The answer goes on after that.",
                    ["Re-deal now"] if of else [],
                ),
            )
            for role, of, said in (
                ("host", HOST, sentences.degraded_here(RELINKS, auto=False, heals=True, trouble="")),
                ("guest", {}, sentences.degraded_there(RELINKS, auto=True, heals=True)),
            )
        ),
        (
            status("degraded", sentence=""),
            "guest",
            ("bad", "A device is gone", "The host can deal again.", []),
        ),
        (
            status(
                "away",
                [device("studio", (0, 10), role="host"), device("me", (10, 30), me=True)],
                sentence=away.sentence((12.3, 60.0), layers=True, asked=True),
                can=["network", "leave"],
            ),
            "worker",
            (
                "warn",
                "studio does not answer",
                "This device knocks (12 of 60 s) and keeps its layers and your question. It goes on by "
                "itself when the host is back.",
                ["Leave"],
            ),
        ),
        (
            status(
                *("degraded", here(**GONE)),
                sentence=f"{sentences.not_started(again=True)} It is short by 1 GB. mira could give 2 GB.",
                redeal_in=30,
                **HOST,
            ),
            "host",
            (
                "bad",
                "The new deal did not work",
                "It is short by 1 GB. mira could give 2 GB. Tried again in 30 s.",
                ["Re-deal now"],
            ),
        ),
        (
            status("open", sentence=sentences.going_on(1, 2, 25.0), can=["start"]),
            "host",
            (
                "work",
                "Going on",
                "1 of 2 devices that held layers are back, waiting up to 25 s.",
                ["Start"],
            ),
        ),
        (
            status(
                *("degraded", TWO),
                sentence=sentences.degraded_here(
                    f"{sentences.CANNOT_GO_ON} It is short by 1 GB.", auto=True, heals=False, trouble=""
                ),
                redeal_in=30,
                **HOST,
            ),
            "host",
            (
                "warn",
                "The room cannot go on yet",
                "It is short by 1 GB. Tried again in 30 s.",
                ["Re-deal now"],
            ),
        ),
        (
            status(
                "degraded", TWO, sentence="This device loads its layers again: 62 %. The room waits for it."
            ),
            "worker",
            ("work", "This device loads its layers again", "62 %. The room waits for it.", []),
        ),
        (
            status("answering", TWO, sentence=handing.HANDS, answering="ana", can=["leave"]),
            "worker",
            ("work", "Leaving", "Once the host has dealt this device's layers anew.", ["Leave now"]),
        ),
        (
            status("away", [], sentence="The host is lost. This device knocks.", can=["leave"]),
            "guest",
            ("warn", "The host is lost", "This device knocks.", ["Leave"]),
        ),
        (
            status("away", [device("me", (10, 30), me=True)]),
            "worker",
            ("warn", "The host does not answer", "This device knocks, and keeps its layers.", []),
        ),
    ],
)
def test_every_trouble_in_words(now: Status, role: Role, want: tuple[str, str, str, list[str]]) -> None:
    """PROTOCOL section 8: what is so, what happens next by itself, and the button of this state."""
    assert said(now, role) == want


def rows(now: Status, role: Role = "host") -> list[tuple[str, str, str, str]]:
    return [(r["state"], r["tone"], r["word"], r["more"]) for r in room_state(now, role)["chain"]]


READY = ("ready", "good", "ready", "")


def test_a_silent_device_counts_its_seconds() -> None:
    """PROTOCOL section 8, stopped responding: since when, of how many; phones have more; others are ready."""
    now = status("waiting", here(**SILENT), waits_for=["basement"])
    silent = ("stopped", "warn", "stopped responding", "waiting, 6 of 15 s")
    assert rows(now) == [READY, READY, silent]
    assert room_state(now, "host")["promise"] == "same text as one device"
    phone = status("waiting", here(silent_s=4, patience_s=60, path="relayed"), waits_for=["basement"])
    assert rows(phone)[2][3] == "waiting, 4 of 60 s"
    waited = status("waiting", here(), waits_for=["basement"])  # its link is made anew
    assert rows(waited)[2] == ("stopped", "warn", "waited for", "")
    back = status("waiting", here(progress=62), waits_for=["basement"])
    assert rows(back)[2] == ("loading", "work", "loading 62 %", "")
    assert rows(status("answering", here(progress=100)))[2][0] == "computing"


def test_a_gone_device_keeps_its_place_and_is_counted_nowhere() -> None:
    """Degraded: hollow in its place, no link, no memory, nobody's guest, and nothing to throw out."""
    now = status("degraded", here(**GONE), sentence=DROPPED, redeal_in=42, **HOST)
    room = room_state(now, "host")
    assert rows(now) == [READY, READY, ("dropped", "bad", "dropped", "")]
    assert [(r["lo"], r["hi"], r["pct"], r["memory"]) for r in room["chain"]][2] == (20, 30, 0, "–")
    assert [hop["path"] for hop in room["hops"]] == ["direct", "down", "down"]
    assert room["rest"] == 0
    assert [r["kick"] for r in room["chain"]] == [False, True, False]
    assert [guest["name"] for guest in room["guests"]] == ["ana"]
    assert (room["numbers"][2]["value"], room["numbers"][2]["label"]) == ("2", "hold layers")
    assert room["strip"]["right"] == "0.2 of 12.0 GB lent"
    assert [link["name"] for link in room["network"]["links"]] == ["mira", "ana"]
    assert room["promise"] == ""
    taken = status("degraded", here(**GONE), sentence="The devices here are short by 1.0 GB.")
    assert rows(taken)[2][2] == "gone"


def test_a_device_without_its_host_knows_nothing_of_the_others() -> None:
    """PROTOCOL section 3, dead links: the layers are kept; who knocks hears of nobody else."""
    chain = [
        device("studio", (0, 10), role="host", silent_s=12, patience_s=30),
        device("me", (10, 20), me=True),
        device("mira", (20, 30)),
    ]
    assert rows(status("away", chain), "worker") == [
        ("stopped", "warn", "does not answer", "12 of 30 s silent"),
        ("ready", "good", "keeps its layers", ""),
        ("unknown", "idle", "no news", ""),
    ]
    hops = room_state(status("away", chain), "worker")["hops"]
    assert [hop["text"] for hop in hops] == ["no link", "–", "–"]  # nothing is known but of its own
    guest = [device("studio", (0, 30), role="host"), device("me", role="guest", me=True)]
    assert rows(status("away", guest), "guest") == [("stopped", "warn", "does not answer", "")]


def test_what_counts_is_no_notice() -> None:
    """The panel counts the seconds itself: a notice with some would be old, and be spoken again and again."""
    counts = sentences.stopped_responding("basement", 6, 15)
    for notices, want in (
        (["mira left the room.", counts], "mira left the room."),
        (["basement dropped. Deals again by itself in 60 s."], "basement dropped."),
        ([counts], ""),
        (["No path was found in 40 s."], "No path was found in 40 s."),
        (["mira left the room.", "The answer waits."], "mira left the room."),  # the panel says that one
    ):
        now = status("waiting", sentence="The answer waits.")
        assert room_state(now, "host", notices=notices)["notice"] == want
