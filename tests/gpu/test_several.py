"""Several GPUs in one kernel: accelerate spreads the layers, and text is that of one GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pooled_nb.shard import accelerators, loader
from tests.gpu.driving import LAYERS, cutter, end, run, start
from tests.shard.runs import Chain, first_difference, roles, some_tokens

Make = Callable[[str], Path]


def several() -> None:
    """Skip, with the reason, where there are no two GPUs of one model."""
    count = torch.cuda.device_count()
    if count < 2:
        pytest.skip(f"two CUDA devices are needed, and {count} is here")
    if len(accelerators.unlike("cuda")) > 1:
        pytest.skip("the CUDA devices here are of different models, so their bits may differ")


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_text_is_that_of_one_gpu(
    tiny_model: Make, monkeypatch: pytest.MonkeyPatch, cuda: None, name: str
) -> None:
    """DESIGN section 5: a range over several GPUs computes what one computes, bit for bit."""
    several()
    folder, said = tiny_model(name), roles(230, 40, 60)
    tokens = some_tokens(len(said))
    alone, placed = start(folder)
    assert placed.placed == f"cuda:0 ({LAYERS} layers)"
    one = run(Chain([alone], "bfloat16"), tokens, said)
    before = [torch.cuda.memory_allocated(i) for i in (0, 1)]
    alone.unload()
    # By itself so small a model lies on the first GPU: half of the layers must go on.
    half = {f"model.layers.{i}": int(i >= LAYERS // 2) for i in range(LAYERS)}
    whole = {"model.embed_tokens": 0, "model.norm": 1, "model.rotary_emb": 0, "lm_head": 1, **half}
    monkeypatch.setattr(loader, "_placing", lambda budget, numbers: {"device_map": whole})
    spread, loaded = start(folder)
    assert loaded.placed == f"cuda:0 ({LAYERS // 2} layers), cuda:1 ({LAYERS // 2} layers)"
    assert torch.cuda.memory_allocated(0) < before[0]
    assert torch.cuda.memory_allocated(1) > before[1]
    made = Chain([spread], "bfloat16")
    try:
        assert first_difference(one, run(made, tokens, said)) is None
        assert first_difference(one, run(made, tokens, said, cutter(3))) is None
    finally:
        end(made)


def test_their_memory_adds_up_and_their_sig_is_that_of_one(cuda: None) -> None:
    """PROTOCOL section 3: ``contribGB`` and ``sig`` of a device with several GPUs."""
    several()
    count = torch.cuda.device_count()
    total, free = accelerators.memory("cuda")
    assert total > torch.cuda.mem_get_info(0)[1]
    assert 0 < free <= total
    assert accelerators.name("cuda").endswith(f"×{count}")
    assert accelerators.unlike("cuda") == ["cuda:0"]
