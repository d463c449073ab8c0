"""An answer's text on its way to its views: whatever is lost, however late a view comes, it ends whole."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.widgets.stream import BYTES_PER_S, DELTA_S, MOST, TEXT_S, Sent, Stream


class View:
    """A view as its JavaScript is: traits now and then, pieces every 50 ms, the whole after a gap."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.id = self.seq = -1
        self.text = ""
        self.missed_traits = False
        self.mount()

    def mount(self) -> None:
        """Made, or its page has come back: it reads the model and asks for the whole."""
        self.traits(*self.kernel.state)
        self.missed_traits = False
        self.kernel.stream.sync()

    def traits(self, id: int, text: str, seq: int) -> None:
        if id != self.id or seq >= self.seq:
            self.id, self.text, self.seq = id, text, seq

    def message(self, m: dict[str, Any]) -> None:
        if m["id"] != self.id:
            return
        if "whole" in m:
            if m["seq"] >= self.seq:
                self.text, self.seq = m["whole"], m["seq"]
        elif m["seq"] == self.seq + 1:
            self.text, self.seq = self.text + m["text"], m["seq"]
        elif m["seq"] > self.seq:
            self.kernel.stream.sync()


class Kernel:
    """The panel's side: one stream, the traits as they are, and the views."""

    def __init__(self) -> None:
        self.stream = Stream(1)
        self.now = 0.0
        self.said = ""
        self.state = (1, "", 0)
        self.views: list[View] = []
        self.messages: list[dict[str, Any]] = []
        self.whole: list[tuple[float, int]] = []

    def paint(self, lost: set[int]) -> None:
        """Send what is due; views of these numbers miss it."""
        while (due := self.stream.due()) is not None and due <= self.now:
            sent = self.stream.take(self.now)
            self.deliver(sent, lost)

    def deliver(self, sent: Sent, lost: set[int]) -> None:
        self.messages += sent.messages
        self.whole += [(self.now, len(m["whole"].encode())) for m in sent.messages if "whole" in m]
        if sent.traits is not None:
            self.state = (self.stream.id, *sent.traits)
            self.whole.append((self.now, len(sent.traits[0].encode())))
        for n, view in enumerate(self.views):
            if n in lost:
                view.missed_traits |= sent.traits is not None
                continue
            if sent.traits is not None:
                view.traits(*self.state)
            for message in sent.messages:
                view.message(message)
            if view.id == self.stream.id:
                assert self.said.startswith(view.text)

    def follow(self, how: str) -> None:
        """It is continued, or made anew: its own pieces then begin with what was there, or with nothing."""
        self.said = self.stream.text if how == "continue" else ""
        self.stream = Stream(self.stream.id + 1, self.said)
        self.stream.add([self.said])

    def run_dry(self) -> None:
        while (due := self.stream.due()) is not None:
            self.now = max(self.now + 0.001, due)
            self.paint(set())


step = st.fixed_dictionaries(
    {
        "after": st.sampled_from([0.0, 0.001, 0.02, 0.05, 0.3, 1.5]),
        "pieces": st.lists(st.text(max_size=6), max_size=3),
        "mount": st.booleans(),
        "again": st.integers(0, 9),
        "follow": st.sampled_from([*[""] * 12, "continue", "regen"]),
        "lost": st.sets(st.integers(0, 3)),
    }
)


@settings(max_examples=300, deadline=None)
@given(st.lists(step, max_size=40), st.text(max_size=5))
def test_every_view_ends_with_exactly_the_text(steps: list[dict[str, Any]], last: str) -> None:
    """DESIGN section 7: a view that mounts late or sees a gap in seq asks again, and all end the same."""
    kernel = Kernel()
    for one in steps:
        kernel.now += one["after"]
        if one["follow"]:
            kernel.follow(one["follow"])
        kernel.said += "".join(one["pieces"])
        kernel.stream.add(one["pieces"])
        if one["mount"] and len(kernel.views) < 4:
            kernel.views.append(View(kernel))
        elif one["again"] < len(kernel.views):
            kernel.views[one["again"]].mount()
        kernel.paint(one["lost"])
    kernel.said += last
    kernel.stream.add([last])
    kernel.stream.end()
    kernel.run_dry()
    for view in kernel.views:
        # A page that missed traits was away: coming back it reads the model.
        if view.missed_traits:
            view.mount()
    kernel.run_dry()
    assert [view.text for view in kernel.views] == [kernel.said] * len(kernel.views)
    assert kernel.state == (kernel.stream.id, kernel.said, kernel.stream.seq)
    deltas = [m["seq"] for m in kernel.messages if "text" in m and m["id"] == kernel.stream.id]
    assert deltas == list(range(1, len(deltas) + 1))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 0.2), st.integers(0, 50_000)), max_size=60))
def test_long_texts_are_sent_whole_more_seldom(steps: list[tuple[float, int]]) -> None:
    """Bytes a second are bounded however long the text and however often a view asks."""
    kernel = Kernel()
    kernel.paint(set())
    for after, size in steps:
        kernel.now += after
        kernel.stream.add(["x" * size])
        kernel.stream.sync()
        kernel.paint(set())
    longest = sum(size for _, size in steps)
    spent = sum(size for _, size in kernel.whole)
    assert spent <= BYTES_PER_S * kernel.now + 2 * longest


def test_a_long_text_is_not_sent_every_second() -> None:
    """400 KB: a trait at the start, then none for two seconds."""
    stream = Stream(1)
    stream.take(0.0)
    stream.add(["x" * 400_000])
    stream.take(0.1)
    assert stream.take(1.0).traits is not None
    times = []
    for tenth in range(11, 100):
        stream.add(["y"])
        if stream.take(tenth / 10).traits is not None:
            times.append(tenth / 10)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert min(gaps) >= 400_000 / BYTES_PER_S
    assert times


def test_the_rhythm() -> None:
    """DESIGN section 7: a message every 50 ms; the trait at the start, about every second, at the end."""
    stream = Stream(1)
    first = stream.take(0.0)
    assert first == Sent(traits=("", 0))
    deltas, traits = [], []
    for tick in range(1, 301):  # 3 s, a piece every 10 ms
        now = tick / 100
        stream.add(["ab"])
        sent = stream.take(now)
        deltas += [now for m in sent.messages]
        traits += [now for _ in (sent.traits or ())][:1]
    gaps = [round(b - a, 3) for a, b in itertools.pairwise(deltas)]
    assert min(gaps) >= DELTA_S
    assert len(deltas) <= 3 / DELTA_S + 1
    assert len(traits) <= 3 / TEXT_S + 1
    stream.add(["end"])
    stream.end()
    last = stream.take(3.001)
    assert [m["text"][-5:] for m in last.messages] == ["abend"]
    assert last.traits == ("ab" * 300 + "end", stream.seq)
    assert stream.due() is None
    assert stream.take(9.0) == Sent()


def test_a_view_that_asks_gets_the_whole() -> None:
    """An answer to a sync: the whole text and the number it includes, also after the end."""
    stream = Stream(7)
    stream.add(["one "])
    stream.take(0.0)
    stream.add(["two"])
    stream.end()
    stream.take(0.1)
    stream.sync()
    sent = stream.take(0.2)
    assert sent.messages == ({"id": 7, "seq": 2, "whole": "one two"},)


def test_a_text_without_an_end_is_cut() -> None:
    """Everything from the network is bounded: what no context could hold is not kept."""
    stream, piece = Stream(1, "kept "), "x" * 300_000
    stream.add(["kept "])
    for n in range(20):
        stream.add([piece, piece])
        stream.take(float(n))
    assert len(stream.text) == MOST
    stream.end()
    assert stream.text.startswith("kept x")


def test_a_continued_answer_begins_with_what_was_there() -> None:
    """The text stands while its continuation is waited for, and is sent once."""
    stream = Stream(2, "It was a dark ")
    assert stream.take(0.0).traits == ("It was a dark ", 0)
    stream.add(["It was a "])  # its own first piece, of which the kept text is the whole
    assert stream.take(1.0) == Sent()
    assert stream.text == "It was a dark "
    stream.add(["dark and stormy"])
    sent = stream.take(2.0)
    assert sent.messages == ({"id": 2, "seq": 1, "text": "and stormy"},)
    assert stream.text == "It was a dark and stormy"


def test_a_continuation_of_another_text_takes_its_place() -> None:
    """What turns out to be another answer's text is another answer to the views."""
    stream = Stream(2, "mine")
    stream.take(0.0)
    stream.add(["theirs"])
    assert stream.id == 3
    assert stream.take(0.1).traits == ("theirs", 0)
    stream.add(["!"])
    assert stream.take(0.2).messages == ({"id": 3, "seq": 1, "text": "!"},)
    short = Stream(2, "mine")
    short.take(0.0)
    short.add(["mi"])
    short.end()
    assert (short.id, short.text) == (3, "mi")
    nothing = Stream(2, "mine")
    nothing.take(0.0)
    nothing.end()
    assert (nothing.id, nothing.text) == (2, "mine")
