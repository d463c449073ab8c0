"""Three OS processes over real WebRTC: a host here, two workers started with ``pooled-nb join``.

The real model, our signaling server and npm's, bf16 against our own one-device run, f32 against
transformers' ``generate`` (DESIGN section 9).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pooled_nb as pooled
from pooled_nb.errors import RoomNotFound
from pooled_nb.shard import open_shard
from tests.e2e.needs import bound
from tests.e2e.node import FOLDER, need_packages

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
QUESTIONS = ["Why is the sky blue?", "And at night?\nOne sentence, please."]
TOKENS = 24

GENERATE = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, questions, tokens = json.loads(sys.argv[1])
torch.set_num_threads(1)
tok = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
turns, texts = [], []
for q in questions:
    turns.append({"role": "user", "content": q})
    ids = tok.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    n = ids["input_ids"].shape[1]
    out = model.generate(**ids, max_new_tokens=tokens, do_sample=False)
    texts.append(tok.decode(out[0, n:], skip_special_tokens=True))
    turns.append({"role": "assistant", "content": texts[-1]})
print(json.dumps(texts))
"""


@pytest.fixture(autouse=True)
def _own_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("POOLED_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@contextmanager
def workers(room: pooled.Room, n: int = 2) -> Iterator[list[subprocess.Popen[str]]]:
    """``pooled-nb join`` n times, with the room's invite link; ended on the way out."""
    argv = bound(sys.executable, "-m", "pooled_nb.cli", "join", "--role", "worker")
    env = {**os.environ, "POOLED_LINK": room.invite().link}
    started = [
        subprocess.Popen(
            [*argv, "--name", f"worker {i + 1}"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(n)
    ]
    try:
        yield started
    finally:
        for p in started:
            p.send_signal(signal.SIGINT)
        for p in started:
            try:
                p.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                p.kill()
                p.communicate()


@contextmanager
def npm_server() -> Iterator[str]:
    """The real PeerJS server of npm."""
    need_packages()
    server = subprocess.Popen(
        ["node", str(FOLDER / "server.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin
    assert server.stdout
    try:
        yield f"ws://127.0.0.1:{json.loads(server.stdout.readline())['port']}/"
    finally:
        server.stdin.close()
        server.wait(10)
        server.stdout.close()


def wait_for(room: pooled.Room, devices: int, seconds: float = 60) -> None:
    """Until that many devices are in the room."""
    end = time.monotonic() + seconds
    while len(room.status().devices) < devices:
        assert time.monotonic() < end, room.status()
        time.sleep(0.1)


def converse(room: pooled.Room) -> tuple[list[str], list[list[int]]]:
    answers = [room.ask(q, max_tokens=TOKENS) for q in QUESTIONS]
    texts, tokens = [a.text for a in answers], [list(a.tokens or []) for a in answers]
    if len(room.status().devices) > 1:  # the last one in two parts, which must not show
        part = room.regenerate(max_tokens=TOKENS // 2)
        rest = room.continue_(max_tokens=TOKENS - TOKENS // 2)
        assert rest.text == texts[-1]
        assert [*(part.tokens or []), *(rest.tokens or [])] == tokens[-1]
    return texts, tokens


def one_device(dtype: str) -> tuple[list[str], list[list[int]]]:
    """Our own one-device run of the same conversation."""
    with pooled.host(MODEL, dtype=dtype, progress=False) as room:
        return converse(room)


def generated(folder: str) -> list[str]:
    """transformers' ``generate`` in f32, in a process of its own."""
    arg = json.dumps([folder, QUESTIONS, TOKENS])
    done = subprocess.run([sys.executable, "-c", GENERATE, arg], capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout.strip().splitlines()[-1]))


def split_run(dtype: str, signaling: str) -> tuple[list[str], list[list[int]], pooled.Status]:
    with pooled.host(MODEL, dtype=dtype, split="memory", signal=signaling, progress=False) as room:
        # With a server of its own the link must be what finds the room, not the runtime file.
        if signaling != "local":
            for file in Path(os.environ["POOLED_RUNTIME_DIR"]).glob("*.json"):
                file.unlink()
        with workers(room, 2):
            wait_for(room, 3)
            texts, tokens = converse(room)
            return texts, tokens, room.status()


@pytest.mark.timeout(300)
def test_three_processes_answer_as_one_device_does_in_bf16() -> None:
    """DESIGN section 5: exact mode, token for token what one device answers; our signaling server."""
    texts, tokens, status = split_run("bfloat16", "local")
    layers = [d.layers for d in status.devices]
    assert None not in layers
    assert sum(hi - lo for lo, hi in filter(None, layers)) == 30
    assert all(d.path == "direct" for d in status.devices[1:])
    alone, alone_tokens = one_device("bfloat16")
    assert tokens == alone_tokens
    assert texts == alone
    assert [0 < len(t) <= TOKENS for t in tokens] == [True] * len(QUESTIONS)
    assert all(texts)


@pytest.mark.timeout(300)
def test_three_processes_over_npm_peer_answer_as_generate_does_in_f32(tmp_path: Path) -> None:
    """DESIGN section 9: in f32 the text equals ``generate``; PROTOCOL section 2: over npm's server."""
    with npm_server() as url:
        texts, _, _ = split_run("float32", url)

    async def folder() -> str:
        shard = open_shard()
        try:
            return str((await shard.inspect(MODEL)).folder)
        finally:
            await shard.close()

    assert texts == generated(asyncio.run(folder()))


@pytest.mark.timeout(200)
def test_a_worker_that_is_killed_costs_no_answer() -> None:
    """PROTOCOL sections 6 and 8: our own pings notice; dealt again, it goes on with the same tokens."""
    with (
        pooled.host(MODEL, split="memory", progress=False) as room,
        workers(room, 1) as (worker,),
    ):
        wait_for(room, 2)
        whole = room.ask(QUESTIONS[0], max_tokens=TOKENS)
        room.reset()
        answer = room.ask(QUESTIONS[0], max_tokens=TOKENS, wait=False)
        while not answer.text:
            time.sleep(0.01)
        worker.send_signal(signal.SIGKILL)
        end = time.monotonic() + 60
        while room.status().state != "degraded":
            assert time.monotonic() < end
            time.sleep(0.1)
        assert not answer.done()
        room.redeal()
        assert answer.result(60).tokens == whole.tokens


def test_no_such_room_is_one_sentence() -> None:
    """PROTOCOL section 2: nobody answers under this code."""
    with pytest.raises(RoomNotFound, match="No room ABC-DEF"):
        pooled.join("ABC-DEF", progress=False)
