"""Which aiortc the tuned classes were written for (DESIGN section 4).

They stand on private parts of it and of aioice, which change from minor to minor without a word: another
minor is used as it comes, until somebody has read it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata

KNOWN = {"aiortc": (1, 16), "aioice": (0, 13)}
"""Major and minor of each that was read and tried."""
SHOWN = f"aiortc {'.'.join(map(str, KNOWN['aiortc']))}"
"""For people."""


def misfit(have: Callable[[str], str] = metadata.version) -> str:
    """Why what is installed is not what is known, in words; empty where it is.

    Parameters
    ----------
    have
        The installed version of a package, as `importlib.metadata.version`.
    """
    for name, known in KNOWN.items():
        try:
            found = have(name)
        except metadata.PackageNotFoundError:
            return f"the version of {name} is not known"
        if tuple(found.split(".")[:2]) != tuple(map(str, known)):
            return f"{name} {found} is not the {'.'.join(map(str, known))} that this pooled_nb tunes"
    return ""
