"""What crosses the bus. Where nothing can be pinned other memory stands in, so all of it runs here too."""

from __future__ import annotations

import math

import pytest
import torch

from pooled_nb.shard import handover
from pooled_nb.shard.handover import Handover, all_finite

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(params=["cpu", "mps", "cuda"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(handover, "_wait_for_all", lambda: None)
    return str(request.param)


@pytest.mark.parametrize("dtype", DTYPES)
def test_states_keep_their_bits(kind: str, dtype: torch.dtype) -> None:
    """PROTOCOL section 5: hidden states travel in the room's own dtype, bit for bit."""
    staging = Handover(kind)
    for n in (3, 700, 64, 5000):
        states = torch.linspace(-70, 70, n).to(dtype)
        states[1] = math.nan
        data = staging.down(states)
        assert type(data) is bytes
        assert len(data) == states.nbytes
        for given in (data, memoryview(data), bytearray(data)):
            arrived = staging.states(given, dtype)
            assert arrived.dtype == dtype
            assert staging.down(arrived) == data
    assert staging.down(torch.arange(6.0).view(2, 3).T) == staging.down(torch.tensor([0.0, 3, 1, 4, 2, 5]))


def test_tokens_and_numbers(kind: str) -> None:
    """DESIGN section 5: all that goes up for a token is a few bytes."""
    staging = Handover(kind)
    assert staging.tokens([5, 1 << 40, 0]).tolist() == [5, 1 << 40, 0]
    numbers = staging.numbers([0.1, 5e-324, 1.0], CPU)
    assert numbers.dtype == torch.float64
    assert numbers.tolist() == [0.1, 5e-324, 1.0]
    assert staging.tokens([7]).tolist() == [7]


def test_memory_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5: pinned memory is asked for once, more of it only for what is larger."""
    monkeypatch.setattr(handover, "_wait_for_all", lambda: None)
    staging, places = Handover("cuda"), set()
    for n in (1, 8, 3, 500):
        places.add(staging.tokens(list(range(n))).data_ptr())
    assert len(places) == 1
    assert staging.tokens(list(range(5000))).tolist() == list(range(5000))
    assert staging._pieces["tokens"].nbytes == 65536
    assert staging.numbers([1.0], CPU).data_ptr() != staging.tokens([1]).data_ptr()


def test_nothing_is_written_over_that_may_not_have_been_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """CASES: a job that failed between what it sent and what it waits for: the next one waits instead."""
    waits: list[int] = []
    monkeypatch.setattr(handover, "_wait_for_all", lambda: waits.append(1))
    staging = Handover("cuda")
    staging.tokens([1])
    staging.states(bytes(8), torch.float32)
    assert not waits
    staging.tokens([2])
    assert len(waits) == 1
    staging._sent.clear()  # as `fetch` does once it has waited
    staging.tokens([3])
    assert len(waits) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 7, 33, 64, 1000])
def test_what_is_not_finite_is_seen_wherever_it_is(n: int, dtype: torch.dtype) -> None:
    """DESIGN section 5: NaN or infinity is caught where it arrives."""
    numbers = torch.linspace(-1, 1, n).to(dtype)
    numbers[0] = torch.finfo(dtype).max
    assert all_finite(numbers)
    for place in {0, n // 3, n // 2, n - 1}:
        for bad in (math.nan, -math.nan, math.inf, -math.inf):
            damaged = numbers.clone()
            damaged[place] = bad
            assert not all_finite(damaged)
            assert not all_finite(damaged.view(1, n))
