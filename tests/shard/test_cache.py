"""The slab: written in place, padded columns never, and forgetting by moving a length."""

from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache

from pooled_nb.shard.cache import Slab
from pooled_nb.shard.frames import Placed


def states(count: int, seed: int, heads: int = 2, dim: int = 4) -> torch.Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.randn(1, heads, count, dim)


def test_it_holds_what_a_dynamic_cache_holds() -> None:
    """DESIGN section 5: a slab is bit-equal to transformers' own cache."""
    slab, theirs = Slab(2, 256), DynamicCache()
    pos = 0
    for n in (5, 1, 3):
        slab.frame = Placed(pos, n, n, pos + n)
        for layer in (0, 1):
            keys, values = states(n, 10 * n + layer), states(n, 20 * n + layer, dim=6)
            mine = slab.update(keys, values, layer)
            other = theirs.update(keys, values, layer)
            assert torch.equal(mine[0], other[0])
            assert torch.equal(mine[1], other[1])
        assert slab.get_seq_length() == pos
        pos += n
    assert slab.nbytes() == 2 * 256 * (2 * 4 + 2 * 6) * 4


def test_padded_columns_are_never_written() -> None:
    """DESIGN section 5, rule 1: columns beyond ``n`` never advance a state."""
    slab = Slab(1, 256)
    slab.frame = Placed(3, 2, 16, 256)
    keys, values = slab.update(states(16, 1), states(16, 2), 0)
    assert keys.shape == values.shape == (1, 2, 256, 4)
    assert torch.equal(keys[:, :, 3:5], states(16, 1)[:, :, :2])
    assert not keys[:, :, 5:].any()
    assert not keys[:, :, :3].any()
    assert not values[:, :, 5:].any()


def test_it_is_allocated_once() -> None:
    """DESIGN section 5: preallocated; nothing is copied for each token."""
    slab = Slab(1, 512)
    slab.frame = Placed(0, 1, 1, 256)
    where = slab.update(states(1, 1), states(1, 2), 0)[0].data_ptr()
    for pos in (255, 256, 400):
        slab.frame = Placed(pos, 1, 1, (pos // 256 + 1) * 256)
        assert slab.update(states(1, 1), states(1, 2), 0)[0].data_ptr() == where


def test_clearing_removes_nan() -> None:
    """DESIGN section 5: a masked column weighs 0, and 0 times NaN is NaN, so nothing of it may stay."""
    slab = Slab(1, 256)
    slab.frame = Placed(0, 1, 1, 256)
    slab.update(torch.full((1, 2, 1, 4), torch.nan), torch.full((1, 2, 1, 4), torch.inf), 0)
    slab.clear()
    keys, values = slab.update(states(1, 1), states(1, 2), 0)
    assert bool(torch.isfinite(keys).all())
    assert bool(torch.isfinite(values).all())


@pytest.mark.parametrize("length", [7, 256])
def test_it_tells_transformers_its_sizes(length: int) -> None:
    """DESIGN section 5: a model that asks hears the length that is attended over."""
    slab = Slab(1, 256)
    slab.frame = Placed(6, 1, 1, length)
    assert slab.get_mask_sizes(1, 0) == (length, 0)
    assert slab.get_max_length() == 256
