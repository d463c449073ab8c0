"""What this device is, and the threads it may use."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from pooled_nb.errors import ModelNotSupported
from pooled_nb.shard import accelerators
from pooled_nb.shard import device as device_module
from pooled_nb.shard import engine as engine_module
from pooled_nb.shard import threads as threads_module
from pooled_nb.shard.device import device_facts, machine_memory
from pooled_nb.shard.threads import allowed_threads, cgroup_cpus, limit_environment


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_facts_of_this_machine():
    """PROTOCOL section 3: ``meta``: memory, copy speed, native dtypes, sig."""
    first, second = device_facts(), device_facts()
    assert first.kind in ("cuda", "mps", "xpu", "cpu")
    assert first.name
    assert first.total_gb >= first.free_gb > 0
    assert first.gbps > 0
    assert "float32" in first.dtypes
    assert len(first.sig) == 16
    assert first.sig == second.sig
    assert first.torch == torch.__version__
    assert 1 <= first.threads <= allowed_threads()


def test_facts_are_those_of_the_device_that_computes(monkeypatch):
    """PROTOCOL section 3: a machine with an accelerator that the engine does not use is its CPU."""
    monkeypatch.setattr(accelerators, "_tried", {})
    monkeypatch.setattr(accelerators, "is_here", lambda kind: kind == "mps")
    assert device_module.device_kind() == engine_module._device("auto") == "cpu"
    facts = device_facts()
    assert facts.kind == "cpu"
    assert facts.note.startswith("mps is not used, since a small trial on it failed (")
    monkeypatch.setattr(accelerators, "_tried", {})
    monkeypatch.setattr(accelerators, "trial", lambda place, dtype: None)
    assert device_module.device_kind() == engine_module._device("auto") == "mps"
    assert engine_module._device("cpu") == "cpu"
    with pytest.raises(ModelNotSupported, match="no device 'cuda'"):
        engine_module._device("cuda")


def test_versions_out_of_range_are_named(monkeypatch):
    """CASES, Models: torch or transformers outside the supported range: one line naming both versions."""
    monkeypatch.setattr(torch, "__version__", "2.1.0")
    with pytest.raises(ModelNotSupported, match=r"2\.1\.0"):
        device_facts()


@pytest.mark.parametrize(
    ("capabilities", "native"),
    [([(7, 5), (7, 5)], False), ([(8, 0), (9, 0)], True), ([(8, 0), (7, 5)], False)],
)
def test_a_t4_has_no_native_bf16(monkeypatch, capabilities, native):
    """DESIGN section 5: T4-class GPUs have no native bf16; the room's dtype is one that all run natively."""
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda i: capabilities[i])
    assert ("bfloat16" in device_module._native("cuda")) == native
    assert "float16" in device_module._native("cuda")


def test_several_gpus_of_one_kernel_count_together(monkeypatch):
    """DESIGN section 5: accelerate spreads a range over the kernel's GPUs, so their memory adds up."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda i: (6 * 10**9, 8 * 10**9))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: "NVIDIA T4")
    assert device_module._memory("cuda") == (16 * 10**9, 12 * 10**9)
    assert device_module._name("cuda") == "NVIDIA T4 ×2"


def test_several_gpus_of_one_model_have_its_sig(monkeypatch):
    """DESIGN section 5, rule 5: bits depend on the model of GPU under a layer, so each model counts."""
    cards = ["A", "A"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(cards))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: cards[i])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda i: (9, 0))
    monkeypatch.setattr(device_module, "signature", lambda place, d: f"{cards[int(place[-1])]} in {d}")

    def sig(*names):
        cards[:] = names
        return device_module._sig("cuda", ["float32", "float16", "bfloat16"])

    assert sig("A") == sig("A", "A")
    assert sig("A", "B") == sig("B", "A", "B")
    assert len({sig("A"), sig("B"), sig("A", "B")}) == 3


MEMORY = {
    "none": ({"proc/self/cgroup": "0::/\n"}, 1000, 800),
    "v2": (
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/memory.max": "600\n",
            "sys/fs/cgroup/a/memory.current": "300\n",
            "sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 100\n",
            "sys/fs/cgroup/a/b/memory.max": "max\n",
            "sys/fs/cgroup/a/b/memory.current": "50\n",
        },
        600,
        400,
    ),
    "v2 seen from inside": (
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": "700",
            "sys/fs/cgroup/memory.current": "650",
        },
        700,
        50,
    ),
    "v1": (
        {
            "proc/self/cgroup": "12:cpuset:/\n5:memory:/docker/x\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "500",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "450",
            "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 50\n",
        },
        500,
        100,
    ),
    "v1 without a limit": (
        {
            "proc/self/cgroup": "5:memory:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2**63 - 4096),
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "450",
        },
        1000,
        800,
    ),
    "unreadable": ({"proc/self/cgroup": "nonsense", "sys/fs/cgroup/memory.max": "lots"}, 1000, 800),
}


@pytest.mark.parametrize("name", list(MEMORY))
def test_a_containers_memory_limit_counts(tmp_path, monkeypatch, name):
    """PROTOCOL section 6: what a device lends is what it has, a container's limit counted."""
    files, total, free = MEMORY[name]
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=1000, available=800))
    assert machine_memory(write(tmp_path, files)) == (total, free)


CPUS = {
    "none": ({"proc/self/cgroup": "0::/x\n", "sys/fs/cgroup/x/cpu.max": "max 100000\n"}, None),
    "v2": ({"proc/self/cgroup": "0::/x\n", "sys/fs/cgroup/x/cpu.max": "250000 100000\n"}, 2.5),
    "parent": ({"proc/self/cgroup": "0::/x/y\n", "sys/fs/cgroup/x/cpu.max": "50000 100000\n"}, 0.5),
    "v1": (
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
        3.0,
    ),
    "v1 none": (
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
        None,
    ),
    "no proc": ({}, None),
}


@pytest.mark.parametrize("name", list(CPUS))
def test_a_containers_cpu_quota_counts(tmp_path, name):
    """DESIGN section 5: threads are set to the cores a device may use."""
    files, cpus = CPUS[name]
    assert cgroup_cpus(write(tmp_path, files)) == cpus


def test_threads_hold_to_the_smallest_limit(tmp_path, monkeypatch):
    """DESIGN section 5: affinity, quota, and what the person set, all hold."""
    monkeypatch.setattr(threads_module, "_affinity", lambda: 8)
    assert allowed_threads({}, tmp_path) == 8
    assert allowed_threads({"POOLED_THREADS": "3"}, tmp_path) == 3
    assert allowed_threads({"POOLED_THREADS": "30", "OMP_NUM_THREADS": "2"}, tmp_path) == 2
    for nonsense in ("", "0", "-1", "many", "1.5"):
        assert allowed_threads({"POOLED_THREADS": nonsense}, tmp_path) == 8
    root = write(tmp_path, CPUS["parent"][0])
    assert allowed_threads({}, root) == 1
    env = {"POOLED_THREADS": "2"}
    limit_environment(env)
    assert env["OMP_NUM_THREADS"] == env["MKL_NUM_THREADS"] == "2"
