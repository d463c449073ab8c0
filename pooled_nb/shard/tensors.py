"""What a tensor's name in a checkpoint says: which layer it belongs to, and whether a text model needs it.

The one rule for what is fetched, what is counted and what is missed (DESIGN section 6).
"""

from __future__ import annotations

import re

_LAYER = re.compile(r"(?:^|\.)(\d+)\.")
# Towers for other senses, what joins them to the text model, and layers that guess tokens ahead.
_OTHER = re.compile(
    r"(?:^|\.)(?:[^.]*(?:vision|visual|audio)|image_|speech|mtp|multi_modal|mm_)[^.]*(?:\.|$)",
)


def layer_of(name: str) -> int | None:
    """Return the layer a tensor belongs to; None for embedding, norm and head."""
    found = _LAYER.search(name)
    return int(found[1]) if found else None


def other_tower(name: str) -> bool:
    """Whether a tensor is no part of the text model: told by its name before the layer's number."""
    found = _LAYER.search(name)
    # Behind the number it is a part of a text layer, whatever it is called.
    return _OTHER.search(name[: found.start(1)] if found else name) is not None


def in_range(name: str, lo: int, hi: int, ends: bool) -> bool:
    """Whether a device that holds layers ``[lo, hi)``, and the ends or not, needs this tensor."""
    if other_tower(name):
        return False
    layer = layer_of(name)
    return ends if layer is None else lo <= layer < hi
