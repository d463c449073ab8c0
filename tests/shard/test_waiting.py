"""Real shards: an answer that loses its chain says what the undisturbed one does (PROTOCOL section 8)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from pooled_nb.shard.stops import AnswerText, tags_of
from pooled_nb.shard.text import plain_decode
from tests.room.rooms import ask
from tests.shard.test_continue import WAYS, Room, joined, open_room
from tests.shard.tinychat import tokenizer, write_model
from tests.sim.clock import simulate

QUESTION, TOKENS = "Why is the sky blue?", 30


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights over bytes: what it says is full of characters that are cut and never become whole."""
    return write_model(tmp_path_factory.mktemp("tiny") / "talker", layers=3, initializer_range=0.6)


class Losing:
    """The host's shard loses these laps of the next answer, from 1, while their frames are out."""

    def __init__(self, room: Room, at: tuple[int, ...]) -> None:
        self.lost = 0
        self._room, self._at, self._laps = room, at, 0
        self._shard: Any = room.host._dealer.shard
        self._forward = self._shard.forward

    async def _lose(self, *args: Any, **more: Any) -> Any:
        self._laps += 1
        ran = await self._forward(*args, **more)
        chain = self._room.host.answering.chain
        if self._laps in self._at and chain:
            self.lost += 1
            asyncio.get_running_loop().call_soon(chain.lose, "made up")
        return ran

    def __enter__(self) -> Losing:
        self._shard.forward = self._lose
        return self

    def __exit__(self, *_: object) -> None:
        self._shard.forward = self._forward


@pytest.mark.parametrize(("workers", "dtype"), [(1, "float32"), (2, "bfloat16")])
def test_a_lap_lost_in_a_real_room_changes_no_bit(model: Path, workers: int, dtype: str) -> None:
    """PROTOCOL section 8: "Nothing shown changes" (DESIGN section 5): tokens, text, and what follows.

    Greedy; and drawn, with penalties that count the whole answer and stop texts that keep beginning.
    """

    async def scenario() -> list[str]:
        room = await open_room(model, workers, dtype)
        texts = []
        for how in WAYS:
            await room.host.reset()
            await ask(room.host, "Hello", max_tokens=5)
            whole = await ask(room.host, QUESTION, max_tokens=TOKENS, **how)
            after = await ask(room.host, "And at night?", max_tokens=6)
            lost = 0
            for at in ((1,), (2, 3), (4,), (7, 15), (11, 13), (20,), (27, 31)):
                await room.host.reset()
                await ask(room.host, "Hello", max_tokens=5)
                with Losing(room, at) as losing:
                    heard = await ask(room.host, QUESTION, max_tokens=TOKENS, **how)
                assert joined(heard) == joined(whole)
                assert heard.done.reason == whole.done.reason
                assert joined(await ask(room.host, "And at night?", max_tokens=6)) == joined(after)
                lost += losing.lost
            assert lost >= 6
            texts.append(whole.text)
        await room.close()
        return texts

    texts = simulate(scenario)
    assert len(set(texts)) > 1
    assert any("\ufffd" in text or not text.isascii() for text in texts), "bytes that are cut"


TEXTS = [
    "Hello \U0001f468\u200d\U0001f469\u200d\U0001f467 and \U0001f389!",
    "<think>why \U0001f914</think>So é.",
    "a < b </thin and </think> then STOP here",
    "one two three ST and STO, never the rest",
]
STOPS = [(), ("STOP",), ("two thr", "\U0001f389!"), ("</think>", "é.")]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("stops", STOPS)
def test_text_that_is_cut_anywhere_joins_to_the_same(text: str, stops: tuple[str, ...]) -> None:
    """CASES, Answers: characters, tags and stop texts that are cut are whole afterwards, or never seen.

    Each answer is cut at every token, and again at every one after it: as after one loss, and after two.
    """
    tok = tokenizer()
    tags = [AddedToken(tag, special=False, normalized=False) for tag in ("<think>", "</think>")]
    tok.add_tokens(tags)
    ids = [id for part in (text[:7], text[7:]) for id in tok.encode(part, add_special_tokens=False)]
    assert plain_decode(tok, ids) == text

    def says(after: list[int], more: list[int], *, last: bool) -> tuple[str, bool]:
        answer = AnswerText(tok, stops=stops, tags=tags_of(tok), after=after)
        shown = ""
        for token in more:
            shown += answer.push(token)
            if answer.stopped:
                return shown, True
        return shown + (answer.flush() if last else ""), False

    want, _ = says([], ids, last=True)
    cuts = 0
    for one in range(1, len(ids)):
        first, over = says([], ids[:one], last=False)
        if over:
            break
        for two in range(one, len(ids)):
            second, over = says(ids[:one], ids[one:two], last=False)
            if over:
                break
            third, _ = says(ids[:two], ids[two:], last=True)
            assert first + second + third == want
            cuts += 1
    assert cuts > 10
