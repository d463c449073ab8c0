"""Print where coturn's ``turnserver`` is, for the tests over a relay: ``make coturn``.

What is here is taken: ``POOLED_TURNSERVER``, then where systems put it. Where there is none it is installed,
by the system's package manager, when this runs as root.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

PLACES = (
    ("/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")
    if sys.platform != "win32"
    else ()
)
MANAGERS = {
    "apt-get": (
        ["apt-get", "-qq", "update"],
        # Without what it recommends: that is a mail server.
        ["apt-get", "-qq", "-y", "--no-install-recommends", "install", "coturn"],
    ),
    "dnf": (["dnf", "-q", "-y", "install", "coturn"],),
    "apk": (["apk", "add", "--quiet", "coturn"],),
}
MISSING = (
    "No coturn can be had. Install it (the package coturn), or name its turnserver in POOLED_TURNSERVER."
)
INSTALL_S = 600


def candidates(environ: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Where it may be, the best first."""
    yield environ.get("POOLED_TURNSERVER", "")
    yield shutil.which("turnserver") or ""
    yield from (f"{place}/turnserver" for place in PLACES)


def find(environ: Mapping[str, str] = os.environ) -> str | None:
    """The first that is a program; None where there is none."""
    return next((p for p in candidates(environ) if p and Path(p).is_file() and os.access(p, os.X_OK)), None)


def install() -> None:
    """Install it where that is possible; what the package manager says goes to stderr."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for manager, steps in MANAGERS.items():
        if shutil.which(manager):
            for step in steps:
                try:
                    subprocess.run(step, env=env, stdout=sys.stderr, timeout=INSTALL_S, check=False)
                except (OSError, subprocess.TimeoutExpired):
                    return
            return


def main() -> int:
    """Print its path; 1, and a sentence, where it cannot be had."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--look", action="store_true", help="install nothing")
    look = parser.parse_args().look
    path = find()
    if path is None and not look:
        print("Installing coturn, for the tests over a relay …", file=sys.stderr, flush=True)
        install()
        path = find()
    if path is None:
        print(MISSING, file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
