"""How a room and an answer look; what others wrote stays text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from pooled_nb import show
from pooled_nb.plain import visible
from pooled_nb.progress import EVERY_S, PlainWaiting, Waiting, bar
from pooled_nb.room.core import DeviceLine, Stats, Status
from pooled_nb.status import Status as Shown


def room(*devices: DeviceLine, **options: object) -> Status:
    facts: dict[str, object] = {"code": "4TKG9P", "state": "online", "sentence": "Online.", "layers": 30}
    return Status(**(facts | options), devices=list(devices))  # type: ignore[arg-type]


def device(name: str, **options: object) -> DeviceLine:
    facts: dict[str, object] = {"id": name, "role": "worker", "kind": "cpu", "lends_gb": 1.5}
    return DeviceLine(name=name, **(facts | options))  # type: ignore[arg-type]


def test_layers_are_shown_from_one_and_inclusive() -> None:
    """PROTOCOL section 1: 0-based, hi exclusive in code; people are shown 1-based, inclusive."""
    text = show.status_text(
        room(device("a", layers=(0, 10), me=True), device("b", layers=(10, 11)), device("c", out="unneeded"))
    )
    lines = text.splitlines()
    assert lines[0] == "Room 4TK-G9P: Online."
    assert "layers 1–10" in next(line for line in lines if line.startswith("a (this device)"))
    assert "11" in next(line for line in lines if line.startswith("b"))
    assert "none: not needed" in next(line for line in lines if line.startswith("c"))


def test_how_a_room_computes_is_said() -> None:
    """DESIGN section 5: int8 caches are a class of exactness of their own; drafts only save time."""
    for kv, drafts, words in (
        ("f16", "", "m · 30 layers"),
        ("q8", "", "m · 30 layers · caches in int8"),
        ("f16", "model", "m · 30 layers · drafts by a small model"),
        ("q8", "layers", "m · 30 layers · caches in int8 · drafts by the model's own layers"),
        ("<b>", "<b>", "m · 30 layers"),
    ):
        text = show.status_text(room(model="m", label="m", kv=kv, drafts=drafts))
        assert text.splitlines()[1] == words


def test_what_this_device_computes_with() -> None:
    """DESIGN section 5: where the engine's own layers lie and how they run is said, and never as markup."""
    runs = "cuda:0 (24 layers) · CUDA graphs"
    text = show.status_text(room(model="m", label="m", runs=runs))
    assert text.splitlines()[2] == f"Computes here: {runs}"
    assert "Computes here" not in show.status_text(room(model="m", runs=""))
    assert "Computes here" not in show.status_text(room(model="m", runs=runs, state="closed"))
    shown = show.status_bundle(room(model="m", runs="<b>x</b>\x1b[2J"))
    assert "<b>x" not in shown["text/html"]
    assert "\x1b" not in shown["text/plain"]


def test_what_is_known_of_a_link() -> None:
    """CASES, Devices: the wire's time as it is measured; what says nothing is not shown."""
    me = device("a", layers=(0, 10), me=True)
    far = {"rtt_ms": 18.0, "rtt_p95_ms": 41.0, "loss": 0.012, "stripes": 3, "wanted": 3, "path": "direct"}
    status = room(me, device("<b>", layers=(10, 30), **far), device("c", rtt_ms=0.4, loss=0.0))
    row, quiet = show.status_text(status).splitlines()[-2:]
    assert row.endswith("18 ms (at times 41) · direct · 1.2 % lost · 4 connections")
    assert quiet.endswith("0.4 ms")
    assert "slower" not in show.status_text(status)
    lossy = room(me, device("<b>", layers=(10, 30), **(far | {"loss": 0.08})))
    for shown in show.status_bundle(lossy).values():
        assert shown.count("so answers are slower") == 1
    assert "<b>" not in show.status_html(lossy)
    loading = room(me, device("b", layers=(10, 30), loss=0.08), state="loading")
    assert "slower" not in show.status_text(loading), "no answer waits for it yet"


@pytest.mark.parametrize("out", ["unneeded", "small", "late", "another"])
def test_the_codes_of_the_wire_are_not_shown(out: str) -> None:
    """PROTOCOL section 6: `out` says why in a word; people read a sentence, and no word of a stranger."""
    status = room(device("x", out=out))
    for shown in show.status_bundle(status).values():
        assert "none" in shown
        assert out not in shown.replace("not needed", "")


@pytest.mark.parametrize(
    ("server", "here"),
    [
        ("", True),
        ("local", True),
        ("ws://127.0.0.1:9000/", True),
        ("ws://127.0.0.2:9000/", True),
        ("ws://[::1]:9000/", True),
        ("ws://localhost:9000/", True),
        ("localhost:9000", True),
        ("ws://lab.local:9000/", False),
        ("wss://signal.localhost.run/", False),
        ("wss://localhost.example.org/", False),
        ("ws://192.168.1.5:9000/", False),
        ("wss://127.0.0.1.example.org/", False),
        ("cloud", False),
        ("wss://example.org/local", False),
    ],
)
def test_the_line_to_type_elsewhere(server: str, here: bool) -> None:
    """DESIGN section 1: the host prints the exact line to type elsewhere, server and all."""
    line = show.how_to_join(room(signaling=server))
    if here:
        assert line.startswith("On this machine: %pooled join 4TK-G9P in")
        assert "--signal" not in line
    else:
        assert line.startswith("Elsewhere: ")
        assert f"%pooled join 4TK-G9P --signal {server} in" in line
        assert f"pooled-nb join 4TK-G9P --signal {server} in" in line


def test_every_bundle_has_text_and_html() -> None:
    """DESIGN section 7: _repr_mimebundle_ always carries text/plain and text/html."""
    for bundle in (
        show.status_bundle(room(device("a"))),
        show.answer_bundle("hello", "1 token"),
        show.line_bundle("words"),
        Shown(code="", state="closed", sentence="Over.")._repr_mimebundle_(),
    ):
        assert bundle["text/plain"]
        assert bundle["text/html"]


def test_names_are_text_not_markup() -> None:
    """CASES: `<script>` in a name is shown as text."""
    status = room(device("<script>alert(1)</script>"), device("a|b*c*"), model="<b>m</b>", label="<b>m</b>")
    page = show.status_html(status)
    assert "<script>" not in page
    assert "<b>" not in page
    table = show.status_markdown(status)
    assert r"a\|b\*c\*" in table
    assert "<script>" not in table


def test_a_table_is_as_wide_as_it_is_drawn() -> None:
    """CASES: names in any script; columns stand below each other where one letter takes two cells."""
    text = show.status_text(room(device("日本語"), device("abc"), device("e\u0301a")))
    head, *rows = text.splitlines()[-4:]
    at = cell_len(head.split("role")[0])
    assert [cell_len(row.split("worker")[0]) for row in rows] == [at] * 3


def test_a_name_turns_nothing_around() -> None:
    """CASES: a name that reads from the right is isolated, in HTML and in text."""
    bundle = show.status_bundle(room(device("שלום", me=True)))
    assert "<bdi>שלום</bdi> (this device)" in bundle["text/html"]
    assert "\u2068שלום\u2069 (this device)" in bundle["text/plain"]
    assert "\u2068שלום\u2069 (this device)" in bundle["text/markdown"]


def test_no_view_holds_control_characters() -> None:
    """What others wrote is no terminal's command, in whatever view."""
    bad = "a\x1b]0;owned\x07\x9b31mb\r\x00"
    status = room(device(bad), sentence=bad, model=bad, label=bad)
    for bundle in (show.status_bundle(status), show.answer_bundle(bad, "1 token"), show.line_bundle(bad)):
        for text in bundle.values():
            assert "owned" in text
            assert not [c for c in text if unicodedata.category(c) == "Cc" and c != "\n"]


def test_a_model_writes_no_markup() -> None:
    """What a model wrote is untrusted: no raw HTML, no image that a page would fetch, no script link."""
    text = '<img src=x onerror="alert(1)"> ![x](http://example.org/x.png) [y](javascript:alert(1)) **bold**'
    page = show.answer_bundle(text, "<i>line</i>")["text/html"]
    assert "<img" not in page
    assert 'href="javascript' not in page
    assert "<strong>bold</strong>" in page
    assert "<i>" not in page


@given(st.text(max_size=200), st.text(max_size=40))
@settings(deadline=None, max_examples=60)
def test_an_answer_is_always_shown_whole_as_text(text: str, line: str) -> None:
    bundle = show.answer_bundle(text, line)
    assert bundle["text/plain"].startswith(visible(text))
    assert "<script" not in bundle["text/html"].lower()


def test_what_an_answer_took() -> None:
    stats = Stats(tokens=11, ms=1100.0, first_ms=100.0)
    assert show.answer_line("stop", stats) == "11 tokens · 10.0 tokens/s"
    assert show.answer_line("ctx", stats).endswith("context full")
    guessed = Stats(tokens=11, ms=1100.0, first_ms=100.0, drafted=8, accepted=6)
    assert show.answer_line("max", guessed) == (
        "11 tokens · 10.0 tokens/s · 6 of 8 drafts right · stopped at its length"
    )
    assert show.answer_line("abort", Stats(tokens=1)) == "1 token · stopped"
    assert show.answer_line(None, Stats()) == ""


def test_a_wait_is_drawn_seldom() -> None:
    """DESIGN section 7: the server drops all output above 1,000 messages a second."""
    drawn: list[tuple[int | None, str]] = []

    class Seen(Waiting):
        def draw(self, percent: int | None, words: str) -> None:
            drawn.append((percent, words))

    view = Seen("asking")
    for n in range(1000):
        view.report(n // 10, "loading")
        view.tick()
    assert len(drawn) <= 1 + 2 / EVERY_S
    assert drawn[0] == (0, "loading")


def test_plain_waits_say_a_thing_once(capsys: object) -> None:
    view = PlainWaiting("x")
    for percent in (1, 2, 3):
        view.draw(percent, "loading")
    out = capsys.readouterr()  # type: ignore[attr-defined]
    assert (out.out, out.err) == ("", "loading\n")


def test_bar_has_a_fixed_width() -> None:
    assert {len(bar(n)) for n in range(-5, 120)} == {20}
    assert (bar(0), bar(100)) == ("░" * 20, "█" * 20)
