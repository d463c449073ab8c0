"""Who comes in and by which ways, typed at the prompt of `pooled-nb host`; the invite link in a file."""

from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pooled_nb
from pooled_nb.errors import BadOption, NotReady, PooledError
from pooled_nb.progress import Waiting
from pooled_nb.room import resumable
from pooled_nb.room.doorfacts import GateChoices, LobbyLine, NetworkChoice
from pooled_nb.terminal import arguments, door
from pooled_nb.terminal.commands import Door, Say, help_lines, read
from pooled_nb.terminal.invitefile import kept_link, told
from pooled_nb.terminal.news import News
from pooled_nb.terminal.screen import here
from tests.front.scripted import Rooms
from tests.front.test_confirming import Terminal, typed
from tests.front.test_door import RELAY, knock


@pytest.mark.parametrize(
    ("line", "means"),
    [
        ("/lobby", Door("lobby")),
        ("/allow", Door("allow")),
        ("/allow ana 2", Door("allow", "ana 2")),
        ("/DENY 3", Door("deny", "3")),
        ("/kick leo", Door("kick", "leo")),
        ("/invite", Door("invite")),
        ("/invite new", Door("invite", "new")),
        ("/gate ask off", Door("gate", "ask off")),
        ("/network turn", Door("network", "turn")),
    ],
)
def test_commands_of_the_door(line: str, means: Door) -> None:
    assert read(line, "host") == means


@pytest.mark.parametrize(
    ("line", "role", "words"),
    [
        ("/allow leo", "guest", "Only the host"),
        ("/invite", "worker", "Only the host"),
        ("/kick", "host", "/kick NAME"),
        ("/lobby all", "host", "stands alone"),
        ("/invite please", "host", "/invite new"),
    ],
)
def test_what_makes_no_sense_is_said(line: str, role: Any, words: str) -> None:
    said = read(line, role)
    assert isinstance(said, Say)
    assert words in said.words


def test_help_lists_them_for_the_host() -> None:
    assert sum(line.startswith(("/allow", "/invite", "/network")) for line in help_lines("host")) == 3
    assert sum(line.startswith(("/allow", "/invite", "/network")) for line in help_lines("guest")) == 1
    assert read("/network", "guest") == Door("network")


def test_what_they_do(rooms: Rooms, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """PROTOCOL section 4, from a terminal: the link is typed there, where it was asked for."""
    room = pooled_nb.host("m", progress=False)
    with pytest.raises(NotReady, match="Nobody waits"):
        door.do(room, "allow", "")
    knock(rooms, "leo", "ana")
    door.do(room, "lobby", "")
    assert "/allow NAME" in capsys.readouterr().out
    door.do(room, "allow", "leo")
    door.do(room, "deny", "2")
    assert [entry for entry in rooms.core.log if entry[0] in ("allow", "deny")] == [("allow", 1), ("deny", 2)]
    door.do(room, "invite", "")  # into a file, a log say: not there
    said = capsys.readouterr().out
    assert rooms.core.key not in said
    assert "--invite-file" in said
    monkeypatch.setattr(sys, "__stdout__", screen := Terminal())
    door.do(room, "invite", "")
    assert rooms.core.key in screen.getvalue()
    door.do(room, "invite", "new")
    assert rooms.core.key in screen.getvalue()
    assert "renew" in rooms.core.log
    assert rooms.core.key not in capsys.readouterr().out
    door.do(room, "gate", "ask off")
    assert rooms.core.gate == GateChoices(ask=False)
    monkeypatch.setattr(door, "getpass", lambda prompt: RELAY)
    door.do(room, "network", "turn")
    assert rooms.core.log[-1] == ("network", NetworkChoice(turn=RELAY))
    door.do(room, "network", "relay-only")
    assert "the relay only" in capsys.readouterr().out
    door.do(room, "kick", "<b>desk|top</b>")
    assert rooms.core.log[-1] == ("kick", "b")


@pytest.mark.parametrize("rest", [RELAY, "turn " + RELAY, "stun", "relay-only please"])
def test_a_relay_at_the_prompt_is_not_repeated(rest: str) -> None:
    """DESIGN section 7: it is asked for unseen; what was typed instead is refused without saying it."""
    with pytest.raises(BadOption, match="asked for unseen") as refused:
        door.network_changes(rest)
    assert "PLANTED" not in str(refused.value)


def test_the_step_that_a_resumed_room_names_can_be_typed() -> None:
    """PROTOCOL section 8, host resume: a relay that was not kept is named again, at a prompt, too."""
    command = read(here(resumable.RELAY)[here(resumable.RELAY).index("/network") :].rstrip("."), "host")
    assert isinstance(command, Door)
    assert door.network_changes(command.rest) == {"turn": None}
    assert door.network_changes("--direct") == {"relay_only": False}


@pytest.mark.parametrize("rest", ["ask", "ask maybe", "starts me", "all", "ask on off"])
def test_a_gate_that_is_not(rest: str) -> None:
    with pytest.raises(BadOption, match="no such choice"):
        door.gate_changes(rest)


def test_who_asks_is_asked_about_while_devices_are_waited_for(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """DESIGN section 1: whoever waits for three devices is not left waiting for who waits for them."""
    room = pooled_nb.host("m", progress=False)
    knock(rooms, "leo", "ana")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    door.ask_about(room, Waiting())  # a pipe is no person
    assert rooms.core.log == []
    asked = typed(monkeypatch, "what", "y", "n")
    for _ in range(3):
        door.ask_about(room, Waiting())
    assert [entry for entry in rooms.core.log if entry[0] in ("allow", "deny")] == [("allow", 1), ("deny", 2)]
    assert len(asked) == 3
    err = capsys.readouterr().err
    assert (
        "leo (Jupyter, CUDA, lends 8.0 GB) asks to join. Its screen must show 482 020. Let it in? [y/n]"
        in err
    )
    door.ask_about(room, Waiting())  # nobody is left
    knock(rooms, "tim")
    with pytest.raises(KeyboardInterrupt):  # Ctrl-D: its person waits no longer
        door.ask_about(room, Waiting())


def test_news_of_the_lobby() -> None:
    """Who asks is said once, with what to compare and to type; not again as the room's own notice."""
    status = SimpleNamespace(devices=[], state="open", sentence="Ready.", lobby=[], loading="", asks=None)
    room: Any = SimpleNamespace(notices=[], status=lambda: status, lobby_hint="")
    said: list[str] = []
    news = News(room, said.append)
    news.tell()
    status.lobby = [LobbyLine(number=1, name="leo", kind="CPU", digits="482 019", note="Is it yours?")]
    room.notices = ["leo asks to join. Its screen shows 482 019.", "Nobody answers: see %pooled network."]
    news.tell()
    news.tell()
    assert said == [
        "Ready.",
        "leo (CPU, asks only) asks to join. Its screen must show 482 019. Is it yours? "
        "/allow leo lets it in, /deny leo sends it away.",
        "Nobody answers: see /network.",
    ]
    status.lobby = []
    news.tell()
    assert said[3:] == ["- leo waits no longer"]
    status.lobby = [LobbyLine(number=9, name="bob", digits="482 019")]
    news.tell()
    news.decided(9)  # which said itself what became of it
    status.lobby = []
    news.tell()
    assert said.pop(4).startswith("bob")
    assert said[4:] == []
    status.lobby = [LobbyLine(number=2, name="ana")]
    room.lobby_hint = "Nobody can answer here."
    news.tell()
    assert said[4:] == [
        "ana (asks only) asks to join. It can show no digits: ask its person. Nobody can answer here."
    ]
    status.lobby, status.devices = [], [SimpleNamespace(id="a", name="ana", me=False, gone=False)]
    news.tell()
    assert said[5:] == ["+ ana is here"]


def test_commands_of_a_sentence_fit_the_prompt() -> None:
    assert (
        here("See who: %pooled lobby. %pooled host opens one.") == "See who: /lobby. %pooled host opens one."
    )


def test_the_link_in_a_file(rooms: Rooms, tmp_path: Path) -> None:
    """DESIGN section 7: a file that only its user can read hands the link on, as long as the room is."""
    room = pooled_nb.host("m", progress=False)
    path = tmp_path / "my link.txt"
    path.write_text("old")
    with kept_link(room, str(path)) as look:
        assert path.read_text() == room.invite().link + "\n"
        if os.name != "nt":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        room.renew_invite()
        look()
        assert path.read_text() == room.invite().link + "\n"
    assert not path.exists()
    assert "'" in told(str(path))
    assert rooms.core.key not in told(str(path))
    with kept_link(room, str(path)):
        path.write_text("somebody else's")
    assert path.read_text() == "somebody else's"
    with pytest.raises(BadOption, match="cannot be written"), kept_link(room, str(tmp_path / "no" / "x")):
        pass
    with kept_link(room, None) as look:
        look()


def test_the_links_file_that_is_written_no_more(
    rooms: Rooms, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad input: a folder that is gone is told once, and what looks for news goes on."""
    room = pooled_nb.host("m", progress=False)
    (folder := tmp_path / "away").mkdir()
    with kept_link(room, str(folder / "link")) as look:
        (folder / "link").unlink()
        folder.rmdir()
        room.renew_invite()
        look()
        look()
        err = capsys.readouterr().err
        assert err.count("cannot be written") == 1
        assert rooms.core.key not in err
        folder.mkdir()
        look()
        assert (folder / "link").read_text() == room.invite().link + "\n"


@pytest.mark.parametrize(
    "argv",
    [
        ["host", "m", "--stun", RELAY],
        ["host", "m", f"--stun={RELAY}"],
        ["host", "m", "--turn", RELAY],
        ["join", "4TK-G9P", f"--turn={RELAY}"],
        ["join", RELAY],
        ["ask", "4TK-G9P", "--relay-only", f"POOLED_TURN={RELAY}", "Why?"],
    ],
)
def test_a_relay_is_no_argument(argv: list[str]) -> None:
    """DESIGN section 7: other users see arguments."""
    with pytest.raises(PooledError, match="POOLED_TURN") as refused:
        arguments.parse(argv)
    assert "PLANTED" not in str(refused.value)


def test_options() -> None:
    args = arguments.parse(
        [
            "host",
            "m",
            "--no-ask",
            "--starts",
            "host",
            "--relay-only",
            "--stun",
            "stun:a:1",
            "--invite-file",
            "f",
        ]
    )
    assert (args.no_ask, args.starts, args.relay_only, args.stun, args.invite_file) == (
        True,
        "host",
        True,
        ["stun:a:1"],
        "f",
    )
    args = arguments.parse(["join", "4TK-G9P", "--lan"])
    assert (args.lan, args.relay_only, args.stun, args.transport) == (True, None, None, None)
    assert arguments.parse(["ask", "4TK-G9P", "why?", "--transport", "wrtc"]).transport == "wrtc"
    assert arguments.parse(["ask", "4TK-G9P", "turn: who is it?", "--lan"]).lan
