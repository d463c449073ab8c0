"""One module out of several files: a widget's module cannot import its neighbours where it runs.

Each file in ``static/`` is a plain module that a browser and a test import as it is. What goes to a notebook
is one text: the files one after the other, each after those that it imports, without the lines that join
them. No build step (DESIGN section 7).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z]+\.js)";\n', re.MULTILINE)
_LEFT = re.compile(r"^(?:import\b|export (?!default )).*", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|let|class|function|async function) )", re.MULTILINE)


@cache
def script(name: str) -> str:
    """The module ``name`` with all that it imports. Two files must not use one name for different things.

    Raises
    ------
    ValueError
        An import or export is of a form that is not understood: says which, and where.
    """
    parts: dict[str, str] = {}
    _add(name, parts)
    return "\n".join(parts.values())


@cache
def style(*names: str) -> str:
    """These style sheets as one."""
    return "\n".join((STATIC / name).read_text(encoding="utf-8") for name in names)


def _add(name: str, parts: dict[str, str]) -> None:
    text = (STATIC / name).read_text(encoding="utf-8")
    for neighbour in _IMPORT.findall(text):
        if neighbour not in parts:
            _add(neighbour, parts)
    parts[name] = _EXPORT.sub("", _IMPORT.sub("", text))
    if found := _LEFT.search(parts[name]):  # else the browser would refuse the whole, and name no file
        raise ValueError(f"{name}: cannot join {found[0]!r}")
