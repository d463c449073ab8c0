"""What dealing counts for a device is what its engine allocates."""

from __future__ import annotations

import pytest

from pooled_nb.errors import ModelTooBig
from pooled_nb.shard import cache_sizes
from pooled_nb.shard.door import Columns, Control
from pooled_nb.shard.engine import Engine
from pooled_nb.shard.footprint import COLUMNS, capacity, range_bytes
from pooled_nb.shard.sizes import ArchFacts, facts
from tests.shard import tiny
from tests.shard.conftest import Make
from tests.shard.runs import load, some_tokens, spec

CTX = 300
"""Two buckets."""
ALL = [(name, "f16") for name in [*tiny.CONFIGS, *tiny.HYBRID]]
SOME = [(name, "q8") for name in ["llama", "deepseek_v3", "gpt_oss", *tiny.HYBRID]]


def counted(known: ArchFacts, kv: str, lo: int, hi: int) -> int:
    sizes = cache_sizes(
        known.kv_bytes, known.kv_rows, known.state_bytes, kv=kv, itemsize=4, glued=known.glued
    )
    return range_bytes(sizes, lo, hi, CTX)


def taken(engine: Engine) -> int:
    """Bytes of caches after the frame that keeps the most snapshots."""
    control = Control(reset=True, spec=True)
    columns = Columns(pos=0, n=COLUMNS, wide=False)
    engine.forward(columns, control, tokens=some_tokens(COLUMNS), data=None, last=False)
    return engine._need().slab.nbytes()


@pytest.mark.parametrize(("name", "kv"), [*ALL, *SOME])
def test_weights_and_caches_take_what_was_counted(name: str, kv: str, tiny_model: Make) -> None:
    """PROTOCOL section 6: weights, KV at this ctx and states are counted; a device never holds more."""
    folder = tiny_model(name)
    known = facts(folder)
    engine = Engine()
    loaded = engine.load(spec(folder, kv=kv, ctx=CTX), folder, lambda *_: None)
    wanted, really = counted(known, kv, 0, tiny.LAYERS), taken(engine)
    assert loaded.cache <= really <= wanted
    # A convolution's snapshots share their columns; all else is exact.
    slack = sum(known.state_bytes) * (1 + COLUMNS) if any(known.state_bytes) else 0
    assert wanted - really <= slack
    stored = sum(known.layer_bytes) + known.ends_bytes
    assert loaded.weights == stored


@pytest.mark.parametrize("kv", ["f16", "q8"])
def test_a_range_is_refused_by_the_same_arithmetic(kv: str, tiny_model: Make) -> None:
    """PROTOCOL section 6: loading counts as dealing did: a byte less than that does not fit."""
    folder = tiny_model("llama")
    known = facts(folder)
    need = sum(known.layer_bytes[2:5]) + counted(known, kv, 2, 5)
    load(folder, 2, 5, kv=kv, ctx=CTX, max_gb=need / 1e9)
    with pytest.raises(ModelTooBig, match="with their caches"):
        load(folder, 2, 5, kv=kv, ctx=CTX, max_gb=(need - 1) / 1e9)


def test_checkpoints_have_what_is_left(tiny_model: Make) -> None:
    """PROTOCOL section 6: snapshots are counted before they come, and what drafts beside the layers."""
    folder = tiny_model("qwen3_5_text")
    known = facts(folder)
    need = sum(known.layer_bytes) + known.ends_bytes + counted(known, "f16", 0, tiny.LAYERS)
    engine = load(folder, ctx=CTX, max_gb=(need + 5000.5) / 1e9)
    checkpoints = engine._need().checkpoints
    assert checkpoints._budget == 5000
    engine.reserve(4000)
    assert checkpoints._budget == 1000
    engine.reserve(4000)
    assert checkpoints._budget == 0


def test_int8_takes_a_little_over_half() -> None:
    """PROTOCOL section 6 (``kv``): a byte a number, a scale a row, and one layer to read into."""
    layers, heads, dim = 32, 8, 128
    numbers, rows = 2 * heads * dim, 2 * heads
    plain = cache_sizes([2 * numbers] * layers, [rows] * layers, [], kv="f16", itemsize=2)
    small = cache_sizes([2 * numbers] * layers, [rows] * layers, [], kv="q8", itemsize=2)
    assert plain.token == [2 * numbers] * layers
    assert small.token == [numbers + 2 * rows] * layers
    assert (plain.scratch, small.scratch) == (0, 2 * numbers)
    ratio = range_bytes(small, 0, layers, 4096) / range_bytes(plain, 0, layers, 4096)
    assert 0.5 < ratio < 0.55


def test_what_later_layers_read_too_has_memory_of_its_own() -> None:
    """DESIGN section 5: layers that share a cache read it after others ran, so they share no scratch."""
    sizes = cache_sizes([200] * 4, [4] * 4, [], kv="q8", itemsize=4, glued=[(1, 3)])
    assert sizes.token == [116, 516, 516, 116]
    assert sizes.scratch == 400
    assert capacity(CTX) == 512
