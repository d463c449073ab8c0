"""Where this runs, as far as its owner's rules count (DESIGN section 7): what a room does there by default.

Colab's free runtimes forbid acting as a distributed-computing worker, and all of its runtimes forbid
peer-to-peer file sharing. A person whose plan allows more says so with the ordinary options.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Literal

from msgspec import Struct


class Place(Struct, frozen=True, kw_only=True):
    """A place and what holds there.

    Attributes
    ----------
    name
        As people know it; empty: a machine without rules of its own.
    role
        What ``join`` is where nobody said.
    split
        How ``host`` deals where nobody said; ``alone``: over this device only.
    gives
        Whether weights may go from device to device there; else they come from the hub alone.
    join_says, host_says
        What to tell the person when such a default is taken; empty: nothing.
    gives_says
        What to tell the person who lends memory or deals layers where ``gives`` is False.
    rules
        What the place allows, in a sentence; empty: nothing that would matter here.
    network
        What is known of its network, in a sentence.
    network_step
        What to do about it; empty: a relay.
    """

    name: str = ""
    role: Literal["auto", "guest"] = "auto"
    split: Literal["speed", "alone"] = "speed"
    gives: bool = True
    join_says: str = ""
    host_says: str = ""
    gives_says: str = ""
    rules: str = ""
    network: str = ""
    network_step: str = ""


COLAB = Place(
    name="Google Colab",
    role="guest",
    split="alone",
    gives=False,
    join_says="Colab's free runtimes may not compute for others, so this device joins as a guest, who asks. "
    "Where your plan allows more, choose the role worker.",
    host_says="Colab's free runtimes may not compute together with others, so this device holds the whole "
    "model. Where your plan allows more, choose the split speed or memory.",
    gives_says="Colab forbids to share files from device to device, so weights come to this device from the "
    "hub alone, and it gives none to others.",
    rules="Free runtimes may not work for a distributed computation, and no runtime may share files from "
    "device to device",
    network="UDP often fails here",
)
KAGGLE = Place(
    name="Kaggle",
    network="A notebook has no internet until it is switched on",
    network_step="Switch it on in the notebook's settings.",
)
ELSEWHERE = Place()


def secret(name: str, env: Mapping[str, str]) -> str:
    """What Colab keeps for its person under this name; empty where there is none, or it may not be read."""
    if here(env) is not COLAB:
        return ""
    try:
        return str(import_module("google.colab.userdata").get(name) or "")
    except Exception:  # Colab's own, of several kinds: then it is asked for
        return ""


def here(env: Mapping[str, str]) -> Place:
    """Which place an environment speaks of."""
    # Where both speak (an image made from the other's), the stricter rules count.
    if "COLAB_RELEASE_TAG" in env or "COLAB_GPU" in env:
        return COLAB
    if "KAGGLE_KERNEL_RUN_TYPE" in env or "KAGGLE_URL_BASE" in env:
        return KAGGLE
    return ELSEWHERE
