"""Tiny models with a tokenizer, and, under their published names, draft layers (multi-token prediction)."""

from __future__ import annotations

import copy
import re
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_layers import MtpModel

from pooled_nb.shard import compat
from tests.shard import tiny, tinychat

_BESIDE = {
    "eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "post_norm": "norm",
}  # fmt: skip
OTHER: dict[str, dict[str, Any]] = {
    "glm4_moe": {
        **tiny.CONFIGS["glm4"], "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "n_group": 1, "topk_group": 1, "first_k_dense_replace": 2, "n_shared_experts": 1,
    },
}  # fmt: skip
"""Architectures that only these tests need."""


def config_of(name: str) -> Any:
    """A config whose vocabulary is that of `tinychat.tokenizer`."""
    config = AutoConfig.for_model(name, **OTHER[name]) if name in OTHER else tiny.config_of(name)
    if "linear_attention" in (getattr(config, "layer_types", None) or ()):
        config.layer_types = [
            *config.layer_types[:-1],
            "full_attention",
        ]  # the last one is, in those there are
    tokenizer = tinychat.tokenizer()
    config.vocab_size = len(tokenizer)
    config.bos_token_id, config.eos_token_id = tokenizer.bos_token_id, tokenizer.eos_token_id
    return config


def make(name: str, folder: Path, *, style: str = "", count: int = 0) -> Path:
    """Write a tiny model with ``count`` draft layers, named in one of the published styles.

    ``after``: as layers after the last; ``beside``: with what stands around them one level up.

    Its layers add little, so that a token follows mostly from the one before it, and its draft layers do the
    same: some of what they guess is right.
    """
    config = config_of(name)
    if count:
        config.num_mtp_layers = count
        if getattr(config, "layer_types", None):
            config.mtp_layer_types = ["full_attention"] * count
        if getattr(config, "mlp_layer_types", None):
            config.mtp_mlp_layer_types = ["sparse"] * count
    with warnings.catch_warnings(), compat.quiet(), torch.random.fork_rng(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.manual_seed(3)
        main = _made(config)
        _spread(main)
        main.save_pretrained(folder, max_shard_size="1GB")
        tinychat.tokenizer().save_pretrained(folder)
        if not count:
            return folder
        short = copy.deepcopy(config).get_mtp_config()
        drafts: Any = MtpModel(_made(short), count)
        for weight in drafts.layers.parameters():
            if weight.ndim >= 2:  # it leaves those of a mixture as memory was
                weight.normal_(std=0.02)
        _spread(drafts)
    tensors = load_file(folder / "model.safetensors")
    for key, weight in drafts.state_dict().items():
        if key.startswith("layers."):
            tensors |= _published(key, weight, style, config.num_hidden_layers)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _made(config: Any) -> Any:
    cls: Any = AutoModelForCausalLM
    return cls.from_config(config, dtype=torch.float32).eval()


def _spread(model: Any) -> None:
    for key, weight in model.named_parameters():
        if re.search(r"(o_proj|out_proj|down_proj)(\.weight)?$", key):
            weight.mul_(0.5)
        elif key.endswith("eh_proj.weight"):
            weight.mul_(0.3)
            weight[:, : weight.shape[0]] += torch.eye(weight.shape[0])
        elif weight.ndim >= 2:
            weight.mul_(4)


def _published(key: str, weight: torch.Tensor, style: str, layers: int) -> dict[str, torch.Tensor]:
    number, rest = int(key.split(".")[1]), key.split(".", 2)[2].replace("mtp_block.", "")
    part = rest.split(".")[0]
    start = f"mtp.layers.{number}."
    if style == "after":
        start, rest = f"model.layers.{layers + number}.", rest.replace("post_norm.", "shared_head.norm.")
    elif part in _BESIDE:
        start, rest = "mtp.", rest.replace(part, _BESIDE[part])
    # Mixtures are published expert by expert.
    if rest.endswith("experts.gate_up_proj"):
        gates, ups = weight.chunk(2, dim=1)
        named = {"gate_proj": gates, "up_proj": ups}
    elif rest.endswith("experts.down_proj"):
        named = {"down_proj": weight}
    else:
        return {start + rest: weight.clone()}
    place = start + rest.rsplit(".", 1)[0]
    return {
        f"{place}.{i}.{projection}.weight": one.clone()
        for projection, experts in named.items()
        for i, one in enumerate(experts)
    }


def reference(folder: Path, count: int) -> tuple[Any, Any]:
    """The model and its draft layers, as transformers loads both."""
    with compat.quiet():
        main: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        main.eval()
        last = main.config.num_hidden_layers
        after = [rf"model\.layers\.{last + i}.*" for i in range(count)]
        main._keys_to_ignore_on_load_unexpected = [r"^mtp\.", *after]
        main.config.num_mtp_layers = count
        if getattr(main.config, "layer_types", None):
            main.config.mtp_layer_types = ["full_attention"] * count
        drafts: Any = MtpModel.from_pretrained(main)
        return main, drafts.eval()
