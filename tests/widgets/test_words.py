"""What a room's panel says in every state, word by word."""

from __future__ import annotations

from typing import Any

import pytest

from pooled_nb.room.core import Role, Status
from pooled_nb.widgets.state import room_state
from tests.widgets.fakes import device, status, studio


def said(now: Status | None, role: Role | None = "host", **more: Any) -> tuple[str, str, str, list[str]]:
    room = room_state(now, role, **more)
    say = room["say"]
    return say["tone"], say["what"], say["about"], [button["label"] for button in room["actions"]]


ALONE = [studio(lends_gb=14.0)]
NAMED = {"label": "Qwen3-8B", "need_gb": 16.4}
MAY_START: dict[str, Any] = {"can": ["start", "set", "close", "leave"]}


@pytest.mark.parametrize(
    ("now", "role", "want"),
    [
        (
            status("open", ALONE, label="Qwen3-8B", need_gb=12.0, **MAY_START),
            "host",
            (
                "idle",
                "Only you are here",
                "Qwen3-8B needs 12.0 GB, you lend 14.0 GB. Read the code aloud, or start alone.",
                ["Start"],
            ),
        ),
        (
            status("open", ALONE, **NAMED),
            "host",
            (
                "warn",
                "Short by 2.4 GB",
                "Qwen3-8B needs 16.4 GB, the room lends 14.0 GB. Invite a device or lend more.",
                [],
            ),
        ),
        (
            status("open", **MAY_START),
            "host",
            (
                "good",
                "Ready to start",
                "3 devices lend 18.0 GB, SmolLM2-135M-Instruct needs 0.3 GB.",
                ["Start"],
            ),
        ),
        (status("open", need_gb=0.0), "host", ("good", "Ready to start", "3 devices lend 18.0 GB.", [])),
        (
            status("open", ALONE, need_gb=0.0),
            "host",
            ("idle", "Only you are here", "You lend 14.0 GB. Read the code aloud, or start alone.", []),
        ),
        (
            status("open", sentence="The room did not start: mira is short by 2.0 GB.", **MAY_START),
            "host",
            ("warn", "The room did not start", "mira is short by 2.0 GB.", ["Start"]),
        ),
        (status("open"), "guest", ("idle", "Nothing is loaded yet", "Ask, and the room starts.", [])),
        (
            status("open", sentence="This device holds no layers: the download failed."),
            "worker",
            ("warn", "This device holds no layers", "The download failed.", []),
        ),
        (
            status("loading", [studio((0, 10), progress=100), device("mira", (10, 30), progress=62)]),
            "host",
            ("work", "Loading", "1 of 2 devices ready.", []),
        ),
        (
            status("loading", [device("ana", role="guest", lends_gb=0.0)], sentence="Loading: 12 %."),
            "guest",
            ("work", "Loading", "12 %.", []),
        ),
        (status("loading", can=["stop"]), "host", ("work", "Loading", "0 of 3 devices ready.", ["Stop"])),
        (
            status("loading", can=["stop"], answering="ana"),
            "host",
            ("work", "Loading", "0 of 3 devices ready. The answer goes on after that.", ["Stop"]),
        ),
        (status("online"), "host", ("good", "Online", "Nobody is asking.", [])),
        (
            status("online", waiting=1, can=["reset"], used=5),
            "host",
            ("good", "Online", "1 question waits.", ["New chat"]),
        ),
        (status("online", can=["redeal"]), "host", ("good", "Online", "Nobody is asking.", ["Deal again"])),
        (
            status("answering", mine=True, answering="studio", waiting=2, can=["stop"]),
            "host",
            ("work", "Answering you", "2 questions wait.", ["Stop"]),
        ),
        (status("answering", answering="ana"), "guest", ("work", "Answering ana", "Nobody waits.", [])),
        (status("answering", answering=""), "guest", ("work", "Answering", "Nobody waits.", [])),
        (
            status("closed", sentence="The host closed the room", can=["start", "stop"]),
            "guest",
            ("idle", "Room closed", "The host closed the room.", []),
        ),
    ],
)
def test_every_state_in_words(now: Status, role: Role, want: tuple[str, str, str, list[str]]) -> None:
    """The mock's Wording: what is so, then what happens next; buttons only where pressing makes sense."""
    assert said(now, role) == want


def test_while_it_opens() -> None:
    """Before there is a status: how far it is, in its own words."""
    opening = said(None, None, progress=(30, "finding the model"))
    assert opening == ("work", "Opening the room", "Finding the model, 30 %.", [])
    assert said(None, None, progress=(None, "")) == ("work", "Opening the room", "", [])
    never = said(None, None, left=True, notices=["No signaling server answers. Try again later."])
    assert never == (
        "idle",
        "This room did not open",
        "No signaling server answers. Try again later.",
        [],
    )


def test_a_room_that_was_left_has_no_dead_buttons() -> None:
    """A panel after its room closed: it says so, and offers nothing that would do nothing."""
    can: Any = ["stop", "reset", "set", "close", "leave"]
    room = room_state(status("answering", waiting=2, queue=["ana"], can=can, used=9), "host", left=True)
    assert room["state"] == "closed"
    assert room["say"] == {"tone": "idle", "what": "Room closed", "about": "This device has left the room."}
    assert room["actions"] == []
    assert room["join"] == ""
    assert room["settings"]["may"] is False
    assert room["queue"] == {"waiting": 0, "names": [], "text": ""}
    assert room["numbers"] == []
    assert {row["word"] for row in room["chain"]} == {"room closed"}


def test_facts_and_the_promise() -> None:
    """DESIGN section 5, rule 5: which promise about equal text holds is said, and only where one holds."""
    host = room_state(status("online"), "host")
    assert host["facts"] == "30 layers · bfloat16, exact · 0.3 GB · you host"
    assert host["promise"] == "same text as one device"
    assert host["label"] == "SmolLM2-135M-Instruct"
    other = room_state(status("online", exact=False), "guest")
    assert other["facts"] == "30 layers · bfloat16, not exact · 0.3 GB · you hold layers 1–10"
    assert other["promise"] == "text may differ by split"
    lender = room_state(status("open", [device("me", me=True)], exact=False, layers=0), "worker")
    assert lender["facts"] == "bfloat16 · 0.3 GB · you lend 6.0 GB"
    assert lender["promise"] == ""
    small = room_state(status("online", kv="q8", drafts="model"), "host")
    assert small["facts"] == (
        "30 layers · bfloat16, int8 caches, exact · 0.3 GB · drafts by a small model · you host"
    )
    hostile = room_state(status("online", kv="<b>", drafts="<b>"), "host")
    assert hostile["facts"] == host["facts"]
    fast = room_state(status("online", runs="cuda:0 (30 layers) · CUDA graphs"), "host")
    assert fast["facts"] == (
        "30 layers · bfloat16, exact · 0.3 GB · cuda:0 (30 layers) · CUDA graphs · you host"
    )
    assert "cuda" not in room_state(status("loading", runs="cuda:0 (30 layers)"), "host")["facts"]
    assert len(room_state(status("online", runs="x" * 5_000), "host")["facts"]) < 250
    guest = room_state(status("open", [], layers=0, dtype="", need_gb=0.0), "guest")
    assert guest["facts"] == "you are a guest"


def test_how_to_join() -> None:
    """The line to type elsewhere names the server where it is not found without."""
    assert room_state(status("open"), "host")["join"] == "%pooled join 4TK-G9P"
    near = status("open", signaling="ws://127.0.0.1:9000")
    assert room_state(near, "host")["join"] == "%pooled join 4TK-G9P"
    far = status("open", signaling="wss://signal.example/pooled")
    assert room_state(far, "host")["join"] == "%pooled join 4TK-G9P --signal wss://signal.example/pooled"
