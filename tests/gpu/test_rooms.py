"""Rooms whose devices are processes on one GPU, over real WebRTC: the text of one device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiortc", reason="aiortc is not installed")

import pooled_nb as pooled
from tests.e2e.test_three_processes import wait_for, workers
from tests.gpu.driving import DEVICE
from tests.shard.tinychat import write_model

QUESTIONS = ["Why is the sky blue?", "And at night? " + "So many words that the bucket ends here. " * 5]
TOKENS = 40
HOWS: list[dict[str, Any]] = [{"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.95, "seed": 7}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny") / "talker", layers=6, hidden_size=64, seed=3)


@pytest.fixture(autouse=True)
def _own_runtime(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("POOLED_MODELS", str(folder.parent))
    monkeypatch.setenv("POOLED_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if DEVICE == "cpu":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def told(room: pooled.Room) -> list[list[int]]:
    """The tokens of all answers: greedy and seeded, each a conversation."""
    tokens = []
    for how in HOWS:
        room.reset()
        tokens += [list(room.ask(question, max_tokens=TOKENS, **how).tokens or []) for question in QUESTIONS]
    return tokens


def in_a_room(folder: Path, devices: int, **options: Any) -> list[list[int]]:
    """The same question to a room of so many devices, each with its part of the layers."""
    with (
        pooled.host(
            str(folder), split="memory", lend="1GB", dtype="bfloat16", progress=False, **options
        ) as room,
        workers(room, devices - 1),
    ):
        wait_for(room, devices)
        tokens = told(room)
        layers = [device.layers for device in room.status().devices]
        assert None not in layers
        assert sum(hi - lo for lo, hi in filter(None, layers)) == 6
    return tokens


@pytest.mark.timeout(170)
def test_two_devices_on_one_gpu_answer_as_one(folder: Path) -> None:
    """DESIGN section 5: within a sig, greedy and seeded text is that of one device."""
    alone = in_a_room(folder, 1)
    assert in_a_room(folder, 2) == alone
    assert all(alone)


@pytest.mark.timeout(170)
def test_without_guessing_and_without_graphs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5: guessing and graphs change no token of a room of three devices."""
    alone = in_a_room(folder, 3)
    monkeypatch.setenv("POOLED_GRAPHS", "0")
    assert in_a_room(folder, 1, speculate=False) == alone
