"""A room of three processes that guesses ahead says what one device says that does not (DESIGN section 5)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

import pooled_nb as pooled
from tests.e2e.test_three_processes import MODEL, wait_for, workers

COPY = """Repeat this text exactly, with the word "cat" in place of "dog":
The quick brown dog jumps over the lazy dog. Then the dog sleeps in the sun, and the other dog watches."""
SYSTEM = "You copy text. You never add a word of your own."
TOKENS = 32


@pytest.fixture(autouse=True)
def _own_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("POOLED_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def converse(room: pooled.Room) -> list[pooled.Answer]:
    """A chat that looks up, takes back, saves, loads, and begins anew."""
    answers = [room.ask(COPY, max_tokens=TOKENS), room.ask("Once more.", max_tokens=TOKENS)]
    answers.append(room.regenerate(max_tokens=TOKENS))
    answers.append(room.ask(COPY, max_tokens=TOKENS, temperature=0.8, seed=5))
    room.reset()
    answers.append(room.ask(COPY, max_tokens=8, system=SYSTEM))
    room.reset()
    answers.append(room.ask("Say it backwards.", max_tokens=8, system=SYSTEM))
    return answers


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("kv", "draft"), [("f16", None), ("q8", MODEL)], ids=["lookup", "int8-draft-model"])
def test_three_processes_guess_and_say_what_one_device_says(
    kv: Literal["f16", "q8"], draft: str | None
) -> None:
    """PROTOCOL section 7: "the same stream as plain decoding, for any sampler"; over checkpoints as well."""
    with pooled.host(MODEL, dtype="bfloat16", kv=kv, speculate=False, progress=False) as room:
        plain = converse(room)
    with (
        pooled.host(MODEL, dtype="bfloat16", kv=kv, draft=draft, split="memory", progress=False) as room,
        workers(room, 2),
    ):
        wait_for(room, 3)
        guessed = converse(room)
        assert len([d for d in room.status().devices if d.layers]) == 3
        assert room.status().drafts == ("model" if draft else "")
    assert [list(a.tokens or []) for a in guessed] == [list(a.tokens or []) for a in plain]
    assert [a.text for a in guessed] == [a.text for a in plain]
    stats = [a.stats for a in guessed if a.stats]
    assert stats[0].accepted > TOKENS // 3, "what stands in the prompt is looked up"
    assert stats[1].accepted >= stats[1].tokens // 3
    assert stats[2].reused == stats[1].reused > 0, "made anew from the state before it"
    assert stats[-1].reused > 10, "the system prompt outlives the chat"
    assert all(a.stats and a.stats.drafted == 0 for a in plain)
