"""What a notebook keeps of a room that was open."""

from __future__ import annotations

import time

from pooled_nb import saved
from pooled_nb.room.core import ChatSettings, Status
from tests.front.test_show import device, room

AT = time.struct_time((2026, 11, 29, 21, 16, 0, 6, 333, 0))


def chain(*ranges: tuple[int, int], layers: int) -> Status:
    return room(*(device(f"d{n}", layers=each) for n, each in enumerate(ranges)), layers=layers, model="m")


def test_it_says_when_and_what_then() -> None:
    """The mock: a saved room says when it was saved, and what to do to open one."""
    want = "Saved 29 Nov 2026, 21:16; the room may be closed by now. Run the cell to open one."
    bundle = saved.bundle(chain((0, 16), (16, 26), (26, 36), layers=36), AT)
    for text in bundle.values():
        assert want.split(",")[0] in text
    assert want in bundle["text/plain"]
    assert "<script" not in bundle["text/html"]
    assert "<style" not in bundle["text/html"]


def test_the_chain_in_letters() -> None:
    """The mock: letters by layers, their numbers below, 1-based and inclusive (PROTOCOL section 1)."""
    above, below = saved.letters(chain((0, 16), (16, 26), (26, 36), layers=36)).splitlines()
    assert above.startswith("embed AAA")
    assert above.endswith("C · head")
    assert below.split() == ["1", "16", "17", "26", "27", "36"]
    for letter, first, last in (("A", "1", "16"), ("B", "17", "26"), ("C", "27", "36")):
        at, end = above.index(letter), above.rindex(letter) + 1
        assert below[at:end].split() == [first, last]
    assert above.count("A") > above.count("C") == above.count("B")
    one, two = saved.letters(chain((0, 1), (1, 2), layers=2)).splitlines()
    assert (one.count("A"), two.split()) == (24, ["1", "2"])


def test_the_letters_have_names() -> None:
    """The mock: letters stand for devices; names are text (CASES, names)."""
    status = room(
        device("b<i>", layers=(10, 30)), device("a", layers=(0, 10), role="host"), device("guest"), model="m"
    )
    assert saved.legend(status) == "A a (host) · B b<i>"
    bundle = saved.bundle(status, AT)
    assert "A a (host) · B b<i>" in bundle["text/plain"]
    assert "B b&lt;i&gt;</pre>" in bundle["text/html"]


def test_a_device_of_few_layers_has_room_for_its_numbers() -> None:
    """No number runs into another, however uneven the deal is."""
    above, below = saved.letters(chain((0, 118), (118, 119), (119, 120), layers=120)).splitlines()
    assert below.split() == ["1", "118", "119", "120"]
    assert len(below) <= len(above)


def test_nothing_dealt_has_no_chain() -> None:
    assert saved.letters(room(device("a"))) == ""
    assert "embed" not in saved.bundle(room(device("a")), AT)["text/plain"]


def test_it_keeps_nobodys_words() -> None:
    """DESIGN section 7: a saved notebook holds only this person's own exchanges, and no system text."""
    status = room(
        device("a"), answering="mira", queue=["ana"], settings=ChatSettings(system="be secret"), model="m"
    )
    for text in saved.bundle(status, AT).values():
        assert "mira" not in text
        assert "ana" not in text
        assert "be secret" not in text
    assert "One chat for the whole room" in saved.bundle(status, AT)["text/plain"]


def test_a_room_that_is_over_says_just_that() -> None:
    bundle = saved.bundle(room(state="closed", sentence="The room is closed."), AT)
    assert "Saved" not in bundle["text/plain"]
