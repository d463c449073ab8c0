from typing import Any

import pytest

from pooled_nb.mesh.messages import chat
from pooled_nb.room.transcript import MAX_TEXT, Transcript


def test_an_exchange_is_built_from_its_messages() -> None:
    """PROTOCOL section 7: start, tokens, done; ``used`` tokens in the caches."""
    t = Transcript()
    assert t.read(chat.GenStart(mid=1, name="mira", text="Why?\nSay it."))
    assert t.answering == "mira"
    t.read(chat.Token(text="Be"))
    t.read(chat.Token(text="cause."))
    assert t.text == "Because."
    t.read(chat.GenDone(stats="2 tokens", ctx=chat.Used(used=9, max=64)))
    assert [(i.text, i.reply, i.stats) for i in t.items] == [("Why?\nSay it.", "Because.", "2 tokens")]
    assert (t.answering, t.text, t.used) == ("", "", 9)


def test_a_hidden_answer_leaves_no_text() -> None:
    """PROTOCOL section 7, ``ai-visibility``: the others get start and done without the text."""
    t = Transcript()
    t.read(chat.GenStart(mid=1, hidden=True))
    assert t.answering
    t.read(chat.GenDone(hidden=True))
    assert not t.items
    assert not t.answering


def test_history_and_reset() -> None:
    """PROTOCOL sections 6 and 7: a newcomer's history; a new chat clears the screen."""
    t = Transcript()
    t.read(chat.History(items=[chat.Exchange(text=str(i)) for i in range(30)]))
    assert [i.text for i in t.items] == [str(i) for i in range(10, 30)]
    t.read(chat.Reset())
    assert not t.items


def test_a_host_that_never_ends_does_not_fill_this_device() -> None:
    """Everything from the network is bounded."""
    t = Transcript()
    t.read(chat.GenStart(mid=1))
    for _ in range(4):
        t.read(chat.Token(text="x" * 400_000))
    assert len(t.text) == MAX_TEXT


ME = "me"


def said(t: Transcript, mid: int, text: str, *, reply: str = "r", **more: Any) -> None:
    done = {key: more.pop(key) for key in ("reason", "capped", "failed") if key in more}
    t.read(chat.GenStart(mid=mid, text=text, **{"asker": ME, **more}))
    t.read(chat.Token(text=reply))
    t.read(chat.GenDone(mid=mid, stats=f"s{mid}", **{"reason": "max", **done}))


def test_an_answer_that_goes_on_is_one_answer() -> None:
    """PROTOCOL section 7: `cont: 1` "continues the answer before"; the question need not come again."""
    t = Transcript()
    said(t, 1, "Why?", reply="Be", name="mira")
    t.read(chat.GenStart(mid=2, cont=True, asker="host"))
    assert t.text == "Be", "a screen shows it going on from there"
    t.read(chat.Token(text="cause"))
    t.read(chat.GenDone(mid=2, stats="all of it", reason="stop"))
    assert t.items == [chat.Exchange(name="mira", text="Why?", reply="Because", stats="all of it", mid=2)]
    assert t.newest == 2
    assert t.again(ME) == ["regen"], "it stays its asker's, and is finished"


def test_what_went_on_unseen_is_not_added_to_another_answer() -> None:
    """PROTOCOL section 7: after a hidden answer, or one missed from its start, nothing grows."""
    for missed in ([chat.GenStart(mid=2, hidden=True), chat.GenDone(mid=2, hidden=True)],
                   [chat.Token(text="tail"), chat.GenDone(mid=2)]):  # fmt: skip
        t = Transcript()
        said(t, 1, "Why?")
        for message in missed:
            t.read(message)
        assert t.again(ME) == []
        assert t.newest == 0
        t.read(chat.Regen())
        assert [i.text for i in t.items] == ["Why?"]
        said(t, 3, "And?", reply="x", cont=True)
        assert [(i.text, i.reply) for i in t.items] == [("Why?", "r")], "nor is its end shown as all of it"
        assert (t.newest, t.again(ME)) == (0, [])
        said(t, 4, "Then?", reply="y")
        assert [(i.text, i.reply) for i in t.items] == [("Why?", "r"), ("Then?", "y")]


def test_a_screen_that_shows_another_answer_last_keeps_it() -> None:
    """PROTOCOL section 7, *(nb)* `of` and `mid`: who came while fewer see has another last than the host."""
    t = Transcript()
    t.read(chat.History(items=[chat.Exchange(text="mine", reply="r", mid=3)]))
    t.read(chat.GenStart(mid=6, of=5, cont=True, name="mira", text="Why?", asker="m"))
    assert (t.answering, t.newest) == ("mira", 0)
    t.read(chat.Token(text="rest"))
    assert t.text == ""
    t.read(chat.GenDone(mid=6, stats="s"))
    t.read(chat.History(items=[chat.Exchange(text="mine", reply="r", mid=3)]))
    t.read(chat.Regen(mid=6))
    assert [i.text for i in t.items] == ["mine"]
    t.read(chat.GenStart(mid=4, of=3, cont=True))
    t.read(chat.Token(text="+"))
    t.read(chat.GenDone(mid=4))
    assert [(i.reply, i.mid) for i in t.items] == [("r+", 4)]
    t.read(chat.Regen(mid=4))
    assert t.items == []


def test_an_answer_made_anew_takes_the_place_of_the_newest() -> None:
    """PROTOCOL section 7, `ai-regen`: once; the exchange stays that of who asked."""
    t = Transcript()
    said(t, 1, "one")
    said(t, 2, "two")
    t.read(chat.Regen())
    t.read(chat.Regen())
    assert [i.text for i in t.items] == ["one"]
    assert t.again(ME) == []
    said(t, 3, "two", reply="anew", asker="host")
    assert [(i.text, i.reply, i.mid) for i in t.items] == [("one", "r", 1), ("two", "anew", 3)]
    assert t.again(ME) == ["continue", "regen"]
    assert t.again("host") == []


@pytest.mark.parametrize(
    ("done", "may"),
    [
        ({"reason": "max"}, ["continue", "regen"]),
        ({"reason": "abort"}, ["continue", "regen"]),
        ({"reason": None, "capped": True}, ["continue", "regen"]),
        ({"reason": "stop"}, ["regen"]),
        ({"reason": "ctx"}, ["regen"]),
        ({"reason": None, "failed": "no"}, ["regen"]),
        ({"reason": "strange"}, ["regen"]),
    ],
)
def test_what_makes_sense_with_the_newest(done: dict[str, Any], may: list[str]) -> None:
    """PROTOCOL section 7, `capped`: "it may be continued", by its asker, and while nothing else runs."""
    t = Transcript()
    said(t, 1, "Why?", **done)
    assert t.again(ME) == may
    assert t.again("another") == []
    assert t.again("") == []
    t.read(chat.GenStart(mid=2, asker="another"))
    assert t.again(ME) == []
    t.read(chat.Reset())
    assert t.again(ME) == []


def test_speed_is_remembered() -> None:
    """PROTOCOL section 7, `ai-gendone`: *(nb)* its numbers, where this device is told them."""
    t = Transcript()
    t.read(chat.GenStart(mid=1))
    t.read(chat.GenDone(mid=1, nb=chat.NbStats(tokens=11, ms=1_500, first_ms=500)))
    assert t.tps == 10
    t.read(chat.GenStart(mid=2, hidden=True))
    t.read(chat.GenDone(mid=2, hidden=True))
    assert t.tps == 10
