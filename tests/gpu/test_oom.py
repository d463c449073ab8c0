"""Memory that runs out: while recording, frames run plainly; while computing it is said, and all goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from pooled_nb.errors import OutOfMemory
from pooled_nb.shard import protocol
from pooled_nb.shard.desk import Desk
from pooled_nb.shard.door import Columns, Control, Forwarded, Loaded, ModelFacts
from pooled_nb.shard.graphs import Segment, building
from tests.gpu.driving import CTX, DEVICE, WIDTH, cutter, run, start
from tests.shard.runs import Chain, first_difference, roles, some_tokens
from tests.shard.speculating import spec_of
from tests.shard.tinychat import write_model

Make = Callable[[str], Path]

ROLES = roles(230, 40, 60)
TOKENS = some_tokens(len(ROLES))
TOO_MUCH = 1 << 50
"""Bytes that no device has."""


def ask_too_much() -> None:
    """Really ask the device for what it has not."""
    torch.empty(TOO_MUCH, dtype=torch.uint8, device=DEVICE)


def plain_bits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """What frames give that are never recorded."""
    with monkeypatch.context() as patch:
        patch.setenv("POOLED_GRAPHS", "0")
        engine, _ = start(folder)
        whole = run(Chain([engine], "bfloat16"), TOKENS, ROLES)
        engine.unload()
    return whole


@contextmanager
def only(spare: int) -> Iterator[None]:
    """This process may take so many bytes more of the device, and no more: other tests go on beside it."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + spare) / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_while_recording_at_load(tiny_model: Make, monkeypatch: pytest.MonkeyPatch, cuda: None) -> None:
    """Recording fails before it begins: the load goes through, and says that frames run plainly."""
    folder = tiny_model("llama")
    whole = plain_bits(folder, monkeypatch)

    def full(*args: Any) -> Any:
        ask_too_much()

    with monkeypatch.context() as patch:
        patch.setattr("pooled_nb.shard.graphs.recorder.CudaRecorder._record", full)
        engine, loaded = start(folder)
    assert "memory" in loaded.runs, loaded.runs
    assert not loaded.runs.startswith("CUDA graphs")
    made = Chain([engine], "bfloat16")
    for cut in (lambda most: most, cutter(1)):
        assert first_difference(run(made, TOKENS, ROLES, cut), whole) is None
    engine.unload()
    # Nothing of it stays: the next load records again.
    engine, loaded = start(folder)
    assert loaded.runs.startswith("CUDA graphs"), loaded.runs
    assert first_difference(run(Chain([engine], "bfloat16"), TOKENS, ROLES), whole) is None
    engine.unload()


@pytest.mark.parametrize("since", ["from the start", "after some"])
def test_in_the_middle_of_a_capture(
    since: str, tiny_model: Make, monkeypatch: pytest.MonkeyPatch, cuda: None
) -> None:
    """The device refuses memory to a capture that is under way: it ends cleanly, with the same bits."""
    folder = tiny_model("qwen3")
    whole = plain_bits(folder, monkeypatch)
    before = Segment._plainly
    failed = 0

    def refused(segment: Segment, *args: Any) -> None:
        nonlocal failed
        before(segment, *args)
        if torch.cuda.is_current_stream_capturing():
            failed += 1
            ask_too_much()

    if since == "from the start":
        monkeypatch.setattr(Segment, "_plainly", refused)
    # Only the first bucket's frames are recorded while it loads.
    monkeypatch.setattr(building, "WARM", 256)
    engine, loaded = start(folder)
    assert loaded.runs.startswith("CUDA graphs") is (since != "from the start"), loaded.runs
    monkeypatch.setattr(Segment, "_plainly", refused)
    made = Chain([engine], "bfloat16")
    for cut in (lambda most: most, cutter(1), cutter(2), lambda most: most):
        assert first_difference(run(made, TOKENS, ROLES, cut), whole) is None
    assert failed > 0, "nothing was captured"
    assert not torch.cuda.is_current_stream_capturing()
    engine.unload()


def test_memory_that_is_really_full_while_recording(
    tiny_model: Make, monkeypatch: pytest.MonkeyPatch, cuda: None
) -> None:
    """A pool of graphs wants memory of its own, and there is none: whatever runs has the same bits."""
    folder = tiny_model("llama")
    whole = plain_bits(folder, monkeypatch)
    monkeypatch.setattr(building, "WARM", 256)
    engine, _ = start(folder)
    made = Chain([engine], "bfloat16")
    first = run(made, TOKENS[:40], ROLES[:40])
    with only(spare=4 << 20):
        for cut in (lambda most: most, cutter(1), cutter(2)):
            assert first_difference(run(made, TOKENS, ROLES, cut), whole) is None
    assert first_difference(first, whole[:40]) is None
    assert first_difference(run(made, TOKENS, ROLES), whole) is None
    engine.unload()


@pytest.fixture(scope="module")
def broad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose wide frames need tens of megabytes at once."""
    return write_model(
        tmp_path_factory.mktemp("broad") / "broad",
        layers=2,
        hidden_size=512,
        intermediate_size=16384,
        num_attention_heads=8,
    )


def desk_of(folder: Path, **changes: Any) -> tuple[Desk, Loaded]:
    desk = Desk()
    facts = desk.run(protocol.Inspect(model=str(folder)), lambda pct, words: None)
    assert isinstance(facts, ModelFacts)
    plain = {"device": DEVICE, "cols": 256, "dtype": "bfloat16", "ends": False, "ctx": CTX}
    loaded = desk.run(protocol.Load(spec=spec_of(facts, **{**plain, **changes})), lambda pct, words: None)
    assert isinstance(loaded, Loaded)
    return desk, loaded


def states(n: int, dim: int = 512) -> bytes:
    made = torch.sin(torch.arange(n * dim) / 3).reshape(n, dim).to(torch.bfloat16)
    return made.view(torch.uint8).numpy().tobytes()


def forward(desk: Desk, pos: int, n: int, *, wide: bool = True, reset: bool = False) -> bytes:
    columns, control = Columns(pos=pos, n=n, wide=wide), Control(reset=reset)
    job = protocol.Forward(columns=columns, control=control, data=states(n))
    ran = desk.run(job, lambda pct, words: None)
    assert isinstance(ran, Forwarded)
    return ran.data


@pytest.mark.parametrize("graphs", ["0", ""])
def test_while_computing(graphs: str, broad: Path, monkeypatch: pytest.MonkeyPatch, cuda: None) -> None:
    """DESIGN section 3: a frame that does not fit is refused in words; the next one runs, as before."""
    monkeypatch.setenv("POOLED_GRAPHS", graphs)
    desk, _ = desk_of(broad)
    stage = desk._engine._need()
    before = forward(desk, 0, 256, reset=True)
    narrow = forward(desk, 256, WIDTH, wide=False)

    def full(*args: Any, **kwargs: Any) -> Any:
        ask_too_much()

    with monkeypatch.context() as patch:
        patch.setattr(stage, "_frame", full)
        with pytest.raises(OutOfMemory, match="while it computed") as caught:
            forward(desk, 256 + WIDTH, WIDTH, wide=False)
    assert caught.value.next_step
    assert forward(desk, 0, 256, reset=True) == before
    assert forward(desk, 256, WIDTH, wide=False) == narrow


def test_a_wide_frame_for_which_no_memory_is_left(
    broad: Path, monkeypatch: pytest.MonkeyPatch, cuda: None
) -> None:
    """DESIGN section 3: the allocator itself says no, and afterwards there is memory again."""
    monkeypatch.setenv("POOLED_GRAPHS", "0")
    desk, _ = desk_of(broad)
    before = forward(desk, 0, 256, reset=True)
    narrow = forward(desk, 256, 1, wide=False)
    with only(spare=1 << 20), pytest.raises(OutOfMemory, match=r"while it computed: .* more were needed"):
        forward(desk, 0, 256, reset=True)
    assert forward(desk, 0, 256, reset=True) == before
    assert forward(desk, 256, 1, wide=False) == narrow


def test_while_loading(broad: Path, cuda: None) -> None:
    """DESIGN section 3: a load that does not fit says so, frees all of it, and a smaller one goes through."""
    desk, loaded = desk_of(broad)
    before = forward(desk, 0, 256, reset=True)
    desk.run(protocol.Unload(), lambda pct, words: None)
    free = torch.cuda.memory_allocated()
    with only(spare=loaded.weights // 2), pytest.raises(OutOfMemory, match="while loading layers 1 to 2"):
        desk_of(broad)
    assert torch.cuda.memory_allocated() <= free
    desk, _ = desk_of(broad)
    assert forward(desk, 0, 256, reset=True) == before
    desk.run(protocol.Unload(), lambda pct, words: None)


def test_a_try_on_a_cpu_drives_the_same_desk(broad: Path) -> None:
    """The frames of this file are right ones, wherever they run."""
    desk, _ = desk_of(broad)
    before = forward(desk, 0, 256, reset=True)
    assert len(before) == 256 * 512 * 2
    assert forward(desk, 0, 256, reset=True) == before
    desk.run(protocol.Unload(), lambda pct, words: None)
