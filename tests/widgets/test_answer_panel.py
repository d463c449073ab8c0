"""The panel of an answer over a scripted one: its text, Stop, and what follows it."""

from __future__ import annotations

import logging
import threading

import pytest

from pooled_nb.errors import NotReady
from pooled_nb.widgets.painter import painter
from tests.widgets.conftest import FakeComm, until
from tests.widgets.fakes import FakeAnswer
from tests.widgets.panels import answer_panel, of, text_of


def test_an_answer_streams_and_ends(comms: list[FakeComm]) -> None:
    """DESIGN section 7: messages of what is new, numbered; the trait holds all of it at the end."""
    answer = FakeAnswer("Why is the sky blue?")
    panel = answer_panel(answer)
    until(lambda: of(panel).state()["answer"]["state"] == "waiting")
    for n in range(40):
        answer.say(f"w{n} ")
        threading.Event().wait(0.004)
    until(lambda: text_of(of(panel)).endswith("w39 "))
    assert of(panel).state()["answer"]["state"] == "answering"
    answer.say("end")
    answer.end(line="57 tokens · 18.2 tokens/s")
    whole = "".join(f"w{n} " for n in range(40)) + "end"
    until(lambda: of(panel).state()["text"] == whole)
    until(lambda: of(panel).state()["answer"]["state"] == "done")
    assert of(panel).state()["answer"]["line"] == "57 tokens · 18.2 tokens/s"
    deltas = [m for m in of(panel).customs if "text" in m]
    assert [m["seq"] for m in deltas] == list(range(1, len(deltas) + 1))
    assert len(deltas) < 20
    assert {m["id"] for m in deltas} == {1}


def test_a_view_that_comes_late_or_misses_something_asks(comms: list[FakeComm]) -> None:
    """Late mount, gap, reconnect: the whole text and the number it includes."""
    answer = FakeAnswer()
    panel = answer_panel(answer)
    answer.say("one ")
    until(lambda: text_of(of(panel)) == "one ")
    of(panel).say(cmd="sync", id=1)
    until(lambda: of(panel).customs[-1:] == [{"id": 1, "seq": panel._stream.seq, "whole": "one "}])
    answer.end()
    until(lambda: of(panel).state()["answer"]["state"] == "done")
    of(panel).say(cmd="sync", id=1)
    until(lambda: len([m for m in of(panel).customs if "whole" in m]) == 2)
    assert painter.join(20)  # an answer that is whole needs no thread
    answer.end(can=())  # but what one may do with it may change
    until(lambda: of(panel).state()["answer"]["actions"] == [])


def test_stop_is_posted_once_there_is_something_to_stop(comms: list[FakeComm]) -> None:
    """A click may come late: then it does nothing."""
    answer = FakeAnswer()
    panel = answer_panel(answer)
    of(panel).say(cmd="stop")
    until(lambda: answer.stops == 1)
    answer.end("abort", can=())
    of(panel).say(cmd="stop")
    until(lambda: not panel._inbox)
    assert answer.stops == 1


@pytest.mark.parametrize(("cmd", "before"), [("continue", "It was"), ("regen", "")])
def test_it_follows_the_answer_that_comes_next(comms: list[FakeComm], cmd: str, before: str) -> None:
    """ai-cmd: after continue or regen the same panel shows the new answer, under a new id."""
    answer, follows = FakeAnswer(), FakeAnswer()
    answer.follows = follows
    panel = answer_panel(answer)
    answer.say("It was")
    answer.end("max")
    until(lambda: of(panel).state()["answer"]["state"] == "capped")
    of(panel).say(cmd=cmd)
    until(lambda: of(panel).state()["answer"]["id"] == 2)
    assert answer.asked == [cmd]
    assert answer.watchers == set()
    assert (of(panel).state()["text"], of(panel).state()["seq"]) == (before, 0)
    of(panel).say(cmd=cmd)  # it runs now, so the button is gone
    until(lambda: not panel._inbox)
    if before:
        follows.say(before, " night")
    else:
        follows.say("Another night")
    follows.end()
    until(lambda: of(panel).state()["answer"]["state"] == "done")
    want = f"{before} night" if before else "Another night"
    assert panel._repr_mimebundle_()[0]["text/plain"] == want
    assert text_of(of(panel)) == of(panel).state()["text"] == want
    assert answer.asked == [cmd]


def test_a_command_that_breaks_stops_no_painting(
    comms: list[FakeComm], caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a command raises, the panel goes on showing."""
    answer = FakeAnswer()
    panel = answer_panel(answer)
    answer.end("max")
    with caplog.at_level(logging.CRITICAL, logger="pooled_nb.widgets"):
        of(panel).say(cmd="continue")  # nothing follows: an assertion fails in the fake
        until(lambda: answer.asked == ["continue"])
        answer.end("max", line="3 tokens")
        until(lambda: of(panel).state()["answer"]["line"] == "3 tokens")


def test_why_a_button_did_nothing(comms: list[FakeComm]) -> None:
    """An error of a command is shown where it was pressed, until the next one works."""
    answer = FakeAnswer()
    answer.follows = NotReady("The room is loading.", "Wait until it is online.")
    panel = answer_panel(answer)
    answer.say("x")
    answer.end("max")
    until(lambda: of(panel).state()["answer"]["state"] == "capped")
    of(panel).say(cmd="continue")
    until(lambda: of(panel).state()["answer"]["problem"])
    assert of(panel).state()["answer"]["problem"] == "The room is loading. Wait until it is online."
    answer.follows = FakeAnswer()
    of(panel).say(cmd="continue")
    until(lambda: of(panel).state()["answer"]["id"] == 2)
    assert of(panel).state()["answer"]["problem"] == ""


def test_a_hidden_answer_shows_no_text(comms: list[FakeComm]) -> None:
    """ai-visibility: who may not see it gets none of it."""
    answer = FakeAnswer()
    answer.say("secret", hidden=True)
    panel = answer_panel(answer)
    answer.end(hidden=True)
    until(lambda: of(panel).state()["answer"]["state"] == "hidden")
    until(lambda: not painter._turns._due)
    assert "secret" not in str(of(panel).sent) + str(of(panel).opened)


def test_text_of_a_model_is_made_harmless(comms: list[FakeComm]) -> None:
    """Half a character, or a control character, must neither end a panel nor reach a page."""
    answer = FakeAnswer()
    panel = answer_panel(answer)
    answer.say("a\x1b[31m\ud83d", "b\x00c\nd\te")
    answer.end()
    until(lambda: of(panel).state()["text"])
    assert of(panel).state()["text"] == "a[31m?bc\nd\te"
