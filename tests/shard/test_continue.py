"""Whole rooms over real shards: an answer that goes on is the longer answer (PROTOCOL section 7)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pooled_nb.errors import BadQuestion
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from pooled_nb.room.dealer import Settings
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.shard import ModelFacts, protocol
from pooled_nb.shard.door import Progress
from pooled_nb.shard.thread import ThreadShard
from tests.room.rooms import Heard, again, ask, meta_of
from tests.shard.tinychat import write_model
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork

CODE = "4TKG9P"
COUNTING = {"min_p": 0.01, "repetition_penalty": 1.2, "presence_penalty": 0.6, "stop": ["\ufffdq#", "zzz"]}
"""What sees the whole answer: penalties, and stop texts whose beginning often comes."""
WAYS: list[dict[str, Any]] = [{}, {"style": "creative", "seed": 5, **COUNTING}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights over bytes: what it says is full of characters that are cut and never become whole."""
    return write_model(tmp_path_factory.mktemp("tiny") / "talker", layers=3, initializer_range=0.6)


class OneByOne(ThreadShard):
    """Shards of one process: torch's settings are the process's, so they compute one after the other."""

    lock = threading.Lock()

    def _do(self, number: int, job: protocol.AnyJob, report: Progress) -> object:
        with self.lock:
            return super()._do(number, job, report)


class Room:
    """A host and its workers over threads that compute."""

    def __init__(self, host: HostRoom, workers: list[DeviceRoom]) -> None:
        self.host, self.workers = host, workers

    async def close(self) -> None:
        for worker in self.workers:
            await worker.leave()
        await self.host.leave()


async def open_room(model: Path, workers: int, dtype: str) -> Room:
    shard = OneByOne()
    facts: ModelFacts = await shard.inspect(str(model))
    net = SimNetwork()
    host = HostRoom(
        settings=Settings(code=CODE, split="memory", ctx=512, exact=True, lends_gb=1.0, dtype=dtype),
        model=facts,
        shard=shard,
        new_shard=OneByOne,
        network=net,
        clock=LoopClock(),
        name="host",
        meta=_meta(dtype),
        keeper=Gatekeeper(GateSettings(ask=False)),
    )
    await host.open(["sim"])
    notices: list[str] = []
    host.on_notice = notices.append
    room = Room(host, [])
    for i in range(workers):
        device = DeviceRoom(
            code=CODE,
            network=net,
            clock=LoopClock(),
            name=f"worker {i}",
            meta=_meta(dtype),
            shard=OneByOne(),
            new_shard=OneByOne,
            lends_gb=1.0,
            folder=str(model),
        )
        await device.join(["sim"])
        room.workers.append(device)
    await host.start()
    assert len([d for d in host.status().devices if d.layers]) == workers + 1, notices
    return room


def _meta(dtype: str) -> Any:
    meta = meta_of(1.0)
    enc = "bf16" if dtype == "bfloat16" else "f32"
    nb = msgspec.structs.replace(meta.nb, dtypes=["float32", "bfloat16"], enc=["f32", enc])
    return msgspec.structs.replace(meta, nb=nb)


def joined(*parts: Heard) -> tuple[str, list[int]]:
    return "".join(p.text for p in parts), [t for p in parts for t in p.done.tokens or []]


async def whole_and_parts(room: Room, how: dict[str, Any], lose: Callable[[], Any]) -> list[int]:
    """Ask for 40 tokens; then for some, and for the rest, cut everywhere that matters."""
    await ask(room.host, "Hello", max_tokens=5)
    whole = await ask(room.host, "Why is the sky blue?", max_tokens=40, **how)
    after = await ask(room.host, "And at night?", max_tokens=6)
    total = whole.done.stats.tokens
    cuts = sorted({1, 3, total // 2, total - 1} & set(range(1, total)))
    for cut in cuts:
        await room.host.reset()
        await ask(room.host, "Hello", max_tokens=5)
        part = await ask(room.host, "Why is the sky blue?", max_tokens=cut, **how)
        assert part.done.reason == "max"
        if cut == total // 2:
            lose()
        rest = await again(room.host, "continue", max_tokens=40 - cut)
        assert joined(part, rest) == joined(whole)
        assert rest.done.reason == whole.done.reason
        assert joined(await ask(room.host, "And at night?", max_tokens=6)) == joined(after)
        assert room.host.answering.conversation.exchanges[1].reply == whole.text
    return cuts


@pytest.mark.parametrize(("workers", "dtype"), [(0, "float32"), (2, "bfloat16")])
def test_an_answer_that_goes_on_is_the_longer_answer(model: Path, workers: int, dtype: str) -> None:
    """DESIGN section 5: tokens and text of an exact room are those of one go, bit for bit.

    Greedy and seeded, on one device and over three, with the caches as they were and lost between.
    """

    async def scenario() -> dict[str, list[Any]]:
        room = await open_room(model, workers, dtype)

        def lose() -> None:
            assert room.host.answering.chain is not None
            room.host.answering.chain.fail("made up")

        seen: dict[str, list[Any]] = {"cuts": [], "texts": []}
        for how in WAYS:
            await room.host.reset()
            seen["cuts"] += await whole_and_parts(room, how, lose)
            seen["texts"].append(room.host.answering.conversation.exchanges[1].reply)
        await room.close()
        return seen

    seen = simulate(scenario)
    assert max(seen["cuts"]) > 10, "answers are long enough to be cut"
    assert len(set(seen["texts"])) > 1
    assert any("\ufffd" in text or not text.isascii() for text in seen["texts"]), "bytes that are cut"


def test_what_this_model_cannot_draw_is_refused_at_the_question(model: Path) -> None:
    """PROTOCOL section 7, ``ai-busy`` ``bad``: in words, before anything is computed; the room goes on."""

    async def scenario() -> None:
        room = await open_room(model, 1, "float32")
        before = await ask(room.host, "Hello", max_tokens=3)
        for asker in (room.host, room.workers[0]):
            with pytest.raises(BadQuestion, match="names token 267, and this model has tokens 0 to 266"):
                await ask(asker, "Why?", logit_bias={267: 1.0})
        assert len(room.host.answering.conversation.exchanges) == 1
        banned = dict.fromkeys(before.done.tokens or [], -100.0)
        await room.host.reset()
        other = await ask(room.workers[0], "Hello", max_tokens=3, logit_bias=banned)
        assert other.text != before.text
        await room.close()

    simulate(scenario)


def test_a_stop_text_ends_an_answer_before_itself(model: Path) -> None:
    """CASES, Answers: nothing of it is shown, on any device; its tokens stay what the model said."""

    async def scenario() -> None:
        room = await open_room(model, 1, "float32")
        whole = await ask(room.host, "Hello", max_tokens=30)
        middle = len(whole.text) // 2
        stop = whole.text[middle - 1 : middle + 2]
        later = None
        for asker in (room.host, room.workers[0]):
            await room.host.reset()
            short = await ask(asker, "Hello", max_tokens=30, stop=["never said", stop])
            assert short.text == whole.text[: whole.text.index(stop)]
            assert short.done.reason == "stop"
            last = room.host.answering.conversation.last
            assert last is not None
            ids = last.ids
            assert ids == (whole.done.tokens or [])[: len(ids)]
            assert len(ids) < len(whole.done.tokens or [])
            # What was held in the caches is what the conversation says, so the next turn goes on from it.
            after = await ask(room.host, "And?", max_tokens=6)
            assert after.text == (later or after).text
            later = after
        await room.close()

    simulate(scenario)
