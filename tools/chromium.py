"""Print where a Chromium is, for the tests in a real JupyterLab: ``make chromium``.

What is here is taken: ``POOLED_CHROMIUM``, then Chromium, Chrome or Edge where systems put them, then
Playwright's own. Where there is none it is installed: by apt for root, else by Playwright.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")
MAC = ("Chromium", "Google Chrome", "Microsoft Edge")
WINDOWS = tuple(
    f"{folder}/Application/{name}.exe"
    for folder, name in (("Chromium", "chrome"), ("Google/Chrome", "chrome"), ("Microsoft/Edge", "msedge"))
)
MISSING = "No Chromium can be had. Install Chromium or Chrome, or name its program in POOLED_CHROMIUM."
LOOK_S = 60
INSTALL_S = 900


def candidates(environ: Mapping[str, str] = os.environ, system: str = sys.platform) -> Iterator[str]:
    """Where one may be, the best first."""
    yield environ.get("POOLED_CHROMIUM", "")
    for name in NAMES:
        yield shutil.which(name) or ""
    if system == "darwin":
        for folder in (Path("/Applications"), Path.home() / "Applications"):
            yield from (str(folder / f"{name}.app/Contents/MacOS/{name}") for name in MAC)
    if system == "win32":
        for variable in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"):
            if root := environ.get(variable):
                yield from (str(Path(root) / name) for name in WINDOWS)
    yield _of_playwright()


def find() -> str | None:
    """The first that starts; None where there is none."""
    return next((path for path in candidates() if path and starts(path)), None)


def starts(path: str) -> bool:
    """Whether it is there and runs: Ubuntu's package is only a door to another store."""
    if not Path(path).is_file():
        return False
    if sys.platform == "win32":  # Chrome opens a window there instead of telling its version
        return True
    try:
        done = subprocess.run([path, "--version"], capture_output=True, timeout=LOOK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and bool(done.stdout.strip())


def install() -> None:
    """Install one, by apt where that is at hand, else by Playwright; what they say goes to stderr."""
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        if _run(["apt-get", "-qq", "update"], env):
            # A font with it: without one a page's text is boxes.
            wanted = ["chromium", "fonts-dejavu-core"]
            _run(["apt-get", "-qq", "-y", "--no-install-recommends", "install", *wanted], env)
        if find() is not None:
            return
    _run([sys.executable, "-m", "playwright", "install", "chromium"], dict(os.environ))


def _run(command: list[str], env: dict[str, str]) -> bool:
    try:
        done = subprocess.run(command, env=env, stdout=sys.stderr, timeout=INSTALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _of_playwright() -> str:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return ""
    with sync_playwright() as playwright:
        return playwright.chromium.executable_path


def main() -> int:
    """Print its path; 1, and a sentence, where none can be had."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--look", action="store_true", help="install nothing")
    look = parser.parse_args().look
    path = find()
    if path is None and not look:
        print("Installing Chromium, for the tests in a real JupyterLab …", file=sys.stderr, flush=True)
        install()
        path = find()
    if path is None:
        print(MISSING, file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
