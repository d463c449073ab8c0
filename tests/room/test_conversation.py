from pooled_nb.room.conversation import SHOWN, Conversation


def test_a_question_sees_what_was_said() -> None:
    """PROTOCOL section 7: the room's one chat; DESIGN section 5: answers keep their ids."""
    c = Conversation(system="Be brief.")
    c.answered("one", "uno", [5, 6], name="mira", mid=1, stats="")
    turns = c.ask("two")
    assert [(t.role, t.text, t.ids) for t in turns] == [
        ("system", "Be brief.", None),
        ("user", "one", None),
        ("assistant", "uno", [5, 6]),
        ("user", "two", None),
    ]
    assert len(c.ask("three")) == 4, "asking keeps nothing"


def test_an_answer_without_tokens_is_shown_but_not_read() -> None:
    """An answer that failed at once leaves the model's conversation as it was."""
    c = Conversation()
    c.answered("one", "", [], name="mira", mid=1, stats="failed")
    assert len(c.exchanges) == 1
    assert [t.text for t in c.ask("two")] == ["two"]


def test_a_newcomer_is_shown_the_last_twenty() -> None:
    """PROTOCOL section 6, ``ai-history``."""
    c = Conversation()
    for i in range(30):
        c.answered(str(i), "r", [1], name="n", mid=i, stats="")
    assert [e.text for e in c.recent()] == [str(i) for i in range(10, 30)]
    assert len(c.recent()) == SHOWN
    c.clear()
    assert not c.recent()
