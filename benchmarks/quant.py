"""Products with weights in 8 and 4 bits a number: what each way takes, beside the same in 16 bits.

``python -m benchmarks.quant [--quick] [--json]``. On whatever device is here: a CPU with one thread, or a
CUDA device, where products are recorded in a graph and go over more weights than its cache holds. Each way is
tried by itself; one that fails or takes too long is said as "not run", with the reason. ``engine`` rows are
what `pooled_nb.shard.quant` does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch.nn import functional

from benchmarks.report import Row, report
from pooled_nb.shard import packed
from pooled_nb.shard.quant.linear import quantized
from pooled_nb.shard.quant.numbers import from_halves, pack_halves, to_groups, to_rows

SHAPES = {"cpu": [(1536, 576), (6144, 2048)], "cuda": [(6144, 2048), (14336, 4096), (4096, 14336)]}
"""Rows and columns of weights: of SmolLM2-135M, of 1.7B and of 8B models."""
ROWS = {"cpu": (1, 16, 64), "cuda": (1, 16, 256)}
LIMIT_S = {"cpu": 0.15, "cuda": 0.05}
"""Of repetitions of one product; one alone that takes ten times as long ends the way."""
OVER_CACHE = 256 << 20
"""Bytes of weights that a CUDA device goes over, so that none of them is in its cache."""
GROUP = 64

Product = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to multiply: makes a product of a weight ``[out, in]``."""

    name: str
    make: Callable[[torch.Tensor], Product]


def _plain(weight: torch.Tensor) -> Product:
    if weight.device.type == "cpu" and packed.available(weight.dtype):
        ordered = packed.pack(weight)
        return lambda rows: packed.product(rows, ordered, None)
    return lambda rows: functional.linear(rows, weight)


def _engine(form: str) -> Callable[[torch.Tensor], Product]:
    def make(weight: torch.Tensor) -> Product:
        return quantized(weight.cpu(), None, form, weight.device.type).to(weight.device)

    return make


def _int8_aten(weight: torch.Tensor) -> Product:
    numbers, scales = to_rows(weight)
    return lambda rows: torch.ops.aten._weight_int8pack_mm(rows, numbers, scales)


def _int8_back(weight: torch.Tensor) -> Product:
    numbers, scales = to_rows(weight)
    return lambda rows: functional.linear(rows, numbers.to(rows.dtype)) * scales


def _int4_aten(weight: torch.Tensor) -> Product:
    numbers, scales, zeros = to_groups(weight, GROUP)
    both = torch.stack((scales.t(), zeros.t()), 2).contiguous()
    ops = torch.ops.aten
    if weight.device.type == "cpu":
        ordered = ops._convert_weight_to_int4pack_for_cpu(numbers.to(torch.int32), 1)
        return lambda rows: ops._weight_int4pack_mm_for_cpu(rows, ordered, GROUP, both)
    pairs = (numbers[:, ::2] << 4 | numbers[:, 1::2]).contiguous()
    tiles = ops._convert_weight_to_int4pack(pairs, 8)
    return lambda rows: ops._weight_int4pack_mm(rows, tiles, GROUP, both)


def _int4_back(weight: torch.Tensor) -> Product:
    numbers, scales, zeros = to_groups(weight, GROUP)
    halves = pack_halves(numbers, GROUP)
    return lambda rows: functional.linear(rows, from_halves(halves, scales, zeros, GROUP))


def _int8_triton(weight: torch.Tensor) -> Product:
    from pooled_nb.shard.quant.products import int8_product

    numbers, scales = to_rows(weight)
    return lambda rows: int8_product(rows, numbers, scales)


def _int4_triton(weight: torch.Tensor) -> Product:
    from pooled_nb.shard.quant.products import int4_product

    numbers, scales, zeros = to_groups(weight, GROUP)
    halves = pack_halves(numbers, GROUP)
    return lambda rows: int4_product(rows, halves, scales, zeros, GROUP)


def _torchao(form: str) -> Callable[[torch.Tensor], Product]:
    def make(weight: torch.Tensor) -> Product:
        import importlib

        ao: Any = importlib.import_module("torchao.quantization")
        layer = torch.nn.Sequential(torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False))
        layer = layer.to(weight.device, weight.dtype)
        layer[0].weight.data = weight
        config = ao.Int8WeightOnlyConfig() if form == "int8" else ao.Int4WeightOnlyConfig(group_size=GROUP)
        ao.quantize_(layer, config)
        return layer

    return make


WAYS = [
    Way("16 bits", _plain),
    Way("int8: engine", _engine("int8")),
    Way("int8: torch's own product", _int8_aten),
    Way("int8: turned back whole", _int8_back),
    Way("int8: Triton", _int8_triton),
    Way("int8: torchao", _torchao("int8")),
    Way("int4: engine", _engine("int4")),
    Way("int4: torch's own product", _int4_aten),
    Way("int4: turned back whole", _int4_back),
    Way("int4: Triton", _int4_triton),
    Way("int4: torchao", _torchao("int4")),
]


def ms_of(products: list[Product], rows: torch.Tensor, device: str) -> float:
    """Milliseconds of one product, the median of many."""
    if device == "cpu":
        return _timed(lambda: products[0](rows), LIMIT_S["cpu"])
    kind: Any = torch.cuda.Stream
    stream = kind()
    with torch.cuda.stream(stream):
        for product in products:
            product(rows)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for product in products:
            product(rows)

    def replay() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return _timed(replay, LIMIT_S["cuda"]) / len(products)


def _timed(run: Callable[[], object], limit: float) -> float:
    clock = time.perf_counter
    start = clock()
    run()
    if clock() - start > 10 * limit:
        return (clock() - start) * 1e3
    taken: list[float] = []
    end = clock() + limit
    while len(taken) < 3 or (clock() < end and len(taken) < 200):
        start = clock()
        run()
        taken.append((clock() - start) * 1e3)
    return median(taken)


def rows_of(
    shape: tuple[int, int], dtype: torch.dtype, device: str, counts: tuple[int, ...]
) -> Iterator[Row]:
    """All ways for one weight; each beside 16 bits, with how far it is off the product in float32."""
    generator = torch.Generator().manual_seed(1)
    plain = (torch.randn(shape, generator=generator) / shape[1] ** 0.5).to(device, dtype)
    base: dict[int, float] = {}
    for way in WAYS:
        where = f"{shape[0]}×{shape[1]} {str(dtype)[6:]}"
        products: list[Product] = []
        try:
            products.append(way.make(plain))
            if device == "cuda":
                more = OVER_CACHE // (plain.nbytes // 4)
                products += [way.make(plain) for _ in range(min(16, more))]
            for count in counts:
                rows = torch.randn(count, shape[1], generator=generator).to(device, dtype)
                got, wanted = products[0](rows).float(), rows.float() @ plain.float().t()
                off = float((got - wanted).norm() / wanted.norm())
                taken = ms_of(products, rows, device)
                base.setdefault(count, taken)
                yield Row(
                    what=f"{where}, {count} rows, {way.name} (off {off:.4f})",
                    value=taken, unit="ms", peer="16 bits", ratio=taken / base[count],
                )  # fmt: skip
        except Exception as error:
            print(f"not run: {where}, {way.name}: {type(error).__name__}: {str(error).strip()[:120]!r}")
        products.clear()
        if device == "cuda":
            torch.cuda.empty_cache()


@torch.inference_mode()
def measure(*, quick: bool) -> list[Row]:
    """All shapes and dtypes of this device."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    dtypes = [torch.bfloat16] if device == "cuda" else [torch.bfloat16, torch.float32]
    if device == "cuda" and not quick:
        dtypes.append(torch.float16)
    shapes = SHAPES[device][:2] if quick else SHAPES[device]
    counts = ROWS[device][:2] if quick else ROWS[device]
    return [row for dtype in dtypes for shape in shapes for row in rows_of(shape, dtype, device, counts)]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer shapes and rows")
    parser.add_argument("--json", action="store_true", help="only the line for programs")
    args = parser.parse_args()
    report("quant", measure(quick=args.quick), as_json=args.json)


if __name__ == "__main__":
    main()
