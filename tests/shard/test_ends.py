"""Norm and head over a fixed number of rows, plain and recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from pooled_nb.shard.ends import Ends, _lies_on
from pooled_nb.shard.engine import Engine
from pooled_nb.shard.graphs import NoGraph
from pooled_nb.shard.headpass import HeadPass
from tests.shard.conftest import Make
from tests.shard.runs import load
from tests.shard.tape import TapeRecorder

NAMES = ["llama", "llama_tied", "gemma2", "gpt2"]
CPU = torch.device("cpu")


def columns(engine: Engine, n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((n, engine._need().dim), generator=generator)


def all_logits(ends: Ends, hidden: torch.Tensor) -> torch.Tensor:
    return torch.cat([scores.logits[: scores.n].clone() for scores in ends.scores(hidden)])


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_head_gives_the_bits_of_a_plain_one(name: str, tiny_model: Make) -> None:
    """DESIGN section 5: a graph starts the kernels that the plain run starts, whatever a frame brings."""
    engine = load(tiny_model(name))
    ends, recorder = engine.ends, TapeRecorder()
    with torch.inference_mode():
        head = HeadPass(ends._scored, 4, CPU, recorder)
        for time, n in enumerate((3, 1, 4, 2, 4)):
            hidden = columns(engine, n, time)
            scores = head(hidden)
            assert scores.n == n
            wanted = ends.logits(hidden)
            assert torch.equal(scores.logits[:n], wanted)
            best, finite = scores.facts[:, :n].tolist()
            assert best == wanted.argmax(1).tolist()
            assert all(finite)
            assert head.recorded
    assert recorder.made == 1
    assert recorder.replayed == 5  # once to compare, then each pass after the first


def test_it_is_recorded_for_the_rows_that_come(tiny_model: Make) -> None:
    """DESIGN section 5: exact rooms have one number of rows; fast ones are recorded for a column alone."""
    for exact, wanted in ((True, [4]), (False, [1])):
        engine = load(tiny_model("llama"), exact=exact)
        ends, recorder = engine.ends, TapeRecorder()
        ends._recorder = recorder
        for n in (5, 1, 16, 1):
            hidden = columns(engine, n, n)
            assert torch.equal(all_logits(ends, hidden), ends.logits(hidden))
        assert sorted(ends._passes) == wanted
        assert recorder.made == 1


class _Never:
    def record(self, run: Callable[[], None]) -> Callable[[], None]:
        raise NoGraph("too little memory is left for CUDA graphs")


class _Full:
    def record(self, run: Callable[[], None]) -> Callable[[], None]:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 MiB.")


class _Otherwise(TapeRecorder):
    """A graph whose kernels round otherwise."""

    def record(self, run: Callable[[], None]) -> Callable[[], None]:
        replay = super().record(run)
        owner = run.__self__  # type: ignore[attr-defined]

        def other() -> None:
            replay()
            owner._logits.mul_(1 + 2**-20)

        return other


@pytest.mark.parametrize("recorder", [_Never(), _Full(), _Otherwise(), None])
def test_without_a_graph_it_runs_plainly(recorder: TapeRecorder | None, tiny_model: Make) -> None:
    """CASES: memory that runs out, and a graph that gives other bits: then there is none, and no fault."""
    engine = load(tiny_model("llama"))
    with torch.inference_mode():
        head = HeadPass(engine.ends._scored, 4, CPU, recorder)
        for time in range(3):
            hidden = columns(engine, 2, time)
            assert torch.equal(head(hidden).logits[:2], engine.ends.logits(hidden))
            assert not head.recorded


def test_what_is_not_finite_is_still_recorded(tiny_model: Make) -> None:
    """CASES: NaN is no other number than NaN, when a graph is compared with the plain run."""
    engine = load(tiny_model("llama"))
    with torch.inference_mode():
        head = HeadPass(engine.ends._scored, 4, CPU, TapeRecorder())
        hidden = columns(engine, 2)
        hidden[1] = float("nan")
        assert head(hidden).facts[1, :2].tolist() == [1, 0]
        assert head.recorded
        assert head(hidden).facts[1, :2].tolist() == [1, 0]
        assert head(columns(engine, 2)).facts[1, :2].tolist() == [1, 1]


def test_a_head_that_accelerate_moves_is_not_recorded() -> None:
    """DESIGN section 5: what is fetched for each product has another address each time."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert _lies_on(model, CPU)
    assert not _lies_on(model, torch.device("cuda:0"))
    model[1]._hf_hook = object()  # type: ignore[assignment]
    assert not _lies_on(model, CPU)
    assert not _lies_on(nn.Linear(2, 2, device="meta"), CPU)
