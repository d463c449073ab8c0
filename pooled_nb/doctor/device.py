"""What this device computes with: kind, memory, dtypes (DESIGN sections 3 and 5)."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from msgspec import Struct

from pooled_nb.doctor.findings import Finding
from pooled_nb.errors import PooledError
from pooled_nb.shard import DeviceFacts, lend_gb, open_shard

LITTLE_GB = 1.0
"""Free memory under which even a small model will hardly fit."""


class Device(Struct, frozen=True, kw_only=True):
    """What was seen.

    Attributes
    ----------
    facts
        As the room would see them; None where they could not be had.
    problem, step
        Why not, and what to do.
    nvidia
        Whether the system has an NVIDIA GPU, whatever torch sees.
    """

    facts: DeviceFacts | None = None
    problem: str = ""
    step: str = ""
    nvidia: bool = False


async def look() -> Device:
    """Ask the shard's process: torch is loaded there, and not here."""
    shard = open_shard()
    try:
        return Device(facts=await shard.device(), nvidia=has_nvidia())
    except PooledError as error:
        return Device(problem=error.what, step=error.next_step, nvidia=has_nvidia())
    finally:
        await shard.close()


def has_nvidia() -> bool:
    """Whether the driver of an NVIDIA GPU is here."""
    if sys.platform == "linux" and Path("/proc/driver/nvidia/version").exists():
        return True
    return shutil.which("nvidia-smi") is not None


def judge(device: Device) -> list[Finding]:
    """Facts in, findings out."""
    facts = device.facts
    if facts is None:
        return [_unseen(device)]
    found = [
        Finding(what="device", mark="ok", result=f"{facts.kind}: {facts.name}, {_threads(facts)}"),
        _memory(facts),
        _dtypes(facts),
    ]
    if facts.note:
        found[0] = Finding(
            what="device",
            mark="warn",
            result=f"{facts.kind}: {facts.name}; {facts.note.rstrip('.')}",
            todo="Install torch's build for the GPU's driver, or set POOLED_DEVICE=cpu.",
        )
    elif device.nvidia and facts.kind != "cuda":
        found[0] = Finding(
            what="device",
            mark="warn",
            result=f"{facts.kind}: {facts.name}; torch {facts.torch} does not see its NVIDIA GPU",
            todo="Install torch's build for your driver, as its own install page names it.",
        )
    return found


def _unseen(device: Device) -> Finding:
    return Finding(
        what="device",
        mark="fail",
        result=device.problem.rstrip(".") or "it cannot be looked at",
        todo=device.step or "Run: pip install -U torch transformers",
    )


def _threads(facts: DeviceFacts) -> str:
    return f"{facts.threads} thread{'s' if facts.threads != 1 else ''}"


def _memory(facts: DeviceFacts) -> Finding:
    amount = f"{facts.free_gb:.1f} of {facts.total_gb:.1f} GB free"
    if facts.free_gb < LITTLE_GB:
        return Finding(
            what="memory", mark="warn", result=amount, todo="Close other programs before lending memory."
        )
    return Finding(
        what="memory", mark="ok", result=f"{amount}; lends {lend_gb(facts):.1f} GB unless told otherwise"
    )


def _dtypes(facts: DeviceFacts) -> Finding:
    result = ", ".join(facts.dtypes)
    if "bfloat16" in facts.dtypes:
        return Finding(what="dtypes", mark="ok", result=result)
    return Finding(
        what="dtypes",
        mark="warn",
        result=f"{result}; no bfloat16, which most models are published in",
        todo="Nothing to do: a room with this device in its chain computes in float16 or float32.",
    )
