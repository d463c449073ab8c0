"""How many threads a shard may compute with.

torch's default, one per core of the machine, costs several ms a step when processes share the cores
(DESIGN section 5): a shard holds to the cores it may really use.

Several shards on one machine do not divide them. While an answer is said one device computes after the
other, so that each needs all the cores in its turn; only a prompt's frames are under way on several at once
(measured, three on 2 cores: with one thread each a prompt takes 8 to 25 % less, a token 6 to 19 % more).
And their number may decide bits, so that it must not change while a room runs. ``POOLED_THREADS`` sets it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def allowed_threads(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int:
    """Threads to compute with: what affinity, quota, ``POOLED_THREADS`` and OpenMP's setting all allow."""
    limits = [_affinity()]
    if quota := cgroup_cpus(root):
        limits.append(max(1, math.floor(quota)))
    limits += [
        int(value)
        for name in ("POOLED_THREADS", "OMP_NUM_THREADS")
        if (value := environ.get(name, "").strip()).isdecimal() and int(value) > 0
    ]
    return max(1, min(limits))


def limit_environment(environ: MutableMapping[str, str]) -> None:
    """Hold the numeric libraries, not loaded yet, to `allowed_threads`."""
    threads = str(allowed_threads(environ))
    for name in _VARIABLES:
        environ[name] = threads
    # Threads that wait by spinning take the core from the next device of the chain on the same machine.
    environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def cgroup_cpus(root: Path = Path("/")) -> float | None:
    """CPUs a container's quota allows; None where there is no quota."""
    for folder in cgroup_folders(root, "cpu"):
        try:
            if (v2 := folder / "cpu.max").exists():
                quota, period = v2.read_text(encoding="utf-8").split()[:2]
            else:
                quota = (folder / "cpu.cfs_quota_us").read_text(encoding="utf-8").strip()
                period = (folder / "cpu.cfs_period_us").read_text(encoding="utf-8").strip()
            if quota not in ("max", "-1"):
                return int(quota) / int(period)
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return None


def cgroup_folders(root: Path, controller: str) -> list[Path]:
    """Return where this process's limits lie: its own group first, then up to the root; cgroup v2 or v1."""
    folders = []
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            mount = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            mount = root / "sys/fs/cgroup" / controller
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        folders += [mount.joinpath(*parts[:n]) for n in range(len(parts), -1, -1)]
    return folders
