"""Restart in a notebook's menu, with real kernels, links and a tiny real model (PROTOCOL section 8)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from pooled_nb.demo.kernels import READY_S, Kernel, kernels
from tests.shard.tinychat import SPECIAL, write_model

SETUP = "import json, time, pooled_nb\n%load_ext pooled_nb"
LONG = 200
"""Tokens of an answer that is under way when a kernel starts again."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny") / "talker", layers=4, hidden_size=64)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Kernel, Kernel]]:
    """Two kernels of one user: one to host, one to lend."""
    env = {
        "POOLED_DATA_DIR": str(tmp_path / "data"),
        "POOLED_RUNTIME_DIR": str(tmp_path / "run"),
        "POOLED_CONFIG_DIR": str(tmp_path / "config"),
        "POOLED_LINK": "",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    async with kernels(["ana", "bo"], tmp_path, env) as [ana, bo]:
        await asyncio.gather(ana.run(SETUP), bo.run(SETUP))
        yield ana, bo


def asks(model: Path, text: str, tokens: int, how: str = "stream") -> str:
    """A call that asks this; the answer ends after so many tokens and no sooner."""
    words = json.loads((model / "tokenizer.json").read_text())["added_tokens"]
    bias = {word["id"]: -100.0 for word in words if word["content"] in SPECIAL}
    return f"room.{how}({text!r}, max_tokens={tokens}, temperature=0.9, seed=7, logit_bias={bias})"


async def restart(kernel: Kernel) -> None:
    """As jupyter-server does it for a person who clicks there."""
    await kernel._manager.restart_kernel()
    await kernel._client.wait_for_ready(timeout=READY_S)
    await kernel.run(SETUP)


async def until(kernel: Kernel, holds: str, seconds: float = 100) -> None:
    """Wait until this expression holds there."""
    async with asyncio.timeout(seconds):
        while not await kernel.value(f"bool({holds})"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def shown(kernel: Kernel, cell: str) -> str:
    """All that a cell shows."""
    said: list[str] = []
    await kernel.run(cell, said.append)
    return "".join(said)


async def hosted(ana: Kernel, bo: Kernel, model: Path) -> str:
    await ana.run(f"%pooled host {model} --split memory --no-ask --ctx 1024 --name ana --lend 1GB -o room")
    code = str(await ana.value("room.code"))
    await bo.run(f"%pooled join {code} --role worker --name bo --lend 1GB -o room")
    await ana.run("room.start(devices=2)")
    return code


_alone: dict[tuple[tuple[str, int], ...], list[str]] = {}


async def alone(folder: Path, model: Path, *questions: tuple[str, int]) -> list[str]:
    """What one device answers to the same conversation; each is run once."""
    if questions not in _alone:
        _alone[questions] = await _run_alone(folder, model, questions)
    return _alone[questions]


async def _run_alone(folder: Path, model: Path, questions: Sequence[tuple[str, int]]) -> list[str]:
    env = {"POOLED_DATA_DIR": str(folder / "alone"), "POOLED_RUNTIME_DIR": str(folder / "alone")}
    async with kernels(["alone"], folder, {**env, "OMP_NUM_THREADS": "1"}) as [one]:
        await one.run(SETUP)
        await one.run(f"%pooled host {model} --split alone --no-ask --ctx 1024 -o room")
        texts = []
        for text, tokens in questions:
            await one.run(f"answer = {asks(model, text, tokens, 'ask')}")
            texts.append(str(await one.value("answer.text")))
        await one.run("room.leave()")
        return texts


HELD = "{d.name: d.layers for d in room.status().devices}"


async def test_the_hosts_kernel_starts_again(
    pair: tuple[Kernel, Kernel], model: Path, tmp_path: Path
) -> None:
    """PROTOCOL section 8, host resume: amid an answer to another device; %pooled resume takes the room back.
    The worker's kernel is not touched: it keeps its layers, and the text it waits for is one device's.
    """
    ana, bo = pair
    code = await hosted(ana, bo, model)
    await ana.run(f"answer = {asks(model, 'why?', 20, 'ask')}")
    texts = [await ana.value("answer.text")]
    held = await ana.value(HELD)
    await bo.run(f"live = {asks(model, 'and the sea?', LONG)}")
    await until(bo, "len(live.text) > 20")
    await restart(ana)
    assert await bo.value("live.done()") is False
    assert await ana.value("pooled_nb.current() is None") is True
    await shown(ana, "%pooled resume -o room")
    assert await ana.value("room.code") == code
    await bo.run("live.result(100)")
    texts.append(await bo.value("live.text"))
    assert await bo.value("live.reason") == "max"
    await ana.run(f"answer = {asks(model, 'and now?', 20, 'ask')}")
    texts.append(await ana.value("answer.text"))
    assert texts == await alone(tmp_path, model, ("why?", 20), ("and the sea?", LONG), ("and now?", 20))
    assert await ana.value(HELD) == held
    await ana.run("%pooled leave")
    await until(bo, "room.left")
    assert not list((tmp_path / "data" / "rooms").glob("*.json"))


async def test_a_question_of_the_hosts_own_is_answered_where_the_room_was_taken_back(
    pair: tuple[Kernel, Kernel], model: Path, tmp_path: Path
) -> None:
    """PROTOCOL section 8, host resume: a question that runs when the kernel starts again is asked again, and
    shown like any answer in the cell that resumes; %pooled host offers that before.
    """
    ana, bo = pair
    code = await hosted(ana, bo, model)
    await ana.run(f"live = {asks(model, 'why?', LONG)}")
    await until(ana, "len(live.text) > 20")
    await restart(ana)
    await ana.run(f"%pooled host {model} --name ana --lend 1GB -o other")
    await until(ana, "any('%pooled resume' in notice for notice in other.notices)")
    await ana.run("%pooled resume -o room")
    assert await ana.value("other.left") is True
    assert await ana.value("[room.code, room.last.done(), room.last.reason]") == [code, True, "max"]
    [text] = await alone(tmp_path, model, ("why?", LONG))
    assert await ana.value("room.last.text") == text
    assert await ana.value("len(room._core.answering.conversation.exchanges)") == 1
    assert await ana.value("[room._core.asked, room.status().waiting]") == [[], 0]


async def test_a_workers_kernel_starts_again(
    pair: tuple[Kernel, Kernel], model: Path, tmp_path: Path
) -> None:
    """PROTOCOL section 3: its cell that joined is run again, and it has its seat: the answer that was under
    way goes on, and nothing shown changes.
    """
    ana, bo = pair
    code = await hosted(ana, bo, model)
    await ana.run(f"live = {asks(model, 'why?', LONG)}")
    await until(ana, "len(live.text) > 20")
    before = await ana.value("live.text")
    await restart(bo)
    await bo.run(f"%pooled join {code} --role worker --name bo --lend 1GB -o room")
    passes = "[name for _, _, name in room._core._gate.keeper.secrets.passes]"
    assert await ana.value(passes) == ["bo"], "it has its seat, and no second one"
    await ana.run("live.result(100)")
    text = await ana.value("live.text")
    assert text.startswith(before)
    assert [text] == await alone(tmp_path, model, ("why?", LONG))
    assert sorted(await ana.value("[d.name for d in room.status().devices if not d.gone]")) == ["ana", "bo"]


async def test_a_kernel_that_is_shut_down_closes_its_room(
    pair: tuple[Kernel, Kernel], model: Path, tmp_path: Path
) -> None:
    """PROTOCOL section 3, bye: said in the second that a kernel has, amid an answer; nothing is kept."""
    ana, bo = pair
    await hosted(ana, bo, model)
    await bo.run(f"live = {asks(model, 'why?', LONG)}")
    await until(bo, "len(live.text) > 20")
    await ana._manager.shutdown_kernel()
    await until(bo, "room.left")
    assert await bo.value("[live.done(), room.status().state]") == [True, "closed"]
    assert not list((tmp_path / "data" / "rooms").glob("*.json"))
