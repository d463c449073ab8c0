"""What is done on Windows alone, with what exists there alone in its place: no Windows is at hand."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pooled_nb import demo, typed
from pooled_nb.mesh import ownfiles, runtime
from pooled_nb.mesh.runtime import RoomFile
from pooled_nb.shard import process, threads


class Kernel32:
    """As much of it as is asked: processes and how they ended (259: not yet)."""

    def __init__(self, codes: dict[int, int]) -> None:
        self.codes = codes
        self.open = 0

    def OpenProcess(self, access: int, inherit: bool, pid: int) -> int:
        assert access == 0x1000
        self.open += pid in self.codes
        return pid if pid in self.codes else 0

    def GetExitCodeProcess(self, handle: int, code: Any) -> int:
        code._obj.value = self.codes[handle]
        return 1

    def CloseHandle(self, handle: int) -> None:
        self.open -= 1


@pytest.fixture
def kernel32(monkeypatch: pytest.MonkeyPatch) -> Kernel32:
    kernel = Kernel32({7: 259, 8: 0})
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)
    monkeypatch.setattr(runtime.os, "kill", lambda *_: pytest.fail("this ends a process there"))
    return kernel


def test_a_room_counts_while_its_process_lives(
    kernel32: Kernel32, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PROTOCOL section 2: the runtime file; who asks whether a process lives must not end it."""
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(runtime, "_born", lambda pid: "")  # its processes are none of this machine's
    codes = {7: "AAAAAA", 8: "BBBBBB", 9: "CCCCCC"}
    for pid, code in codes.items():
        runtime.write(RoomFile(code=code, server="ws://127.0.0.1:9/", pid=pid))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        found = [room.code for room in runtime.all_rooms()]
    assert found == ["AAAAAA"]
    assert [path.stem for path in tmp_path.glob("*.json")] == ["AAAAAA"]
    assert kernel32.open == 0


@pytest.mark.skipif(sys.platform == "win32", reason="its folders have such bits elsewhere alone")
def test_a_folder_is_not_judged_by_bits_that_say_nothing_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    assert not ownfiles.is_own(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        assert ownfiles.is_own(tmp_path)
        assert not ownfiles.is_own(tmp_path / "gone")


def test_the_shard_hears_no_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 3: it is not hit by the kernel's interrupt, and opens no window."""
    monkeypatch.setattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200, raising=False)
    monkeypatch.setattr(subprocess, "CREATE_NO_WINDOW", 0x8000000, raising=False)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        assert process._own_session() == {"creationflags": 0x8000200}


def test_a_backslash_parts_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """``%pooled host C:\\models\\new`` names that folder."""
    line = "host C:\\models\\new --name 'my laptop' # here"
    monkeypatch.setattr(typed, "os", SimpleNamespace(name="nt"))
    assert typed.words(line) == ["host", "C:\\models\\new", "--name", "my laptop"]
    monkeypatch.setattr(typed, "os", SimpleNamespace(name="posix"))
    assert typed.words(line) == ["host", "C:modelsnew", "--name", "my laptop"]


def test_threads_are_counted_without_an_affinity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither macOS nor Windows tells which cores a process may use, nor has groups that limit it."""
    monkeypatch.delattr(threads.os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 6)
    assert threads.allowed_threads({}, tmp_path) == 6
    assert threads.allowed_threads({"POOLED_THREADS": "2"}, tmp_path) == 2


def test_kernels_are_spoken_to_on_a_loop_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """zmq needs a selector, which is not what Windows makes by itself."""
    made = object()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        patch.setattr(demo.asyncio, "SelectorEventLoop", lambda: made)
        patch.setattr(demo.asyncio, "new_event_loop", lambda: pytest.fail("the policy was asked"))
        assert demo._loop() is made
