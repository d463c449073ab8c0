"""Test vectors from an independent implementation and from the real npm packages.

`POOLED_VECTORS` names another folder to take them from.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("POOLED_VECTORS") or Path(__file__).parent / "data")


def load(name: str) -> Any:
    """The vectors of one file, by its name without ``.json``."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
