"""What differs between the supported versions of torch and transformers, in one place (DESIGN section 5).

Supported: torch 2.9 and newer, transformers 5.17 and newer (both within their major version).
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pooled_nb.errors import ModelNotSupported

TORCH = ((2, 9), (3, 0))
TRANSFORMERS = ((5, 17), (6, 0))


def _number(version: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def check_versions(torch: str, transformers: str) -> None:
    """Refuse versions that were never tried.

    Parameters
    ----------
    torch, transformers
        Version texts as the packages say them.

    Raises
    ------
    ModelNotSupported
        One line that names both versions, and what would do.
    """
    for have, (low, high) in ((torch, TORCH), (transformers, TRANSFORMERS)):
        if not low <= _number(have) < high:
            raise ModelNotSupported(
                f"pooled_nb runs with torch 2.9 to 2.x and transformers 5.17 to 5.x; here are torch {torch} "
                f"and transformers {transformers}.",
                'Install them with: pip install "torch>=2.9,<3" "transformers>=5.17,<6"',
            )


def cache_keyword(module: Any) -> str:
    """Name under which a model's ``forward`` takes its cache: another one since transformers 5.24."""
    names = inspect.signature(inspect.unwrap(type(module).forward)).parameters
    return "cache" if "cache" in names else "past_key_values"


@contextmanager
def quiet() -> Iterator[None]:
    """No bars and no reports from transformers: we tell progress, and missing weights are errors."""
    from transformers import utils

    logging: Any = utils.logging
    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def one_tensor_at_a_time() -> Iterator[None]:
    """Read weights one after the other: the loader's threads would hold a mixture's experts twice."""
    with _environ("HF_DEACTIVATE_ASYNC_LOAD", "1"):
        yield


@contextmanager
def grouped_attention(device: Any) -> Iterator[None]:
    """Let transformers' SDPA share keys and values between grouped heads under a mask.

    On CPUs torch's kernel does it without copying them for each head: the same bits, 2.5 times faster at 1024
    columns. On CUDA it would choose a slower kernel, so there the default stays.
    """
    if device.type != "cpu":
        yield
        return
    with _environ("TRANSFORMERS_SDPA_FORCE_GQA", "1"):
        yield


@contextmanager
def _environ(name: str, value: str) -> Iterator[None]:
    """Set a variable that transformers reads, and put it back."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
