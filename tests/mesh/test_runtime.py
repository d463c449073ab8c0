"""PROTOCOL section 2: the user's runtime file, by which a room on this machine is found."""

import os
import stat
import subprocess
import sys

import pytest

from pooled_nb.mesh import runtime
from pooled_nb.mesh.runtime import RoomFile


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path / "rooms"))
    return tmp_path / "rooms"


def room(code: str = "4TKG9P", **more) -> RoomFile:
    return RoomFile(code=code, server="ws://127.0.0.1:9000/", model="a/model", **more)


def dead_pid() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_write_find_remove(folder):
    """PROTOCOL section 2: the runtime file of a CODE comes before every server."""
    assert runtime.find("4TKG9P") is None
    path = runtime.write(room(folder="/models/a"))
    found = runtime.find("4TKG9P")
    assert found == room(folder="/models/a", created=found.created, born=found.born)
    assert runtime.find("4TKG9Q") is None
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    runtime.remove("4TKG9P")
    assert runtime.find("4TKG9P") is None
    assert list(folder.iterdir()) == []
    runtime.remove("4TKG9P")


def test_the_newest_wins_and_all_are_listed():
    runtime.write(room(created=1.0))
    runtime.write(room(created=3.0))
    runtime.write(room("AAAAAA", created=2.0))
    assert [(r.code, r.created) for r in runtime.all_rooms()] == [("4TKG9P", 3.0), ("AAAAAA", 2.0)]


def test_stale_files_are_cleaned(folder):
    """A room whose process is gone does not count, and its file goes."""
    runtime.write(room(pid=dead_pid()))
    assert runtime.find("4TKG9P") is None
    assert list(folder.iterdir()) == []
    runtime.write(room(pid=dead_pid()))
    assert runtime.all_rooms() == []
    assert list(folder.iterdir()) == []


def test_a_number_that_is_another_processs_now_counts_not(folder):
    """CASES: after a crash and a restart of the machine, or of a container, the host's number is soon used
    again: by a process that began at another time, so the room is over and its code free.
    """
    path = runtime.write(room())
    found = runtime.find("4TKG9P")
    assert found is not None
    assert found.born
    assert runtime.find("4TKG9P") == found
    path.write_bytes(path.read_bytes().replace(found.born.encode(), b"an older one"))
    assert runtime.find("4TKG9P") is None
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("platform", [sys.platform, "darwin"])
def test_when_a_process_began(monkeypatch, platform):
    """CASES: the same of one process whoever asks, and another of one that began later: this process has
    imported pytest meanwhile, which takes longer than a machine tells apart. Nothing of one that is over.
    """
    monkeypatch.setattr(sys, "platform", platform)
    script = "import sys\nfrom pooled_nb.mesh import runtime\n"
    script += f"sys.platform = {platform!r}\nprint(runtime._born({os.getpid()}), end='', flush=True)\ninput()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as later:
        mine, its = runtime._born(os.getpid()), runtime._born(later.pid)
        told, _ = later.communicate("\n")
    assert mine
    assert its
    assert told == mine != its
    assert runtime._born(later.pid) == ""


def test_where_its_beginning_is_not_known_the_number_decides(monkeypatch):
    """A machine that tells nothing of its processes, or a file that was written by an older version."""
    monkeypatch.setattr(runtime, "_born", lambda pid: "")
    runtime.write(room())
    assert runtime.find("4TKG9P") is not None
    monkeypatch.setattr(runtime, "_born", lambda pid: "now known")
    assert runtime.find("4TKG9P") is not None


def test_anothers_file_is_left_alone():
    """A dying kernel closes its own room and nobody else's (DESIGN section 3)."""
    runtime.write(room(pid=os.getppid()))
    runtime.remove("4TKG9P")
    assert runtime.find("4TKG9P") is not None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"\xff",
        b"[" * 10_000,
        b'{"code":"4TKG9P","server":"x","pid":"1"}',
        b'{"code":"AAAAAA","server":"ws://x/","pid":1}',
        b'{"v":9,"code":"4TKG9P","server":"ws://x/","pid":1}',
        b'{"code":"4TKG9P","server":"ws://x/","pid":' + b"9" * 30 + b"}",
        b" " * 20_000,
    ],
)
def test_what_is_no_room_file_is_ignored(folder, text):
    """Everything read is typed and bounded."""
    runtime.write(room("BBBBBB"))
    (folder / "4TKG9P.json").write_bytes(text)
    assert runtime.find("4TKG9P") is None
    assert [r.code for r in runtime.all_rooms()] == ["BBBBBB"]


@pytest.mark.parametrize("code", ["", "..", "../x", "a/b", "4tkg9p", "4TKG9P\n", "ŻŻŻŻŻŻ", "A" * 7])
def test_a_code_never_becomes_a_path(code):
    assert runtime.find(code) is None
    runtime.remove(code)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX owners and modes")
def test_a_folder_that_others_may_write_is_not_trusted(folder):
    """/tmp is everybody's: what somebody else could have put there names no server."""
    runtime.write(room())
    folder.chmod(0o777)
    assert runtime.find("4TKG9P") is None
    assert runtime.all_rooms() == []
    with pytest.raises(PermissionError):
        runtime.write(room())


def test_a_link_is_not_followed(folder, tmp_path):
    runtime.write(room("BBBBBB"))
    (folder / "BBBBBB.json").rename(tmp_path / "elsewhere.json")
    (folder / "BBBBBB.json").symlink_to(tmp_path / "elsewhere.json")
    assert runtime.find("BBBBBB") is None


def test_the_default_folder_is_the_users_own(monkeypatch):
    monkeypatch.delenv("POOLED_RUNTIME_DIR")
    assert runtime.folder().parts[-2:] == ("pooled_nb", "rooms")
