"""Devices that stop responding, drop and come back, as a person reads of it (PROTOCOL section 8)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from IPython.core.interactiveshell import InteractiveShell

import pooled_nb
from pooled_nb import saved, show
from pooled_nb.counted import lasting, still
from pooled_nb.errors import NotReady
from pooled_nb.printed import print_answer
from pooled_nb.progress import PlainWaiting
from pooled_nb.room import sentences
from pooled_nb.room.core import DeviceLine, Notice, Status
from pooled_nb.room_view import Room
from pooled_nb.terminal.news import News
from pooled_nb.threads import mesh
from tests.front.scripted import Rooms

SILENT = "basement stopped responding; waiting for it, {} of 15 s (Stop gives up)."
DROPPED = "basement dropped; layers 21–30 are missing."
GOES_ON = "The answer goes on."


def test_words_that_count() -> None:
    """The same text while only its numbers go on; what is kept of it has no sentence of a moment."""
    assert still(SILENT.format(4)) == still(SILENT.format(15)) != still(SILENT.replace("basement", "mira"))
    assert still("lab-01 waits 3 s.") != still("lab-02 waits 3 s.")  # a name keeps its digits
    assert still("Loading: 3 %. 12 of 60 s, 2 of 15 min") == still("Loading: 99 %. 1 of 60 s, 3 of 15 min")
    assert lasting(f"{DROPPED} Deals again by itself in 42 s.") == DROPPED
    assert lasting("Online. The host does not answer; this device knocks (3 of 60 s). Ask.") == "Online. Ask."
    assert lasting(SILENT.format(6)) == ""
    assert lasting("No path was found in 40 s.") == "No path was found in 40 s."


def now(state: Any, sentence: str, *, more: dict[str, Any] | None = None, **basement: Any) -> Status:
    line = {"id": "c", "name": "basement", "role": "worker", "kind": "cpu", "lends_gb": 2.0}
    return Status(
        code="4TKG9P",
        state=state,
        sentence=sentence,
        layers=30,
        devices=[
            DeviceLine(id="a", name="studio", role="host", kind="cpu", lends_gb=2.0, layers=(0, 20), me=True),
            msgspec.convert({**line, "layers": (20, 30), **basement}, DeviceLine),
        ],
        **(more or {}),
    )


WAITS = now(
    *("waiting", SILENT.format(6)), silent_s=6, patience_s=15, rtt_ms=4.0, more={"waits_for": ["basement"]}
)
GONE = now("degraded", DROPPED, gone=True, lends_gb=0.0, more={"redeal_in": 42})


@pytest.mark.parametrize("write", [show.status_text, show.status_markdown, show.status_html])
def test_a_status_says_who_is_waited_for(write: Any) -> None:
    """Status, in text, Markdown and HTML: silent and gone devices, whom it waits for, when it deals again."""
    text = write(WAITS).replace("\\", "")
    assert "stopped responding, 6 of 15 s" in text
    assert text.count("Waits for") == 0  # its sentence says so already
    other = msgspec.structs.replace(WAITS, sentence="The answer waits.", waits_for=["basement", "mira"])
    assert "Waits for basement and mira." in write(other).replace("\\", "")
    text = write(GONE).replace("\\", "")
    assert "layers 21–30" in text
    assert "gone, its layers are missing" in text
    assert "Deals again by itself in 42 s." in text
    told = msgspec.structs.replace(GONE, sentence=f"{DROPPED} Deals again by itself in 42 s.")
    assert write(told).replace("\\", "").count("in 42 s") == 1


def test_a_saved_room_holds_nothing_of_a_moment() -> None:
    """A notebook read later: no countdown, nobody's silence; what was missing is missing."""
    for kind, text in saved.bundle(WAITS).items():
        assert "6 of 15" not in text, kind
        assert "did not respond, and the answer waited for it" in text
    for kind, text in saved.bundle(GONE).items():
        assert "42 s" not in text, kind
        assert "gone" in text
    plain = saved.bundle(GONE)["text/plain"]
    assert "AAAA · ------" in plain.replace("A" * 28, "")
    assert "A studio (host) · - basement (gone)" in plain
    assert "The host did not answer." in saved.bundle(now("away", "It knocks (3 of 60 s)."))["text/plain"]


@pytest.fixture
def room(rooms: Rooms) -> Iterator[Room]:
    room = pooled_nb.host("m", progress=False)
    room.start()
    yield room
    room.leave()


def on_loop(do: Any) -> None:
    async def run() -> None:
        do()

    mesh.run(run())


def until(holds: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def stalls(rooms: Rooms) -> asyncio.Event:
    """The next answer waits after two pieces, until this is set."""
    go = asyncio.Event()
    rooms.core.amid = {2: [Notice(text=SILENT.format(4)), go, Notice(text=GOES_ON)]}
    return go


def test_an_answer_says_why_it_waits_and_goes_on(rooms: Rooms, room: Room) -> None:
    """Its notice and what it waits for, live; nothing shown changes; at the end no word of it is left."""
    go = stalls(rooms)
    answer = room.stream("one two three four")
    until(lambda: answer.notice)
    assert answer.waits == answer.facts().notice == SILENT.format(4)
    assert repr(answer) == "<Answer, waiting, 8 characters>"
    # The room counts on: so does what is shown of the answer.
    on_loop(lambda: rooms.core.become("waiting", sentence=SILENT.format(9), waits_for=["basement"]))
    assert answer.waits == SILENT.format(9)
    on_loop(lambda: rooms.core.become("online"))
    on_loop(go.set)
    assert answer.result().text == "one two three four "
    assert (answer.notice, answer.waits) == ("", "")
    for text in answer._repr_mimebundle_().values():
        assert "stopped responding" not in text
        assert GOES_ON not in text


@pytest.mark.parametrize(
    ("state", "change", "want"),
    [
        (
            "waiting",
            {"waits_for": ["mira"], "sentence": ""},
            "Waiting for mira. The answer goes on where it is.",
        ),
        ("waiting", {"sentence": ""}, "Waiting for a device. The answer goes on where it is."),
        ("degraded", {}, "A device is gone. Answers go on once its layers are dealt again."),
        ("degraded", {"redeal_in": 42}, "A device is gone. The room deals again by itself in 42 s."),
        ("loading", {}, "The layers are loading. Answers go on after that."),
        ("open", {"sentence": (back := sentences.going_on(1, 2, 25.0))}, back),
        ("away", {}, "The host does not answer. Answers go on when it is back."),
    ],
)
def test_an_answer_that_was_told_nothing_says_how_the_room_is(
    rooms: Rooms, room: Room, state: Any, change: dict[str, Any], want: str
) -> None:
    """Also who waits for a turn reads why nobody has one; who shows it is woken, once a state."""
    answer = room.stream("one two three")
    answer.result()
    go = asyncio.Event()
    rooms.core.amid = {1: [go]}
    answer = room.stream("one two three")
    until(lambda: answer.text)
    woken: list[str] = []
    answer.watch(lambda: woken.append(answer.waits))
    on_loop(lambda: rooms.core.become(state, **change))
    on_loop(lambda: rooms.core.become(state, **change))
    assert woken == [want]
    on_loop(lambda: rooms.core.become("online"))
    on_loop(go.set)
    assert answer.result().text == "one two three "


def test_printed_with_the_wait_once_between_the_text(
    rooms: Rooms, room: Room, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a terminal or a log: why it waits, once whatever it counts, on stderr; the text whole on stdout."""
    go = stalls(rooms)
    answer = room.stream("one two three four")
    view, noted = PlainWaiting("asking"), threading.Event()
    remark = view.remark
    view.remark = lambda words: (remark(words), noted.set())[0]  # type: ignore[method-assign]

    def count() -> None:
        assert noted.wait(30)
        for n in (5, 6, 7):
            sentence = SILENT.format(n)
            on_loop(lambda s=sentence: rooms.core.become("waiting", sentence=s, waits_for=["basement"]))
            time.sleep(0.1)
        on_loop(lambda: rooms.core.become("online"))
        on_loop(go.set)

    thread = threading.Thread(target=count)
    thread.start()
    print_answer(answer, view)
    thread.join()
    out, err = capsys.readouterr()
    assert out.startswith("one two three four \n")
    assert err.count("stopped responding") == 1
    assert f"[{SILENT.format(4)}]" in err


def test_dealing_again_by_hand_while_an_answer_waits(rooms: Rooms, room: Room) -> None:
    """`Room.redeal` of a degraded room: the layers load, and the answer that waited goes on."""
    go = stalls(rooms)
    answer = room.stream("one two three four")
    until(lambda: answer.notice)
    on_loop(lambda: rooms.core.become("degraded", sentence=DROPPED, redeal_in=42))
    assert "redeal" in room.status().can
    assert room.redeal() is room
    assert room.status().state == "online"
    assert not answer.done()
    on_loop(go.set)
    assert answer.result().text == "one two three four "
    room.leave()
    other = pooled_nb.host("m", progress=False)
    with pytest.raises(NotReady, match="Nothing is dealt yet"):
        other.redeal()


def test_the_setting_for_it(rooms: Rooms, room: Room) -> None:
    """`Room.set` with ``redeal``: kept with the rest; a button's word for it is understood."""
    assert room.set(redeal=False).settings.redeal is False
    assert room.set(style="focused").settings.redeal is False
    room.command("set", {"key": "redeal", "value": "on"})
    until(lambda: room.settings.redeal)


def test_gone_devices_are_not_here(rooms: Rooms, room: Room, shell: InteractiveShell) -> None:
    """What the deal still knows is nobody to wait with, to throw out, or to complete."""
    core = rooms.core
    [me, other] = core.status().devices
    gone = msgspec.structs.replace(other, gone=True, name="basement")
    on_loop(lambda: core.become("degraded", devices=[me, gone], sentence=DROPPED))
    with pytest.raises(NotReady, match="basement is not in the room"):
        room.kick("basement")
    _, names = shell.complete("", "%pooled kick ", 13)
    assert "basement" not in names
    job = room.start(devices=2, wait=False)
    until(lambda: room.progress[1].startswith("1 of 2 devices are here"))
    job.cancel()


def test_news_at_a_terminal(rooms: Rooms, room: Room) -> None:
    """A line for each thing that happens, none for each second; who comes back is said to be back."""
    core, said = rooms.core, list[str]()
    news = News(room, said.append)
    [me, other] = core.status().devices
    other = msgspec.structs.replace(other, name="basement")

    def become(state: Any, *, devices: list[DeviceLine], sentence: str) -> list[str]:
        on_loop(lambda: core.become(state, devices=devices, sentence=sentence))
        news.tell()
        told = list(said)
        said.clear()
        return told

    assert become("online", devices=[me, other], sentence="Online.") == ["+ basement is here", "Online."]
    silent = msgspec.structs.replace(other, silent_s=4, patience_s=15)
    assert become("waiting", devices=[me, silent], sentence=SILENT.format(4)) == [SILENT.format(4)]
    on_loop(lambda: core.on_notice(SILENT.format(5)))
    for n in (5, 6, 7):
        assert become("waiting", devices=[me, silent], sentence=SILENT.format(n)) == []
        on_loop(lambda n=n: core.on_notice(SILENT.format(n)))
    gone = msgspec.structs.replace(other, gone=True)
    counts = f"{DROPPED} Deals again by itself in {{}} s; %pooled redeal does it now."
    want = ["- basement is gone", f"{DROPPED} Deals again by itself in 60 s; /redeal does it now."]
    assert become("degraded", devices=[me, gone], sentence=counts.format(60)) == want
    assert become("degraded", devices=[me, gone], sentence=counts.format(59)) == []
    again = msgspec.structs.replace(other, id="z")
    assert become("online", devices=[me, again], sentence="Online.") == ["+ basement is here", "Online."]
    moved = msgspec.structs.replace(other, id="y")
    assert become("online", devices=[me, moved], sentence="Online.") == ["+ basement is back"]


def test_a_notice_that_counts_takes_its_own_place(rooms: Rooms, room: Room) -> None:
    """The newest notices are kept: a countdown is one of them, not sixty."""
    before = len(room.notices)
    for n in range(4, 15):
        on_loop(lambda n=n: rooms.core.on_notice(SILENT.format(n)))
    on_loop(lambda: rooms.core.on_notice("mira is here."))
    on_loop(lambda: rooms.core.on_notice(SILENT.format(4)))
    assert room.notices[before:] == [SILENT.format(14), "mira is here.", SILENT.format(4)]


def test_magics_for_it(shell: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    """``%pooled set --redeal``, ``redeal``, ``stop`` and ``status`` of a degraded room; tab knows them."""
    shell.run_line_magic("pooled", "host m")
    shell.run_line_magic("pooled", "start")
    shell.run_line_magic("pooled", "set --redeal off")
    out = capsys.readouterr().out
    assert "redeal      off (only when you say so)" in out
    assert rooms.core.settings.redeal is False
    assert shell.complete("", "%pooled set --redeal ", 21)[1] == ["on", "off"]
    assert "--after-answer" in shell.complete("", "%pooled leave --", 16)[1]
    change = {"sentence": DROPPED, "redeal_in": 42, "can": ["stop", "redeal"]}
    on_loop(lambda: rooms.core.become("degraded", **change))
    shell.run_line_magic("pooled", "status")
    assert "Deals again by itself in 42 s." in capsys.readouterr().out
    shell.run_line_magic("pooled", "stop")
    assert capsys.readouterr().out == ""  # an answer waits: there is something to stop
    shell.run_line_magic("pooled", "redeal")
    assert rooms.core.state == "online"
    rooms.core.may_go.set()
    shell.run_line_magic("pooled", "leave")


def test_a_plain_cell_shows_the_wait_and_keeps_no_word_of_it(rooms: Rooms, room: Room) -> None:
    """What ``%%ask`` shows where no panel can be: text, then why it waits; at the end only the text."""
    seen: list[str] = []

    class View(PlainWaiting):
        def draw(self, percent: int | None, words: str) -> None:
            seen.append(words)

    go = stalls(rooms)
    answer = room.stream("one two three four")
    threading.Timer(0.3, lambda: on_loop(go.set)).start()
    answer.result(view=View("asking"))
    assert f"one two \n\n{SILENT.format(4)}" in seen
    assert seen[-1] in ("one two three ", "one two three four ", f"one two \n\n{SILENT.format(4)}")
    assert "stopped responding" not in answer._repr_markdown_()
