"""What this device is: its name, its memory, what it computes natively, how fast it copies."""

from __future__ import annotations

import hashlib
import platform
import sys
import time
from pathlib import Path

import psutil
import torch
import transformers

from pooled_nb.shard.compat import check_versions
from pooled_nb.shard.door import DeviceFacts
from pooled_nb.shard.sig import signature
from pooled_nb.shard.threads import allowed_threads, cgroup_folders

_UNLIMITED = 1 << 60


def device_kind() -> str:
    """Return what the engine computes on, ``cuda`` or ``cpu``.

    Other accelerators (MPS, XPU) are not computed on yet, so a machine that has one is its CPU to a room.
    """
    return "cuda" if torch.cuda.is_available() else "cpu"


def device_facts() -> DeviceFacts:
    """Look, and measure: about a second after torch is loaded."""
    check_versions(str(torch.__version__), str(transformers.__version__))
    kind = device_kind()
    hold_threads()
    total, free = _memory(kind)
    dtypes = _native(kind)
    return DeviceFacts(
        kind=kind,
        name=_name(kind),
        total_gb=round(total / 1e9, 3),
        free_gb=round(free / 1e9, 3),
        dtypes=dtypes,
        gbps=_copy_speed(kind),
        sig=_sig(kind, dtypes),
        threads=torch.get_num_threads(),
        torch=str(torch.__version__),
        transformers=str(transformers.__version__),
    )


def hold_threads() -> None:
    """Hold torch to the threads this process may use, where it was loaded with more; never raise them."""
    allowed = allowed_threads()
    if torch.get_num_threads() > allowed:
        torch.set_num_threads(allowed)


def _sig(kind: str, dtypes: list[str]) -> str:
    """One word for all dtypes that a room would choose: bits agree where it agrees (DESIGN section 5)."""
    half = next((d for d in ("bfloat16", "float16") if d in dtypes), None)
    parts = [f"{d}={signature(kind, d)}" for d in ("float32", half) if d]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _native(kind: str) -> list[str]:
    """Return the dtypes computed natively. A T4 emulates bf16, slowly: it counts as not having it."""
    if kind == "cuda":
        bf16 = all(
            torch.cuda.get_device_capability(i) >= (8, 0) or torch.version.hip is not None
            for i in range(torch.cuda.device_count())
        )
        return ["float32", "float16", *(["bfloat16"] if bf16 else [])]
    # CPUs without bf16 instructions still read it at full memory speed, which is what decoding waits for.
    return ["float32", "bfloat16"]


def _name(kind: str) -> str:
    if kind == "cuda":
        count = torch.cuda.device_count()
        return str(torch.cuda.get_device_name(0)) + (f" ×{count}" if count > 1 else "")
    name = ""
    if sys.platform == "linux":
        try:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
            name = next((line.split(":", 1)[1] for line in lines if line.startswith("model name")), "")
        except OSError:
            name = ""
    return " ".join((name or platform.processor() or platform.machine() or "CPU").split())


def _memory(kind: str) -> tuple[int, int]:
    """Bytes in all and free, over all devices of the kind."""
    if kind == "cuda":
        pairs = [torch.cuda.mem_get_info(i) for i in range(torch.cuda.device_count())]
        return sum(total for _, total in pairs), sum(free for free, _ in pairs)
    return machine_memory()


def machine_memory(root: Path = Path("/")) -> tuple[int, int]:
    """Bytes of main memory in all and free, a container's limit counted."""
    memory = psutil.virtual_memory()
    total, free = int(memory.total), int(memory.available)
    for folder in cgroup_folders(root, "memory"):
        limit, used = _cgroup_memory(folder)
        if limit is not None:
            total, free = min(total, limit), min(free, max(0, limit - used))
    return total, free


def _cgroup_memory(folder: Path) -> tuple[int | None, int]:
    """Limit and use of one group; page cache that can be dropped is not use."""

    def number(name: str) -> int | None:
        try:
            return int((folder / name).read_text(encoding="utf-8").strip())
        except (OSError, ValueError):
            return None

    limit = number("memory.max")
    used = number("memory.current")
    key = "inactive_file"
    if limit is None and used is None:
        limit, used = number("memory.limit_in_bytes"), number("memory.usage_in_bytes")
        key = "total_inactive_file"
    try:
        stat = dict(
            line.split() for line in (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
        )
        droppable = int(stat.get(key, 0))
    except (OSError, ValueError):
        droppable = 0
    if limit is None or limit >= _UNLIMITED:
        return None, 0
    return limit, max(0, (used or 0) - droppable)


def _copy_speed(kind: str) -> float:
    """GB/s of a copy within the device's memory (reads and writes counted once), the best of a few."""
    size = (256 if kind != "cpu" else 64) << 20
    try:
        source = torch.ones(size, dtype=torch.uint8, device=kind)
        target = torch.empty_like(source)
    except RuntimeError:
        return 0.0
    best = float("inf")
    for _ in range(4):
        _wait(kind)
        start = time.perf_counter()
        target.copy_(source)
        _wait(kind)
        best = min(best, time.perf_counter() - start)
    return round(size / best / 1e9, 2)


def _wait(kind: str) -> None:
    if kind == "cuda":
        torch.cuda.synchronize()
