"""What goes wrong in a shard, in words a person can act on."""

from __future__ import annotations

import sys
import traceback

from pooled_nb.errors import ModelTooBig, PooledError, ShardError

_NO_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory")


def no_memory(error: BaseException) -> bool:
    """Whether memory ran out: torch says so in several classes, on CPUs as a plain RuntimeError."""
    # The class of an accelerator's error, by name: this module loads no torch.
    named = any(cls.__name__ == "OutOfMemoryError" for cls in type(error).__mro__)
    return named or isinstance(error, MemoryError) or any(words in str(error).lower() for words in _NO_MEMORY)


def as_pooled_error(error: Exception) -> PooledError:
    """Put what a job raised into words; the trace of what should not happen goes to the standard error."""
    if isinstance(error, PooledError):
        return error
    traceback.print_exception(error, file=sys.stderr)
    text = " ".join(str(error).split())[:300].rstrip(".")
    if no_memory(error):
        return ModelTooBig(
            "The memory of this device ran out.",
            "Lend less, close other programs that use it, or choose a smaller model or a shorter context.",
        )
    if isinstance(error, ImportError):
        return ShardError(
            f"A library that computes cannot be imported here: {text}.",
            "Run: pip install -U torch transformers",
        )
    if isinstance(error, OSError):
        return ShardError(f"A file could not be read or written: {text}.", "Check the disk, then load again.")
    return ShardError(
        f"The shard failed: {type(error).__name__}: {text}.",
        "Load the model again; if it comes back, report it.",
    )
