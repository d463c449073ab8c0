"""Runs the example notebooks with this very Python and keeps their outputs: ``make notebooks``.

The host's and the workers' notebooks run at the same time, as they would in the kernels of several people.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import nbformat
from nbclient import NotebookClient

from pooled_nb.demo.kernels import this_python
from pooled_nb.mesh import codes
from pooled_nb.room.keeping import SavedGate

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
        return await run(name, folder, POOLED_RUNTIME_DIR=f"{rooms}/open", POOLED_DATA_DIR=rooms)


async def together(folder: Path, *, workers: int = 2) -> list[Any]:
    """Run the host's notebook, then the worker's so many times in the room that it opened.

    What a person would copy in the one and type in the others, the invite link, is handed on by
    ``POOLED_LINK``.

    Returns
    -------
    list
        The host's notebook, then each worker's.
    """
    with tempfile.TemporaryDirectory() as rooms:
        env = {"POOLED_RUNTIME_DIR": f"{rooms}/open", "POOLED_DATA_DIR": rooms}
        host = asyncio.create_task(run("host.ipynb", folder, **env))
        link = ""
        while not link and not (await asyncio.wait({host}, timeout=LOOK_S))[0]:
            link = _opened(Path(rooms) / "rooms")
        joined = [run("worker.ipynb", folder, **env, POOLED_LINK=link) for _ in range(workers if link else 0)]
        return list(await asyncio.gather(host, *joined))


def _opened(rooms: Path) -> str:
    """The invite link of the room whose gate is kept there; empty while there is none."""
    for file in rooms.glob("*.json"):
        try:
            saved = msgspec.json.decode(file.read_bytes(), type=SavedGate)
        except (OSError, msgspec.MsgspecError):
            continue  # it is being written
        return codes.link(saved.code, saved.key, saved.server)
    return ""


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
