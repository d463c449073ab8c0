"""One copy of the range in memory, counted by the system."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pooled_nb.shard.sizes import facts
from tests.shard import tiny

MEMORY = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
import transformers.models.llama.modeling_llama
from tests.shard.runs import load
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
folder, hi = Path(sys.argv[1]), int(sys.argv[2])
load(folder, 1, 2, dtype="bfloat16")
before = peak()
engine = load(folder, 2, hi, dtype="bfloat16")
print(peak() - before)
"""


CASES = """
import gc, json, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from pooled_nb.shard.arch import read_config
from pooled_nb.shard.layout import blocks
from pooled_nb.shard.headers import read_layout
from pooled_nb.shard.loader import load_range
from pooled_nb.shard.tensormap import tensor_map
from tests.shard.rawfiles import large_mixture, large_model
def status(name):
    return int(Path("/proc/self/status").read_text().split(name)[1].split()[0]) * 1024
def peak(folder, lo, hi, tensors=None):
    gc.collect()  # the model before
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
    before = status("VmRSS:")
    model, parts = load_range(
        folder, read_config(folder), lo, hi, ends=lo == 0, dtype=torch.bfloat16, attn="sdpa",
        experts="batched_mm", device="cpu", max_gb=None, progress=lambda read, total: None, tensors=tensors,
    )
    held = {id(p): p.nbytes for module in (model, parts.base) for p in module.parameters()}
    return status("VmHWM:") - before, sum(held.values())
def segments(folder):
    "A file for each block, as the range cache keeps them."
    file = folder / "model.safetensors"
    layout, kept = read_layout(file), []
    for block in blocks(layout):
        path = folder / f"segment-{block.lo}"
        with path.open("wb") as stream:
            stream.truncate(block.hi - block.lo)
        kept.append((block.lo, block.hi, path))
    file.unlink()
    def locate(lo, hi):
        return next(((path, lo - at) for at, end, path in kept if at <= lo and hi <= end), None)
    return tensor_map({"model.safetensors": (layout, locate)})
home = Path(sys.argv[1])
tied = {"tie_word_embeddings": True, "vocab_size": 60_000}
made = {
    "the same dtype": (large_model(home / "a", layers=5, dim=1024), 1, 5),
    "another dtype": (large_model(home / "b", layers=5, dim=1024, dtype="F32"), 1, 5),
    "tied and another dtype": (large_model(home / "c", layers=2, dim=1024, dtype="F32", **tied), 0, 1),
    "experts": (large_mixture(home / "d", layers=3, dim=512, experts=32), 1, 2),
    "segments": (large_model(home / "e", layers=5, dim=1024), 1, 5),
}
peak(made["the same dtype"][0], 0, 1)
for name, (folder, lo, hi) in made.items():
    where = segments(folder) if name == "segments" else None
    print(json.dumps([name, *peak(folder, lo, hi, where)]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_file_makes_it_hold_anything_twice(tmp_path: Path) -> None:
    """DESIGN section 6: another dtype, tied embeddings, a mixture's experts, or files of the range cache."""
    done = run(CASES, str(tmp_path))
    lines = [json.loads(line) for line in done.splitlines()]
    assert len(lines) == 5
    for name, grown, held in lines:
        assert held > 90_000_000, name
        assert grown < 1.15 * held + 20_000_000, name  # a piece that is read has 16 MiB


def run(code: str, *arguments: str) -> str:
    """Run it as the child process runs: freed blocks go back to the system."""
    root = Path(__file__).parents[2]
    environment = {"PYTHONPATH": str(root), "MALLOC_MMAP_THRESHOLD_": "262144", "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        capture_output=True, text=True, timeout=200, env=environment, check=True, cwd=root,
    ).stdout  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_holds_one_copy_of_the_range(tmp_path: Path) -> None:
    """DESIGN section 6: only its own range is read, and no second copy is held."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {**tiny.CONFIGS["llama"], "hidden_size": 512, "intermediate_size": 2048}
    with torch.device("cpu"):
        LlamaForCausalLM(LlamaConfig(**sizes)).to(torch.bfloat16).save_pretrained(tmp_path)
    layer = facts(tmp_path).layer_bytes[0]
    grown = int(run(MEMORY, str(tmp_path), "6"))
    # 4 layers and their caches, less the one layer that was freed before; the whole model is 6.
    assert grown < 1.15 * 4 * layer + 2_000_000
