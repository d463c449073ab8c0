"""Where files go: the models' cache, and the folder by which rooms on this machine are found."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Literal

from msgspec import Struct

from pooled_nb.doctor.findings import Finding
from pooled_nb.mesh import runtime
from pooled_nb.shard import cache_folder

FULL_GB = 1.0
"""Less than this holds no model that would be worth a room."""
TIGHT_GB = 10.0


class Disk(Struct, frozen=True, kw_only=True):
    """The cache of models. ``free_gb`` None: the system does not say. ``writable``: by this user."""

    folder: str
    free_gb: float | None
    writable: bool


class RuntimeFolder(Struct, frozen=True, kw_only=True):
    """The folder of the runtime files (PROTOCOL section 2).

    ``kind`` ``none``: there is none yet; ``own``, ``private`` and ``writable`` are then its parent's.
    ``private``: nobody else may write to it.
    """

    folder: str
    kind: Literal["none", "folder", "other"]
    own: bool
    private: bool
    writable: bool
    problem: str = ""


def look_at_disk() -> Disk:
    """Ask the file system that holds the range cache."""
    folder = cache_folder()
    there = _first_existing(folder)
    try:
        free: float | None = shutil.disk_usage(there).free / 1e9
    except OSError:
        free = None
    return Disk(folder=str(folder), free_gb=free, writable=os.access(there, os.W_OK | os.X_OK))


def judge_disk(disk: Disk) -> list[Finding]:
    """Facts in, findings out."""
    what = "disk for models"
    move = "Free some space (pooled-nb models lists what is kept), or set POOLED_CACHE to a larger disk."
    if not disk.writable:
        todo = "Set POOLED_CACHE to a folder of yours."
        return [Finding(what=what, mark="fail", result=f"{disk.folder} cannot be written to", todo=todo)]
    if disk.free_gb is None:
        return [
            Finding(what=what, mark="skip", result=f"the system does not say what is free in {disk.folder}")
        ]
    result = f"{disk.free_gb:.1f} GB free in {disk.folder}"
    if disk.free_gb < FULL_GB:
        return [Finding(what=what, mark="fail", result=result, todo=move)]
    if disk.free_gb < TIGHT_GB:
        return [Finding(what=what, mark="warn", result=f"{result}: enough for small models", todo=move)]
    return [Finding(what=what, mark="ok", result=result)]


def look_at_runtime() -> RuntimeFolder:
    """Look at the runtime folder; makes nothing."""
    try:
        where = runtime.folder()
    except OSError as error:
        return RuntimeFolder(
            folder="", kind="other", own=False, private=False, writable=False, problem=error.strerror or ""
        )
    try:
        facts = where.lstat()
        kind: Literal["none", "folder", "other"] = "folder" if stat.S_ISDIR(facts.st_mode) else "other"
    except OSError:
        kind = "none"
        parent = _first_existing(where)
        return RuntimeFolder(
            folder=str(where),
            kind=kind,
            own=True,
            private=True,
            writable=os.access(parent, os.W_OK | os.X_OK),
        )
    if sys.platform == "win32":
        own = private = True  # a folder of the user's profile; its rights are not in these bits
    else:
        own, private = facts.st_uid == os.getuid(), not facts.st_mode & 0o022
    writable = os.access(where, os.W_OK | os.X_OK)
    return RuntimeFolder(folder=str(where), kind=kind, own=own, private=private, writable=writable)


def judge_runtime(seen: RuntimeFolder) -> list[Finding]:
    """Facts in, findings out. Without it rooms work, but joiners here need the server's address."""
    what = "runtime folder"
    so = "so a room on this machine is not found by its code alone"
    override = "or set POOLED_RUNTIME_DIR to a folder of yours"

    def failed(result: str, todo: str) -> list[Finding]:
        return [Finding(what=what, mark="fail", result=f"{result}, {so}", todo=todo)]

    if seen.problem or not seen.folder:
        return failed(seen.problem or "there is no place for it", f"Set XDG_RUNTIME_DIR, {override}.")
    if seen.kind == "other":
        return failed(f"{seen.folder} is no folder", f"Move it away, {override}.")
    if seen.kind == "none":
        if not seen.writable:
            return failed(f"{seen.folder} cannot be made", f"Let this user write there, {override}.")
        return [Finding(what=what, mark="ok", result=f"{seen.folder}, made with the first room")]
    if not seen.own:
        return failed(f"{seen.folder} belongs to another user", f"Remove it as that user, {override}.")
    if not seen.private:
        return failed(f"others may write to {seen.folder}", f"Run: chmod 700 {seen.folder}, {override}.")
    if not seen.writable:
        return failed(f"{seen.folder} cannot be written to", f"Run: chmod 700 {seen.folder}, {override}.")
    return [Finding(what=what, mark="ok", result=seen.folder)]


def _first_existing(path: Path) -> Path:
    for one in (path, *path.parents):
        if one.exists():
            return one
    return path
