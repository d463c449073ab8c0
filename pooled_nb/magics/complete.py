"""Tab after ``%pooled`` and ``%%ask``: verbs, options and their values, models and rooms that are here.

Quick and bounded: a few folders are listed, no weights are opened, no network is asked and no torch imported.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.completer import SimpleCompletion, context_matcher

from pooled_nb.magics.verbs import ASK, VERBS, Option
from pooled_nb.plain import visible

if TYPE_CHECKING:
    from pooled_nb.room.core import Status

MOST = 200
"""Names that are looked at in one folder, and offered at once."""
ABOUT = 4_096
"""Bytes that are read of what says whose a folder is."""


COMMANDS = ("%pooled ", "%%ask ", "%ask ")


@context_matcher(identifier="pooled_nb")
def complete(context: Any) -> dict[str, Any]:
    """Be a matcher of IPython's completer (its API version 2): where it knows, nothing else is offered."""
    line = context.text_until_cursor.lstrip()
    found: list[str] = []
    if line.startswith(COMMANDS) and (not line.startswith("%%") or context.cursor_line == 0):
        with contextlib.suppress(Exception):  # whatever is wrong with a folder: tab offers less
            found = [name for name in candidates(line, context.token) if name.startswith(context.token)]
    return {
        "completions": [SimpleCompletion(text=name, type="magic") for name in found],
        "suppress": bool(found),
        "ordered": True,
    }


def candidates(line: str, symbol: str) -> list[str]:
    """What may stand at the end of a line, of which ``symbol`` is there already."""
    typed = line.split()
    fresh = not line[-1:].strip()
    command, before = typed[0], typed[1:] if fresh else typed[1:-1]
    word = "" if fresh else typed[-1]
    if len(typed) == 1 and not fresh:
        return []
    if command != "%pooled":
        return _options(ASK, before, word) if all(_is_head(before)) else []
    if not before:
        return [name for name in VERBS if name.startswith(word)]
    verb = VERBS.get(before[0])
    if verb is None:
        return []
    if before[0] == "help":
        return list(VERBS)
    options = _options(verb.options, before[1:], word)
    if options and (symbol.startswith("-") or _wants_value(verb.options, before)):
        return options
    targets = list(_targets(before[1:], verb.options))
    if before[0] == "models" and len(targets) == 1:
        return [*_named(targets[0], word), *options]
    if verb.target and not targets:
        return [*_meant(before[0], word), *options]
    return options


def _meant(verb: str, word: str) -> list[str]:
    """What may stand after a verb."""
    match verb:
        case "host":
            return _models(word)
        case "allow" | "deny":
            status = _status()
            return [_typed(line.name) for line in status.lobby] if status is not None else []
        case "kick":
            status = _status()
            return (
                [_typed(d.name) for d in status.devices if not (d.me or d.gone)] if status is not None else []
            )
        case "resume":
            return _left()
        case "models":
            return ["list", "pull", "delete", "prune"]
        case "download":
            return ["allow", "refuse"]
        case _:
            return _codes()


def _named(what: str, word: str) -> list[str]:
    """What may stand after a verb of ``%pooled models``."""
    match what:
        case "delete":
            return sorted({*_fetched(), *_kept()})[:MOST]
        case "pull":
            return sorted({*_fetched(), *_hub()})[:MOST]
    return []


def _status() -> Status | None:
    """How the room is, as it was at its last change; None where there is none."""
    api = sys.modules.get("pooled_nb.api")  # where it was not imported, there is no room
    room = api.current() if api is not None else None
    return room.seen() if room is not None else None


def _typed(name: str) -> str:
    """A name as it is read back from a line, where a # would begin a comment."""
    name = " ".join(visible(name).split())
    return shlex.quote(name) if "#" in name or "\\" in name else name


def _options(options: Iterable[Option], before: list[str], word: str) -> list[str]:
    """Values of the option that was typed last, else the options that were not."""
    known = {name: option for option in options for name in option.names}
    name, equals, _ = word.partition("=")
    if equals and name in known:
        return [*known[name].choices, *known[name].likely]
    option = known.get(before[-1]) if before else None
    if option is not None and option.value:
        there = {"folder": _folders, "draft": _models}.get(option.key, lambda word: [])
        return [*option.choices, *option.likely, *there(word)]
    given = {known[each].key for part in before if (each := part.partition("=")[0]) in known}
    return [max(option.names, key=len) for option in options if option.many or option.key not in given]


def _wants_value(options: Iterable[Option], before: list[str]) -> bool:
    return any(option.value and before[-1] in option.names for option in options)


def _targets(before: list[str], options: Iterable[Option]) -> Iterator[str]:
    """Words that are neither options nor their values."""
    valued = {name for option in options if option.value for name in option.names}
    for last, word in zip(["", *before], before, strict=False):
        if not word.startswith("-") and last not in valued:
            yield word


def _is_head(before: list[str]) -> Iterator[bool]:
    """Of each word of ``%%ask`` whether it belongs to its options: a question is not completed."""
    valued = {name for option in ASK if option.value for name in option.names}
    for last, word in zip(["", *before], before, strict=False):
        yield (word.startswith("-") and word != "--") or last in valued


def _codes() -> list[str]:
    from pooled_nb.mesh import codes, runtime

    return [codes.shown(room.code) for room in runtime.all_rooms()[:MOST]]


def _left() -> list[str]:
    """Rooms of this machine that can go on."""
    from pooled_nb.mesh import codes
    from pooled_nb.room import roomfile

    return [codes.shown(found.room.code) for found in roomfile.resumable()]


def _models(word: str) -> list[str]:
    if word.startswith((".", "/", "~")) or "\\" in word:
        return _folders(word)
    return sorted({*_hub(), *_kept(), *_fetched(), *_folders(word)})[:MOST]


def _hub() -> list[str]:
    """Models in the Hugging Face cache: ``models--org--name`` is ``org/name``."""
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface"
    )
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    names = _listed(Path(cache or os.path.join(home, "hub")).expanduser())
    return [name[len("models--") :].replace("--", "/") for name in names if name.startswith("models--")]


def _fetched() -> list[str]:
    """Models of the range cache: its folders are named by hashes, a small file in each says whose it is."""
    place = _cache() / "ranges" / "models"
    found = []
    for name in _listed(place):
        about = place / name / "about.json"
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError), about.open("rb") as it:
            found.append(str(json.loads(it.read(ABOUT))["repo"]))
    return [_typed(repo) for repo in found]


def _cache() -> Path:
    import platformdirs

    return Path(os.environ.get("POOLED_CACHE") or platformdirs.user_cache_dir("pooled_nb")).expanduser()


def _kept() -> list[str]:
    """Models of our own folder, under the name they are hosted by."""
    names = _listed(_cache() / "models")
    # `LABEL--REVISION`; what begins with a dot is not whole.
    return [name.partition("--")[0] for name in names if not name.startswith(".")]


def _folders(word: str) -> list[str]:
    """Folders that begin as the path that was typed."""
    parent, name = os.path.split(word)
    where = Path(parent).expanduser() if parent else Path()
    found = [each for each in _listed(where) if each.startswith(name) and not each.startswith(".")]
    return [os.path.join(parent, each) + "/" for each in found]


def _listed(folder: Path) -> list[str]:
    """Names of folders in a folder, at most so many."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in itertools.islice(entries, MOST * 5) if entry.is_dir())[
                :MOST
            ]
    except OSError:
        return []
