"""Fused kernels on the device: right numbers, and bits that depend on nothing but what a row may see."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from pooled_nb.shard.fused import ready
from tests.gpu.driving import DEVICE

SHAPES = [(32, 8, 128), (9, 3, 64), (16, 16, 96), (8, 2, 80), (8, 1, 256)]
"""Heads, groups, and numbers of a head."""
KINDS = [torch.bfloat16, torch.float16]
LONG = 2048


@pytest.fixture(autouse=True)
def _fused(kind: torch.dtype) -> None:
    """Skip where fused layers do not run, and say why."""
    if why := ready.why_not(torch.device(DEVICE), kind):
        pytest.skip(why)


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> torch.dtype:
    found: torch.dtype = request.param
    return found


def noise(*shape: int, kind: torch.dtype, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE, kind)


def bits(numbers: torch.Tensor) -> torch.Tensor:
    return numbers.contiguous().view(torch.int16)


def slab(shape: tuple[int, int, int], length: int, kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    _, groups, size = shape
    keys, values = (noise(1, groups, length + 1, size, kind=kind, seed=s) for s in (2, 3))
    return keys, values


def softmaxed(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor, length: int
) -> torch.Tensor:
    """Attention in float32: ``[rows, heads, size]``."""
    repeats = q.shape[1] // keys.shape[1]
    k, v = (t[0, :, :length].double().repeat_interleave(repeats, 0) for t in (keys, values))
    scores = q.double().transpose(0, 1) @ k.transpose(1, 2) * q.shape[2] ** -0.5
    hidden = torch.arange(length, device=q.device) > positions[:, None]
    return (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v).transpose(0, 1).float()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rows", [1, 5, 16, 256])
@pytest.mark.parametrize("length", [256, 1024, LONG])
def test_attention(shape: tuple[int, int, int], rows: int, length: int, kind: torch.dtype) -> None:
    """Wherever the rows are in the buffer; what lies behind them weighs nothing, however large."""
    from pooled_nb.shard.fused import ops

    heads, _, size = shape
    keys, values = slab(shape, length, kind)
    q = noise(rows, heads, size, kind=kind)
    for start in (0, length // 2, length - rows):
        positions = torch.arange(start, start + rows, device=DEVICE)
        wanted = softmaxed(q, keys, values, positions, length)
        dirty = [t.clone() for t in (keys, values)]
        for t in dirty:
            t[:, :, start + rows :] = 3e4
        found = ops.attend(q, *dirty, positions, length, size**-0.5)
        torch.testing.assert_close(found.float(), wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rows", [16, 256])
@pytest.mark.parametrize("length", [256, LONG])
def test_a_row_among_others(shape: tuple[int, int, int], rows: int, length: int, kind: torch.dtype) -> None:
    """DESIGN section 5: other rows, their places, and a row's own place in the frame change no bit of it."""
    from pooled_nb.shard.fused import ops

    heads, _, size = shape
    keys, values = slab(shape, length, kind)
    row = noise(1, heads, size, kind=kind, seed=9)
    for position in (0, 63, 64, length // 2, length - 1):
        seen: list[torch.Tensor] = []
        for seed, place in enumerate((0, 1, rows // 2, rows - 1, 0)):
            q = noise(rows, heads, size, kind=kind, seed=20 + seed)
            generator = torch.Generator().manual_seed(seed)
            positions = torch.randint(0, length, (rows,), generator=generator).to(DEVICE)
            if seed == 4:  # alone, as pads make it
                q, positions = row.expand(rows, -1, -1).contiguous(), positions.fill_(position)
            q[place], positions[place] = row[0], position
            other = [t.clone() for t in (keys, values)]
            for t in other:
                t[:, :, position + 1 :] = float(seed)
            seen.append(bits(ops.attend(q, *other, positions, length, size**-0.5)[place]))
        assert all(torch.equal(one, seen[0]) for one in seen)


@pytest.mark.parametrize("dim", [576, 2048, 4096, 8192])
def test_norm(dim: int, kind: torch.dtype) -> None:
    """The residual takes the delta as transformers rounds it; a row's bits are its own."""
    from pooled_nb.shard.fused import ops

    x, delta, weight = (noise(16, dim, kind=kind, seed=s) for s in (1, 2, 3))
    weight = weight[0].contiguous()
    summed = x + delta
    wide = summed.float()
    wanted = weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(kind)
    held = x.clone()
    found = ops.norm(held, delta, weight, 1e-5)
    assert torch.equal(bits(held), bits(summed))
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=1e-3)
    again = ops.norm(x.flip(0).contiguous(), delta.flip(0).contiguous(), weight, 1e-5)
    assert torch.equal(bits(again.flip(0)), bits(found))
    assert torch.equal(bits(ops.norm(x[:1].clone(), delta[:1].clone(), weight, 1e-5)), bits(found[:1]))


@pytest.mark.parametrize("inner", [1536, 14336])
def test_gate(inner: int, kind: torch.dtype) -> None:
    from pooled_nb.shard.fused import ops

    both = noise(16, 2 * inner, kind=kind) * 4
    wanted = functional.silu(both[:, :inner]) * both[:, inner:]
    found = ops.gate(both)
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=1e-3)
    assert torch.equal(bits(ops.gate(both[3:4].contiguous())), bits(found[3:4]))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("normed", [False, True])
def test_place(shape: tuple[int, int, int], normed: bool, kind: torch.dtype) -> None:
    """Queries are turned; keys and values stand in their columns, and no other column changes."""
    from pooled_nb.shard.fused import ops

    heads, groups, size = shape
    rows, half = 16, size // 2
    qkv = noise(rows, (heads + 2 * groups) * size, kind=kind)
    angles = noise(rows, half, kind=torch.float32, seed=4).repeat(1, 2)
    cos, sin = angles.cos().to(kind), angles.sin().to(kind)
    weights = [noise(size, kind=kind, seed=s) for s in (5, 6)]
    keys, values = slab(shape, 256, kind)
    before = keys.clone(), values.clone()
    targets = torch.arange(40, 40 + rows, device=DEVICE)
    targets[-1] = 256  # the spare column
    norms = (weights[0], weights[1]) if normed else None
    q = ops.place(qkv, cos, sin, norms, 1e-6, keys, values, targets, heads)

    def turned(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if normed:
            wide = x.float()
            x = weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(kind)
        across = torch.cat((-x[..., half:], x[..., :half]), -1)
        return x * cos[:, None] + across * sin[:, None]

    parts = qkv.view(rows, -1, size).split((heads, groups, groups), 1)
    close = {"rtol": 2e-2, "atol": 2e-2}
    torch.testing.assert_close(q, turned(parts[0], weights[0]), **close)
    torch.testing.assert_close(keys[0][:, targets].transpose(0, 1), turned(parts[1], weights[1]), **close)
    assert torch.equal(values[0][:, targets].transpose(0, 1), parts[2])
    others = torch.ones(257, dtype=torch.bool, device=DEVICE)
    others[targets] = False
    for now, then in zip((keys, values), before, strict=True):
        assert torch.equal(now[:, :, others], then[:, :, others])


def test_recorded(kind: torch.dtype, cuda: None) -> None:
    """A graph gives the plain run's bits at every position of its bucket: none is baked in."""
    from pooled_nb.shard.fused import ops

    shape, rows, length = SHAPES[0], 16, 512
    keys, values = slab(shape, length, kind)
    q = noise(rows, shape[0], shape[2], kind=kind)
    positions = torch.arange(rows, device=DEVICE)

    def run() -> torch.Tensor:
        return ops.attend(q, keys, values, positions, length, shape[2] ** -0.5)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    for start in (0, 60, 300, length - rows):
        positions.copy_(torch.arange(start, start + rows))
        q.copy_(noise(rows, shape[0], shape[2], kind=kind, seed=start))
        graph.replay()
        assert torch.equal(bits(out), bits(run()))
