"""Stretched positions of Llama 3.1 and later. A GGUF file has them as a table of factors, without saying how
they were made: so the config names the published ways, and the host checks the table against it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pooled_nb.errors import ModelError
from pooled_nb.shard.gguf.reader import unsupported

_LOW, _HIGH, _SPAN = 1.0, 4.0, 8192


def llama3(*, tied: bool) -> dict[str, Any]:
    """How the config says it: the small models of 3.2, whose head is their embedding, are stretched most."""
    return {
        "rope_type": "llama3",
        "factor": 32.0 if tied else 8.0,
        "low_freq_factor": _LOW,
        "high_freq_factor": _HIGH,
        "original_max_position_embeddings": _SPAN,
    }


def table_of(rope: dict[str, Any], head: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Factors of a config, ``[head // 2]``: each pair's frequency is divided by one."""
    found = []
    for i in range(head // 2):
        wave = 2 * math.pi * float(rope["rope_theta"]) ** (2 * i / head)
        if wave < _SPAN / _HIGH:
            found.append(1.0)
        elif wave > _SPAN / _LOW:
            found.append(float(rope["factor"]))
        else:
            smooth = (_SPAN / wave - _LOW) / (_HIGH - _LOW)
            found.append(1 / ((1 - smooth) / float(rope["factor"]) + smooth))
    return np.array(found, np.float32)


def refuse_other(table: np.ndarray[Any, Any], rope: dict[str, Any], head: int, name: str) -> None:
    """Refuse a table that is not the config's.

    Raises
    ------
    ModelNotSupported
    """
    wanted = table_of(rope, head)
    if table.shape != wanted.shape or not np.allclose(table, wanted, rtol=1e-4, atol=0):
        raise _other(name)


def _other(name: str) -> ModelError:
    return unsupported(
        name,
        "stretches its positions in another way than Llama 3.1 and 3.2",
        "Use the model as it is published in safetensors.",
    )
