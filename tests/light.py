"""Which folders of tests run as on a machine without torch and Jupyter: ``make test-light``.

A test in one of them that needs a real shard says ``@pytest.mark.torch`` and imports it in its own body; it
runs with the rest.
"""

from __future__ import annotations

from pathlib import Path

FOLDERS = ("mesh", "room", "sim", "vectors")

_TESTS = Path(__file__).parent


def is_light(path: Path) -> bool:
    """Whether a file or folder lies in one of them."""
    return any(path.is_relative_to(_TESTS / folder) for folder in FOLDERS)
