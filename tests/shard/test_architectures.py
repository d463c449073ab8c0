"""Every architecture that docs/models.md names: it runs, or it is refused with the reason."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from packaging import version
from transformers import CONFIG_MAPPING

from pooled_nb.errors import ModelNotSupported
from pooled_nb.shard import compat
from pooled_nb.shard.arch import model_class, read_config
from pooled_nb.shard.engine import Engine
from pooled_nb.shard.sizes import ArchFacts, facts
from pooled_nb.shard.trial import try_model
from tests.shard import derived, tiny
from tests.shard.runs import DEVICE, Chain, first_difference, load, roles, some_tokens, spec

ROLES = roles(45, 15, 10)
TOKENS = some_tokens(len(ROLES))
PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")


def named(section: str) -> list[str]:
    """The names in the table of a section of the page."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = "\n".join(line for line in text.splitlines() if line.startswith("| ") and "model_type" not in line)
    return re.findall(r"`([\w-]+)`", rows)


def known(kinds: list[str]) -> list[str]:
    """Those that this transformers has."""
    return [kind for kind in kinds if kind in CONFIG_MAPPING]


WITH_TESTS = [name.removesuffix("_tied") for name in {**tiny.CONFIGS, **tiny.HYBRID}]
"""These run in every other test."""
OLD = version.parse(transformers.__version__) < version.parse("5.24")
LATER = {"doge", "moshi"} if OLD else set()
RUN = [kind for kind in named("Run") if kind not in WITH_TESTS and kind not in LATER]

NO_CHAIN = "is not one list of layers with one norm after it"
REASONS = {
    "bailing_hybrid": "cannot be cut into frames",
    "minimax": "cannot be cut into frames",
    "recurrent_gemma": "keeps a state of its own",
    "xlstm": "cannot be cut into frames",
    "zamba2": "looks at its embeddings again in later layers",
    "bert": NO_CHAIN,
    "bloom": "does not take prepared attention masks",
    "deepseek_v4": r"hands several states from layer to layer, \[4, 64\] for each token",
    "gemma3n_text": "every layer takes an embedding of its own of each token",
    "gpt_neo": "cannot be cut into frames",
    "hrm_text": NO_CHAIN,
    "hy_v4": "hands several states from layer to layer",
    "longcat_flash": NO_CHAIN,
    "mpt": "its layers get no causal mask",
    "nanochat": "uses its final norm before its layers too",
    "openai-gpt": NO_CHAIN,
    "qwen4_exp_text": NO_CHAIN,
    "roformer": NO_CHAIN,
    "zaya": "has weights beside its layers",
}


def inspect(folder: Path) -> ArchFacts:
    """What a person learns of a model before its weights are fetched."""
    found = facts(folder)
    try_model(read_config(folder), found.glued)
    return found


def theirs(folder: Path, attn: str) -> torch.Tensor | None:
    """Logits of the same model in transformers; None where it does not attend so."""
    config = read_config(folder)
    try:
        with compat.quiet(), torch.inference_mode():
            cls = model_class(config)
            model = cls.from_pretrained(folder, dtype=torch.float32, attn_implementation=attn)
            # On the same kind of device: transformers itself gives other logits on another (ernie4_5_moe).
            model = model.eval().to(DEVICE)
            logits: torch.Tensor = model(input_ids=torch.tensor([TOKENS], device=DEVICE)).logits[0]
    except (ValueError, ImportError, NotImplementedError):
        return None
    return logits.float().cpu()


def close(mine: torch.Tensor, other: torch.Tensor | None, part: float = 1.0) -> bool:
    if other is None:
        return False
    near = (mine - other).abs().amax(-1) / other.std() < 1e-3
    return float(near.float().mean()) >= part


def chooses(kind: str) -> bool:
    """Whether what is computed depends on the numbers: experts, or columns to attend to."""
    config = derived.config_of(kind)
    fields = vars(config)
    return any("experts_per" in name or name.startswith(("moe", "index_")) for name in fields)


def test_the_page_names_what_is_tested() -> None:
    """DESIGN section 5: what is said to run is run, and each refusal has its reason."""
    assert set(WITH_TESTS) <= set(named("Run"))
    assert sorted(named("Do not run")) == sorted(REASONS)
    assert len(named("Run")) == len(set(named("Run"))) > 100


@pytest.mark.parametrize("kind", known(RUN))
def test_it_runs_and_no_cut_changes_a_bit(kind: str, tmp_path: Path) -> None:
    """DESIGN section 5: one generic path: the reference's logits, and the same bits on one device and two."""
    derived.make(kind, tmp_path)
    found = inspect(tmp_path)
    cut = max([2, *(lo for lo, _ in found.glued)])
    whole = Engine()
    loaded = whole.load(spec(tmp_path, 0, found.layers, ctx=256), tmp_path, lambda percent, words: None)
    chains = Chain([whole]), Chain([load(tmp_path, 0, cut, ctx=256), load(tmp_path, cut, 6, ctx=256)])
    logits = [chain.logits(chain.run(TOKENS, ROLES)) for chain in chains]
    assert first_difference(*logits) is None
    # Other kernels, so other bits, but the same model; on a GPU rounding may send a column to another expert.
    part = 0.75 if chooses(kind) and DEVICE != "cpu" else 1.0
    assert any(close(logits[0], theirs(tmp_path, attn), part) for attn in ("sdpa", "eager"))
    assert loaded.cache == 2 * 256 * sum(found.kv_bytes) + sum(found.state_bytes)
    if chooses(kind):
        # Rule 1: neither pads nor other columns change a column's experts or their kernel.
        chain = Chain([load(tmp_path, 0, cut, ctx=256, dtype="bfloat16")], "bfloat16")
        runs = [chain.run(TOKENS[:24], roles(16, 8), partial(min, size)) for size in (16, 3, 1)]
        assert first_difference(runs[0], runs[1]) is None
        assert first_difference(runs[0], runs[2]) is None


@pytest.mark.parametrize("kind", known(list(REASONS)))
def test_it_is_refused_before_its_weights_are_fetched(kind: str, tmp_path: Path) -> None:
    """DESIGN section 6: one clear sentence from the config alone."""
    config = tiny.config_of(kind) if kind in tiny.NOT_CUT else derived.config_of(kind)
    config.save_pretrained(tmp_path)
    with pytest.raises(ModelNotSupported, match=REASONS[kind]):
        inspect(tmp_path)


def test_a_model_that_looks_at_later_tokens_is_refused(tmp_path: Path) -> None:
    """DESIGN section 5: a decoder made into an encoder by its config."""
    derived.config_of("llama", is_causal=False).save_pretrained(tmp_path)
    with pytest.raises(ModelNotSupported, match="it looks at later tokens"):
        inspect(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="counts in KiB there")
def test_what_is_learned_of_a_large_model_takes_no_memory(tmp_path: Path) -> None:
    """DESIGN section 6: its config is enough: no tensor of 30 GB is made only to be thrown away."""
    import resource

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    CONFIG_MAPPING["deepseek_v3"]().save_pretrained(tmp_path)
    before = peak()
    found = inspect(tmp_path)
    assert sum(found.layer_bytes) > 600e9
    assert peak() - before < 1 << 20
