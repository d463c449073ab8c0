"""One chain, any split: the same frames give the same bits on one device and on several."""

from __future__ import annotations

import pytest
import torch

from tests.shard import tiny
from tests.shard.conftest import Make
from tests.shard.runs import Chain, first_difference, load, roles, some_tokens

SPLITS = {1: [(0, 6)], 2: [(0, 2), (2, 6)], 3: [(0, 2), (2, 3), (3, 6)]}
ROLES = roles(45, 15, 10)
TOKENS = some_tokens(len(ROLES))


@pytest.mark.parametrize("name", tiny.CONFIGS)
def test_every_split_gives_the_bits_of_one_device(name: str, tiny_model: Make) -> None:
    """DESIGN section 5: bit-equal logits at 1, 2 and 3 shards when driven with the same frames."""
    folder = tiny_model(name)
    logits = {}
    for count, ranges in SPLITS.items():
        chain = Chain([load(folder, lo, hi, ctx=256) for lo, hi in ranges])
        logits[count] = chain.logits(chain.run(TOKENS, ROLES))
    assert first_difference(logits[1], logits[2]) is None
    assert first_difference(logits[1], logits[3]) is None
    with torch.inference_mode():
        theirs = tiny.reference(folder, name)(input_ids=torch.tensor([TOKENS])).logits[0]
    # Other kernels, so other bits, but the same model: masks, positions, scales and windows are right.
    torch.testing.assert_close(logits[1], theirs.float(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "qwen3_moe"])
def test_splits_agree_in_bfloat16_and_eager(name: str, tiny_model: Make) -> None:
    """DESIGN section 5: bit-equal in the dtype that rooms run in."""
    folder = tiny_model(name)
    chains = [
        Chain(
            [load(folder, lo, hi, ctx=256, dtype="bfloat16", attn="eager") for lo, hi in ranges], "bfloat16"
        )
        for ranges in SPLITS.values()
    ]
    runs = [chain.run(TOKENS, ROLES) for chain in chains]
    assert first_difference(runs[0], runs[1]) is None
    assert first_difference(runs[0], runs[2]) is None


@pytest.mark.parametrize("name", tiny.HYBRID)
def test_layers_with_a_state_split_anywhere(name: str, tiny_model: Make) -> None:
    """DESIGN section 5: bit-equal at 1, 3 and 6 shards, ranges without attention among them."""
    folder = tiny_model(name)
    kinds = roles(33, 5, 4)
    runs = []
    for ranges in (SPLITS[1], SPLITS[3], [(i, i + 1) for i in range(6)]):
        chain = Chain([load(folder, lo, hi, ctx=256, dtype="bfloat16") for lo, hi in ranges], "bfloat16")
        runs.append(chain.run(TOKENS[: len(kinds)], kinds))
    assert first_difference(runs[0], runs[1]) is None
    assert first_difference(runs[0], runs[2]) is None
