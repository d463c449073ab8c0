"""The engine as the child process calls it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pooled_nb.errors import FrameRefused, ModelNotSupported, PooledError, ShardError
from pooled_nb.shard import compat, packed
from pooled_nb.shard import engine as engine_module
from pooled_nb.shard.door import Columns, Control, Sampling
from pooled_nb.shard.engine import Engine
from tests.shard import tiny
from tests.shard.conftest import Make
from tests.shard.runs import DEVICE, Chain, load, longest, some_tokens, spec

PROMPT = some_tokens(37)


def answer(chain: Chain, prompt: list[int], count: int, sampling: Sampling | None = None) -> list[int]:
    """Prefill, then one token a lap, as a room does without drafts."""
    host, pos, data = chain.engines[0], 0, b""
    every = [False] * len(prompt)
    while pos < len(prompt):
        n = longest(pos, every)
        data = chain.lap(prompt[pos : pos + n], pos, wide=True, control=Control(reset=pos == 0))
        pos += n
    step = len(data) // n
    tokens: list[int] = []
    while len(tokens) < count:
        tokens += host.sample(data[-step:], pos=pos - 1, n=1, sampling=sampling or Sampling())
        data = chain.lap(tokens[-1:], pos, wide=False)
        pos += 1
    return tokens


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "qwen3_moe"])
def test_greedy_text_in_float32_is_that_of_generate(name: str, exact: bool, tiny_model: Make) -> None:
    """DESIGN section 9: in float32 the tokens are those of transformers' ``generate``."""
    folder = tiny_model(name)
    ids = torch.tensor([PROMPT])
    theirs = tiny.reference(folder, name).generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=30, min_new_tokens=30, do_sample=False,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    chain = Chain([load(folder, 0, 3, exact=exact), load(folder, 3, 6, exact=exact)])
    assert answer(chain, PROMPT, 30) == theirs[0, len(PROMPT) :].tolist()


def test_seeded_text_is_the_same_on_any_split(tiny_model: Make) -> None:
    """DESIGN section 5: within a sig, seeded text is the same bit for bit, one device or three."""
    folder = tiny_model("llama")
    sampling = Sampling(temperature=0.9, top_k=50, seed=3)
    splits = ([(0, 6)], [(0, 1), (1, 6)], [(0, 2), (2, 5), (5, 6)])
    texts = [
        answer(Chain([load(folder, lo, hi, dtype="bfloat16") for lo, hi in ranges]), PROMPT, 25, sampling)
        for ranges in splits
    ]
    assert texts[0] == texts[1] == texts[2]
    assert len(set(texts[0])) > 5


def test_what_was_loaded_before_is_freed(tiny_model: Make) -> None:
    """PROTOCOL section 6: ``ai-load`` again replaces what was loaded."""
    engine = Engine()
    with pytest.raises(ShardError, match="No layers are loaded"):
        engine.forward(Columns(pos=0, n=1, wide=True), Control(), tokens=[5], data=None, last=False)
    for name in ("llama", "gpt2"):
        folder = tiny_model(name)
        done = engine.load(spec(folder), folder, lambda percent, words: None)
        assert done.placed == f"{'cuda:0' if DEVICE == 'cuda' else DEVICE} (6 layers)"
        assert done.seconds > 0
        assert answer(Chain([engine]), PROMPT, 3) == answer(Chain([load(folder)]), PROMPT, 3)
    engine.unload()
    with pytest.raises(ShardError, match="No layers are loaded"):
        engine.sample(b"", pos=0, n=1, sampling=Sampling())


@pytest.mark.parametrize(
    ("tokens", "n", "words"),
    [
        ([5, 6], 3, "names 3 columns and brings 2 tokens"),
        (None, 1, "brings 0 tokens"),
        ([256], 1, "a token outside the 256 of the vocabulary"),
        ([-1], 1, "a token outside the 256"),
        ([], 0, "names 0 columns"),
    ],
)
def test_tokens_that_cannot_be_are_refused(
    tokens: list[int] | None, n: int, words: str, tiny_model: Make
) -> None:
    """PROTOCOL section 5: any frame that may not run is refused in words."""
    engine = load(tiny_model("llama"))
    with pytest.raises(FrameRefused, match=words):
        engine.forward(Columns(pos=0, n=n, wide=True), Control(), tokens=tokens, data=None, last=False)


@pytest.mark.parametrize("data", [None, b"", bytes(64 * 4 * 2 - 1), bytes(64 * 2 * 2), memoryview(bytes(9))])
def test_states_of_another_size_are_refused(data: bytes | memoryview | None, tiny_model: Make) -> None:
    """PROTOCOL section 5: ``n`` hidden states of ``dim`` numbers; any other size is refused."""
    engine = load(tiny_model("llama"), 2, 4)
    with pytest.raises(FrameRefused, match="2 hidden states of 64 numbers are 512 bytes"):
        engine.forward(Columns(pos=0, n=2, wide=True), Control(), tokens=None, data=data, last=False)
    view = memoryview(bytes(64 * 4 * 2))
    done = engine.forward(Columns(pos=0, n=2, wide=True), Control(), tokens=None, data=view, last=False)
    assert done.n == 2


def test_a_worker_draws_no_tokens(tiny_model: Make) -> None:
    """PROTOCOL section 1: the head and the sampler are the host's."""
    engine = load(tiny_model("llama"), 2, 4)
    with pytest.raises(FrameRefused, match="holds no head"):
        engine.sample(bytes(64 * 4), pos=0, n=1, sampling=Sampling())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hi": 7}, "Layers 1 to 7 cannot be loaded: the model has 6"),
        ({"lo": 3, "hi": 3}, "cannot be loaded"),
        ({"lo": 2, "ends": True}, "cannot be loaded"),
        ({"dtype": "int8"}, "dtype 'int8'"),
        ({"device": "warp"}, "no device 'warp'"),
        ({"ctx": 2000}, "context of 2000 tokens is more than this model holds"),
        ({"attn": "no_such"}, "compute with 'no_such', which is not done here"),
        ({"attn": "kernels-community/flash-attn2"}, "compute with 'kernels-community/flash-attn2'"),
        ({"attn": "flash_attention_2"}, "Use sdpa, eager"),
        ({"attn": "paged|sdpa"}, "not done here"),
        ({"experts": "kernels-community/megablocks"}, "not done here"),
        ({"experts": "deepgemm"}, "Use batched_mm, grouped_mm, eager"),
    ],
)
def test_a_deal_that_cannot_be_is_refused(
    changes: dict[str, object], words: str, tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROTOCOL section 6: what the host deals is checked before anything is read; one sentence says why."""
    folder = tiny_model("llama")
    monkeypatch.setattr(engine_module, "load_range", lambda *args, **kwargs: pytest.fail("read all the same"))
    plain = {"lo": 0, "hi": 6, **changes}
    with pytest.raises(ModelNotSupported, match=words):
        Engine().load(spec(folder, **plain), folder, lambda percent, words: None)  # type: ignore[arg-type]


def test_attention_that_sdpa_cannot_do_runs_eager(tiny_model: Make) -> None:
    """DESIGN section 5: soft caps and sinks; every device comes to the same choice from the model alone."""
    for name in ("gemma2", "gpt_oss"):
        engine = load(tiny_model(name), attn="sdpa")
        assert engine._need().base.config._attn_implementation == "eager"


@pytest.mark.parametrize("experts", engine_module.EXPERTS)
def test_experts_run_as_the_room_says(experts: str, tiny_model: Make) -> None:
    """DESIGN section 5: what a room may choose, transformers knows."""
    engine = load(tiny_model("qwen3_moe"), 2, 4, experts=experts)
    assert engine._need().base.config._experts_implementation == experts


@pytest.mark.skipif(DEVICE != "cpu", reason="weights are packed for the CPU's kernels only")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_layer_is_packed_whatever_else_lies_in_the_range(dtype: str, tiny_model: Make) -> None:
    """DESIGN section 5, rule 1: a layer that looks into its weights changes no other layer's kernels."""
    if not packed.available(getattr(torch, dtype)):
        pytest.skip("this CPU packs no weights")
    folder = tiny_model("llama")
    plain, whole = load(folder, dtype=dtype), Chain([load(folder, dtype=dtype)], dtype)
    looks = plain._need().layers[2].mlp
    looked = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        looked.append(looks.up_proj.weight.shape)
        up = torch.nn.functional.linear(x, looks.up_proj.weight)
        return torch.as_tensor(looks.down_proj(looks.act_fn(looks.gate_proj(x)) * up))

    looks.forward = forward
    kinds = {type(module) for layer in plain._need().layers for module in layer.modules()}
    assert packed.PackedLinear in kinds
    assert torch.nn.Linear not in kinds
    wanted, mine = whole.run(PROMPT, [False] * 37), Chain([plain], dtype).run(PROMPT, [False] * 37)
    torch.testing.assert_close(mine, wanted, rtol=0.05, atol=0.05)
    assert looked[0] == (128, 64)


@pytest.mark.parametrize(
    ("torch_version", "transformers_version", "good"),
    [
        ("2.9.0", "5.17.0", True),
        ("2.13.0+cpu", "5.24.0.dev0", True),
        ("2.8.1", "5.20.0", False),
        ("2.13.0", "4.57.1", False),
        ("3.0.0", "5.24.0", False),
        ("2.13.0", "6.0.0", False),
    ],
)
def test_versions_out_of_range_are_named(torch_version: str, transformers_version: str, good: bool) -> None:
    """DESIGN section 5: supported versions; outside of them one line names both."""
    if good:
        compat.check_versions(torch_version, transformers_version)
        return
    with pytest.raises(ModelNotSupported) as caught:
        compat.check_versions(torch_version, transformers_version)
    assert torch_version in caught.value.what
    assert transformers_version in caught.value.what


def test_errors_say_what_to_do(tiny_model: Make, tmp_path: Path) -> None:
    """DESIGN section 1: every error says what happened and what to do next."""
    engine = load(tiny_model("llama"), 2, 4)
    for go in (
        lambda: engine.sample(b"", pos=0, n=1, sampling=Sampling()),
        lambda: engine.forward(
            Columns(pos=9, n=1, wide=True), Control(), tokens=None, data=bytes(256), last=False
        ),
        lambda: load(tmp_path),
    ):
        with pytest.raises(PooledError) as caught:
            go()
        assert caught.value.what.endswith(".")
        assert caught.value.next_step.endswith(".")
