"""What all panels do: how they speak, what they hear, how they are shown and put away."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pooled_nb.widgets.answer_panel import AnswerPanel
from pooled_nb.widgets.painter import NAME, painter
from pooled_nb.widgets.room_panel import RoomPanel
from tests.widgets.conftest import FakeComm, until
from tests.widgets.fakes import STATIC, FakeAnswer, FakeRoom, status
from tests.widgets.panels import answer_panel, of, room_panel, text_of

VIEW = "application/vnd.jupyter.widget-view+json"


def test_unknown_keywords_are_refused(comms: list[FakeComm]) -> None:
    """ipywidgets takes any keyword in silence; ours do not."""
    with pytest.raises(TypeError):
        RoomPanel(FakeRoom(), fallback=lambda: STATIC, rooom={})  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        AnswerPanel(FakeAnswer(), fallback=lambda: STATIC, layout=None)  # type: ignore[call-arg]
    gc.collect()
    assert comms == []
    assert not painter.running


def test_the_first_state_comes_with_the_comm(comms: list[FakeComm]) -> None:
    """A view that is made at once has everything: code, style and state."""
    panel = room_panel(FakeRoom(status("online")))
    opened = of(panel).opened
    assert opened["room"]["code"] == "4TK-G9P"
    assert "export default" in opened["_esm"]
    assert opened["_css"]
    answer = answer_panel(FakeAnswer("Why?"))
    assert of(answer).opened["answer"]["question"] == "Why?"
    assert (of(answer).opened["text"], of(answer).opened["seq"]) == ("", 0)


def test_no_page_needs_the_network(comms: list[FakeComm]) -> None:
    """DESIGN section 7: no build step, no network at view time, text only as text."""
    for panel in (room_panel(FakeRoom()), answer_panel(FakeAnswer())):
        esm, css = of(panel).opened["_esm"], of(panel).opened["_css"]
        assert not any(word in esm for word in ("import(", "fetch(", "innerHTML", "eval("))
        assert "\nimport " not in esm
        assert "@import" not in css
        assert "url(http" not in css


def test_the_bundle_reads_well_without_a_kernel(comms: list[FakeComm]) -> None:
    """DESIGN section 7: the bundle always carries text/plain and text/html, as it is when it is shown."""
    now = dict(STATIC)
    panel = RoomPanel(FakeRoom(), fallback=lambda: now)
    data, _ = panel._repr_mimebundle_(include=None, exclude=None)
    assert data[VIEW]["model_id"] == of(panel).comm_id
    assert {key: data[key] for key in STATIC} == STATIC
    now["text/plain"] = "later"
    assert panel._repr_mimebundle_()[0]["text/plain"] == "later"
    panel.close()
    assert panel._repr_mimebundle_() == (now, {})  # no "model not found" in place of it


def test_a_static_form_that_fails_is_no_empty_cell(
    comms: list[FakeComm], caplog: pytest.LogCaptureFixture
) -> None:
    """Showing never fails."""

    def fail() -> dict[str, str]:
        raise ZeroDivisionError

    with caplog.at_level(logging.CRITICAL, logger="pooled_nb.widgets"):
        data, _ = RoomPanel(FakeRoom(), fallback=fail)._repr_mimebundle_()
    assert (data["text/plain"], data["text/html"]) == ("<RoomPanel>", "&lt;RoomPanel&gt;")


def test_close_frees_everything(comms: list[FakeComm]) -> None:
    """The comm manager is back at its baseline: the panel's own comm and its layout's."""
    from ipywidgets.widgets.widget import _instances

    before = set(_instances)
    room, answer = FakeRoom(status("online")), FakeAnswer()
    panels = [room_panel(room), answer_panel(answer)]
    assert len(comms) == 4
    for panel in panels:
        panel.close()
        panel.close()  # and again
    assert all(comm.closed for comm in comms)
    assert set(_instances) == before
    assert room.watchers == answer.watchers == set()
    assert painter.join(20)
    sent = [len(comm.sent) for comm in comms]
    answer.say("late")
    room.become(status("answering"))
    assert [len(comm.sent) for comm in comms] == sent
    panels[0].wake()  # a late wake neither says anything nor keeps the thread
    assert painter.join(20)
    assert [len(comm.sent) for comm in comms] == sent


def test_traits_are_set_by_the_painter_alone(comms: list[FakeComm]) -> None:
    """CASES: traits set from a network thread. Whoever changes something only posts."""
    room, answer = FakeRoom(status("online")), FakeAnswer()
    panels = [room_panel(room), answer_panel(answer)]

    def network() -> None:
        for n in range(20):
            room.become(status("answering" if n % 2 else "online", used=n))
            answer.say("word ")

    thread = threading.Thread(target=network, name="pooled-mesh")
    thread.start()
    thread.join()
    panels[0].room = {"v": 1}  # a person may try
    until(lambda: text_of(of(panels[1])) == "word " * 20)
    until(lambda: of(panels[0]).state()["room"].get("v") == 1)
    assert {name for comm in comms for name, _ in comm.sent} == {NAME}


def test_a_page_sets_nothing(comms: list[FakeComm]) -> None:
    """Traits go one way; what is no message of ours is not heard, and nothing is echoed."""
    room = FakeRoom(status("online", can=["stop"]))
    panel = room_panel(room)
    until(lambda: not painter._turns._due)
    sent = len(of(panel).sent)
    of(panel).receive({"method": "update", "state": {"room": {"code": "EVIL"}}, "buffer_paths": []})
    for data in (
        None,
        {},
        {"method": "custom", "content": [1]},
        {"method": "custom", "content": {"cmd": {}}},
    ):
        of(panel).receive(data)
    of(panel).say(cmd="eval", key="x", value="__import__('os')")
    of(panel).say(cmd="stop")  # heard, but not offered in this state
    until(lambda: not panel._inbox)
    assert panel.room["code"] == "4TK-G9P"
    assert room.commands == []
    assert len(of(panel).sent) == sent


def test_a_reloaded_page_hears_everything_again(comms: list[FakeComm]) -> None:
    """A frontend that asks for the state gets it, from the painter's thread; many asks are one answer."""
    panel = room_panel(FakeRoom(status("online")))
    until(lambda: not painter._turns._due)
    for _ in range(20):
        of(panel).receive({"method": "request_state"})
    until(lambda: any("_esm" in update for update in of(panel).updates))
    whole = [update for update in of(panel).updates if "_esm" in update]
    assert len(whole) <= 2
    assert whole[0]["room"]["code"] == "4TK-G9P"


def test_a_flood_of_clicks_is_bounded(comms: list[FakeComm]) -> None:
    """Messages of a browser wait in a short queue; the rest is dropped."""
    room = FakeRoom(status("answering", can=["stop"]))
    panel = room_panel(room)
    with panel._traits_lock:  # the painter is busy
        for _ in range(5_000):
            of(panel).say(cmd="stop")
        assert len(panel._inbox) <= 32
    until(lambda: not panel._inbox)
    assert 1 <= len(room.commands) <= 33


def test_a_page_that_closes_its_end_gets_another(comms: list[FakeComm]) -> None:
    """CASES: a panel closed and shown again in the middle of an answer: the full text and the live tail."""
    answer = FakeAnswer()
    panel = answer_panel(answer)
    answer.say("one ")
    first = of(panel)
    until(lambda: text_of(first) == "one ")
    first.close_by_page()
    answer.say("two ")
    assert answer.watchers == set()
    panel._repr_mimebundle_()
    again = of(panel)
    assert again is not first
    again.say(cmd="here")
    again.say(cmd="sync", id=1)
    answer.say("three")
    until(lambda: any("whole" in message for message in again.customs))
    answer.end()
    until(lambda: again.state()["text"] == "one two three")


def test_viewed_once_a_view_says_so(comms: list[FakeComm]) -> None:
    """No frontend, no view: the cell then tells its progress in another way."""
    panel = answer_panel(FakeAnswer())
    assert not panel.viewed
    of(panel).say(cmd="here")
    assert panel.viewed


EXIT = """
import threading, time
from tests.widgets.fakes import FakeAnswer, FakeRoom, status
from tests.widgets.panels import answer_panel, room_panel
answer, room = FakeAnswer(), FakeRoom(status("online"))
panels = [answer_panel(answer), room_panel(room)]
def feed():
    for n in range(10**9):
        answer.say("x ")
        room.become(status("answering" if n % 2 else "online", used=n))
        time.sleep(0.001)
threading.Thread(target=feed, daemon=True).start()
time.sleep(0.3)
"""


def test_a_process_ends_while_panels_are_painted() -> None:
    """The thread neither keeps the interpreter nor complains when that ends under it."""
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", EXIT], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_says_nothing(comms: list[FakeComm], in_child: Callable[..., bool]) -> None:
    """A fork copies the panel, not its room nor its thread: the child's copy is silent."""
    room, whole = FakeRoom(status("online")), FakeAnswer()
    panel, resting = room_panel(room), answer_panel(whole)
    whole.end()
    until(lambda: of(resting).state()["answer"]["state"] == "done")
    until(lambda: resting not in painter._panels)

    def child() -> bool:
        sent = len(of(panel).sent) + len(of(resting).sent)
        room.become(status("answering"))
        whole.end("max")
        of(resting).say(cmd="sync", id=1)
        panel.room = {"v": 2}
        panel.close()
        said = len(of(panel).sent) + len(of(resting).sent)
        return not painter.running and said == sent and not of(panel).closed

    assert in_child(child)
    room.become(status("answering"))
    until(lambda: of(panel).state()["room"]["state"] == "answering")
