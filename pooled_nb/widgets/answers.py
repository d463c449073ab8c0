"""What an answer's panel draws beside the text, from the answer's facts. Pure; all words are made here."""

from __future__ import annotations

from html import escape
from typing import Any

from pooled_nb import plain
from pooled_nb.widgets.formats import SENTENCE, begun, line, percent, sentence, text
from pooled_nb.widgets.sources import AnswerFacts

QUESTION = 8_000
"""Characters of a question (PROTOCOL section 7)."""
HIDDEN = "Its asker and the host see it."
_ENDED = {"stop": "done", "max": "capped", "ctx": "capped", "abort": "stopped", "error": "failed"}
_LABELS = {"stop": "Stop", "continue": "Continue", "regen": "Regenerate"}


def answer_state(id: int, question: str, facts: AnswerFacts, problem: str = "") -> dict[str, Any]:
    """The trait ``answer``.

    Parameters
    ----------
    id
        Names the answer to the views; another one when it is continued or made anew.
    problem
        Why the last button did nothing.
    """
    if facts.hidden:  # neither name nor number, nor what was asked (PROTOCOL section 7, ai-visibility)
        hidden = {"id": id, "question": "", "who": "", "state": "hidden", "wait": "", "pct": None}
        return {**hidden, "line": HIDDEN, "problem": sentence(problem), "actions": []}
    state = _state(facts)
    pct = facts.loading[0] if state == "loading" and facts.loading is not None else None
    return {
        "id": id,
        "question": text(question, QUESTION),
        "who": "",
        "state": state,
        "wait": _wait(state, facts),
        "pct": None if pct is None else percent(pct),
        "line": line(facts.line, SENTENCE),
        "problem": sentence(problem or facts.error),
        "actions": [_button(cmd, state) for cmd in facts.can],
    }


def answer_static(text: str, line: str) -> dict[str, str]:
    """What stands for an answer where no widget can be shown: its text, and what it took."""
    body = plain.markdown(text)
    return {
        "text/plain": f"{text}\n\n{line}" if line else text,
        "text/html": f"<div style='white-space:pre-wrap'>{escape(text)}</div><small>{escape(line)}</small>",
        "text/markdown": f"{body}\n\n*{plain.literal(line)}*" if line else body,
    }


def _state(facts: AnswerFacts) -> str:
    if facts.reason is not None:
        return _ENDED[facts.reason]
    if facts.error:
        return "failed"
    if facts.started:
        return "answering"
    return "loading" if facts.loading is not None else "waiting"


def _wait(state: str, facts: AnswerFacts) -> str:
    if state == "loading" and facts.loading is not None:
        return begun(facts.loading[1]) or "The room loads first."
    if state == "waiting":
        turn = f"Waiting for its turn, place {facts.place}." if facts.place > 0 else ""
        said = " ".join(part for part in (turn, sentence(facts.notice)) if part)
        return said or "Waiting for the host."
    return sentence(facts.notice) if state == "answering" else ""


def _button(cmd: str, state: str) -> dict[str, Any]:
    return {"cmd": cmd, "label": _LABELS[cmd], "main": cmd == "continue" and state == "capped"}
