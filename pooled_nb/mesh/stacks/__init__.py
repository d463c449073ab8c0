"""The WebRTC stacks that a connection can run on, by the name that the setting ``transport`` has.

``aiortc`` is there with every installation. ``wrtc`` is libwebrtc, the engine of Chromium, and comes with an
extra. Both ends of a room choose for themselves: on the wire they are the same.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from pooled_nb.errors import BadOption
from pooled_nb.mesh.stack import Stack

DEFAULT = "aiortc"
NAMES = (DEFAULT, "wrtc")


def available() -> tuple[str, ...]:
    """Names of those that are installed. Loads none."""
    return tuple(name for name in NAMES if find_spec(name) is not None)


def versions() -> dict[str, str]:
    """Which version of each is installed."""
    found = {}
    for name in NAMES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def check(name: str) -> None:
    """Whether a room may be opened with it.

    Raises
    ------
    BadOption
        There is no such stack, or it is not installed.
    """
    if name not in NAMES:
        raise BadOption(f"There is no transport {name!r}.", f"Choose {' or '.join(NAMES)}.")
    if name not in available():
        step = f"Run: pip install 'pooled-nb[{name}]', or use the transport {DEFAULT}."
        raise BadOption(
            f"The transport {name} needs the package {name}, which is not installed.",
            "Run: pip install -U pooled-nb" if name == DEFAULT else step,
        )


def get(name: str = DEFAULT) -> Stack:
    """Make the stack of this name; raises as `check`."""
    check(name)
    made: Stack = import_module(f"pooled_nb.mesh.stacks.over_{name}").make()
    return made
