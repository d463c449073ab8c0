"""A JupyterLab of the tests' own: its own settings, its own kernels, ended with everything it started."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.kernels import ROOT, write_specs

READY_S = 90.0
END_S = 10.0
SETTINGS: dict[str, dict[str, object]] = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
QUIET = (
    "--no-browser",
    "--ServerApp.port_retries=0",
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.expose_app_in_browser=True",
    "--allow-root",
)


@dataclass(frozen=True)
class Server:
    """A running server. ``root``: where its notebooks lie; ``place``: settings, logs, runtime files."""

    url: str
    token: str
    root: Path
    place: Path
    pid: int


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(place: Path, **more: str) -> dict[str, str]:
    """This process's environment, with a place of its own for everything that Jupyter and the rooms keep."""
    own = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
        "POOLED_RUNTIME_DIR": "rooms",
    }
    env = {**os.environ, **{name: str(place / folder) for name, folder in own.items()}}
    env.pop("JUPYTER_TOKEN", None)
    return {**env, "POOLED_THREADS": "1", "PYTHONPATH": str(ROOT), **more}


@contextlib.contextmanager
def serving(place: Path, **env: str) -> Iterator[Server]:
    """Start a server under ``place``; its kernels get ``env``."""
    write_specs(place / "data")
    for plugin, settings in SETTINGS.items():
        file = place / "settings" / f"{plugin}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings), encoding="utf-8")
    root = place / "notebooks"
    root.mkdir()
    port, token = free_port(), secrets.token_hex(16)
    argv = [sys.executable, "-m", "jupyterlab", f"--port={port}", f"--ServerApp.root_dir={root}", *QUIET]
    with (place / "server.log").open("wb") as log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment(place, **env) | {"JUPYTER_TOKEN": token},
        )
        server = Server(f"http://127.0.0.1:{port}", token, root, place, process.pid)
        try:
            _until_ready(server, process)
            yield server
        finally:
            _end(server, process)


def _request(server: Server, path: str, method: str = "GET") -> None:
    # The token goes in a header: an address lands in logs.
    headers = {"Authorization": f"token {server.token}"}
    request = urllib.request.Request(server.url + path, method=method, headers=headers)
    urllib.request.urlopen(request, timeout=5).close()


def _until_ready(server: Server, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + READY_S
    while True:
        try:
            return _request(server, "/api/status")
        except OSError as error:
            log = (server.place / "server.log").read_text(encoding="utf-8", errors="replace")
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"JupyterLab did not start:\n{log[-3000:]}") from error
            time.sleep(0.1)


def _end(server: Server, process: subprocess.Popen[bytes]) -> None:
    """Ask it to end with its kernels; whoever of them is left then is killed by pid."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    with contextlib.suppress(OSError):
        _request(server, "/api/shutdown", "POST")
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait(END_S)
