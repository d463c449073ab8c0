"""May this device download so much: its person is asked, wherever they are (PROTOCOL section 6)."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import pooled_nb
from pooled_nb import download_text, show
from pooled_nb.cli import main
from pooled_nb.downloads import Downloads
from pooled_nb.errors import NotReady
from pooled_nb.progress import Waiting
from pooled_nb.room.core import DeviceLine, Status
from pooled_nb.room.weights.ask import DownloadAsk
from pooled_nb.terminal.commands import Door, Say, read
from pooled_nb.terminal.loading import bars
from pooled_nb.terminal.news import News
from pooled_nb.threads import mesh
from tests.front.scripted import Rooms
from tests.front.test_magic_complete import tab
from tests.front.test_magics import fails, works
from tests.widgets.conftest import until

QUESTION = (
    "Loading layers 1–10 of org/model makes this device download 12 GB, and 80 GB are free on its disk. "
    "May it?"
)


def asks(rooms: Rooms, **more: Any) -> None:
    """The device of the room asks (on the mesh loop)."""

    async def ask() -> None:
        rooms.core.ask_download(**more)

    mesh.run(ask())


def said(rooms: Rooms) -> list[bool]:
    return [entry[1] for entry in rooms.core.log if entry[0] == "download"]


def test_python_answers(rooms: Rooms) -> None:
    """PROTOCOL section 6: a worker asks its person before it downloads more than its setting allows."""
    room = pooled_nb.join("4TK-G9P", progress=False)
    with pytest.raises(NotReady, match="asks for no download"):
        room.allow_download()
    asks(rooms)
    asked = room.status().asks
    assert asked is not None
    assert (asked.gb, asked.text) == (12.0, QUESTION)
    room.allow_download(False)
    assert room.status().asks is None
    asks(rooms)
    room.allow_download(wait=False).result()
    assert said(rooms) == [True, False, True]


async def test_it_may_be_awaited(rooms: Rooms) -> None:
    room = await pooled_nb.join("4TK-G9P", progress=False, wait=False)
    rooms.core.asks = None
    asks(rooms)
    await room.allow_download(wait=False)
    assert said(rooms) == [True]


def test_a_panel_answers(rooms: Rooms) -> None:
    """What the panel's buttons post, and nothing that is no answer."""
    room = pooled_nb.host("m", progress=False)
    asks(rooms)
    room.command("download", {"yes": "please"})
    assert said(rooms) == []
    ended: list[str] = []
    room.command("download", {"yes": True}, ended.append)
    room.command("download", {"yes": False}, ended.append)
    until(lambda: len(ended) == 2)
    assert said(rooms) == [True, False]
    assert sorted(ended)[0] == ""
    assert "asks for no download" in sorted(ended)[1]


def test_the_magic(rooms: Rooms, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    """`%pooled download` alone shows the question; allow and refuse answer it."""
    works(shell, "%pooled join 4TK-G9P")
    capsys.readouterr()
    works(shell, "%pooled download")
    assert capsys.readouterr().out == f"{download_text.NOTHING}\n"
    asks(rooms)
    works(shell, "%pooled download")
    assert capsys.readouterr().out == f"{QUESTION} {download_text.HOW}\n"
    works(shell, "%pooled status")
    assert download_text.HOW in capsys.readouterr().out
    assert "is no answer" in fails(shell, "%pooled download yes")
    assert tab(shell, "%pooled download ") == {"allow", "refuse"}
    capsys.readouterr()
    works(shell, "%pooled download refuse")
    assert capsys.readouterr().out == "Nothing is downloaded.\n"
    assert "asks for no download" in fails(shell, "%pooled download allow")
    assert said(rooms) == [False, True]


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("/download allow", Door("download", "allow")),
        ("/download refuse", Door("download", "refuse")),
        ("/download", Say("Write /download allow, or /download refuse.")),
        ("/download 12GB", Say("Write /download allow, or /download refuse.")),
    ],
)
def test_a_line_at_a_terminal(line: str, meant: object) -> None:
    for role in ("host", "worker"):
        assert read(line, role) == meant  # type: ignore[arg-type] # a literal


def test_a_terminal_tells_it_with_what_to_type(rooms: Rooms) -> None:
    """Once; and where nobody can answer, what else can be done."""
    room = pooled_nb.join("4TK-G9P", progress=False)
    for answers, how in ((True, "/download allow, or /download refuse."), (False, "POOLED_MAX_DOWNLOAD")):
        lines: list[str] = []
        news = News(room, lines.append)
        news.answers = answers
        news.tell()
        lines.clear()
        rooms.core.change = {"sentence": QUESTION, "loading": "waiting for this device's person"}
        asks(rooms)
        news.tell()
        news.tell()
        (line,) = lines
        assert line.startswith(QUESTION)
        assert how in line
        rooms.core.change = {}
        room.allow_download()


def test_a_terminal_tells_what_it_fetches_once(rooms: Rooms) -> None:
    """Its numbers go on by themselves; each would be a line of its own."""
    room = pooled_nb.join("4TK-G9P", progress=False)
    lines: list[str] = []
    news = News(room, lines.append)
    news.tell()
    lines.clear()
    for words in (
        "fetching 1.2 of 3.4 GB from Ada (45 MB/s, 50 s left)",
        "fetching 1.3 of 3.4 GB from Ada (44 MB/s, 2 min left)",
        "reading layers 1–10",
    ):
        rooms.core.change = {"loading": words}
        news.tell()
    assert lines == [
        "This device: fetching 1.2 of 3.4 GB from Ada (45 MB/s, 50 s left).",
        "This device: reading layers 1–10.",
    ]


class Room:
    """What is asked about by a thread that waits."""

    def __init__(self, *asked: DownloadAsk | None) -> None:
        self.asked, self.answers = list(asked), list[bool]()
        self.refuses = False

    def seen(self) -> Status:
        ask = self.asked[0] if self.asked else None
        return Status(code="4TKG9P", state="loading", sentence="", asks=ask)

    def allow_download(self, yes: bool) -> None:
        if self.refuses:
            raise NotReady("This device asks for no download now.", "Nothing has to be allowed.")
        self.answers.append(yes)
        self.asked.pop(0)


def ask_of(gb: float) -> DownloadAsk:
    return DownloadAsk(model="org/model", lo=0, hi=10, gb=gb)


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a person at a terminal types."""
    typed: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda: typed.pop(0))
    return typed


def test_who_waits_is_asked(person: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """PROTOCOL section 6: for the host too while its start waits; what is no answer is asked again."""
    room = Room(ask_of(12.0), ask_of(20.0))
    asker = Downloads(room)
    person += ["what", "y", "No"]
    for _ in range(4):
        asker.ask(Waiting())
    assert room.answers == [True, False]
    shown = capsys.readouterr().err
    assert shown.count("download 12 GB. May it? [y/n]") == 2
    assert shown.count("download 20 GB") == 1


def test_an_answer_that_comes_too_late_is_told(person: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    room = Room(ask_of(12.0))
    room.refuses = True
    person.append("y")
    Downloads(room).ask(Waiting())
    assert "asks for no download now" in capsys.readouterr().err


def test_nobody_is_asked_where_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(ask_of(12.0))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    Downloads(room).ask(Waiting())
    assert room.answers == []


def test_a_start_at_a_terminal_asks(
    rooms: Rooms, person: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way: `--devices 2` starts, the start waits for its own person, who types y."""
    from pooled_nb.terminal import staying

    real = staying.start

    def asking(room: Any, number: int | None = None) -> None:
        asks(rooms)
        person.append("y")
        real(room, number)

    monkeypatch.setattr(staying, "start", asking)
    monkeypatch.setattr(staying, "_stay", lambda room, news, args: 0)
    assert main(["host", "m", "--devices", "2"]) == 0
    assert said(rooms) == [True]
    assert f"{QUESTION} [y/n]" in " ".join(capsys.readouterr().err.split())


def status(**facts: Any) -> Status:
    return Status(code="4TKG9P", state="loading", sentence="Loading: 12 %.", **facts)


def test_what_this_device_does_is_in_its_status() -> None:
    """DESIGN section 6: what only another device vouches for is shown as unverified; and what was given."""
    doubt = "1 GB of its layers came from Ada; that they are right, only Leo says."
    gave = "This device gave 1.2 GB of weights to Ada."
    shown = show.status_text(
        status(loading="fetching 1.2 of 3.4 GB (45 MB/s, 50 s left)", unverified=doubt, given=gave)
    )
    assert "This device: fetching 1.2 of 3.4 GB (45 MB/s, 50 s left)." in shown
    assert doubt in shown
    assert gave in shown
    assert doubt not in show.status_text(Status(code="4TKG9P", state="closed", sentence="", unverified=doubt))


def test_a_device_that_asks_is_marked_in_the_hosts_status() -> None:
    """It may be what everybody waits for."""
    asks_ = DeviceLine(
        id="b", name="ada", role="worker", kind="cpu", lends_gb=2.0, layers=(10, 20), progress=5, asks=True
    )
    assert "layers 11–20, asks its person" in show.status_text(status(devices=[asks_]))


def test_little_is_said_in_megabytes() -> None:
    assert "download 2.5 MB. May it?" in ask_of(0.0025).text


def test_the_bars_say_what_this_device_does() -> None:
    me = DeviceLine(
        id="a", name="me", role="host", kind="cpu", lends_gb=2.0, layers=(0, 10), progress=12, me=True
    )
    other = DeviceLine(
        id="b", name="ada", role="worker", kind="cpu", lends_gb=2.0, layers=(10, 20), progress=5
    )
    own = "fetching 1.2 of 3.4 GB"
    assert [bar.words for bar in bars(12, "me: 12 %", [me], own)] == [own]
    (_, mine, theirs) = [bar.words for bar in bars(5, "me: 12 %, ada: 5 %", [me, other], own)]
    assert mine.endswith(f"layers 1–10  {own}")
    assert theirs.endswith("layers 11–20")


def test_who_gives_no_weights_says_so(rooms: Rooms, shell: InteractiveShell) -> None:
    """PROTOCOL section 6: by the option of a room, at each door; None leaves it to the environment."""
    pooled_nb.host("m", give=False, progress=False).leave()
    pooled_nb.join("4TK-G9P", progress=False).leave()
    works(shell, "%pooled host m --no-give")
    works(shell, "%pooled leave")
    works(shell, "%pooled join 4TK-G9P --no-give")
    works(shell, "%pooled leave")
    assert main(["join", "4TK-G9P", "--no-give", "--ask", "why"]) == 0
    assert [call[2]["give"] for call in rooms.calls] == [False, None, False, False, False]
