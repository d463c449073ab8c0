"""The kernels that tests run on: this Python's own; with ``POOLED_KERNELS=all`` those of tools/kernels.py."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from tools.kernels import WANTED, made

INSTALLED = "installed"
ROOT = Path(__file__).parent.parent
KERNELS: dict[str, str] = {INSTALLED: sys.executable}
if os.environ.get("POOLED_KERNELS") == "all":
    KERNELS |= {name: str(python) for name, python in made().items()}
    if missing := WANTED.keys() - KERNELS:
        raise RuntimeError(f"There is no kernel {', '.join(sorted(missing))}: make test-kernels makes them.")


def write_specs(data: Path) -> None:
    """Write a kernelspec for each of `KERNELS` into a data directory of Jupyter."""
    for name, python in KERNELS.items():
        spec = {
            "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": name,
            "language": "python",
            "metadata": {"debugger": False},
        }
        folder = data / "kernels" / name
        folder.mkdir(parents=True)
        (folder / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")


@contextlib.asynccontextmanager
async def running(name: str, folder: Path, **env: str) -> AsyncIterator[tuple[AsyncKernelManager, Any]]:
    """One of `KERNELS`, started, and ended in the end; its manager and a client that is ready.

    All that it keeps lies in ``folder``, with what it writes to stdout and stderr in ``kernel.log``.
    """
    write_specs(folder)
    specs = KernelSpecManager(kernel_dirs=[str(folder / "kernels")], ensure_native_kernel=False)
    manager = AsyncKernelManager(kernel_name=name, kernel_spec_manager=specs)
    own = {
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "POOLED_RUNTIME_DIR": str(folder / "rooms"),
        "PYTHONPATH": str(ROOT),
    }
    with (folder / "kernel.log").open("wb") as log:  # also for a kernel that is started again
        await manager.start_kernel(env={**os.environ, **own, **env}, stdout=log, stderr=log)
        client: AsyncKernelClient = manager.client()
        try:
            client.start_channels()
            await client.wait_for_ready(timeout=60)
            yield manager, client
        finally:
            client.stop_channels()
            await manager.shutdown_kernel(now=True)
