"""What may follow an answer, how a room answers, and what a panel may tell a room; over a scripted room."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

import pooled_nb
from pooled_nb.answer_output import leave
from pooled_nb.errors import BadOption, BadQuestion, NotReady, QueueFull
from pooled_nb.progress import Waiting
from pooled_nb.room.core import AskOptions, ChatSettings, Done, Started, Stats
from pooled_nb.room_view import Room
from pooled_nb.threads import mesh
from pooled_nb.widgets.sources import AnswerSource, RoomSource
from tests.front.scripted import Rooms


def until(so: Callable[[], bool]) -> None:
    """Wait until it is so."""
    end = time.monotonic() + 30
    while not so():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_options_of_a_question(rooms: Rooms) -> None:
    """PROTOCOL section 7: style, system, thinking and length belong to one question."""
    room = pooled_nb.host("m")
    room.ask("x", style="focused", system="Be brief.", thinking=True, fast=True, max_tokens=3)
    assert rooms.core.log[0] == "start fast"
    want = AskOptions(style="focused", system="Be brief.", thinking=True, fast=True, max_tokens=3)
    assert rooms.core.log[1] == ("ask", "x", want)
    room.ask("x", stop="END", logit_bias={5: -100}, min_p=0.1, repetition_penalty=1.1, presence_penalty=0.5)
    assert rooms.core.log.pop()[2] == AskOptions(
        stop=["END"], logit_bias={5: -100.0}, min_p=0.1, repetition_penalty=1.1, presence_penalty=0.5
    )
    with pytest.raises(BadQuestion):
        room.ask("x", style="hot")  # type: ignore[arg-type]
    assert len(rooms.core.log) == 2


def test_continue_goes_on_with_the_text(rooms: Rooms) -> None:
    """PROTOCOL section 7: `ai-cmd` continue; the text begins with what was there."""
    room = pooled_nb.host("m")
    rooms.core.done = Done(reason="max", stats=Stats(tokens=2), tokens=[1, 2])
    first = room.ask("one two")
    assert "stopped at its length" in first.summary()
    rooms.core.done = None
    seen: list[str] = []
    more = room.continue_(max_tokens=9, on_text=seen.append)
    assert rooms.core.log[-1] == ("continue", AskOptions(max_tokens=9))
    assert more.text == "one two and one two " == "".join(seen)
    assert (more.question, first.text, room.last) == ("one two", "one two ", more)


def test_what_another_asked_is_not_taken_for_ours(rooms: Rooms) -> None:
    """PROTOCOL section 7: the host may continue an answer that another device asked for."""
    room = pooled_nb.host("m")
    room.ask("mine")
    rooms.core.mid += 1  # another device's
    rooms.core.question = "theirs"
    for again in (room.continue_(), room.regenerate()):
        assert again.text.endswith("theirs ")
        assert "mine" not in again.text
    rooms.core.mid += 1
    assert room.continue_().question == ""


def test_an_answer_that_a_new_host_makes_again_may_be_continued(rooms: Rooms) -> None:
    """PROTOCOL section 8, host resume: it has another `mid` then, and its text goes on."""
    room = pooled_nb.host("m")
    rooms.core.done = Done(reason="max", stats=Stats(tokens=2), tokens=[1, 2])
    room.ask("one two")
    rooms.core.amid = {1: [Started(mid=7)]}
    more = room.continue_()
    assert (more.mid, more.question, more.text) == (7, "one two", "one two and one two ")
    rooms.core.mid = 7  # as its host counts
    rooms.core._set("online")
    until(lambda: more.facts().can == ("continue", "regen"))


def test_continue_stands_under_the_newest_answer_alone(rooms: Rooms) -> None:
    """PROTOCOL section 7: `ai-cmd` is about the room's newest answer, which may be another device's."""
    room = pooled_nb.host("m")
    mine = room.ask("mine")
    until(lambda: mine.facts().can == ("continue", "regen"))
    woken = threading.Event()
    mine.watch(woken.set)
    rooms.core.mid += 1  # another device's is the newest, and the host's person might continue that
    rooms.core._set("online")
    assert woken.wait(30)
    assert mine.facts().can == ()
    with pytest.raises(NotReady, match="not the room's newest"):
        mine.again("continue")
    later = room.ask("later")
    until(lambda: later.facts().can == ("continue", "regen"))
    assert mine.facts().can == ()
    rooms.core.refuse = QueueFull("Too many questions wait.", "Ask again in a moment.")
    with pytest.raises(QueueFull):
        room.ask("never begun")
    rooms.core.refuse = None
    assert later.facts().can == ("continue", "regen")  # it still is the newest
    assert room.continue_().text == "later and later "
    assert later.facts().can == ()


def test_an_answer_that_is_shown_elsewhere_says_so(rooms: Rooms) -> None:
    """PROTOCOL section 7: `ai-visibility` host: its asker sees no word of it, and is told where it is."""
    room = pooled_nb.join("4TK-G9P")
    rooms.core.done = Done(reason="stop", stats=Stats(), hidden=True)
    answer = room.ask("x")
    assert answer.hidden
    assert answer.summary() == "shown on the host's screen only"
    assert "screen only" in answer._repr_mimebundle_()["text/html"]
    rooms.core.done = None
    assert "screen" not in room.ask("x").summary()


def test_an_interrupt_while_an_answer_is_left_in_its_place() -> None:
    """DESIGN section 7: a finished `%%ask` is words, also where the interrupt came at its very end."""
    left: list[str] = []

    class View(Waiting):
        def finish(self, bundle: dict[str, str]) -> bool:
            left.append(bundle["text/plain"])
            if len(left) == 1:
                raise KeyboardInterrupt
            return True

    class Whole:
        def _repr_mimebundle_(self) -> dict[str, str]:
            return {"text/plain": "the answer"}

    with pytest.raises(KeyboardInterrupt):
        leave(View(), Whole())  # type: ignore[arg-type]
    assert left == ["the answer"] * 2


def test_who_interrupts_twice_is_told_the_truth(rooms: Rooms) -> None:
    """DESIGN section 7: what stays of an answer that was stopped, and not waited for, says that it was."""
    room = pooled_nb.host("m")
    rooms.core.endless = True
    live = room.stream("a b")
    until(lambda: live.text != "")
    assert "on its way" in live._repr_mimebundle_()["text/plain"]
    hold = threading.Event()
    rooms.core.stop = lambda: asyncio.to_thread(hold.wait)  # type: ignore[assignment, method-assign]
    live.stop()
    assert not live.done()
    assert live._repr_mimebundle_()["text/plain"].endswith("stopped")
    hold.set()
    rooms.core.stopped.set()
    assert live.result(30).reason == "abort"


def test_a_loop_over_an_answer_refuses_the_rooms_own_thread(rooms: Rooms) -> None:
    """DESIGN section 3: nothing of ours blocks the mesh loop."""
    room = pooled_nb.host("m")
    rooms.core.endless = True
    answer = room.stream("a b")

    async def read() -> None:
        next(iter(answer))

    with pytest.raises(pooled_nb.errors.RoomError, match="own network thread"):
        mesh.run(read())
    assert not answer.done()
    for piece in answer:
        assert piece == "a "
        break
    assert answer.result(30).reason == "abort"


def test_regenerate_makes_it_anew(rooms: Rooms) -> None:
    """PROTOCOL section 7: `ai-cmd` regen, with options of its own."""
    room = pooled_nb.host("m")
    with pytest.raises(NotReady, match="no answer yet"):
        room.regenerate()
    room.ask("one two")
    again = room.regenerate(style="creative", seed=3, wait=False).result()
    assert again.text == "one two "
    assert rooms.core.log[-1] == ("regen", AskOptions(style="creative", seed=3))
    room.regenerate(stop=[], presence_penalty=1.0)
    assert rooms.core.log[-1] == ("regen", AskOptions(stop=[], presence_penalty=1.0))


def test_settings_stay_until_they_are_set(rooms: Rooms) -> None:
    """PROTOCOL section 7: `ai-style`, `ai-visibility`, the length; what is not named stays."""
    room = pooled_nb.host("m")
    assert room.settings == ChatSettings()
    room.set(style="focused", max_tokens=128).set(visibility="asker", thinking=False)
    room.set(persona="expert", system="Be kind.")
    want = ChatSettings(
        style="focused",
        max_tokens=128,
        visibility="asker",
        thinking=False,
        persona="expert",
        system="Be kind.",
    )
    assert room.settings == want == room.status().settings
    with pytest.raises(TypeError, match="no 'color'"):
        room.set(color="red")  # type: ignore[call-overload]
    room.leave()
    with pytest.raises(pooled_nb.errors.RoomClosed):
        room.set(style="greedy")
    with pooled_nb.join("4TK-G9P") as guest, pytest.raises(NotReady):
        guest.set(style="greedy")


def test_redeal_needs_a_deal(rooms: Rooms) -> None:
    """PROTOCOL section 6: dealing anew is for a room that has been dealt."""
    room = pooled_nb.host("m")
    with pytest.raises(NotReady, match="Nothing is dealt yet"):
        room.redeal()
    room.start(fast=True)
    room.redeal()
    assert rooms.core.log == ["start fast", "start"]


def test_a_room_is_what_a_panel_sees(rooms: Rooms) -> None:
    """DESIGN section 7: a panel reads without waiting, and hears of changes on any thread."""
    rooms.wait_s = 0.2
    room: Room = pooled_nb.host("m", wait=False)
    source: RoomSource = room
    woken: list[str] = []
    end = source.watch(lambda: woken.append(threading.current_thread().name))
    room.result()
    status = source.seen()
    assert status is not None
    assert (status.state, source.role, source.left) == ("open", "host", False)
    rooms.core.on_notice("A device left.")  # type: ignore[misc]
    assert source.notices == ["A device left."]
    before = len(woken)
    assert before > 1
    end()
    room.start()
    assert len(woken) == before
    seen: list[bool] = []
    source.watch(lambda: seen.append(source.left))
    room.leave()
    assert seen[-1] is True
    over = source.seen()
    assert over is not None
    assert (over.state, over.can) == ("closed", [])


def test_a_view_that_fails_harms_no_room(rooms: Rooms) -> None:
    """DESIGN section 7: callbacks of widgets only post; one that raises is its own trouble."""
    room = pooled_nb.host("m")
    room.watch(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    assert room.ask("still").text == "still "


def test_commands_of_a_panel(rooms: Rooms) -> None:
    """DESIGN section 7: what a button says is posted; what is refused is heard as a notice."""
    room = pooled_nb.host("m")
    room.command("continue", {})
    until(lambda: room.notices == ["There is no answer yet. Ask first."])
    room.command("start", {})
    until(lambda: room.status().state == "online")
    room.command("set", {"style": "creative"})
    room.command("set", {"key": "max_tokens", "value": "short"})
    room.command("set", {"key": "thinking", "value": "off"})
    until(lambda: room.settings == ChatSettings(style="creative", max_tokens=128, thinking=False))
    rooms.core.state = "loading"
    room.command("redeal", {})
    until(lambda: room.notices[1:] == ["The room is not open. Wait."])
    rooms.core.state = "online"
    room.command("set", {"max_tokens": "endless"})
    room.command("set", {"colour": "red"})
    assert room.notices[2].startswith("'endless' is no length.")
    assert room.notices[3].startswith("There is no such setting.")
    room.command("dance", {})
    room.command("reset", {})
    until(lambda: "reset" in rooms.core.log)
    room.ask("a b")
    for what in ("regen", "continue"):
        last = room.last
        room.command(what, {})
        assert room.last is not last
        assert room.last is not None
        room.last.result(30)
    room.command("close", {})
    until(lambda: not mesh.running)
    assert room.left
    room.command("start", {})
    assert "This room is over." in room.notices[-1]


def test_a_command_before_it_is_open(rooms: Rooms) -> None:
    rooms.wait_s = 60
    room = pooled_nb.host("m", wait=False)
    room.command("start", {})
    assert "not open yet" in room.notices[-1]
    room.leave()


def test_an_answer_is_what_a_panel_sees(rooms: Rooms) -> None:
    """DESIGN section 7: pieces after those seen, facts beside them, and what may follow."""
    room = pooled_nb.host("m")
    rooms.core.endless = True
    live = room.stream("a b")
    source: AnswerSource = live
    woken = threading.Event()
    end = source.watch(woken.set)
    until(lambda: len(source.since(0)[0]) > 2)
    facts = source.facts()
    assert (facts.started, facts.reason, facts.line, facts.can) == (True, None, "", ("stop",))
    assert source.since(1)[0][0] == "b "
    assert woken.is_set()
    source.stop()
    live.result(30)
    rooms.core.endless = False
    until(lambda: source.facts().can == ("continue", "regen"))
    facts = source.facts()
    assert facts.reason == "abort"
    assert "stopped" in facts.line
    more = source.again("continue")
    until(lambda: more.since(0)[1])
    assert "".join(more.since(0)[0]) == "and a b "  # the panel has the rest already
    assert room.last is not None
    assert room.last.text == live.text + "and a b "
    assert source.facts().can == ()  # not the last answer any more
    end()


def test_an_answer_that_loads_first_says_how_far(rooms: Rooms) -> None:
    """DESIGN section 7: every wait shows progress, on the room's panel too."""
    room = pooled_nb.host("m")
    rooms.core.gap_s = 0.05
    live = room.stream("a")
    until(lambda: live.facts().loading is not None and live.facts().loading[0] is not None)
    assert "reading layers" in room.progress[1]
    live.result(30)
    assert live.facts().loading is None


def test_a_failed_answer_tells_why(rooms: Rooms) -> None:
    room = pooled_nb.host("m")
    rooms.core.done = Done(reason="error", stats=Stats(tokens=1), why="A device <left>.")
    live = room.stream("came so far")
    with pytest.raises(pooled_nb.errors.AnswerFailed):
        live.result(30)
    assert (live.facts().reason, live.facts().error) == ("error", "A device <left>.")
    bundle = live._repr_mimebundle_()
    assert bundle["text/plain"] == "came so far \n\nA device <left>.\n\n1 token"
    assert "A device &lt;left&gt;." in bundle["text/html"]
    assert "<left>" not in bundle["text/markdown"]


def test_a_length_in_words() -> None:
    from pooled_nb.room_commands import length

    assert [length(text) for text in ("short", "medium", "long", "77")] == [128, 512, 2048, 77]
    for text in ("", "tall", "-1", "1e3", "９", "9" * 30):
        with pytest.raises(BadOption):
            length(text)
