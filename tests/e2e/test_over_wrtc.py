"""A room of two OS processes over libwebrtc, with the real model (DESIGN sections 4 and 5)."""

from __future__ import annotations

from pathlib import Path

import pytest

import pooled_nb as pooled
from pooled_nb.mesh import stacks
from tests.e2e.test_three_processes import MODEL, converse, one_device, wait_for, workers

pytestmark = pytest.mark.skipif("wrtc" not in stacks.available(), reason="the package wrtc is not installed")


@pytest.fixture(autouse=True)
def _own_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("POOLED_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.timeout(300)
def test_two_processes_answer_as_one_device_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5: exact mode, token for token what one device answers."""
    monkeypatch.setenv("POOLED_TRANSPORT", "wrtc")
    with (
        pooled.host(MODEL, dtype="bfloat16", split="memory", progress=False) as room,
        workers(room, 1),
    ):
        wait_for(room, 2, 120)
        split = converse(room)
        status = room.status()
    assert status.network is not None
    assert status.network.wire is not None
    assert status.network.wire.transport == "wrtc"
    assert [device.path for device in status.devices[1:]] == ["direct"]
    assert all(device.layers for device in status.devices)
    assert split == one_device("bfloat16")
