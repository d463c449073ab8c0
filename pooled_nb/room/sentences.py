"""The state of a room in words: what is so, then what to do next. Layers count from 1 here."""

from __future__ import annotations

import re
from collections.abc import Sequence

EXACT_ROOM = "This room is exact, and stays so. A fast one is opened with %pooled host --fast."
"""To who wishes for speed where the promise of equal tokens holds already."""
HOST_CHOOSES = (
    "The answer is as exact as the host opened the room. A fast one is opened with %pooled host --fast."
)
"""To a guest who wishes for speed."""
DRAFTS = {"model": "drafts by a small model", "layers": "drafts by the model's own layers"}
"""What guesses tokens ahead, besides text that stands there already: the words for `Status.drafts`."""


THROWN_OUT = "Ask its host before you join again."
"""What a device hears that is thrown out, after the words that it was."""
HOST_STARTS = "The room has not started, and here only its host starts it. Ask the host, then ask again."
"""To a guest whose question starts nothing."""


def layer_range(lo: int, hi: int) -> str:
    """``[lo, hi)`` as people read it: ``1–10``, or ``7`` for one layer."""
    return f"{lo + 1}–{hi}" if hi - lo > 1 else f"{lo + 1}"


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def opened(others: int, *, is_host: bool) -> str:
    """Nothing is loaded yet."""
    if not is_host:
        return "In the room; nothing is loaded yet. Ask, and the room starts."
    if others == 0:
        return "Only you are here. Others join with the code; or ask, and this device answers alone."
    devices = "1 other device is" if others == 1 else f"{others} other devices are"
    return f"Ready to start: {devices} here. Ask, or start the room."


def online(names: Sequence[str], *, one_sig: bool, exact: bool, kv: str = "f16") -> str:
    """The model is loaded; which promise about bits holds (DESIGN section 5, rule 5), and in which class."""
    small = " with caches in int8" if kv == "q8" else ""
    where = (
        f"Online on {names[0]}, which holds every layer"
        if len(names) == 1
        else f"Online over {listed(names)}"
    )
    if len(names) > 1 and exact and one_sig:
        return f"{where}. The text is the same as one device alone would give{small}."
    where = f"{where}{small and f',{small}'}."
    if len(names) == 1:
        return where
    if not exact:
        return f"{where} Fast mode: the text may differ from another split's."
    return f"{where} The devices compute different bits: text is the same for this split, not another."


def gone(name: str, layers: tuple[int, int], *, left: bool, kicked: bool = False) -> str:
    """A chain device is gone."""
    what = "was taken out" if kicked else "left" if left else "dropped"
    return f"{name} {what}; layers {layer_range(*layers)} are missing."


def first(text: str) -> str:
    """The first sentence of an error, without its full stop: what happened, without the next step."""
    return _sentences(text)[0].rstrip(".")


def rest(text: str) -> str:
    """What follows the first sentence of an error: what to do next, in its device's words."""
    return "".join(_sentences(text)[1:])[:300]


def _sentences(text: str) -> list[str]:
    """The first sentence, and what follows it."""
    return re.split(r"(?<=[.!?]) ", " ".join(text.split()), maxsplit=1)
