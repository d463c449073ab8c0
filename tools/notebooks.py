"""Runs the example notebooks with this very Python and keeps their outputs: ``make notebooks``.

The host's and the workers' notebooks run at the same time, as they would in the kernels of several people.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from pooled_nb.demo.kernels import this_python

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
CELL_S = 180
LOOK_S = 0.1


async def run(name: str, folder: Path, **env: str) -> Any:
    """Run one notebook in ``folder``; returns it with its outputs.

    Parameters
    ----------
    env
        Environment variables of its kernel, beside this process's own.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        A cell failed.
    """
    notebook = nbformat.read(EXAMPLES / name, as_version=4)  # type: ignore[no-untyped-call]
    manager = this_python()
    client = NotebookClient(
        notebook,
        km=manager,
        timeout=CELL_S,
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        coalesce_streams=True,
        store_widget_state=False,  # a panel is of no use without its kernel, and large
    )
    try:
        await client.async_execute(stderr=subprocess.DEVNULL, env={**os.environ, **env})
    finally:
        await manager.shutdown_kernel()
    return notebook


ALONE = ("01_a_room_answers.ipynb", "02_the_chat.ipynb")
"""Notebooks that need no other."""


async def alone(folder: Path, name: str = ALONE[0]) -> Any:
    """Run a notebook that needs no other."""
    with tempfile.TemporaryDirectory() as rooms:
        return await run(name, folder, POOLED_RUNTIME_DIR=rooms)


async def together(folder: Path, *, workers: int = 2) -> list[Any]:
    """Run the host's notebook, then the worker's so many times in the room that it opened.

    What a person would read in the one and type in the others is handed on by ``POOLED_LINK``.

    Returns
    -------
    list
        The host's notebook, then each worker's.
    """
    with tempfile.TemporaryDirectory() as rooms:
        host = asyncio.create_task(run("host.ipynb", folder, POOLED_RUNTIME_DIR=rooms))
        code = ""
        while not code and not (await asyncio.wait({host}, timeout=LOOK_S))[0]:
            code = _opened(Path(rooms))
        env = {"POOLED_RUNTIME_DIR": rooms, "POOLED_LINK": code}
        joined = [run("worker.ipynb", folder, **env) for _ in range(workers if code else 0)]
        return list(await asyncio.gather(host, *joined))


def _opened(rooms: Path) -> str:
    """The code of the room there; empty while there is none."""
    return next(
        (str(json.loads(file.read_text(encoding="utf-8"))["code"]) for file in rooms.glob("*.json")), ""
    )


def main() -> None:
    """Run them all and write them back."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    kept = {name: asyncio.run(alone(EXAMPLES, name)) for name in ALONE}
    kept["host.ipynb"], kept["worker.ipynb"], *_ = asyncio.run(together(EXAMPLES))
    for name, notebook in kept.items():
        nbformat.write(notebook, EXAMPLES / name)  # type: ignore[no-untyped-call]
        print(f"{name}: done")


if __name__ == "__main__":
    main()
