"""A range of layers that runs frames, and what it does with frames and numbers that it must not take."""

from __future__ import annotations

import pytest
import torch

from pooled_nb.errors import FrameRefused, ModelNotSupported, WrongNumbers
from pooled_nb.shard.arch import Parts
from pooled_nb.shard.door import Columns, Control
from pooled_nb.shard.stage import Stage
from tests.shard.conftest import Make
from tests.shard.runs import Chain, load, roles, some_tokens

TOKENS = some_tokens(60)


def test_pads_are_thrown_away(tiny_model: Make) -> None:
    """DESIGN section 5, rule 1: columns beyond ``n`` never travel and are in no cache."""
    engine = load(tiny_model("llama"))
    stage = engine._need()
    done = engine.forward(Columns(pos=0, n=3, wide=True), Control(), tokens=TOKENS[:3], data=None, last=False)
    assert (done.pos, done.n, len(done.data)) == (0, 3, 3 * 64 * 4)
    for layer in stage.slab.slabs:
        assert layer.store is not None
        for kept in layer.store.copies(stage.slab.capacity):
            assert bool(kept[:, :, :3].any())
            assert not bool(kept[:, :, 3:].any())


def test_the_last_column_alone_is_that_column(tiny_model: Make) -> None:
    """PROTOCOL section 5: asked for the last column only, ``n = 1`` and that column's position."""
    engine = load(tiny_model("llama"))
    columns = Columns(pos=0, n=7, wide=True)
    every = engine.forward(columns, Control(), tokens=TOKENS[:7], data=None, last=False)
    last = engine.forward(columns, Control(reset=True), tokens=TOKENS[:7], data=None, last=True)
    assert (last.pos, last.n) == (6, 1)
    assert last.data == every.data[-64 * 4 :]
    assert last.ms > 0


def test_a_refused_frame_changes_nothing(tiny_model: Make) -> None:
    """PROTOCOL section 5: a frame at another position is refused; the caches stay as they were."""
    chain = Chain([load(tiny_model("llama"))])
    chain.lap(TOKENS[:10], 0, wide=True)
    with pytest.raises(FrameRefused, match="position 12, and the caches hold 10"):
        chain.lap(TOKENS[12:13], 12, wide=False)
    after = chain.lap(TOKENS[10:14], 10, wide=True)
    fresh = chain.run(TOKENS[:14], [False] * 14)
    assert chain.states(after).equal(fresh[10:])


def test_numbers_that_arrive_wrong_are_said_to_arrive(tiny_model: Make) -> None:
    """DESIGN section 5: NaN or infinity is caught where it arises and named: it arrived here."""
    chain = Chain([load(tiny_model("llama"), 2, 4)])
    worker = chain.engines[0]
    good = torch.ones(2, 64)
    for wrong in (torch.nan, torch.inf, -torch.inf):
        bad = good.clone()
        bad[1, 5] = wrong
        with pytest.raises(WrongNumbers, match="arrived here, before layer 3"):
            worker.forward(
                Columns(pos=0, n=2, wide=True), Control(), tokens=None, data=bad.numpy().tobytes(), last=False
            )
    assert worker._need().lane.length == 0


@pytest.mark.parametrize("exact", [True, False])
def test_numbers_that_go_wrong_here_name_the_layer(exact: bool, tiny_model: Make) -> None:
    """DESIGN section 5: produced here, and in which layer; nothing of it stays in the caches."""
    engine = load(tiny_model("llama"), exact=exact)
    chain = Chain([engine])
    stage = engine._need()
    before = chain.run(TOKENS[:20], roles(15, 5))
    norm = stage.layers[3].input_layernorm.weight
    kept = norm.clone()
    with torch.inference_mode():
        norm.fill_(torch.inf)
    with pytest.raises(WrongNumbers, match="produced here, in layer 4"):
        chain.lap(TOKENS[20:21], 20, wide=False)
    with torch.inference_mode():
        norm.copy_(kept)
    assert stage.lane.length == 0
    assert chain.run(TOKENS[:20], roles(15, 5)).equal(before)


@pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory"), KeyboardInterrupt(), MemoryError()])
def test_a_frame_that_fails_on_the_way_leaves_nothing(error: BaseException, tiny_model: Make) -> None:
    """PROTOCOL section 5: layers that ran and layers that did not agree on no length, so all is forgotten."""
    chain = Chain([load(tiny_model("llama"))])
    stage = chain.engines[0]._need()
    before = chain.run(TOKENS[:20], roles(15, 5))

    def fail(layer: object, args: object) -> None:
        raise error

    hook = stage.layers[3].register_forward_pre_hook(fail)
    with pytest.raises(type(error)):
        chain.lap(TOKENS[20:22], 20, wide=False)
    hook.remove()
    with pytest.raises(FrameRefused, match="position 22, and the caches hold 0"):
        chain.lap(TOKENS[22:23], 22, wide=False)
    assert chain.run(TOKENS[:20], roles(15, 5)).equal(before)


def test_a_stage_that_is_refused_leaves_the_layers_alone(tiny_model: Make) -> None:
    """DESIGN section 5: no hook stays on layers that were not taken."""
    ready = load(tiny_model("llama"), 2, 4)._need()
    parts = Parts(ready.base, "layers", "norm")
    hooks = [len(layer._forward_pre_hooks) for layer in ready.layers]
    ready.base.norm = torch.nn.Dropout(0.5)  # more than layers and a norm
    ready.base.train()
    with pytest.raises(ModelNotSupported, match="does more to its hidden states"):
        Stage(parts, 2, ready.rules, torch.float32, embeds=False)
    assert [len(layer._forward_pre_hooks) for layer in ready.layers] == hooks
    assert not any(layer._forward_hooks for layer in ready.layers)


def test_float16_overflow_is_refused_in_words(tiny_model: Make) -> None:
    """DESIGN section 5: a hidden value that float16 cannot hold is refused, never infinity."""
    engine = load(tiny_model("llama"), 1, 3, dtype="float16")
    stage = engine._need()
    with torch.inference_mode():
        stage.layers[0].post_attention_layernorm.weight.fill_(6e4)
    states = torch.full((1, 64), 6e4, dtype=torch.float16).numpy().tobytes()
    with pytest.raises(WrongNumbers, match=r"produced here, in layer 2.*another dtype"):
        engine.forward(Columns(pos=0, n=1, wide=True), Control(), tokens=None, data=states, last=False)


def test_slots_are_refused_in_words(tiny_model: Make) -> None:
    """PROTOCOL section 5: ``ld`` of a slot it lacks fails the lap."""
    chain = Chain([load(tiny_model("llama"))])
    with pytest.raises(FrameRefused, match="slot 5"):
        chain.lap(TOKENS[:2], 0, wide=True, control=Control(ld=5))


def test_a_long_conversation_crosses_buckets(tiny_model: Make) -> None:
    """DESIGN section 5, rule 2: the longer buffer of the next bucket changes no column that was computed."""
    folder = tiny_model("llama")
    tokens, kinds = some_tokens(300), roles(250, 50)
    whole = Chain([load(folder, ctx=300)])
    run = whole.run(tokens, kinds)
    longer = Chain([load(folder, ctx=1024)])
    assert longer.run(tokens, kinds).equal(run)
    with pytest.raises(FrameRefused, match="the context is 300 tokens"):
        whole.lap(tokens[:1], 300, wide=False)
