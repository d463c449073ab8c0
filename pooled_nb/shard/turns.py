"""Making a conversation one that a strict template takes, without losing a word of it."""

from __future__ import annotations

from pooled_nb.shard.door import Turn


def merge_runs(turns: list[Turn]) -> list[Turn]:
    """Join turns of the same role that follow one another, with an empty line between them.

    Answers are left alone when they carry their tokens: those stand for themselves.
    """
    merged: list[Turn] = []
    for turn in turns:
        last = merged[-1] if merged else None
        if last is not None and last.role == turn.role and last.ids is None and turn.ids is None:
            merged[-1] = Turn(role=turn.role, text=f"{last.text}\n\n{turn.text}")
        else:
            merged.append(turn)
    return merged


def fold_system(turns: list[Turn]) -> list[Turn]:
    """Put the text of all system turns before that of the first user turn."""
    folded = [turn for turn in turns if turn.role != "system"]
    texts = [turn.text for turn in turns if turn.role == "system"]
    first = next((i for i, turn in enumerate(folded) if turn.role == "user"), None)
    if first is not None and texts:
        folded[first] = Turn(role="user", text="\n\n".join([*texts, folded[first].text]))
    return folded
