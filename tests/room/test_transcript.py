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
