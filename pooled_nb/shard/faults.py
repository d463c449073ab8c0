"""What goes wrong in a shard, in words a person can act on."""

from __future__ import annotations

import re
import sys
import traceback

from pooled_nb.errors import OutOfMemory, PooledError, ShardError

_NO_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "unable to allocate",
    "failed to allocate",
    "bad_alloc",
)
_ASKED = re.compile(r"allocate:? (\d+(?:\.\d+)?) ?(bytes|[KMGTP]iB)", re.IGNORECASE)
_UNITS = {"bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "pib": 1 << 50}


def no_memory(error: BaseException) -> bool:
    """Whether memory ran out: torch says so in several classes, on CPUs as a plain RuntimeError."""
    # The class of an accelerator's error, by name: this module loads no torch.
    named = any(cls.__name__ == "OutOfMemoryError" for cls in type(error).__mro__)
    return named or isinstance(error, MemoryError) or any(words in str(error).lower() for words in _NO_MEMORY)


def memory_ran_out(error: BaseException, when: str = "") -> OutOfMemory:
    """Say that memory ran out, how much was missing where that is known, and what to do.

    Parameters
    ----------
    when
        What the device did: ``while loading layers 1 to 6``.
    """
    asked = _ASKED.search(str(error))
    more = f": {_size(float(asked[1]) * _UNITS[asked[2].lower()])} more were needed at once" if asked else ""
    return OutOfMemory(
        f"This device ran out of memory{when and f' {when}'}{more}.",
        "Close other programs that use it, let it lend less, or host with a shorter context.",
    )


def _size(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e7 else f"{max(size / 1e6, 0.01):.2f} MB"


def let_go(error: BaseException) -> None:
    """Free what the functions held that an error went through: its trace would keep their tensors."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        one = one.__cause__ or one.__context__


def as_pooled_error(error: Exception) -> PooledError:
    """Put what a job raised into words; the trace of what should not happen goes to the standard error."""
    if isinstance(error, PooledError):
        return error
    traceback.print_exception(error, file=sys.stderr)
    text = " ".join(str(error).split())[:300].rstrip(".")
    if no_memory(error):
        return memory_ran_out(error)
    if isinstance(error, ImportError):
        return ShardError(
            f"A library that computes cannot be imported here: {text}.",
            "Run: pip install -U torch transformers",
        )
    if isinstance(error, OSError):
        return ShardError(f"A file could not be read or written: {text}.", "Check the disk, then load again.")
    return ShardError(
        f"The shard failed: {type(error).__name__}: {text}.",
        "Ask again, or start the room again; if it comes back, report it.",
    )
