"""The verbs of the door: `%pooled lobby`, `allow`, `deny`, `kick`, `invite`, `gate`, `network`."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import pooled_nb
from pooled_nb.magics import door
from pooled_nb.magics.lines import read_pooled
from pooled_nb.room.doorfacts import GateChoices, NetworkChoice
from tests.front.scripted import Rooms
from tests.front.test_door import RELAY, knock
from tests.front.test_magic_complete import tab
from tests.front.test_magics import fails, works


@pytest.fixture
def hosted(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> InteractiveShell:
    works(shell, "%pooled host m")
    capsys.readouterr()
    return shell


def test_options_of_host_and_join(shell: InteractiveShell, rooms: Rooms) -> None:
    """PROTOCOL sections 2 and 4: who comes in and by which ways, chosen when the room opens."""
    works(shell, "%pooled host m --no-ask --starts host --relay-only --stun stun:a:1 --stun stun:b:2")
    options = rooms.calls[-1][2]
    assert options["gate"] == GateChoices(ask=False, starts="host")
    assert options["network"] == NetworkChoice(stun=["stun:a:1", "stun:b:2"], relay_only=True)
    works(shell, "%pooled leave")
    works(shell, "%pooled join 4TK-G9P --lan --transport aiortc")
    assert rooms.calls[-1][2]["network"] == NetworkChoice(transport="aiortc")
    assert rooms.calls[-1][2]["lan"] is True


def test_lobby_allow_deny_kick(
    hosted: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str]
) -> None:
    """PROTOCOL section 4: allowed or denied by name, number, or as the only one; thrown out by name."""
    works(hosted, "%pooled lobby")
    assert "Nobody waits to be let in." in capsys.readouterr().out
    assert "Nobody waits" in fails(hosted, "%pooled allow")
    knock(rooms, "ana 2", "leo", "leo")
    works(hosted, "%pooled lobby")
    shown = capsys.readouterr().out
    assert "482 020" in shown
    assert "%pooled allow NAME" in shown
    assert "3 devices wait" in fails(hosted, "%pooled allow")
    capsys.readouterr()
    works(hosted, "%pooled allow ana 2")
    assert capsys.readouterr().out == "ana 2 is let in.\n"
    assert "Use the number" in fails(hosted, "%pooled deny leo")
    capsys.readouterr()
    works(hosted, "%pooled deny 3")
    assert capsys.readouterr().out == "leo is sent away.\n"
    works(hosted, "%pooled allow")
    assert rooms.core.log[-1] == ("allow", 2)
    assert "Which device?" in fails(hosted, "%pooled kick")
    works(hosted, "%pooled kick <b>desk|top</b>")
    assert rooms.core.log[-1] == ("kick", "b")
    assert "old ones" in capsys.readouterr().out


def test_who_does_not_host_hears_whom_to_ask(shell: InteractiveShell) -> None:
    works(shell, "%pooled join 4TK-G9P")
    for line in ("allow x", "deny", "invite", "invite --new", "gate", "gate --ask off", "kick x"):
        assert "Only the host" in fails(shell, f"%pooled {line}")
    works(shell, "%pooled lobby")
    works(shell, "%pooled network")


def test_the_link_is_typed_on_a_terminal_alone(
    hosted: InteractiveShell,
    rooms: Rooms,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DESIGN section 7: no output of IPython's holds the link; a terminal's lines are its person's own."""
    works(hosted, "%pooled invite")
    out = capsys.readouterr().out
    assert rooms.core.key not in out
    assert "invite().link holds it" in out

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "__stdout__", terminal)
    works(hosted, "%pooled invite --new")
    assert rooms.core.log[-1] == "renew"
    assert rooms.core.key in terminal.getvalue()
    assert rooms.core.key not in capsys.readouterr().out
    kept = getattr(hosted.history_manager, "outputs", {})  # what IPython exports of a session
    assert rooms.core.key not in repr(kept)


def test_the_gate(hosted: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    works(hosted, "%pooled gate")
    assert "is asked about" in capsys.readouterr().out
    works(hosted, "%pooled gate --ask off --starts host")
    assert rooms.core.gate == GateChoices(ask=False, starts="host")
    assert "the code is enough" in capsys.readouterr().out
    assert "invalid choice" in fails(hosted, "%pooled gate --ask maybe")


def test_a_relay_is_asked_for_unseen(
    hosted: InteractiveShell,
    rooms: Rooms,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DESIGN section 7: a TURN password never stands in a cell."""
    answers = [RELAY, " "]
    monkeypatch.setattr(door, "getpass", lambda prompt: answers.pop(0))
    works(hosted, "%pooled network --turn --remember --relay-only")
    assert rooms.core.log[-1] == (
        "network",
        NetworkChoice(turn=RELAY, relay_only=True, remember=True),
    )
    assert "relay.example:3478" in capsys.readouterr().out
    assert "No relay was typed" in fails(hosted, "%pooled network --turn")
    works(hosted, "%pooled network --no-turn --direct --no-stun")
    assert rooms.core.log[-1] == ("network", NetworkChoice(turn="", stun=[], relay_only=False))
    assert "exclude each other" in fails(hosted, "%pooled network --turn --no-turn")

    def nobody(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr(door, "getpass", nobody)
    assert "POOLED_TURN" in fails(hosted, "%pooled network --turn")


def test_how_frames_travel(hosted: InteractiveShell, rooms: Rooms) -> None:
    """PROTOCOL section 5: settings of the wire, remembered for the next room."""
    works(hosted, "%pooled network --stripes 2 --twice off --keepalive 12.5 --transport auto --remember")
    assert rooms.core.log[-1] == (
        "network",
        NetworkChoice(stripes=2, twice=False, keepalive_ms=12.5, transport="auto", remember=True),
    )
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8, auto" in fails(hosted, "%pooled network --stripes 9")
    assert "1 to 1,000" in fails(hosted, "%pooled network --keepalive fast --remember")
    assert "aiortc, wrtc" in fails(hosted, "%pooled host m --transport tcp")
    assert tab(hosted, "%pooled network --stripes ") == {*map(str, range(9)), "auto"}
    assert tab(hosted, "%pooled network --keepalive ") == {"0", "10", "auto"}


@pytest.mark.parametrize(
    "line",
    [
        f"network {RELAY}",
        f"network --turn {RELAY}",
        f"network --turn={RELAY}",
        f"join 4TK-G9P {RELAY}",
        f"host m --turn {RELAY}",
        f"host m --split {RELAY}",
        f"gate --ask {RELAY}",
        f"start --devices {RELAY}",
        f"{RELAY}",
        f"invite {RELAY}",
        "invite pooled://room/r/4TKG9P#k=PLANTEDkeyPLANTEDkeyPLANTED",
        "start 4TK-G9P#k=PLANTEDkeyPLANTEDkeyPLANTED",
    ],
)
def test_a_refusal_repeats_no_secret(line: str) -> None:
    """DESIGN section 7: what was typed by mistake is refused, and not said again."""
    with pytest.raises(Exception, match=r"\S") as refused:
        read_pooled(line)
    assert "PLANTED" not in str(refused.value)


def test_tab_completes_who_is_meant(hosted: InteractiveShell, rooms: Rooms) -> None:
    """DESIGN section 7: verbs completed by tab; here the names of who waits, and of who is here."""
    assert {"allow", "deny", "lobby", "kick", "invite", "gate", "network"} <= tab(hosted, "%pooled ")
    knock(rooms, "leo", "lea#1", "tim")
    rooms.core.on_change()  # type: ignore[misc]
    assert tab(hosted, "%pooled allow ") == {"leo", "'lea#1'", "tim"}
    assert tab(hosted, "%pooled deny t") == {"tim"}
    assert tab(hosted, "%pooled kick ") == {"<b>desk|top</b>"}
    assert read_pooled("allow 'lea#1'").target == "lea#1"
    assert tab(hosted, "%pooled network --relay") == {"--relay-only"}
    assert tab(hosted, "%pooled gate --ask o") == {"on", "off"}
    assert "--no-ask" in tab(hosted, "%pooled host m --no")


def test_each_verb_helps(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    for verb, says in (
        ("allow", "%pooled allow [NAME]"),
        ("kick", "%pooled kick NAME"),
        ("join", "%pooled join [CODE] [options]"),
        ("network", "--remember"),
        ("invite", "never into the notebook"),
    ):
        works(shell, f"%pooled {verb} --help")
        assert says in capsys.readouterr().out
    assert pooled_nb.current() is None


def test_what_waits_is_in_the_status(
    hosted: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str]
) -> None:
    knock(rooms, "leo", "ana")
    works(hosted, "%pooled status")
    shown: Any = capsys.readouterr().out
    assert "leo (Jupyter, CUDA, lends 8.0 GB) asks to join. Its screen must show 482 020." in shown
