from dataclasses import replace

from pooled_nb.room.conversation import SHOWN, Conversation, Last
from pooled_nb.room.core import AskOptions
from pooled_nb.shard import Sampling


def last(text: str = "one", reply: str = "uno", ids: tuple[int, ...] = (5, 6), **changes: object) -> Last:
    plain = Last(
        of=None,
        owner="m",
        name="mira",
        text=text,
        turns=[],
        options=AskOptions(),
        how=Sampling(),
        thinking=None,
        mode="all",
        mid=1,
        reply=reply,
        ids=list(ids),
        reason="max",
        used=9,
        stats="",
    )
    return replace(plain, **changes)  # type: ignore[arg-type]  # by keyword


def read(c: Conversation, text: str = "next") -> list[tuple[str, str]]:
    return [(t.role, t.text) for t in c.ask(text)]


def test_a_question_sees_what_was_said() -> None:
    """PROTOCOL section 7: the room's one chat; DESIGN section 5: answers keep their ids."""
    c = Conversation()
    c.answered(last(thinking=True))
    turns = c.ask("two", "Be brief.")
    assert [(t.role, t.text, t.ids, t.thinking) for t in turns] == [
        ("system", "Be brief.", None, None),
        ("user", "one", None, None),
        ("assistant", "uno", [5, 6], True),
        ("user", "two", None, None),
    ]
    assert len(c.ask("three")) == 3, "asking keeps nothing, and the system text is that question's"


def test_an_answer_without_tokens_is_shown_but_not_read() -> None:
    """An answer that failed, or had no token, leaves the model's conversation as it was."""
    c = Conversation()
    c.answered(last(ids=(), reply=""))
    c.answered(last(reason="error"))
    assert len(c.exchanges) == 2
    assert read(c, "two") == [("user", "two")]


def test_an_answer_grows() -> None:
    """PROTOCOL section 7, ``cont: 1``: "continues the answer before": one exchange, one turn."""
    c = Conversation()
    c.answered(last("zero", "nil"))
    c.answered(last())
    c.grown(last(reply="uno dos", ids=(5, 6, 7), mid=3))
    assert [(e.text, e.reply, e.mid) for e in c.exchanges] == [("zero", "nil", 1), ("one", "uno dos", 3)]
    assert read(c) == [("user", "zero"), ("assistant", "nil"), ("user", "one"), ("assistant", "uno dos"),
                       ("user", "next")]  # fmt: skip
    assert c.last is not None
    assert c.last.ids == [5, 6, 7]
    # Where it fails on the way, what is shown by then is right, and goes on being read.
    c.grown(last(reply="uno dos t", ids=(5, 6, 7, 8), reason="error"))
    assert read(c)[-2] == ("assistant", "uno dos t")


def test_the_newest_exchange_gives_way() -> None:
    """PROTOCOL section 7, ``ai-regen``: turns and exchange go; one never read takes no other along."""
    for reason in ("max", "error"):
        c = Conversation()
        c.answered(last("zero", "nil"))
        c.answered(last(reason=reason))
        assert [t.text for t in c.ask("one", anew=True)] == ["zero", "nil", "one"]
        c.drop_last()
        assert [e.text for e in c.exchanges] == ["zero"]
        assert read(c) == [("user", "zero"), ("assistant", "nil"), ("user", "next")]
        assert c.last is None


def test_a_newcomer_is_shown_the_last_twenty() -> None:
    """PROTOCOL section 6, ``ai-history``."""
    c = Conversation()
    for i in range(30):
        c.answered(last(str(i), mid=i))
    assert [e.text for e in c.seen_by("x", "all")] == [str(i) for i in range(10, 30)]
    assert len(c.exchanges) == SHOWN
    c.clear()
    assert not c.seen_by("x", "all")
    assert c.last is None


def test_a_newcomer_sees_what_it_may() -> None:
    """PROTOCOL section 7, ``ai-visibility``: by the rule of then, and by that of now."""
    c = Conversation()
    for mode in ("all", "asker", "host"):
        c.answered(last(mode, mode=mode))

    def seen(device: str, now: object) -> list[str]:
        return [e.text for e in c.seen_by(device, now)]  # type: ignore[arg-type]  # one of the modes

    assert seen("x", "all") == ["all"]
    assert seen("m", "all") == ["all", "asker"], "its own, back on a new link"
    assert seen("x", "asker") == []
    assert seen("m", "asker") == ["all", "asker"]
    assert seen("m", "host") == []


def test_an_owner_that_comes_back_under_another_id_owns_what_it_owned() -> None:
    """PROTOCOL section 3, seats: exchanges, and the newest answer, which it may continue."""
    c = Conversation()
    c.answered(last("one", owner="x", mode="asker"))
    c.answered(last("two", owner="y", mode="asker"))
    c.answered(last("three", owner="x", mode="asker"))
    newest = c.last
    c.renamed("x", "z")
    assert c.last is newest
    assert newest is not None
    assert newest.owner == "z"
    assert [e.text for e in c.seen_by("z", "all")] == ["one", "three"]
    assert c.seen_by("x", "all") == []


def test_of_each_turn_it_is_known_whose_it_is() -> None:
    """PROTOCOL section 8, host resume: what may be kept is known of turns, too, also of those not shown."""
    c = Conversation()
    for n in range(SHOWN + 2):
        c.answered(last(f"q{n}", owner=f"o{n}"))
    c.answered(last("no answer", ids=()))
    c.answered(last("part", owner="p"))
    c.grown(last("part", reply="uno due", owner="p"))
    assert [item.owner for item in c.read] == [*(f"o{n}" for n in range(SHOWN + 2)), "p"]
    assert len(c.turns) == 2 * len(c.read)
    c.drop_last()
    assert len(c.turns) == 2 * len(c.read) == 2 * (SHOWN + 2)
    c.clear()
    assert c.turns == c.read == []
