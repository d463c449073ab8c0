"""What these tests need of the machine, and children that never outlive the run that started them."""

from __future__ import annotations

import os
import shutil
import sys
from typing import NoReturn

import pytest


def lacks(what: str) -> NoReturn:
    """Something is not here. Root on Linux can have all of it (``make setup-test``), so there it is a
    failure, not a skip that nobody sees; elsewhere the test is skipped with the reason.
    """
    if sys.platform == "linux" and os.geteuid() == 0:
        pytest.fail(f"{what} Run make setup-test.", pytrace=False)
    pytest.skip(what)


def bound(*command: str) -> list[str]:
    """The command, for a child that the kernel ends with the thread that starts it (Linux).

    A run that is killed cannot clean up, and a relay or a server that went on would hold its namespace.
    """
    setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
    return [setpriv, "--pdeathsig", "KILL", "--", *command] if setpriv else list(command)
