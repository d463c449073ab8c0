"""The example notebooks and the demo, as a reader runs them: real kernels, real links, a real model."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from pooled_nb.demo.kernels import kernels
from tools.notebooks import EXAMPLES, together

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"


def texts(notebook: Any) -> str:
    """Everything a notebook shows, as text."""
    shown = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            shown.append(output.get("text") or output.get("data", {}).get("text/plain") or "")
    return "\n".join(shown)


async def test_host_and_two_workers_at_the_same_time(tmp_path: Path) -> None:
    """DESIGN section 9: host and worker notebooks executed together; the model answers over three kernels."""
    host, *workers = await together(tmp_path)
    assert len(workers) == 2
    shown = texts(host)
    assert "Paris" in shown
    assert "Rome" in shown
    assert shown.count("worker") >= 2
    spans = [
        line.split("layers ")[1].split()[0]
        for line in shown.splitlines()
        if "layers " in line and "–" in line
    ]
    assert spans[0].startswith("1–")
    assert spans[-1].endswith("–30")
    for worker in workers:
        assert "The room is over." in texts(worker)
        assert "8999995500000500000" in texts(worker)  # its own cells ran meanwhile


@pytest.mark.parametrize("name", ["01_a_room_answers", "02_the_chat", "host", "worker"])
def test_saved_notebooks_read_well_and_hold_no_error(name: str) -> None:
    """DESIGN section 7: a saved notebook reads well without a kernel, and names no machine's paths."""
    path = EXAMPLES / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs
    assert not [output for output in outputs if output.output_type == "error"]
    text = path.read_text(encoding="utf-8")
    assert str(Path.home()) not in text
    assert str(EXAMPLES.parent) not in text
    # Nobody is invited to a room that is long over.
    assert "pooled-nb join" not in texts(notebook)
    assert "The room is over." in texts(notebook) or "The room is closed." in texts(notebook)
    # Answers are whole: none is cut off in the middle, but for the one that is then continued.
    assert texts(notebook).count("stopped") == (3 if name == "02_the_chat" else 0)
    # What was a panel is words by now.
    assert "widget" not in str(outputs) + str(notebook.metadata)


async def test_a_cell_that_computes_does_not_stall_the_room(tmp_path: Path) -> None:
    """DESIGN section 3: the room keeps running laps while a worker's cell computes in pure Python."""
    env = {"POOLED_THREADS": "1", "POOLED_RUNTIME_DIR": str(tmp_path / "rooms")}
    enough = tmp_path / "enough"
    async with kernels(["host", "worker"], tmp_path, env) as [host, worker]:
        await host.run(f"%load_ext pooled_nb\n%pooled host {MODEL} --split memory --no-ask -o room")
        code = await host.value("room.code")
        await worker.run(f"%load_ext pooled_nb\n%pooled join {code} --role worker -o room")
        await host.run("%pooled start --devices 2")
        spins = f"while not os.path.exists({str(enough)!r}):\n    for _ in range(100_000): n += 1"
        busy = asyncio.create_task(worker.run(f"import os\nn = 0\n{spins}"))
        await host.run("%%ask -o answer --max 12\nWhat is the capital of France?")
        assert not busy.done()
        enough.touch()
        await busy
        assert "Paris" in await host.value("answer.text")
        assert await host.value("[d.layers is not None for d in room.status().devices]") == [True, True]
        assert await worker.value("room.status().state") == "online"
        assert await worker.value("'torch' in __import__('sys').modules") is False


def test_the_demo_tells_the_truth(tmp_path: Path) -> None:
    """`pooled-nb demo` ends with the room, the split, the answer, and whether the tokens are one device's."""
    argv = [sys.executable, "-m", "pooled_nb.cli", "demo", "--devices", "2", "--max-tokens", "8"]
    env = os.environ | {"POOLED_RUNTIME_DIR": str(tmp_path), "POOLED_THREADS": "1"}
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=150, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "same tokens as one device: yes"
    assert "host, layers 1–" in done.stdout
    assert "–30" in done.stdout
    assert "tokens/s over 2 devices" in done.stdout
    assert "1 core a device)" in done.stdout
    assert done.stderr == ""


def test_the_demo_refuses_one_device() -> None:
    argv = [sys.executable, "-m", "pooled_nb.cli", "demo", "--devices", "1"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "pooled-nb: A demo with 1 device shows no split. Use --devices 2 or more.\n"
