"""A device's signature."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import torch
from torch.nn import functional

from pooled_nb.room.dealing import COLS_CPU, COLS_GPU, WIDTH
from pooled_nb.shard import ends, packed, sig
from pooled_nb.shard.sig import signature

torch.set_num_threads(1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_it_is_the_same_again(dtype: str) -> None:
    """DESIGN section 5, rule 5: a hash of a fixed layer's output on this device."""
    first = signature("cpu", dtype)
    assert re.fullmatch("[0-9a-f]{16}", first)
    torch.manual_seed(123)
    torch.rand(5)
    assert signature("cpu", dtype) == first


def test_it_is_the_same_in_another_process() -> None:
    """DESIGN section 5, rule 5: bits agree within one sig, so processes of one machine must agree on it."""
    code = "import torch; torch.set_num_threads(1)\nfrom pooled_nb.shard.sig import signature\n"
    code += "print(signature('cpu', 'bfloat16'))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == signature("cpu", "bfloat16")


def test_dtypes_differ() -> None:
    """DESIGN section 5, rule 5: one sig for each dtype."""
    assert len({signature("cpu", d) for d in ("float32", "bfloat16", "float16")}) == 3


def test_it_notices_one_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5, rule 5: another kernel, whose sums round differently, is another sig."""
    before = signature("cpu", "bfloat16")
    original = sig._fixed

    def nudged(rows: int, columns: int, salt: int) -> torch.Tensor:
        made = original(rows, columns, salt)
        if salt == 3:
            made[0, 0] += 0.01
        return made

    monkeypatch.setattr(sig, "_fixed", nudged)
    assert signature("cpu", "bfloat16") != before


def test_another_arithmetic_of_ours_is_another_sig(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5, rule 5: what the layer does not show (recurrences, int8) counts by version."""
    before = signature("cpu", "float32")
    monkeypatch.setattr(sig, "OWN", "another")
    assert signature("cpu", "float32") != before


@pytest.mark.parametrize("name", ["torch", "transformers"])
def test_another_version_is_another_sig(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5, rule 5: the order of sums belongs to a release, not to one of its builds."""
    package = getattr(sig, name)  # transformers may replace itself in sys.modules
    before = signature("cpu", "float32")
    major, minor, patch = package.__version__.split("+")[0].split(".")[:3]
    monkeypatch.setattr(package, "__version__", f"{major}.{minor}.{patch}+other")
    assert signature("cpu", "float32") == before
    monkeypatch.setattr(package, "__version__", f"{major}.{minor}.{int(patch) + 1}")
    assert signature("cpu", "float32") != before


def test_it_notices_every_shape_that_a_room_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5, rules 1 and 5: narrow frames, prompt frames and the head have their own kernels."""
    before = signature("cpu", "float32")
    linear = functional.linear
    monkeypatch.setattr(packed, "available", lambda dtype: False)
    rows: set[int] = set()
    monkeypatch.setattr(functional, "linear", lambda x, weight: (rows.add(len(x)), linear(x, weight))[1])
    plain = signature("cpu", "float32")
    assert rows == {WIDTH, COLS_CPU, ends.ROWS}
    assert {COLS_CPU, COLS_GPU} <= {*sig.COLS["cpu"], *sig.COLS["other"]}
    seen = {before, plain}
    for off in rows:

        def nudged(x: torch.Tensor, weight: torch.Tensor, off: int = off) -> torch.Tensor:
            return linear(x, weight) * (1 + (len(x) == off) * 2**-10)

        monkeypatch.setattr(functional, "linear", nudged)
        assert signature("cpu", "float32") not in seen
        seen.add(signature("cpu", "float32"))


def test_packed_products_are_those_of_the_stage() -> None:
    """DESIGN section 5: packed weights give the plain product; in bfloat16 bit for bit, for any rows."""
    for dtype in (torch.float32, torch.bfloat16):
        if not packed.available(dtype):
            continue
        weight, rows = sig._fixed(96, 64, 1).to(dtype), sig._fixed(40, 64, 2).to(dtype)
        plain = torch.nn.functional.linear(rows, weight)
        mine = packed.product(rows, packed.pack(weight), None)
        torch.testing.assert_close(mine, plain, rtol=1e-5, atol=1e-5)
        linear = torch.nn.Linear(64, 96, dtype=dtype).requires_grad_(False)
        module = torch.nn.Sequential(linear)
        wanted = module(rows)
        packed.pack_all(module)
        assert isinstance(module[0], packed.PackedLinear)
        assert torch.equal(module[0].weight, linear.weight)
        torch.testing.assert_close(module(rows), wanted, rtol=1e-5, atol=1e-5)
        if dtype is torch.bfloat16:
            for n in range(1, 41):
                assert torch.equal(packed.product(rows[:n], module[0].packed, linear.bias), linear(rows[:n]))
