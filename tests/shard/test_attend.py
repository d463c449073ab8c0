"""Attention of bfloat16 rows on a CPU."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama import modeling_llama

from pooled_nb.shard import attend, masks, packed
from pooled_nb.shard.door import Columns, Control
from tests.shard.conftest import Make
from tests.shard.runs import load

BF16 = torch.bfloat16
CPU = torch.device("cpu")
SHAPES = [(9, 3, 64, 64), (4, 4, 16, 16), (8, 1, 192, 128), (14, 2, 80, 80)]
"""Heads, groups, numbers of a key and of a value."""

needs_bf16 = pytest.mark.skipif(not packed.available(BF16), reason="no products of bfloat16 on this CPU")


def some(
    heads: int, groups: int, dim: int, width: int, rows: int, length: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values as a layer over the slab has them, and a mask."""
    made = torch.Generator().manual_seed(heads * length + rows)
    query = torch.randn((1, rows, heads, dim), generator=made).to(BF16).transpose(1, 2)
    key = torch.randn((1, groups, 2 * length, dim), generator=made).to(BF16)[:, :, :length]
    value = torch.randn((1, groups, 2 * length, width), generator=made).to(BF16)[:, :, :length]
    at = torch.randint(0, length, (rows, 1), generator=made)
    mask = torch.zeros((1, 1, rows, length), dtype=BF16)
    mask.masked_fill_(torch.arange(length) > at, torch.finfo(BF16).min)
    return query, key, value, mask


@needs_bf16
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [1, 16, 64])
def test_it_is_attention(shape: tuple[int, int, int, int], rows: int) -> None:
    """DESIGN section 5: another kernel, so other bits, but the same numbers as float32 gives."""
    query, key, value, mask = some(*shape, rows, 256)
    right = torch.nn.functional.scaled_dot_product_attention(
        query.float(), key.float(), value.float(), attn_mask=mask.float(), scale=0.2, enable_gqa=True
    )
    mine = attend.attend(query, key, value, mask, 0.2)
    torch.testing.assert_close(mine.float(), right, rtol=0.02, atol=0.02)


@needs_bf16
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("rows", "length"), [(16, 256), (64, 256), (16, 1024)])
def test_a_rows_bits_are_its_own(shape: tuple[int, int, int, int], rows: int, length: int) -> None:
    """DESIGN section 5: they depend neither on the row's place in its frame nor on the other rows."""
    query, key, value, mask = some(*shape, rows, length)
    whole = attend.attend(query, key, value, mask, 0.1)
    for by in (1, 5, rows - 1):
        moved = attend.attend(query.roll(by, 2), key, value, mask.roll(by, 2), 0.1)
        assert torch.equal(moved.roll(-by, 2), whole)
    others = torch.randn(query.shape).to(BF16)
    others[:, :, 3] = query[:, :, 3]
    assert torch.equal(attend.attend(others, key, value, mask, 0.1)[:, :, 3], whole[:, :, 3])


@needs_bf16
def test_a_long_buffer_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5: what it takes is bounded, and a row's bits are still its own."""
    query, key, value, mask = some(8, 4, 16, 16, 16, 512)
    whole = attend.attend(query, key, value, mask, 0.1)
    sizes: list[int] = []
    real = torch.softmax

    def noted(scores: torch.Tensor, *args: Any, **more: Any) -> torch.Tensor:
        sizes.append(scores.numel())
        return real(scores, *args, **more)

    monkeypatch.setattr(torch, "softmax", noted)
    monkeypatch.setattr(attend, "PIECE", 3 * 32 * 512)
    pieces = attend.attend(query, key, value, mask, 0.1)
    assert sizes == [3 * 32 * 512, 32 * 512]
    torch.testing.assert_close(pieces, whole, rtol=0.02, atol=0.02)
    moved = attend.attend(query.roll(3, 2), key, value, mask.roll(3, 2), 0.1)
    assert torch.equal(moved.roll(-3, 2), pieces)


@needs_bf16
def test_where_it_does_not_suit_transformers_own_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5: what it was not made for is computed as ever."""
    query, key, value, mask = some(4, 2, 16, 16, 16, 256)
    module: Any = SimpleNamespace(num_key_value_groups=2, is_causal=True)
    monkeypatch.setenv("TRANSFORMERS_SDPA_FORCE_GQA", "1")

    def runs_theirs(*given: Any, **more: Any) -> bool:
        with torch.inference_mode():
            theirs = sdpa_attention_forward(module, *given, **more)[0]
            with attend.grouped_attention(CPU):
                mine = ALL_ATTENTION_FUNCTIONS["sdpa"](module, *given, **more)[0]
        assert mine.shape == theirs.shape
        return torch.equal(mine, theirs)

    assert not runs_theirs(query, key, value, mask)
    assert runs_theirs(query.float(), key.float(), value.float(), mask.float())
    assert runs_theirs(query, key, value, None)  # several rows, of which none may look ahead
    assert not runs_theirs(query[:, :, :1], key, value, None)
    assert runs_theirs(query, key, value, mask > -1)  # what may be seen, not what is added
    bias = torch.ones((1, 4, 16, 256), dtype=BF16)
    assert runs_theirs(query, key, value, mask, position_bias=bias)
    assert runs_theirs(*(tensor.expand(2, -1, -1, -1) for tensor in (query, key, value, mask)))
    monkeypatch.setattr(attend, "MOST", 1000)
    assert runs_theirs(query, key, value, mask)


def test_transformers_has_its_own_again() -> None:
    """DESIGN section 5: a kernel's other models are left alone, whatever happens."""
    before = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def failing() -> None:
        with attend.grouped_attention(CPU):
            assert ALL_ATTENTION_FUNCTIONS["sdpa"] is not before
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        failing()
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is before


@pytest.mark.parametrize("learns", [False, True])
def test_stages_in_two_threads_take_turns(learns: bool) -> None:
    """DESIGN section 3, thread mode: none computes with what another put back, and nothing stays behind."""
    before = ALL_ATTENTION_FUNCTIONS["sdpa"]
    inside, go = threading.Event(), threading.Event()
    had_ours: list[bool] = []

    def other() -> None:
        with attend.grouped_attention(CPU):
            inside.set()
            assert go.wait(20)
            had_ours.append(ALL_ATTENTION_FUNCTIONS["sdpa"] is not before)

    thread = threading.Thread(target=other)
    first = masks._standing_in(modeling_llama, masks._Watch()) if learns else attend.grouped_attention(CPU)
    with first:
        thread.start()
        assert not inside.wait(0.1), "it waits"
    go.set()
    thread.join()
    assert had_ours == [True]
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is before


@needs_bf16
@pytest.mark.parametrize("exact", [True, False])
def test_a_stage_attends_with_it(exact: bool, tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5: prompt frames and single columns, in both modes."""
    engine = load(tiny_model("llama"), dtype="bfloat16", exact=exact, device="cpu")
    rows: list[int] = []
    real = attend.attend

    def counted(query: torch.Tensor, *args: Any) -> torch.Tensor:
        rows.append(query.shape[2])
        return real(query, *args)

    monkeypatch.setattr(attend, "attend", counted)
    for pos, n in ((0, 20), (20, 1)):
        columns = Columns(pos=pos, n=n, wide=pos == 0)
        engine.forward(columns, Control(reset=pos == 0), tokens=[5] * n, data=None, last=True)
    assert rows == [32] * 6 + [16] * 6 if exact else rows == [20] * 6 + [1] * 6
