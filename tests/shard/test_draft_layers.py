"""PROTOCOL section 7: drafts from the model's own draft layers, where its files carry them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from pooled_nb.shard import Sampling, Want, draft_layers, draft_weights
from pooled_nb.shard.draft_layers import DraftLayers
from pooled_nb.shard.draft_names import MOST, draft_count, draft_name, layers_before
from pooled_nb.shard.draft_weights import draft_facts, load_layers
from pooled_nb.shard.drafter import Pace
from pooled_nb.shard.found import needed_files
from pooled_nb.shard.history import History
from tests.shard import tinydrafts
from tests.shard.runs import some_tokens
from tests.shard.speculating import GREEDY, SEEDED, Host
from tests.shard.tinychat import edit_json

KINDS = {
    "glm": ("glm4_moe", "after", 1),
    "deepseek": ("deepseek_v3", "after", 3),
    "qwen": ("qwen3_next", "beside", 1),
}
TOKENS = some_tokens(60)
Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    made: dict[str, Path] = {}

    def make(kind: str) -> Path:
        if kind not in made:
            name, style, count = KINDS[kind]
            made[kind] = tinydrafts.make(name, tmp_path_factory.mktemp(kind), style=style, count=count)
        return made[kind]

    return make


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("model.layers.61.eh_proj.weight", "layers.0.eh_proj.weight"),
        ("model.layers.62.mlp.experts.3.up_proj.weight", "layers.1.mtp_block.mlp.experts.3.up_proj.weight"),
        ("model.layers.61.shared_head.norm.weight", "layers.0.post_norm.weight"),
        ("model.layers.61.shared_head.head.weight", None),
        ("model.layers.61.embed_tokens.weight", None),
        ("model.layers.60.eh_proj.weight", None),
        ("model.visual.layers.77.norm.weight", None),
        ("model.norm.weight", None),
        ("mtp.fc.weight", "layers.0.eh_proj.weight"),
        ("mtp.norm.weight", "layers.0.post_norm.weight"),
        ("mtp.layers.0.self_attn.q_norm.weight", "layers.0.mtp_block.self_attn.q_norm.weight"),
        ("model.mtp.layers.2.transformer_block.mlp.w", "layers.2.mtp_block.mlp.w"),
        ("model.mtp.layers.1.hidden_norm.weight", "layers.1.hnorm.weight"),
        ("model.mtp.chain_norm.weight", "shared_post_norm.weight"),
    ],
)
def test_names(name: str, own: str | None) -> None:
    """DESIGN section 6: draft layers are told by the names of tensors alone, however they are published."""
    assert draft_name(name, 61) == own


def test_only_their_own_files_are_fetched() -> None:
    """DESIGN section 6: a file with draft layers is fetched when they are loaded, and not else."""
    after = {f"model.layers.{i}.a.weight": f"{i}.safetensors" for i in range(4)}
    after |= {"model.layers.3.eh_proj.weight": "3.safetensors", "model.norm.weight": "0.safetensors"}
    assert needed_files(after, 0, 2, True) == ["0.safetensors", "1.safetensors"]
    assert needed_files(after, 0, 2, True, 1) == ["0.safetensors", "1.safetensors", "3.safetensors"]
    beside = {"model.layers.0.a.weight": "0.safetensors", "mtp.fc.weight": "x.safetensors"}
    assert needed_files(beside, 0, 1, True, 1) == ["0.safetensors", "x.safetensors"]
    assert (layers_before(after, 1), layers_before(beside, 1)) == (3, 1)
    assert (draft_count(after, 3), draft_count(after, 4), draft_count(beside, 1)) == (1, 0, 1)
    assert draft_count((f"mtp.layers.{i}.eh_proj.weight" for i in range(99)), 1) == MOST


def test_they_are_known_before_any_weights_are_here(folder: Folder, tmp_path: Path) -> None:
    """DESIGN section 6: told by headers, by the index, and without both by what the config says itself."""
    whole = draft_facts(folder("deepseek"), "bfloat16")
    assert whole[0] == 3
    names = load_file(folder("deepseek") / "model.safetensors")
    config = tmp_path / "config.json"
    config.write_bytes((folder("deepseek") / "config.json").read_bytes())
    assert draft_facts(tmp_path, "bfloat16") == whole
    edit_json(config, num_nextn_predict_layers=None)
    assert draft_facts(tmp_path, "bfloat16") == (0, 0)  # its class would have said 1
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "gone.safetensors")}))
    assert draft_facts(tmp_path, "bfloat16") == whole
    assert draft_facts(tmp_path, "float32") == (3, 2 * whole[1])


def _library(folder: Path, kind: str) -> tuple[Any, Any]:
    _, style, count = KINDS[kind]
    if style == "beside" and not hasattr(MtpModel, "forward_layer"):
        pytest.skip("this transformers does not know these names itself")
    return tinydrafts.reference(folder, count)


def _mine(folder: Path, main: Any) -> DraftLayers:
    model = load_layers(
        folder, base=main.model, head=main.lm_head, dtype=torch.float32, device=torch.device("cpu")
    )
    made = DraftLayers(model, torch.nn.Identity(), torch.float32)  # transformers' hidden states are normed
    made._pace = Pace(draft_layers.CHUNK, draft_layers.CHUNK)  # all at once
    return made


@torch.inference_mode()
def _hidden(main: Any, tokens: list[int]) -> torch.Tensor:
    states: torch.Tensor = main(input_ids=torch.tensor([tokens]), output_hidden_states=True).hidden_states[-1]
    return states[0]


@pytest.mark.parametrize("kind", KINDS)
def test_they_guess_what_the_library_guesses(kind: str, folder: Folder) -> None:
    """PROTOCOL section 7: the same weights, hidden states and places as transformers' own candidates."""
    main, library = _library(folder(kind), kind)
    mine, count = _mine(folder(kind), main), KINDS[kind][2]
    weights, own = library.state_dict(), mine._model.state_dict()
    assert [key for key, value in own.items() if not torch.equal(value, weights[key])] == []
    hidden = _hidden(main, TOKENS[:-1])
    with torch.inference_mode():
        wanted = library(
            input_ids=torch.tensor([TOKENS[1:]]),
            last_hidden_states=hidden[None],
            attention_mask=torch.ones(1, len(TOKENS) - 1, dtype=torch.int64),
            position_ids=torch.arange(1, len(TOKENS))[None],
            mtp_cache=MtpCache(),
        )[0][0].tolist()
    mine.saw(0, hidden)
    mine.begin(History(TOKENS), frozenset())
    assert mine.guess(count, GREEDY) == wanted
    assert mine.guess(1, GREEDY) in ([], wanted[:1])


@pytest.mark.parametrize("kind", ["glm", "deepseek"])
def test_what_they_read_before_leaves_no_trace(kind: str, folder: Folder) -> None:
    """PROTOCOL section 7: wrong guesses, prompts that go on and answers made anew leave no trace."""
    main, _ = tinydrafts.reference(folder(kind), KINDS[kind][2])
    hidden = _hidden(main, TOKENS)

    def fresh(tokens: list[int]) -> list[int]:
        other = _mine(folder(kind), main)
        other.saw(0, hidden[: len(tokens) - 1])
        other.begin(History(tokens), frozenset())
        return other.guess(3, GREEDY)

    mine = _mine(folder(kind), main)
    mine.saw(0, hidden[:16])
    mine.saw(16, hidden[16:20])
    history = History(TOKENS[:20])
    mine.begin(history, frozenset())
    pos = 19
    for n in (1, 4, 2, 1):  # drawn after each lap, whatever was guessed
        for token in TOKENS[pos + 1 : pos + 1 + n]:
            history.add(token)
        mine.accept(pos, n, hidden[pos : pos + n].numpy().tobytes())
        assert mine.guess(3, GREEDY) == fresh(history.tokens)
        pos += n
    # The next question: the prompt's columns come, then the first token is drawn from the last.
    mine.saw(pos, hidden[pos:40])
    history = History(TOKENS[:40])
    mine.begin(history, frozenset())
    history.add(TOKENS[40])
    mine.accept(39, 1, hidden[39].numpy().tobytes())
    assert mine.guess(3, GREEDY) == fresh(history.tokens)
    # Made anew from an earlier place: nothing of what was left counts.
    history = History(TOKENS[:25])
    mine.begin(history, frozenset())
    history.add(TOKENS[25])
    mine.accept(24, 1, hidden[24].numpy().tobytes())
    assert mine.guess(3, GREEDY) == fresh(history.tokens)


def test_a_prompt_that_others_ran_is_no_trouble(folder: Folder) -> None:
    """PROTOCOL section 7: in a chain only the prompt's last column reaches the host; guesses begin there."""
    main, _ = tinydrafts.reference(folder("glm"), 1)
    mine, hidden = _mine(folder("glm"), main), _hidden(main, TOKENS)
    history = History(TOKENS[:20])
    mine.begin(history, frozenset())
    history.add(TOKENS[20])
    mine.accept(19, 1, hidden[19].numpy().tobytes())
    assert len(mine.guess(3, GREEDY)) == 3
    history = History(TOKENS[:50])
    mine.begin(history, frozenset())
    history.add(TOKENS[50])
    mine.accept(49, 1, hidden[49].numpy().tobytes())
    assert len(mine.guess(3, GREEDY)) == 3
    assert mine._cached == [19, 49]


def test_a_long_text_is_read_in_parts_and_forgotten(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 7: what drafts never holds up an answer, and its caches stay small."""
    monkeypatch.setattr(draft_layers, "KEPT", 24)
    monkeypatch.setattr(draft_layers, "CHUNK", 8)
    main, _ = tinydrafts.reference(folder("glm"), 1)
    mine, hidden = _mine(folder("glm"), main), _hidden(main, TOKENS)
    mine.saw(0, hidden[:40])
    history = History(TOKENS[:40])
    mine.begin(history, frozenset())
    history.add(TOKENS[40])
    mine.accept(39, 1, hidden[39].numpy().tobytes())
    guesses = [mine.guess(2, GREEDY) for _ in range(3)]
    assert [len(guess) for guess in guesses] == [0, 0, 2]
    for pos in range(40, 59):
        history.add(TOKENS[pos + 1])
        mine.accept(pos, 1, hidden[pos].numpy().tobytes())
        assert len(mine.guess(2, GREEDY)) == 2
        assert mine._cached[-1] == pos
        assert len(mine._cached) == mine._cache.get_seq_length() <= 24


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("glm", "float32"), ("qwen", "float32"), ("qwen", "bfloat16"), ("deepseek", "bfloat16")],
)
def test_the_answer_is_that_without_drafts(kind: str, dtype: str, folder: Folder) -> None:
    """PROTOCOL section 7: the same stream as plain decoding, for any sampler; some drafts are right."""
    count = KINDS[kind][2]
    host = Host(folder(kind), draft_layers=count, dtype=dtype)
    assert (host.facts.draft_layers, host.loaded.drafts, host.loaded.note) == (count, "layers", "")
    assert host.loaded.weights > host.facts.draft_bytes > 0
    for sampling in (GREEDY, SEEDED):
        plain = host.answer(TOKENS[:40], 30, sampling)
        drafted = host.answer(TOKENS[:40], 30, sampling, Want(draft=3))
        assert drafted.tokens == plain.tokens
        assert drafted.tried["draft"] > 0
        if sampling is GREEDY:
            assert drafted.right["draft"] > 0
            assert drafted.laps < plain.laps


def test_they_may_fail_in_an_answer(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """PROTOCOL section 7: whatever goes wrong while drafting costs speed, and never the answer."""
    host = Host(folder("glm"), draft_layers=1)
    plain = host.answer(TOKENS[:40], 12, GREEDY)
    guess, calls = DraftLayers.guess, 0

    def fail(self: DraftLayers, most: int, sampling: Sampling) -> list[int]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise RuntimeError("no such\nkernel")
        return guess(self, most, sampling)

    monkeypatch.setattr(DraftLayers, "guess", fail)
    assert host.answer(TOKENS[:40], 12, GREEDY, Want(draft=2)).tokens == plain.tokens
    assert calls == 3
    assert capfd.readouterr().err == "pooled_nb: drafting is off: RuntimeError: no such kernel\n"
    assert host.answer(TOKENS[:40], 12, GREEDY, Want(draft=2)).tokens == plain.tokens


@pytest.mark.parametrize("what", ["memory", "tensor", "shape"])
def test_without_them_the_room_goes_on(
    what: str, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CASES: what drafts is no part of the model: where it cannot be loaded, the model is, and says so."""
    model = tmp_path / "model"
    model.mkdir()
    for file in folder("glm").iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    tensors = load_file(model / "model.safetensors")
    words = "are of a kind that is not known here"
    if what == "memory":
        words = "memory does not hold what drafts"

        def full(*args: Any, **kwargs: Any) -> None:
            raise MemoryError

        monkeypatch.setattr(draft_weights, "load_layers", full)
    elif what == "tensor":
        del tensors["model.layers.6.self_attn.q_proj.weight"]
    else:
        tensors["model.layers.6.self_attn.q_proj.weight"] = torch.zeros(3, 5)
    save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
    host = Host(model, draft_layers=1)
    assert host.loaded.drafts == ""
    assert words in host.loaded.note
    assert len(host.answer(TOKENS[:40], 4, GREEDY, Want(draft=2)).tokens) == 4
