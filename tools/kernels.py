"""Makes an environment for each ipykernel that behaves in its own way: ``make test-kernels``.

Each lies under ``.venv-kernels/``, holds its own ipykernel and takes everything else from the environment
that runs this; so each is made in seconds. With ``--test`` the tests of kernels then run on all of them.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".venv-kernels"
WANTED = {
    "6.31": ["ipykernel==6.31.*", "nest-asyncio"],
    "7.3": ["ipykernel==7.3.*"],
}
"""Beside the installed one: what each needs that the project's environment lacks."""
TESTS = ["tests/widgets/test_kernel.py", "tests/lab/test_blocked.py"]


def interpreter(folder: Path) -> Path:
    """The Python of an environment."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def made() -> dict[str, Path]:
    """The Python of each environment that is there, by its ipykernel."""
    return {name: python for name in WANTED if (python := interpreter(PLACE / name)).exists()}


def make(name: str, pip: list[str]) -> None:
    """Make one environment, or leave it as it is.

    Raises
    ------
    subprocess.CalledProcessError
        pip could not install it.
    """
    folder = PLACE / name
    ready = folder / "ready"
    of = "\n".join([sys.executable, *WANTED[name]])
    if ready.exists() and ready.read_text(encoding="utf-8") == of:
        return
    venv.create(folder, clear=True, with_pip=False, symlinks=os.name != "nt")
    python = interpreter(folder)
    install = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", *pip]
    subprocess.run([*install, *quiet, *WANTED[name]], check=True)
    ours = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
    ).stdout.strip()
    # By addsitedir, so that what is installed there by a .pth (this project, editable) is found too; what
    # is found first stays first.
    rest = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (Path(ours) / "rest.pth").write_text(rest, encoding="utf-8")
    ready.write_text(of, encoding="utf-8")


def main() -> int:
    """Make them all; with ``--test``, run the tests on them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pip", default="", metavar="OPTIONS", help="more options for pip")
    parser.add_argument("--test", nargs="*", metavar="TEST", help="run these tests on them (none: all)")
    args = parser.parse_args()
    for name in WANTED:
        make(name, shlex.split(args.pip))
    if args.test is None:
        return 0
    env = {**os.environ, "POOLED_KERNELS": "all"}
    argv = [sys.executable, "-m", "pytest", *(args.test or TESTS)]
    return subprocess.run(argv, check=False, cwd=ROOT, env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
