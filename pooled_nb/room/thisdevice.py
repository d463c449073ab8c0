"""What this device is and lends, as its options and the environment say."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

from pooled_nb.errors import BadOption
from pooled_nb.mesh import names
from pooled_nb.mesh.messages.link import DeviceMeta, NbMeta
from pooled_nb.room.dealing import COLS_CPU, COLS_GPU, WIDTH
from pooled_nb.room.weights.consent import DOWNLOAD_GB
from pooled_nb.room.weights.givers import LOCAL
from pooled_nb.room.weights.means import Means
from pooled_nb.shard import DeviceFacts, ModelFacts, cache_folder, free_bytes, open_holdings

DEFAULT_CTX = 4096
"""Tokens; caches are allocated for them at once, so the model's own maximum is not the default."""
ENCODINGS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}


def on_colab() -> bool:
    """Whether this is a Colab runtime: its rules forbid to compute for others (DESIGN section 7)."""
    return "COLAB_RELEASE_TAG" in os.environ or "COLAB_GPU" in os.environ


def room_key(code: str) -> str:
    """What disk copies of a room's checkpoints are kept under: never its code, which lets people in.

    Empty, so that none are kept, unless this device's person asked for them (``POOLED_KEEP_CHECKPOINTS``):
    they hold what others said in the room.
    """
    if os.environ.get("POOLED_KEEP_CHECKPOINTS", "").strip().lower() not in ("1", "true", "yes", "on"):
        return ""
    return hashlib.sha256(f"pooled-copies-v1\n{code}".encode()).hexdigest()[:32]


def max_download() -> float:
    """GB that a load may make this device download unasked: ``POOLED_MAX_DOWNLOAD`` (GB), else 8."""
    text = os.environ.get("POOLED_MAX_DOWNLOAD", "")
    try:
        return float(text) if text else DOWNLOAD_GB
    except ValueError:
        raise BadOption(f"POOLED_MAX_DOWNLOAD is {text!r}.", "Set it to a number of GB.") from None


def gives_weights(said: bool | None = None) -> bool:
    """Whether this device gives weights to others, where its place allows it.

    As its person said for this room, else by ``POOLED_GIVE_WEIGHTS``, else yes. Raises `BadOption`.
    """
    if said is not None:
        return said
    text = os.environ.get("POOLED_GIVE_WEIGHTS", "").strip().lower()
    if text in ("", "1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    raise BadOption(f"POOLED_GIVE_WEIGHTS is {text[:40]!r}.", "Set it to 1 or 0.")


def means_here(model: ModelFacts | None = None, *, give: bool | None = None) -> Means:
    """What this device may do about weights. Raises `BadOption`.

    Parameters
    ----------
    model
        What it hosts: a folder of its own it may give to its room.
    give
        See `gives_weights`.
    """
    own = {}
    if model is not None and model.repo.startswith(LOCAL) and model.folder is not None:
        own[model.repo, model.revision] = Path(model.folder)
    shares = not on_colab()
    return Means(
        holdings=open_holdings(own),
        gives=shares and gives_weights(give),
        takes=shares,
        download_gb=max_download(),
        free_gb=_free_gb,
    )


def _free_gb() -> float | None:
    """GB free where downloads go; None: the system does not say."""
    free = free_bytes(cache_folder())
    return None if free is None else free / 1e9


def context(wanted: int | None, most: int) -> int:
    """Tokens of context; None: the model's ``most``, at most 4,096. Raises `BadOption`."""
    if wanted is None:
        return min(most, DEFAULT_CTX)
    if not isinstance(wanted, int) or not 64 <= wanted <= most:
        raise BadOption(f"A context of {wanted} tokens is not possible here.", f"Choose 64 to {most:,}.")
    return wanted


def name_of(wanted: str | None) -> str:
    """What this device is called, before its host makes that unique."""
    return names.clean(wanted or platform.node().split(".")[0])


def meta_of(facts: DeviceFacts, lends: float) -> DeviceMeta:
    """What this device says of itself; ``lends`` in GB."""
    return DeviceMeta(
        webgpu=lends > 0,
        contrib_gb=lends,
        pledge_max=facts.free_gb,
        gbps=facts.gbps,
        gpu=facts.name[:120],
        ua="Jupyter",
        nb=NbMeta(
            v=1,
            device=facts.kind,
            dtypes=facts.dtypes,
            enc=[ENCODINGS[d] for d in facts.dtypes if d in ENCODINGS],
            width=WIDTH,
            cols=COLS_CPU if facts.kind == "cpu" else COLS_GPU,
            lanes=1,
            sig=facts.sig,
        ),
    )
