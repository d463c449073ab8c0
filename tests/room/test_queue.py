from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.room.queue import MAX_PER_DEVICE, MAX_WAITING, AskQueue, Entry, Refusal

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.sampled_from("abcdefgh")),
        st.tuples(st.just("begin"), st.just("")),
        st.tuples(st.just("end"), st.just("")),
        st.tuples(st.just("back"), st.sampled_from("abcdefgh")),
        st.tuples(st.just("drop"), st.sampled_from("abcdefgh")),
    ),
    max_size=80,
)


@settings(deadline=None, max_examples=200)
@given(ACTIONS)
def test_limits_and_order_hold(actions: list[tuple[str, str]]) -> None:
    """PROTOCOL section 7: one generation at a time, 10 waiting, 2 per device, first come first served."""
    queue: AskQueue[int] = AskQueue()
    model: list[tuple[str, int]] = []
    running = None
    for i, (what, who) in enumerate(actions):
        if what == "offer":
            got = queue.offer(Entry(who, None, i))
            full = len(model) >= MAX_WAITING or sum(a == who for a, _ in model) >= MAX_PER_DEVICE
            assert isinstance(got, Refusal) == full
            if not full:
                model.append((who, i))
                assert got == len(model)
        elif what == "begin":
            entry = queue.begin()
            if running is None and model:
                running = model.pop(0)
                assert entry is not None
                assert (entry.asker, entry.question) == running
            else:
                assert entry is None
        elif what == "end":
            queue.end()
            running = None
        elif what == "back":
            entry = queue.take_back(who)
            mine = [m for m in model if m[0] == who]
            assert (entry is None) == (not mine)
            if mine and entry:
                assert entry.question == mine[-1][1]
                model.remove(mine[-1])
        else:
            queue.drop(who)
            model = [m for m in model if m[0] != who]
        assert [(e.asker, e.question) for e in queue.waiting] == model


def test_the_running_question_is_not_counted() -> None:
    """PROTOCOL section 7: 2 waiting per device, the running one not counted."""
    queue: AskQueue[str] = AskQueue()
    queue.offer(Entry("a", None, "1"))
    assert queue.begin() is not None
    assert queue.offer(Entry("a", None, "2")) == 1
    assert queue.offer(Entry("a", None, "3")) == 2
    refusal = queue.offer(Entry("a", None, "4"))
    assert isinstance(refusal, Refusal)
    assert refusal.code == "queue"


def test_an_asker_that_comes_back_under_another_id_keeps_its_places() -> None:
    """PROTOCOL section 3, seats: nothing else moves, and an entry stays the one it was."""
    queue: AskQueue[str] = AskQueue()
    entries = [Entry(a, "r", a) for a in "abca"]
    for e in entries:
        queue.offer(e)
    queue.begin()
    queue.renamed("a", "z")
    assert [e.asker for e in (queue.running, *queue.waiting) if e] == ["z", "b", "c", "z"]
    assert [queue.place(e) for e in entries] == [0, 1, 2, 3]
    assert queue.running is entries[0]
    assert queue.take_back("a") is None
    assert queue.take_back("z") is entries[3]


def test_one_question_is_found_and_taken_back() -> None:
    """PROTOCOL section 7: ``ai-stop {rid?}`` names one question."""
    queue: AskQueue[str] = AskQueue()
    entries = [Entry(a, None, a) for a in "abc"]
    for e in entries:
        queue.offer(e)
    queue.begin()
    assert queue.waiting == (entries[1], entries[2])
    assert queue.find(lambda e: e.asker == "a") is entries[0], "the running one is found, too"
    assert not queue.remove(entries[0]), "but it does not wait"
    assert queue.remove(entries[1])
    assert {e.asker for e in queue.clear()} == {"c"}
    assert len(queue) == 0


def test_what_ran_before_a_restart_goes_first_and_counts_not() -> None:
    """PROTOCOL section 8, host resume: its asker sends all of its questions again, more than may wait."""
    queue: AskQueue[str] = AskQueue()
    waits = [Entry("b", "1", "b1"), Entry("a", "2", "a2"), Entry("a", "3", "a3")]
    assert queue.offer(waits[0]) == 1
    assert queue.offer(Entry("a", "1", "a1"), first=True) == 1
    assert [queue.offer(e) for e in waits[1:]] == [3, 4]
    assert isinstance(queue.offer(Entry("a", "4", "a4")), Refusal)
    assert [e.question for e in queue.waiting] == ["a1", "b1", "a2", "a3"]
