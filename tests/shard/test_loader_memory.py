"""One copy of the range in memory, counted by the system."""

from __future__ import annotations

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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_holds_one_copy_of_the_range(tmp_path: Path) -> None:
    """DESIGN section 6: only its own range is read, and no second copy is held."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {**tiny.CONFIGS["llama"], "hidden_size": 512, "intermediate_size": 2048}
    with torch.device("cpu"):
        LlamaForCausalLM(LlamaConfig(**sizes)).to(torch.bfloat16).save_pretrained(tmp_path)
    layer = facts(tmp_path).layer_bytes[0]
    root = Path(__file__).parents[2]
    # As the child process runs: freed blocks go back to the system.
    environment = {"PYTHONPATH": str(root), "MALLOC_MMAP_THRESHOLD_": "262144", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEMORY, str(tmp_path), "6"],
        capture_output=True, text=True, timeout=100, env=environment, check=True, cwd=root,
    )  # fmt: skip
    grown = int(done.stdout)
    # 4 layers and their caches, less the one layer that was freed before; the whole model is 6.
    assert grown < 1.15 * 4 * layer + 2_000_000
