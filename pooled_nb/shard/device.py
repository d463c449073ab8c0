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

from pooled_nb.shard import accelerators
from pooled_nb.shard.compat import check_versions
from pooled_nb.shard.door import DeviceFacts
from pooled_nb.shard.sig import signature
from pooled_nb.shard.threads import allowed_threads, cgroup_folders

_UNLIMITED = 1 << 60


def device_kind() -> str:
    """Return what the engine computes on: ``cuda`` (ROCm, too), ``mps``, ``xpu`` or ``cpu``.

    Raises
    ------
    BadOption
        See `accelerators.chosen`.
    """
    return accelerators.chosen()[0]


def device_facts() -> DeviceFacts:
    """Look, and measure: about a second after torch is loaded."""
    check_versions(str(torch.__version__), str(transformers.__version__))
    kind, note = accelerators.chosen()
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
        note=note,
    )


def hold_threads() -> None:
    """Hold torch to the threads this process may use, where it was loaded with more; never raise them."""
    allowed = allowed_threads()
    if torch.get_num_threads() > allowed:
        torch.set_num_threads(allowed)


def _sig(kind: str, dtypes: list[str]) -> str:
    """One word for all dtypes that a room would choose: bits agree where it agrees (DESIGN section 5).

    Several devices of one model have that of one; with other models beside it, a layer's bits depend on which
    of them it lies on, and all of them count.
    """
    half = next((d for d in ("bfloat16", "float16") if d in dtypes), None)
    wanted = [d for d in ("float32", half) if d]
    each = {"\n".join(f"{d}={signature(place, d)}" for d in wanted) for place in accelerators.unlike(kind)}
    return hashlib.sha256("\n\n".join(sorted(each)).encode()).hexdigest()[:16]


def _native(kind: str) -> list[str]:
    """Return the dtypes computed natively."""
    if kind != "cpu":
        return accelerators.native(kind)
    # CPUs without bf16 instructions still read it at full memory speed, which is what decoding waits for.
    return ["float32", "bfloat16"]


def _name(kind: str) -> str:
    if kind != "cpu":
        return accelerators.name(kind)
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
    return machine_memory() if kind == "cpu" else accelerators.memory(kind)


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
        accelerators.wait(kind)
        start = time.perf_counter()
        target.copy_(source)
        accelerators.wait(kind)
        best = min(best, time.perf_counter() - start)
    return round(size / best / 1e9, 2)
