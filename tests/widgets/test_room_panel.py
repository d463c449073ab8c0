"""The panel of a room over a scripted one: what leaves for the browser, what is heard from it."""

from __future__ import annotations

import threading

from pooled_nb.widgets.painter import NAME, painter
from tests.widgets.conftest import FakeComm, until
from tests.widgets.fakes import FakeRoom, status
from tests.widgets.panels import of, room_panel


def test_a_room_from_opening_to_closed(comms: list[FakeComm]) -> None:
    """Each state reaches the page; the last one has no dead buttons."""
    room = FakeRoom(None, role=None)
    panel = room_panel(room)
    assert panel.room["state"] == "opening"
    room.progress = (40, "finding the model")
    room.changed()
    until(lambda: of(panel).state()["room"]["say"]["about"] == "Finding the model, 40 %.")
    room.role = "host"
    for state in ("open", "loading", "online", "answering", "waiting", "degraded", "away"):
        room.become(status(state))
        until(lambda want=state: of(panel).state()["room"]["state"] == want)
    numbers = of(panel).state()["room"]["numbers"]
    room.now = status("closed", [])  # its devices are gone
    room.left = True
    room.changed()
    until(lambda: of(panel).state()["room"]["state"] == "closed")
    assert of(panel).state()["room"]["actions"] == []
    assert of(panel).state()["room"]["numbers"] == numbers != []
    of(panel).say(cmd="redeal")
    of(panel).say(cmd="set", key="style", value="focused")
    until(lambda: not panel._inbox)
    assert room.commands == []
    # Nothing changes any more, so the thread ends; a page that is reloaded is still answered.
    assert painter.join(20)
    of(panel).receive({"method": "request_state"})
    until(lambda: "_esm" in of(panel).updates[-1])
    assert painter.join(20)


def test_buttons_and_settings_are_posted(comms: list[FakeComm]) -> None:
    """What a button says becomes a command, from the painter's thread, and only what is offered now."""
    room = FakeRoom(status("open", can=["start", "set"]))
    panel = room_panel(room)
    for said in (
        {"cmd": "start"},
        {"cmd": "set", "key": "max_tokens", "value": "2048"},
        {"cmd": "set", "key": "thinking", "value": "off"},
        {"cmd": "set", "key": "system", "value": "evil"},
        {"cmd": "set", "key": "style", "value": "wild"},
        {"cmd": "redeal"},
        {"cmd": "close"},
    ):
        of(panel).say(**said)
    until(lambda: not panel._inbox)
    assert room.commands == [
        ("start", {}, NAME),
        ("set", {"max_tokens": 2048}, NAME),
        ("set", {"thinking": False}, NAME),
    ]


def test_numbers_are_painted_four_times_a_second(comms: list[FakeComm]) -> None:
    """A status that changes with every token is not sent with every token; a new state is, at once."""
    room = FakeRoom(status("answering", used=0))
    panel = room_panel(room)
    stop = threading.Event()

    def count() -> None:
        used = 0
        while not stop.wait(0.002):
            used += 1
            room.become(status("answering", used=used))

    thread = threading.Thread(target=count)
    thread.start()
    threading.Event().wait(1.0)
    stop.set()
    thread.join()
    assert len(of(panel).updates) <= 8
    room.become(status("online", used=7_000))
    until(lambda: of(panel).state()["room"]["state"] == "online")
    assert of(panel).state()["room"]["numbers"][1]["value"] == "7,000"


def test_a_hundred_devices(comms: list[FakeComm]) -> None:
    """A big room is one message, and not a big one."""
    from tests.widgets.fakes import device, studio

    many = [studio((0, 1)), *(device(f"d{i}" * 60, (i + 1, i + 2)) for i in range(300))]
    panel = room_panel(FakeRoom(status("online", many, layers=301)))
    assert len(panel.room["chain"]) == 100
