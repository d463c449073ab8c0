"""What ``pooled-nb models …`` and ``%pooled models …`` say, and what they answer. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Literal, get_args

from msgspec import Struct

from pooled_nb.errors import BadOption
from pooled_nb.plain import isolated
from pooled_nb.shard import KeptModel

What = Literal["list", "delete", "pull", "prune"]
VERBS: tuple[What, ...] = get_args(What)

_LAYERS = re.compile(r"(\d{1,5})(?:\s*[-–]\s*(\d{1,5}))?")
_SIZE = re.compile(r"\s*(\d{1,9}(?:[.,]\d+)?)\s*(kb|mb|gb|tb)?\s*", re.IGNORECASE)
_UNITS = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}

NONE = "No model is kept on this device."
NONE_NEXT = "A room fetches what it needs; pooled-nb models pull MODEL does so ahead."
HEAD = ("model", "revision", "here", "used", "where")
NEXT = (
    "delete MODEL removes one of the range cache, prune --keep 20GB what was not used for longest. What is "
    "in the hub cache, other programs use, too: hf cache rm."
)


class Order(Struct, frozen=True, kw_only=True):
    """What is to be done. ``layers``: ``[lo, hi)``, 0-based; ``keep``: bytes."""

    what: What = "list"
    model: str = ""
    revision: str | None = None
    layers: tuple[int, int] | None = None
    keep: int = 0

    @property
    def line(self) -> str:
        """As it is typed, after ``models``; so that it can be typed again."""
        layers = f" --layers {self.layers[0] + 1}-{self.layers[1]}" if self.layers else ""
        revision = f" --revision {self.revision}" if self.revision else ""
        return f"{self.what} {self.model}{layers}{revision}"


def read(
    words: Sequence[str], *, layers: str | None = None, revision: str | None = None, keep: str | None = None
) -> Order:
    """Read it.

    Raises
    ------
    BadOption
        It makes no sense, in one sentence.
    """
    what = words[0] if words else "list"
    if what not in VERBS:
        raise BadOption(f"models knows no {what[:40]!r}.", f"It knows {', '.join(VERBS)}.")
    named = words[1:]
    if what in ("delete", "pull") and len(named) != 1:
        raise BadOption(
            f"models {what} takes one model.", f"Write models {what} and its name, as models list shows it."
        )
    if what in ("list", "prune") and named:
        raise BadOption(f"models {what} takes no model.", f"Leave {named[0][:60]!r} out.")
    for name, given, verbs in (("layers", layers, "pull"), ("revision", revision, "pull delete")):
        if given is not None and what not in verbs.split():
            raise BadOption(f"--{name} says nothing to models {what}.", "Leave it out.")
    if (keep is not None) != (what == "prune"):
        raise BadOption(
            "models prune needs to know what to keep, and nothing else does.",
            "Write models prune --keep 20GB.",
        )
    return Order(
        what=what,
        model=named[0] if named else "",
        revision=revision,
        layers=None if layers is None else layers_of(layers),
        keep=0 if keep is None else size_of(keep),
    )


def layers_of(text: str) -> tuple[int, int]:
    """``1-12``, both ends included, as ``[0, 12)``. Raises `BadOption`."""
    found = _LAYERS.fullmatch(text.strip())
    lo = int(found[1]) if found else 0
    hi = int(found[2] or lo) if found else 0
    if not 1 <= lo <= hi:
        raise BadOption(f"{text[:40]!r} are no layers.", "Write them like 1-12: the first is 1.")
    return lo - 1, hi


def size_of(size: str | float) -> int:
    """Bytes of ``20GB``, or of a number of GB. Raises `BadOption`."""
    if isinstance(size, int | float) and not isinstance(size, bool) and 0 <= size < 1e9:
        return int(size * 1e9)
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if found is None:
        raise BadOption(f"{str(size)[:40]!r} is no size.", "Write it like 20GB.")
    return int(float(found[1].replace(",", ".")) * _UNITS[(found[2] or "gb").lower()])


def check_layers(layers: object) -> tuple[int, int] | None:
    """A range in Python, 0-based, its end excluded. Raises `BadOption`."""
    match layers:
        case None:
            return None
        case (int(lo), int(hi)) if 0 <= lo < hi:
            return lo, hi
    raise BadOption("layers are a range.", "Write (0, 12) for the first twelve: they count from 0.")


def gb(size: int) -> str:
    """``1.2 GB``, ``69 MB``, ``3 kB``."""
    if size >= 5e8:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.0f} MB" if size >= 5e5 or not size else f"{max(1.0, size / 1e3):.0f} kB"


def rows(models: Sequence[KeptModel], now: float) -> list[tuple[str, ...]]:
    """Cells of a table."""
    return [
        (isolated(kept.repo), kept.brief, _here(kept), ago(now - kept.used) if kept.used else "–", kept.where)
        for kept in models
    ]


def _here(kept: KeptModel) -> str:
    if kept.whole:
        return f"{gb(kept.bytes)}, whole"
    return f"{gb(kept.bytes)} of {gb(kept.total)}" if kept.total else f"{gb(kept.bytes)}, a part"


def ago(seconds: float) -> str:
    """``now``, ``12 min ago``, ``3 days ago``."""
    minutes = max(0, int(seconds // 60))
    if minutes < 2:
        return "now"
    if minutes < 90:
        return f"{minutes} min ago"
    if minutes < 36 * 60:
        return f"{round(minutes / 60)} h ago"
    return f"{round(minutes / (24 * 60))} days ago"


def summary(models: Sequence[KeptModel]) -> str:
    """Under the table: how much of it is ours, and what can be done."""
    ours = sum(kept.bytes for kept in models if kept.where != "hub cache")
    return f"{gb(ours)} are kept by this package. {NEXT}"


def deletion(models: Sequence[KeptModel]) -> str:
    """What is about to be deleted, as a question."""
    first = models[0]
    more = f" ({len(models)} revisions)" if len(models) > 1 else f" at {first.brief}"
    return f"Delete {gb(sum(kept.bytes for kept in models))} of {first.repo}{more}?"


def stopped(order: Order, command: str) -> str:
    """What Ctrl-C leaves of a pull."""
    return f"Stopped; what came is kept. Go on with: {command} models {order.line}"


def pulled(order: Order, models: Sequence[KeptModel]) -> str:
    """What is there after a pull."""
    here = [kept for kept in models if order.model.lower() in (kept.repo.lower(), kept.label.lower())]
    if not here:  # a folder, or a name that the hub knows under another
        return f"{order.model} is here."
    newest = max(here, key=lambda kept: kept.used)
    what = (
        "whole" if newest.whole else f"layers {order.layers[0] + 1}–{order.layers[1]}" if order.layers else ""
    )
    return f"{newest.repo} is here{f', {what}' if what else ''}: {gb(newest.bytes)} in the {newest.where}."


def as_dict(kept: KeptModel) -> dict[str, object]:
    """For programs."""
    return {
        "model": kept.repo,
        "revision": kept.revision,
        "bytes": kept.bytes,
        "total": kept.total,
        "whole": kept.whole,
        "used": kept.used or None,
        "where": kept.where,
    }


def clock() -> float:
    """Seconds since the epoch: last uses are times of files."""
    return time.time()
