"""Weights in 8 and 4 bits a number, and the products with them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from pooled_nb.shard.engine import DTYPES
from pooled_nb.shard.quant import linear as quant
from pooled_nb.shard.quant.forms import QUANT_CLASSES, form_of, group_of, kept_bytes, linear_sizes
from pooled_nb.shard.quant.numbers import from_halves, pack_halves, to_groups, to_rows

SHAPES = [(48, 64), (50, 96), (7, 30), (64, 576), (33, 128)]
"""Of weights: some that torch's own products take, some that no group divides."""


def made(out: int, row: int, dtype: str, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(out, row, generator=generator).mul_(float(row) ** -0.5).to(DTYPES[dtype])


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_rows_are_off_by_half_a_step_at_most(dtype: str) -> None:
    """PROTOCOL section 6 (``quant``): ``int8-row`` is symmetric, one scale a row."""
    weight = made(40, 64, dtype)
    weight[3] = 0
    weight[4] *= 1e-3
    numbers, scales = to_rows(weight)
    assert numbers.dtype is torch.int8
    assert scales.dtype is DTYPES[dtype]
    assert int(numbers.abs().max()) <= 127
    back = numbers.float() * scales.float()[:, None]
    # A scale that was rounded down does not reach the largest number; half a step more covers that.
    assert bool(((back - weight.float()).abs() <= scales.float()[:, None]).all())
    assert bool((numbers[3] == 0).all())
    assert torch.equal(to_rows(weight[4:5])[0][0], numbers[4])


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("group", [32, 64, 128])
def test_groups_span_their_smallest_to_their_largest(dtype: str, group: int) -> None:
    """PROTOCOL section 6 (``quant``): ``int4-g128`` has 16 steps a group, packed two a byte."""
    weight = made(24, 256, dtype)
    weight[5] = 0.25
    numbers, scales, zeros = to_groups(weight, group)
    assert int(numbers.max()) <= 15
    packed = pack_halves(numbers, group)
    assert packed.shape == (24, 128)
    back = from_halves(packed, scales, zeros, group)
    assert back.dtype is DTYPES[dtype]
    step = scales.float().repeat_interleave(group, 1)
    assert bool(((back.float() - weight.float()).abs() <= 0.6 * step + 0.01 * weight.float().abs()).all())
    assert torch.equal(back[5], weight[5])


@pytest.mark.parametrize("form", list(QUANT_CLASSES))
@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize(("out", "row"), SHAPES)
def test_a_product_is_that_of_the_rounded_weight(form: str, dtype: str, out: int, row: int) -> None:
    """DESIGN section 5: weights alone are rounded; bias, odd shapes and any number of rows."""
    weight, bias = made(out, row, dtype), nn.Parameter(made(1, out, dtype)[0], requires_grad=False)
    layer = quant.quantized(weight, bias, form, "cpu")
    assert isinstance(layer, quant.Int4Linear) == (form == "int4" and group_of(row) is not None)
    assert layer.weight.dtype is DTYPES[dtype]
    near = 0.02 if form == "int8" or group_of(row) is None else 0.2
    off = (layer.weight.float() - weight.float()).norm() / weight.float().norm()
    assert float(off) < near
    for count in (1, 5, 16, 17, 64):
        rows = made(count, row, dtype, seed=count).view(1, count, row)
        got = layer(rows)
        assert got.shape == (1, count, out)
        wanted = functional.linear(rows.float(), layer.weight.float(), bias.float())
        torch.testing.assert_close(got.float(), wanted, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("form", list(QUANT_CLASSES))
@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("count", [16, 32, 64])
def test_a_row_does_not_depend_on_its_neighbours(form: str, dtype: str, count: int) -> None:
    """DESIGN section 5, rule 1: within one number of rows, a row's bits are a function of the row."""
    layers = [quant.quantized(made(*shape, dtype), None, form, "cpu") for shape in SHAPES]
    place = st.integers(0, count - 1)

    @settings(max_examples=15, deadline=None)
    @given(st.sampled_from(layers), st.integers(0, 10_000), place, place)
    def check(layer: quant.QuantLinear, seed: int, first: int, second: int) -> None:
        mine, others = (made(count, layer.in_features, dtype, each) for each in (5, seed))
        others[second] = mine[first]
        assert torch.equal(layer(mine)[first], layer(others)[second])

    check()


def test_large_sums_stay_finite_in_float16() -> None:
    """DESIGN section 5: an overflow that a model of 16 bits would not have is none here."""
    weight = torch.full((32, 1024), 0.01, dtype=torch.float16)
    rows = torch.full((16, 1024), 40.0, dtype=torch.float16)
    for form in QUANT_CLASSES:
        out = quant.quantized(weight, None, form, "cpu")(rows)
        assert bool(((out.float() - 409.6).abs() < 4).all())


@pytest.mark.parametrize("form", list(QUANT_CLASSES))
@pytest.mark.parametrize("dtype", list(DTYPES))
def test_bytes_are_those_that_are_counted(form: str, dtype: str) -> None:
    """PROTOCOL section 6: what a device counts is what it takes."""
    taken = sum(quant.quantized(made(*shape, dtype), None, form, "cpu").nbytes for shape in SHAPES)
    assert taken == kept_bytes(linear_sizes(SHAPES), form, DTYPES[dtype].itemsize)


def test_an_operation_that_is_missing_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch's own product the layer computes all the same, and the signature is another."""
    assert not quant._agrees(lambda rows, weight: (2 * rows @ weight.t(), weight))

    def gone(rows: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        raise AttributeError("no such operation")

    assert not quant._agrees(gone)
    weight, rows = made(64, 128, "bfloat16"), made(16, 128, "bfloat16", 2)
    before = quant.samples(rows, weight)
    monkeypatch.setattr(quant, "own_int4", lambda *_: False)
    monkeypatch.setattr(quant, "own_int8", lambda *_: False)
    for mine, other in zip(before, quant.samples(rows, weight), strict=True):
        torch.testing.assert_close(mine, other, rtol=0.03, atol=0.03)


def test_names_on_the_wire() -> None:
    """PROTOCOL section 6: ``quant`` is a class or absent; an unknown one is known to be unknown."""
    assert [form_of(name) for name in (None, "int8-row", "int4-g128")] == ["", "int8", "int4"]
    assert form_of("int4-g32") is None
    assert form_of("") is None
