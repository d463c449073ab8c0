"""A model's own draft layers (multi-token prediction) in its files: which tensors they are, and what of them.

Published in three ways: as layers after the last (``model.layers.61.eh_proj.weight``: DeepSeek, GLM), under
a name of their own (``model.mtp.layers.0.…``: Inkling, MiMo), or with the parts around a single layer beside
it (``mtp.fc.weight``: Qwen, Mellum).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pooled_nb.shard.tensors import layer_of, other_tower

MOST = 8
"""Draft layers of a model at most; known ones have up to 3."""
_OWN = re.compile(r"(?:^|\.)mtp\.(?:layers\.(\d+)\.)?")
_AFTER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_SHARED = re.compile(r"^(?:embed_tokens|shared_head\.head|lm_head)\.")
"""Copies of the model's embedding and head, which the draft layers use as they are."""
_BLOCK = re.compile(r"^(?:mtp_block|transformer_block)\.")
_AROUND = {
    "enorm": "enorm",
    "embed_norm": "enorm",
    "pre_fc_norm_embedding": "enorm",
    "hnorm": "hnorm",
    "hidden_norm": "hnorm",
    "pre_fc_norm_hidden": "hnorm",
    "eh_proj": "eh_proj",
    "input_proj": "eh_proj",
    "fc": "eh_proj",
    "post_norm": "post_norm",
    "shared_head.norm": "post_norm",
    "final_layernorm": "post_norm",
    "norm": "post_norm",
}
"""What stands around the decoder layer, by its published names: as transformers' ``MtpLayer`` calls it."""
_CHAIN = "chain_norm"


def draft_name(name: str, layers: int) -> str | None:
    """What transformers' ``MtpModel`` calls a published tensor.

    Parameters
    ----------
    layers
        How many layers the model has without these.

    Returns
    -------
    str or None
        ``layers.0.eh_proj.weight``, say; None for a tensor of no draft layer, and for a copy of what the
        model has anyway.
    """
    found = _OWN.search(name)
    if found:
        number = int(found[1] or 0)
    else:
        found = _AFTER.search(name)
        if not found or int(found[1]) < layers or other_tower(name):
            return None
        number = int(found[1]) - layers
    rest = name[found.end() :]
    if _SHARED.search(rest):
        return None
    part, _, kind = rest.rpartition(".")
    if part == _CHAIN:
        return f"shared_post_norm.{kind}"
    if part in _AROUND:
        return f"layers.{number}.{_AROUND[part]}.{kind}"
    return f"layers.{number}.mtp_block.{_BLOCK.sub('', rest)}"


def layers_before(names: Iterable[str], count: int) -> int:
    """How many layers a model has without its draft layers, told from all names and their number."""
    names = list(names)
    numbers = [n for name in names if (n := layer_of(name)) is not None and not other_tower(name)]
    after = not any(_OWN.search(name) for name in names)
    return max(numbers, default=-1) + 1 - (count if after else 0)


def draft_count(names: Iterable[str], layers: int) -> int:
    """How many draft layers a model's files carry; 0 where the first has no projection of its own."""
    there = {draft_name(name, layers) for name in names}
    count = 0
    while count < MOST and f"layers.{count}.eh_proj.weight" in there:
        count += 1
    return count
