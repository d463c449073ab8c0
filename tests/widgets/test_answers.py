"""What an answer's panel draws beside the text, state by state."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pooled_nb.widgets.answers import answer_state, answer_static
from pooled_nb.widgets.sources import AnswerFacts

RUNS: dict[str, Any] = {"started": True, "can": ("stop",)}


@pytest.mark.parametrize(
    ("facts", "state", "wait", "pct", "labels"),
    [
        (AnswerFacts(can=("stop",)), "waiting", "Waiting for the host.", None, ["Stop"]),
        (AnswerFacts(place=2, can=("stop",)), "waiting", "Waiting for its turn, place 2.", None, ["Stop"]),
        (AnswerFacts(loading=(None, "dealing the layers")), "loading", "Dealing the layers.", None, []),
        (
            AnswerFacts(loading=(62, "mira: reading layers 1–10")),
            "loading",
            "mira: reading layers 1–10.",
            62,
            [],
        ),
        (AnswerFacts(**RUNS), "answering", "", None, ["Stop"]),
        (AnswerFacts(**RUNS, notice="Waiting for mira."), "answering", "Waiting for mira.", None, ["Stop"]),
        (AnswerFacts(reason="stop", can=("regen",)), "done", "", None, ["Regenerate"]),
        (AnswerFacts(reason="abort", can=("continue",)), "stopped", "", None, ["Continue"]),
        (
            AnswerFacts(reason="max", can=("continue", "regen")),
            *("capped", "", None, ["Continue", "Regenerate"]),
        ),
        (AnswerFacts(reason="ctx"), "capped", "", None, []),
        (AnswerFacts(reason="error", error="mira left."), "failed", "", None, []),
        (AnswerFacts(error="The queue is full."), "failed", "", None, []),
        (AnswerFacts(**RUNS, hidden=True), "hidden", "", None, []),
    ],
)
def test_every_state(facts: AnswerFacts, state: str, wait: str, pct: int | None, labels: list[str]) -> None:
    """A state has a word, a wait says what is waited for, and a button is there only when it makes sense."""
    made = answer_state(3, "Why?", facts)
    assert (made["state"], made["wait"], made["pct"]) == (state, wait, pct)
    assert [button["label"] for button in made["actions"]] == labels
    assert [button["label"] for button in made["actions"] if button["main"]] == (
        ["Continue"] if state == "capped" and "Continue" in labels else []
    )


def test_lines_and_problems() -> None:
    """What it took; why it failed, or why a button did nothing."""
    done = answer_state(3, "Why?", AnswerFacts(reason="stop", line="57 tokens · 18.2 tokens/s"))
    assert (done["id"], done["question"], done["line"]) == (3, "Why?", "57 tokens · 18.2 tokens/s")
    failed = answer_state(3, "Why?", AnswerFacts(reason="error", error="mira left. Ask again."))
    assert failed["problem"] == "mira left. Ask again."
    refused = answer_state(3, "Why?", AnswerFacts(reason="stop"), "There is nothing to continue.")
    assert refused["problem"] == "There is nothing to continue."


def test_hidden_answers_carry_nothing() -> None:
    """PROTOCOL section 7, ai-visibility: neither name nor number nor text."""
    facts = AnswerFacts(hidden=True, started=True, line="57 tokens", notice="ana waits", place=3)
    made = answer_state(1, "the secret question", facts)
    assert (made["state"], made["line"]) == ("hidden", "Its asker and the host see it.")
    assert not any(word in json.dumps(made) for word in ("secret", "57", "ana"))


def test_text_of_others_is_bounded_and_harmless() -> None:
    """Everything from the network is untrusted."""
    facts = AnswerFacts(notice="\x1b[2J\ud800" + "x" * 10_000, started=True, line="\x07" * 5_000)
    made = answer_state(1, "q\x1b" * 10_000, facts)
    assert len(made["question"]) <= 8_000
    assert "\x1b" not in made["question"] + made["wait"]
    assert len(made["wait"]) <= 401
    json.dumps(made, ensure_ascii=False).encode()


def test_the_static_form_of_an_answer_that_followed() -> None:
    """DESIGN section 7: plain text and HTML always; text of others is never markup."""
    made = answer_static("**Blue** <script>alert(1)</script>", "57 tokens")
    assert made["text/plain"] == "**Blue** <script>alert(1)</script>\n\n57 tokens"
    assert "<script>" not in made["text/html"] + made["text/markdown"]
    assert made["text/markdown"].startswith("**Blue**")
    assert answer_static("x", "")["text/markdown"] == "x"
