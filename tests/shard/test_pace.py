"""How fast a range computes, measured once after a load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pooled_nb.shard import pace
from pooled_nb.shard.engine import Engine
from tests.shard.runs import load, spec

Make = Callable[[str], Path]


@pytest.mark.parametrize(("lo", "hi"), [(0, 3), (3, 6)])
def test_a_load_says_it(tiny_model: Make, lo: int, hi: int) -> None:
    """PROTOCOL section 6: "fastest first by measured ms per layer": known from the load on."""
    folder = tiny_model("llama")
    loaded = Engine().load(spec(folder, lo, hi), folder, lambda percent, words: None)
    assert loaded.layer_ms > 0


@pytest.mark.parametrize("name", ["qwen3", "qwen3_next"])
def test_nothing_of_it_stays(tiny_model: Make, name: str) -> None:
    """DESIGN section 5: a column's bits depend on nothing but its token, position and what came before."""
    stage = load(tiny_model(name))._need()
    pace.layer_ms(stage, embeds=True)
    assert stage.lane.length == 0
    assert all(not bool(t.any()) for layer in stage.slab.copies(8) for t in layer)


def test_a_slow_frame_is_not_waited_for(tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load on a slow device takes no longer for it; nor does one that fails end there."""
    stage, ran = load(tiny_model("llama"))._need(), []
    plain = stage.forward

    def forward(*args: object) -> torch.Tensor:
        ran.append(args)
        return plain(*args)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(stage, "forward", forward)
    monkeypatch.setattr(pace, "LIMIT_S", 0.0)
    assert pace.layer_ms(stage, embeds=True) == 0.0
    assert len(ran) == 1
