"""Frames that run as CUDA graphs give the bits of frames that run plainly, for every architecture."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pooled_nb.shard.door import Control, Loaded
from tests.gpu import driving
from tests.gpu.driving import DEVICE, cutter, run, start
from tests.shard import tiny
from tests.shard.runs import Chain, first_difference, roles, some_tokens

Make = Callable[[str], Path]

ROLES = roles(230, 40, 60)  # an answer over the bucket's end at 256
TOKENS = some_tokens(len(ROLES))
PLAIN_ONLY = set(tiny.HYBRID)
"""With running states, which have steps of their own for each frame."""
SURE = ("llama", "llama_tied", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "gpt2", "olmo2")
"""Graphs must run here: falling back would cost these families their speed."""


def played(folder: Path, **changes: object) -> tuple[Loaded, torch.Tensor, torch.Tensor]:
    """A conversation twice, the second time in other frames; and what the engine says of how it runs."""
    engine, loaded = start(folder, **changes)
    made = Chain([engine], str(changes.get("dtype", "bfloat16")))
    first = run(made, TOKENS, ROLES)
    again = run(made, TOKENS, ROLES, cutter(4))
    data = made.lap([5, 6, 7], len(TOKENS), wide=False, control=Control(spec=True))
    after = made.lap([9], len(TOKENS) + 1, wide=False, control=Control(rb=0))
    engine.unload()
    assert first_difference(again, first) is None
    return loaded, first, torch.cat((made_states(data, first), made_states(after, first)))


def made_states(data: bytes, like: torch.Tensor) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=like.dtype).view(-1, like.shape[1])


@pytest.mark.parametrize("name", [*tiny.CONFIGS, *tiny.HYBRID])
def test_with_and_without(name: str, tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5: a graph gives the bits of the plain run; what cannot be recorded says why."""
    folder = tiny_model(name)
    loaded, whole, tail = played(folder)
    monkeypatch.setenv("POOLED_GRAPHS", "0")
    off, plain, plain_tail = played(folder)
    assert first_difference(whole, plain) is None
    assert first_difference(tail, plain_tail) is None
    if DEVICE != "cuda":
        return
    assert not off.runs.startswith("CUDA graphs"), off.runs
    assert off.runs
    recorded = loaded.runs.startswith("CUDA graphs")
    assert recorded or re.match("(plain layers|no CUDA graphs): .", loaded.runs), repr(loaded.runs)
    if name in SURE:
        assert recorded, loaded.runs
    if name in PLAIN_ONLY:
        assert not recorded, loaded.runs


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "gpt2"])
def test_with_and_without_in_other_dtypes(
    name: str, dtype: str, tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 5: the same in the dtypes of small GPUs, and with eager attention."""
    folder = tiny_model(name)
    _, whole, tail = played(folder, dtype=dtype, attn="eager")
    monkeypatch.setenv("POOLED_GRAPHS", "0")
    _, plain, plain_tail = played(folder, dtype=dtype, attn="eager")
    assert first_difference(whole, plain) is None
    assert first_difference(tail, plain_tail) is None


@pytest.mark.parametrize("width", [1, 8])
@pytest.mark.parametrize("exact", [True, False])
def test_with_and_without_in_every_mode(
    width: int, exact: bool, tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 5: other widths are exact, too; fast mode gives the same bits in the same frames."""
    folder = tiny_model("llama")
    found = []
    for graphs in ("", "0"):
        monkeypatch.setenv("POOLED_GRAPHS", graphs)
        engine, _ = start(folder, width=width, exact=exact)
        made = Chain([engine], "bfloat16")
        first, again = (run(made, TOKENS, ROLES, lambda most: min(most, width)) for _ in range(2))
        assert first_difference(again, first) is None
        found.append(first)
        engine.unload()
    if exact:
        assert first_difference(found[1], found[0]) is None
    else:  # padded to few numbers of rows for graphs, which this mode may be
        assert torch.allclose(found[0].float(), found[1].float(), rtol=0.1, atol=0.1)


def test_fused_layers_can_be_turned_off(
    tiny_model: Make, monkeypatch: pytest.MonkeyPatch, cuda: None
) -> None:
    """DESIGN section 5: hand-fused layers are said, and without them the model's own run."""
    engine, loaded = start(tiny_model("llama"))
    assert "fused" in loaded.runs, loaded.runs
    engine.unload()
    monkeypatch.setenv("POOLED_FUSED", "0")
    engine, loaded = start(tiny_model("llama"))
    assert "fused" not in loaded.runs, loaded.runs
    made = Chain([engine], "bfloat16")
    whole = run(made, TOKENS, ROLES)
    assert first_difference(run(made, TOKENS, ROLES, cutter(1)), whole) is None
    engine.unload()


def test_frames_of_every_size_use_few_graphs(tiny_model: Make, cuda: None) -> None:
    """DESIGN section 5, rules 1 and 2: two widths and a length for each bucket are all shapes there are."""
    engine, _ = start(tiny_model("llama"))
    made = Chain([engine], "bfloat16")
    for seed in range(4):
        run(made, TOKENS, ROLES, cutter(seed))
    segment = engine._need()._segment
    assert segment is not None
    assert 0 < segment.count <= 2 * 4
    driving.end(made)
