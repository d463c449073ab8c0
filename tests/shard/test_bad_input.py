"""What cannot be: each ends its job in words that say where, and the shard answers the next one as before."""

from __future__ import annotations

import functools
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from pooled_nb.errors import FrameRefused, OutOfMemory, PooledError, WrongNumbers
from pooled_nb.shard import protocol
from pooled_nb.shard.desk import Desk
from pooled_nb.shard.door import Columns, Control, Forwarded, ModelFacts, Sampled, Sampling
from pooled_nb.shard.faults import as_pooled_error, memory_ran_out
from tests.shard.conftest import Make
from tests.shard.runs import Chain, load, roles, some_tokens, spec
from tests.shard.tinychat import write_model

TOKENS = some_tokens(60)
ROLES = roles(45, 15)
DIM = 64
NAN, INF = float("nan"), float("inf")


def states(n: int = 8, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.sin(torch.arange(n * DIM) / 3).reshape(n, DIM).to(dtype)


def raw(given: torch.Tensor) -> bytes:
    return given.contiguous().view(torch.uint8).numpy().tobytes()


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny") / "talker", layers=3)


# -- frames -----------------------------------------------------------------------------------------

FRAMES: dict[str, tuple[Columns, Control, type[PooledError], str]] = {
    "another position": (Columns(pos=50, n=2, wide=True), Control(), FrameRefused, "position 50"),
    "a rollback past the snapshots": (
        Columns(pos=48, n=2, wide=False), Control(spec=True, rb=40), FrameRefused, "rolls back to column 40",
    ),
    "a slot that is not there": (Columns(pos=8, n=2, wide=True), Control(ld=77), FrameRefused, "slot 77"),
    "beyond the context": (
        Columns(pos=60, n=500, wide=False), Control(), FrameRefused, "context is 512 tokens",
    ),
    "no columns": (Columns(pos=60, n=0, wide=True), Control(), FrameRefused, "0"),
    "another lane": (Columns(pos=60, n=1, wide=True, lane=3), Control(), FrameRefused, "lane 3"),
}  # fmt: skip


@functools.cache
def chain_of(folder: Path) -> tuple[Chain, torch.Tensor]:
    chain = Chain([load(folder, lo, hi) for lo, hi in ((0, 3), (3, 6))])
    return chain, chain.run(TOKENS, ROLES)


@pytest.mark.parametrize("name", ["llama", "qwen3_next"])
@pytest.mark.parametrize("bad", FRAMES)
def test_a_frame_that_cannot_run_changes_nothing(name: str, bad: str, tiny_model: Make) -> None:
    """PROTOCOL section 5: ``ai-error``; the frame with ``reset`` after it runs as if nothing had been."""
    columns, control, kind, words = FRAMES[bad]
    chain, whole = chain_of(tiny_model(name))
    chain.run(TOKENS, ROLES)
    for engine in chain.engines:
        first = engine is chain.engines[0]
        with pytest.raises(kind, match=words) as caught:
            engine.forward(
                columns,
                control,
                tokens=TOKENS[:1] * columns.n if first else None,
                data=None if first else raw(states(columns.n)),
                last=False,
            )
        assert caught.value.next_step
    assert torch.equal(chain.run(TOKENS, ROLES), whole)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("name", ["llama", "qwen3_next"])
def test_wrong_numbers_that_arrive_are_named_and_leave_no_trace(
    name: str, bad: float, tiny_model: Make
) -> None:
    """DESIGN section 5: caught where it arises, and named: produced here, or arrived here."""
    chain, whole = chain_of(tiny_model(name))
    chain.run(TOKENS, ROLES)
    host, worker = chain.engines
    damaged = states(4)
    damaged[2, 17] = bad
    with pytest.raises(WrongNumbers, match=r"arrived here, before layer 4.* device before"):
        worker.forward(Columns(pos=60, n=4, wide=True), Control(), tokens=None, data=raw(damaged), last=False)
    with pytest.raises(WrongNumbers, match=r"arrived here, before the final norm.* last device"):
        host.sample(raw(damaged), pos=0, n=4, sampling=Sampling())
    assert torch.equal(chain.run(TOKENS, ROLES), whole)
    assert len(host.sample(raw(whole[-1:]), pos=59, n=1, sampling=Sampling())) == 1


def test_float16_that_overflows_is_refused_in_words(tiny_model: Make) -> None:
    """PROTOCOL section 5: a value that f16 cannot hold is refused in words, never sent as infinity."""
    worker = load(tiny_model("llama"), 3, 6, dtype="float16")

    def run(given: torch.Tensor) -> Forwarded:
        frame = Columns(pos=0, n=8, wide=True)
        return worker.forward(frame, Control(reset=True), tokens=None, data=raw(given), last=False)

    before = run(states(8, torch.float16))
    large = states(8, torch.float16)
    large[1] = 65504.0
    with torch.inference_mode():
        norm = dict(worker._need().layers[2].named_parameters())["input_layernorm.weight"]
        held = norm.clone()
        norm.fill_(60000.0)
        with pytest.raises(WrongNumbers) as caught:
            run(large)
        norm.copy_(held)
    assert caught.value.what == (
        "NaN or infinity was produced here, in layer 6; float16 holds no number above 65,504."
    )
    assert "bfloat16 or float32" in caught.value.next_step
    assert run(states(8, torch.float16)).data == before.data


@pytest.mark.parametrize(
    ("tensor", "value", "dtype", "words"),
    [
        (
            "model.layers.1.mlp.up_proj.weight",
            NAN,
            "float32",
            "The weight mlp.up_proj.weight of layer 2 holds NaN",
        ),
        (
            "model.layers.2.input_layernorm.weight",
            INF,
            "bfloat16",
            "input_layernorm.weight of layer 3 holds NaN",
        ),
        ("model.layers.0.self_attn.q_proj.weight", 7e4, "float16", "of layer 1 holds .* above the 65,504"),
        ("model.embed_tokens.weight", -INF, "float32", "The weight embed_tokens.weight holds NaN"),
    ],
)
def test_a_weight_that_is_no_number_is_named(
    tensor: str, value: float, dtype: str, words: str, talker: Path, tmp_path: Path
) -> None:
    """DESIGN sections 5 and 6: named where it arises: in the files, not in what comes of them."""
    poor = Path(shutil.copytree(talker, tmp_path / "poor"))
    weights = load_file(poor / "model.safetensors")
    weights[tensor].view(-1)[5] = value
    save_file(weights, poor / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WrongNumbers, match=words) as caught:
        load(poor, 0, 3, ctx=256, dtype=dtype)
    assert "another dtype" in caught.value.next_step


# -- memory -----------------------------------------------------------------------------------------


def desk_of(folder: Path, **changes: Any) -> Desk:
    desk = Desk()
    facts = desk.run(protocol.Inspect(model=str(folder)), lambda *_: None)
    assert isinstance(facts, ModelFacts)
    wanted = spec(folder, 0, 3, ctx=256, repo=str(folder), **changes)
    wanted = msgspec.structs.replace(wanted, config_sha256=facts.config_sha256, files=facts.files)
    desk.run(protocol.Load(spec=wanted), lambda *_: None)
    return desk


def forward(desk: Desk) -> Forwarded:
    job = protocol.Forward(
        columns=Columns(pos=0, n=20, wide=True), control=Control(reset=True), tokens=list(range(5, 25))
    )
    done = desk.run(job, lambda *_: None)
    assert isinstance(done, Forwarded)
    return done


def sample(desk: Desk, data: bytes | memoryview) -> list[int]:
    job = protocol.Sample(data=bytes(data), pos=19, n=1, sampling=Sampling(), first=True)
    done = desk.run(job, lambda *_: None)
    assert isinstance(done, Sampled)
    return done.tokens


def too_much() -> None:
    """Really ask the system for what it has not."""
    torch.empty(1 << 50, dtype=torch.uint8)


def cuda() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has 1 GiB free.")


RUN_OUT: dict[str, tuple[Callable[[], None], str]] = {
    "the system's": (too_much, r"1125899\.91 GB more were needed"),
    "a GPU's": (cuda, r"2\.68 GB more were needed"),
}


@pytest.mark.parametrize("why", RUN_OUT)
def test_memory_that_runs_out_while_answering(why: str, talker: Path) -> None:
    """DESIGN section 3: it is said with how much was missing, what was held is freed, and it goes on."""
    fail, words = RUN_OUT[why]
    desk = desk_of(talker)
    stage = desk._engine._need()
    before = forward(desk)
    drawn = sample(desk, before.data[-128:])
    held: list[weakref.ref[torch.Tensor]] = []

    def hook(*args: Any) -> None:
        big = torch.zeros(1000)
        held.append(weakref.ref(big))
        fail()

    jobs: list[tuple[torch.nn.Module, str, Callable[[], object]]] = [
        (stage.layers[1], "while it computed", lambda: forward(desk)),
        (desk._engine.ends._model, "while it drew a token", lambda: sample(desk, before.data[-128:])),
    ]
    for part, doing, job in jobs:
        handle = part.register_forward_pre_hook(hook)
        with pytest.raises(OutOfMemory, match=rf"{doing}: {words}") as caught:
            job()
        handle.remove()
        assert "shorter context" in caught.value.next_step
        assert held.pop()() is None, "its trace held what the job had made"
    assert forward(desk).data == before.data
    assert sample(desk, before.data[-128:]) == drawn


def test_memory_that_runs_out_while_loading(talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 3: what was read is freed, and a load that fits goes through."""
    desk = desk_of(talker)
    before = forward(desk)
    made: list[weakref.ref[Any]] = []

    def ends(model: Any, *args: Any) -> Any:
        made.append(weakref.ref(model))
        too_much()

    with monkeypatch.context() as patch:
        patch.setattr("pooled_nb.shard.engine.Ends", ends)
        with pytest.raises(OutOfMemory, match="while loading layers 1 to 3: 1125899"):
            desk_of(talker)
    assert made[0]() is None
    assert forward(desk_of(talker)).data == before.data


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "This device ran out of memory."),
        (
            RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 12000000 bytes."),
            "0.01 GB",
        ),
        (RuntimeError("std::bad_alloc"), "ran out of memory"),
        (OSError(12, "Cannot allocate memory"), "ran out of memory"),
    ],
)
def test_every_way_to_say_it_is_known(error: Exception, words: str) -> None:
    """DESIGN section 1: torch, numpy and the system each say it in their own way; a person hears one."""
    told = as_pooled_error(error)
    assert isinstance(told, OutOfMemory)
    assert words in told.what
    assert told.next_step
    assert memory_ran_out(error, "while it computed").what.startswith(
        "This device ran out of memory while it"
    )


def test_nothing_loaded_is_said(talker: Path) -> None:
    """DESIGN section 1: a frame for a device that holds nothing ends in words, and a load cures it."""
    desk = Desk()
    with pytest.raises(PooledError, match="No layers are loaded here"):
        forward(desk)
    with pytest.raises(PooledError, match="no tokenizer and no head"):
        sample(desk, bytes(128))
    assert forward(desk_of(talker)).n == 20
