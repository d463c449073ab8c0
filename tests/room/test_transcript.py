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


def begin(t: Transcript, mid: int, text: str, *tokens: str, replay: bool = False, **more: Any) -> None:
    t.read(chat.GenStart(mid=mid, text=text, **{"asker": ME, **more}), replay=replay)
    for token in tokens:
        t.read(chat.Token(text=token, mid=mid))


def test_an_answer_that_ended_while_away_is_under_way_no_more() -> None:
    """PROTOCOL section 3: nobody says its end to who comes back; the history holds it."""
    t = Transcript()
    begin(t, 3, "Why?", "Be")
    t.back(ME, ME)
    assert (t.answering, t.text, t.under_way, t.newest) == ("", "", 0, 0)
    t.read(chat.History(items=[chat.Exchange(text="Why?", reply="Because", mid=3)]))
    assert t.newest == 3


def test_an_answer_under_way_starts_over_to_the_same_text() -> None:
    """PROTOCOL section 8: who comes back hears it from its beginning; whose it is does not change."""
    t = Transcript()
    said(t, 1, "Hi", asker="another")
    begin(t, 2, "Why?", "Be", "ca")
    t.back(ME, "me now")
    t.read(chat.History(items=list(t.items)))
    begin(t, 2, "Why?", "Becau", replay=True, asker="me now")
    assert (t.answering, t.text, t.under_way) == ("a question", "Becau", 2)
    t.read(chat.Token(text="se", mid=2))
    t.read(chat.GenDone(mid=2, reason="max"))
    assert [(i.mid, i.reply) for i in t.items] == [(1, "r"), (2, "Because")]
    assert t.again("me now") == ["continue", "regen"]
    # Once more without any break: the same answer is the same exchange.
    begin(t, 3, "And?", "x")
    begin(t, 3, "And?", "x", "y")
    t.read(chat.GenDone(mid=3))
    assert [(i.mid, i.reply) for i in t.items][1:] == [(2, "Because"), (3, "xy")]


def test_an_answer_made_anew_by_the_host_stays_its_askers() -> None:
    """PROTOCOL section 7, `ai-regen`: also where it is told again, to who comes back meanwhile."""
    t = Transcript()
    said(t, 1, "Why?")
    t.read(chat.Regen(mid=1))
    begin(t, 2, "Why?", "a", asker="host")
    t.back(ME, "me now")
    begin(t, 2, "Why?", "ab", asker="host")
    t.read(chat.GenDone(mid=2, reason="stop"))
    assert t.again("me now") == ["regen"]


def test_an_answer_that_goes_on_starts_over_from_where_it_went_on() -> None:
    """PROTOCOL section 7, `cont`: what is told again is what is new of it."""
    t = Transcript()
    said(t, 1, "Why?", reply="Be")
    begin(t, 2, "Why?", "ca", cont=True, of=1)
    t.back(ME, ME)
    t.read(chat.History(items=[chat.Exchange(text="Why?", reply="Be", mid=1)]))
    begin(t, 2, "Why?", "cau", cont=True, of=1, replay=True)
    assert t.text == "Becau"
    t.read(chat.Token(text="se", mid=2))
    t.read(chat.GenDone(mid=2))
    assert [(i.mid, i.reply) for i in t.items] == [(2, "Because")]


@pytest.mark.parametrize("busy", [False, True])
def test_a_replayed_answer_changes_nothing(busy: bool) -> None:
    """PROTOCOL section 7: the screen shows it already; what runs beside it goes on."""
    t = Transcript()
    said(t, 3, "Why?", reply="Because")
    if busy:
        begin(t, 4, "And?", "x", asker="another")
    before = list(t.items)
    begin(t, 3, "Why?", "Because", replay=True)
    t.read(chat.GenDone(mid=3, stats="again"))
    assert t.items == before
    if busy:
        t.read(chat.Token(text="y", mid=4))
        assert (t.text, t.under_way) == ("xy", 4)
        t.read(chat.GenDone(mid=4))
    assert t.newest == 3 + busy


def test_a_replayed_answer_that_is_not_shown_yet_takes_its_place() -> None:
    """PROTOCOL section 7: it ended while away, and no history came since the room is not online."""
    t = Transcript()
    said(t, 1, "Hi")
    begin(t, 2, "Why?", "Be")
    t.back(ME, ME)
    begin(t, 3, "And?", "x", asker="another")
    begin(t, 2, "Why?", "Because", replay=True)
    t.read(chat.GenDone(mid=2, stats="s"))
    t.read(chat.Token(text="y", mid=3))
    t.read(chat.GenDone(mid=3))
    assert [(i.mid, i.reply) for i in t.items] == [(1, "r"), (2, "Because"), (3, "xy")]


def test_a_history_leaves_the_newest_answer_its_askers() -> None:
    """PROTOCOL section 6, `ai-history`: who comes back may still continue what it asked."""
    t = Transcript()
    said(t, 2, "Why?")
    t.read(chat.History(items=list(t.items)))
    assert t.again(ME) == ["continue", "regen"]
    t.read(chat.History(items=[chat.Exchange(text="And?", mid=3)]))
    assert t.again(ME) == []


def test_a_host_that_counts_anew_has_another_chat() -> None:
    """PROTOCOL section 7: `mid` is a counter of the room: it never goes back in one chat."""
    t = Transcript()
    said(t, 1, "Why?")
    said(t, 2, "And?")
    t.back(ME, ME)
    said(t, 1, "Hello", reply="new")
    assert [(i.text, i.reply) for i in t.items] == [("Hello", "new")]
    assert t.newest == 1
