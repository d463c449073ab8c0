"""Frames over buffers that stay, recorded once: the bits of the plain run, whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pooled_nb.errors import WrongNumbers
from pooled_nb.shard import stage as stage_module
from pooled_nb.shard.door import Control
from pooled_nb.shard.engine import Engine
from pooled_nb.shard.graphs import NoGraph, Recorder, building
from pooled_nb.shard.graphs.segment import same_bits
from tests.shard.conftest import Make
from tests.shard.runs import BUCKET, Chain, first_difference, load, roles, some_tokens
from tests.shard.tape import TapeRecorder

ROLES = roles(70, 31, 45, 40, 50, 34)  # 270 columns: the last answer crosses the bucket at 256
TOKENS = some_tokens(len(ROLES))
LIGHT = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture
def tape(monkeypatch: pytest.MonkeyPatch) -> TapeRecorder:
    """Engines of this test record."""
    recorder = TapeRecorder()
    _record_by(monkeypatch, recorder)
    return recorder


def _record_by(monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> None:
    monkeypatch.setattr(stage_module, "recorder_for", lambda device: recorder)


def _pair(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any
) -> tuple[Engine, Engine, TapeRecorder]:
    """The same layers plainly, and recorded."""
    plain = load(folder, **changes)
    recorder = TapeRecorder()
    with monkeypatch.context() as here:
        _record_by(here, recorder)
        recorded = load(folder, **changes)
    return plain, recorded, recorder


@pytest.mark.parametrize(
    "name", ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "gpt2", "olmo2", "deepseek_v3"]
)
@pytest.mark.parametrize("kv", ["f16", "q8"])
def test_graphs_give_the_bits_of_the_plain_run(
    name: str, kv: str, tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 5: a graph gives the bits of the plain run, over two buckets and both frame classes."""
    plain, recorded, recorder = _pair(tiny_model(name), monkeypatch, kv=kv)
    assert "CUDA graphs" in recorded._need().runs, recorded._need().runs
    whole = Chain([plain]).run(TOKENS, ROLES)
    for _ in range(2):
        assert first_difference(Chain([recorded]).run(TOKENS, ROLES), whole) is None
    assert recorder.made == 4  # two classes, two buckets
    assert recorder.replayed > 20


def test_frames_cut_anywhere(tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5, rules 1 to 3, for recorded frames, one device or two."""
    plain, recorded, _ = _pair(tiny_model("qwen3"), monkeypatch, dtype="bfloat16")
    chain = Chain([plain], "bfloat16")
    whole = chain.run(TOKENS, ROLES)
    _record_by(monkeypatch, TapeRecorder())
    parts = [load(tiny_model("qwen3"), lo, hi, dtype="bfloat16") for lo, hi in ((0, 2), (2, 6))]

    @LIGHT
    @given(st.data())
    def check(data: st.DataObject) -> None:
        def cut(most: int) -> int:
            return int(data.draw(st.one_of(st.just(most), st.just(1), st.integers(1, most))))

        for engines in ([recorded], parts):
            assert first_difference(Chain(engines, "bfloat16").run(TOKENS, ROLES, cut), whole) is None

    check()


def test_drafts_are_taken_back_and_checkpoints_read(
    tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROTOCOL section 5: rollback, save and load, over recorded frames."""
    plain, recorded, _ = _pair(tiny_model("llama"), monkeypatch)
    wanted, found = [], []
    for engine, outs in ((plain, wanted), (recorded, found)):
        chain = Chain([engine])
        chain.run(TOKENS[:70], ROLES[:70])
        outs.append(chain.lap(TOKENS[70:80], 70, wide=False, control=Control(spec=True, sv=3)))
        outs.append(chain.lap(TOKENS[90:94], 73, wide=False, control=Control(rb=2)))
        outs.append(chain.lap(TOKENS[80:90], 70, wide=False, control=Control(ld=3)))
        outs.append(chain.lap(TOKENS[101:130], 0, wide=True, control=Control(reset=True)))
        outs.append(chain.lap(TOKENS[70:80], 70, wide=False, control=Control(ld=3)))
    assert found == wanted
    assert found[0] == found[4]


def test_pads_are_in_no_column(tiny_model: Make, tape: TapeRecorder) -> None:
    """DESIGN section 5, rule 1: pads go to a spare column that no frame sees and no checkpoint copies."""
    engine = load(tiny_model("llama"))
    chain = Chain([engine])
    slab = engine._need().slab
    for n in (3, 5):
        chain.lap(TOKENS[:n], 0, wide=True, control=Control(reset=True))
    for layer in slab.slabs:
        assert layer.store is not None
        for kept in layer.store.copies(slab.capacity):
            assert kept.shape[2] == slab.capacity
            assert bool(kept[:, :, :5].any())
            assert not bool(kept[:, :, 5:].any())


def test_states_are_plain_and_say_so(tiny_model: Make, tape: TapeRecorder) -> None:
    """Layers with a running state are not recorded."""
    engine = load(tiny_model("lfm2"))
    assert engine._need().runs == "plain layers: this model keeps running states"
    assert tape.made == 0


def test_no_memory_for_more_graphs(tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory while recording: no graphs any more, the same bits, and it is said."""
    whole = Chain([load(tiny_model("llama"))]).run(TOKENS, ROLES)
    for most in (0, 1, 3):
        _record_by(monkeypatch, TapeRecorder(most))
        engine = load(tiny_model("llama"))
        for _ in range(2):
            assert first_difference(Chain([engine]).run(TOKENS, ROLES), whole) is None
        assert "too little memory is left for CUDA graphs" in engine._need().runs


def test_a_later_bucket_is_recorded_when_it_comes_again(
    tiny_model: Make, tape: TapeRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames of a bucket beyond those of the load: plainly once, then recorded, then replayed."""
    with monkeypatch.context() as here:
        here.setattr(building, "WARM", BUCKET)
        engine = load(tiny_model("llama"), ctx=1024)
    segment = engine._need()._segment
    assert segment is not None
    assert segment.count == 2
    chain, once = Chain([engine]), roles(280, 10)
    whole = chain.run(some_tokens(290), once)
    assert segment.count == 2
    for _ in range(2):
        assert first_difference(chain.run(some_tokens(290), once), whole) is None
        assert segment.count == 4


class _Liar:
    """Its graphs give what was right when they were recorded."""

    def record(self, run: Any) -> Any:
        run()
        return lambda: None


def test_a_graph_that_gives_other_numbers_is_not_used(
    tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs are compared with the plain run before one counts."""
    whole = Chain([load(tiny_model("llama"))]).run(TOKENS, ROLES)
    _record_by(monkeypatch, _Liar())
    engine = load(tiny_model("llama"))
    assert "gives other numbers" in engine._need().runs
    assert first_difference(Chain([engine]).run(TOKENS, ROLES), whole) is None


class _Waits:
    def record(self, run: Any) -> Any:
        raise NoGraph("its layers cannot be recorded as a CUDA graph (they wait)")


def test_layers_that_cannot_be_recorded(tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    _record_by(monkeypatch, _Waits())
    assert "(they wait)" in load(tiny_model("llama"))._need().runs


def test_wrong_numbers_name_the_layer(tiny_model: Make, tape: TapeRecorder) -> None:
    """DESIGN section 5: produced here, and in which layer, from recorded frames too."""
    engine = load(tiny_model("llama"))
    chain = Chain([engine])
    before = chain.run(TOKENS[:20], roles(15, 5))
    norm = engine._need().layers[3].input_layernorm.weight
    kept = norm.clone()
    with torch.inference_mode():
        norm.fill_(torch.inf)
    with pytest.raises(WrongNumbers, match="produced here, in layer 4"):
        chain.lap(TOKENS[20:21], 20, wide=False)
    with torch.inference_mode():
        norm.copy_(kept)
    assert chain.run(TOKENS[:20], roles(15, 5)).equal(before)


def test_fast_mode_records_few_kinds_of_frames(tiny_model: Make, tape: TapeRecorder) -> None:
    """Frames of any number of columns: rows are powers of two."""
    engine = load(tiny_model("llama"), exact=False)
    chain = Chain([engine])
    whole = Chain([load(tiny_model("llama"), exact=False)])
    for n in (1, 2, 3, 5, 7, 8, 11, 16):
        for _ in range(3):  # the caches of a CPU are attended over as far as they reach: a length of its own
            found = chain.states(chain.lap(TOKENS[:n], 0, wide=False, control=Control(reset=True)))
        plain = whole.states(whole.lap(TOKENS[:n], 0, wide=False, control=Control(reset=True)))
        assert torch.allclose(found, plain, rtol=1e-4, atol=1e-5)
    segment = engine._need()._segment
    assert segment is not None
    assert {rows for rows, _ in segment._graphs} == {1, 2, 4, 8, 16, 32}


def test_a_graph_found_wrong_in_a_conversation_leaves_nothing_behind(
    tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it wrote of the frame is written again: the frame's own columns are right afterwards."""

    class Spoils:
        def __init__(self) -> None:
            self.good, self.stage, self.spoil = TapeRecorder(), None, False

        def record(self, run: Any) -> Any:
            replay = self.good.record(run)
            if not self.spoil:
                return replay
            stage: Any = self.stage

            def spoiled() -> None:
                replay()
                at = stage._segment.buffers(16).targets
                for layer in stage.slab.slabs:
                    layer.store.keys.index_fill_(2, at, 7.0)
                stage._segment.buffers(16).out.add_(1)

            return spoiled

    recorder = Spoils()
    whole = Chain([load(tiny_model("llama"))]).run(some_tokens(300), roles(258, 42))
    _record_by(monkeypatch, recorder)
    with monkeypatch.context() as here:
        here.setattr(building, "WARM", BUCKET)
        engine = load(tiny_model("llama"))
    recorder.stage, recorder.spoil = engine._need(), True
    found = Chain([engine]).run(some_tokens(300), roles(258, 42))
    assert first_difference(found, whole) is None
    assert engine._need()._segment.why == "a CUDA graph of its layers gives other numbers"


def test_nan_is_not_zero() -> None:
    one = torch.tensor([1.0, torch.nan])
    assert same_bits(one, one.clone())
    assert not same_bits(one, one.nan_to_num())
