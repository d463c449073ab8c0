"""A network of its own for tests over a relay: a namespace with private addresses, and what runs in it.

coturn refuses peers on loopback, so a namespace is made with an interface that has addresses. It lives as
long as the process that made it, and needs root on Linux.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TypeVar

import pytest

from pooled_nb.mesh.loop import new_loop
from tests.e2e.needs import bound, lacks
from tools import coturn

T = TypeVar("T")

RELAY, SIGNAL, OTHER = "10.77.0.1", "10.77.0.2", "10.77.0.3"
CLONE_NEWNET = 0x40000000
SETUP = "; ".join(
    [
        "ip link set lo up",
        "ip link add pooled0 type veth peer name pooled1",
        *(f"ip addr add {address}/24 dev pooled0" for address in (RELAY, SIGNAL, OTHER)),
        "ip link set pooled0 up",
        "ip link set pooled1 up",
        "echo up",
        "exec cat",  # ends with whoever holds its stdin
    ]
)
LIMIT_S = 180
"""Below the time that a test has: what hangs is named."""


def need() -> str:
    """Where turnserver is; what is not here is said by `needs.lacks`."""
    need_namespaces()
    return coturn.find() or lacks(coturn.MISSING)


def need_namespaces() -> None:
    """Skip the test, with the reason, where no network of its own can be made."""
    if sys.platform != "linux":
        pytest.skip("network namespaces are Linux's")
    if os.geteuid() != 0:
        pytest.skip("a network namespace of the test's own needs root")
    missing = [tool for tool in ("ip", "unshare", "nsenter") if shutil.which(tool) is None]
    if missing:
        lacks(f"A network namespace needs {', '.join(missing)} (packages iproute2 and util-linux).")
    trial = ["unshare", "-n", "sh", "-ec", SETUP]  # with no stdin it ends at once
    if subprocess.run(trial, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode != 0:
        refused = "This container may not make network namespaces with interfaces of their own."
        if os.environ.get("CI"):  # as every CI sets it: there it must not be left out in silence
            pytest.fail(refused, pytrace=False)
        pytest.skip(refused)


class Net:
    """One namespace, and the processes in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._keeper = subprocess.Popen(
            ["unshare", "-n", "sh", "-ec", SETUP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._keeper.stdout is not None
        assert self._keeper.stdout.readline() == "up\n"
        self._inside: list[subprocess.Popen[str]] = []
        self._logs: list[IO[str]] = []

    def start(
        self, *command: str, env: dict[str, str] | None = None, name: str = "log"
    ) -> subprocess.Popen[str]:
        """Start a program inside, which ends with the calling thread; what it says goes to a file."""
        log = (self.folder / f"{name}-{len(self._logs)}.txt").open("w+")
        self._logs.append(log)
        started = subprocess.Popen(
            ["nsenter", f"--net=/proc/{self._keeper.pid}/ns/net", *bound(*command)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self._inside.append(started)
        return started

    def said(self) -> str:
        """Everything that the programs inside wrote."""
        return "\n".join(Path(log.name).read_text(errors="replace") for log in self._logs)

    def run(self, job: Callable[[], Awaitable[T]], seconds: float = LIMIT_S) -> T:
        """Run a coroutine inside, on a loop of a thread of its own, which no other thread shares."""
        done: list[T] = []
        failed: list[BaseException] = []

        def inside() -> None:
            try:
                enter(self._keeper.pid)
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    done.append(runner.run(_bounded(job, seconds)))
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=inside, name="inside", daemon=True)
        thread.start()
        thread.join(seconds + 30)
        if failed:
            raise failed[0]
        assert done, "it did not end"
        return done[0]

    def close(self) -> None:
        """End all that was started here, by its id; the namespace goes with the last of them."""
        for process in self._inside:
            process.terminate()
        for process in self._inside:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for log in self._logs:
            log.close()
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        self._keeper.stdout.close()
        self._keeper.wait(10)


async def _bounded(job: Callable[[], Awaitable[T]], seconds: float) -> T:
    async with asyncio.timeout(seconds):
        return await job()


def enter(pid: int) -> None:
    """Move the calling thread into the network of a process; threads and processes that it starts follow."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        if libc.setns(handle, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(handle)


def relay_config(folder: Path, port: int, lines: Sequence[str]) -> Path:
    """A coturn that listens in the namespace alone, and keeps no database but an empty one of its own."""
    path = folder / f"turnserver-{port}.conf"
    common = [
        f"listening-ip={RELAY}",
        f"relay-ip={RELAY}",
        f"listening-port={port}",
        "realm=relay.example.org",
        "fingerprint",
        "no-cli",
        "no-multicast-peers",
        f"userdb={folder}/users-{port}.db",
        f"pidfile={folder}/turnserver-{port}.pid",
        "log-file=stdout",
        "min-port=40000",
        "max-port=48000",
    ]
    path.write_text("\n".join([*common, *lines]) + "\n")
    return path


@contextlib.contextmanager
def made(folder: Path) -> Iterator[Net]:
    """A namespace, ended on the way out."""
    net = Net(folder)
    try:
        yield net
    finally:
        net.close()
