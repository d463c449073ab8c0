"""The first part of a GGUF file, read strictly: what lies, is cut short or would fill memory is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.errors import ModelNotFound, ModelNotSupported, PooledError
from pooled_nb.shard.gguf import layout as layouts
from pooled_nb.shard.gguf import reader
from pooled_nb.shard.gguf.config import config_of
from pooled_nb.shard.gguf.layout import gguf_layout, header_of
from pooled_nb.shard.gguf.reader import read_header
from pooled_nb.shard.gguf.tokenizer import build
from pooled_nb.shard.headers import read_layout
from pooled_nb.shard.layout import blocks
from tests.shard import ggufs

U32, STRING, LIST = 4, 8, 9


def text(words: str | bytes) -> bytes:
    raw = words.encode() if isinstance(words, str) else words
    return struct.pack("<Q", len(raw)) + raw


def fact(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str, dims: list[int], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


ARCH = fact("general.architecture", STRING, text("llama"))
ONE = tensor("token_embd.weight", [32, 2], 0, 0)
TWO = tensor("output_norm.weight", [32], 0, 256)


def file(
    facts: list[bytes] = [ARCH],  # noqa: B006
    tensors: list[bytes] = [ONE, TWO],  # noqa: B006
    *,
    body: int = 256 + 128,
    magic: bytes = b"GGUF",
    version: int = 3,
    counts: tuple[int, int] | None = None,
    alignment: int = 32,
) -> bytes:
    head = magic + struct.pack("<IQQ", version, *(counts or (len(tensors), len(facts))))
    head += b"".join(facts) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + bytes(body)


def read(data: bytes) -> Any:
    return gguf_layout(data, len(data), "x.gguf")


def test_a_layout_is_as_the_library_reads_it(tmp_path):
    """DESIGN section 6: names, types, shapes and places of all tensors, against gguf's own reader."""
    path = tmp_path / "tiny.gguf"
    ggufs.write(ggufs.model_of("qwen3"), path, "Q4_0")
    mine, theirs = read_layout(path), gguf.GGUFReader(path)
    assert mine.size == path.stat().st_size
    assert mine.header == theirs.data_offset
    assert len(mine.tensors) == len(theirs.tensors)
    for tensor, other in zip(mine.tensors, theirs.tensors, strict=True):
        assert (tensor.lo, tensor.hi) == (other.data_offset, other.data_offset + other.n_bytes)
        assert list(tensor.shape) == [int(n) for n in reversed(other.shape)]
        assert tensor.kind == f"GGUF {other.tensor_type.name} 0 0"
    header, size = header_of(path)
    assert size == mine.size
    for key, value in header.facts.items():
        assert theirs.fields[key].contents() == pytest.approx(value), key
    cut = blocks(mine)
    assert cut[0][:2] == (0, mine.header)
    assert {t.name for block in cut for t in block.tensors} == {t.name for t in mine.tensors}


def test_a_header_may_come_in_pieces(tmp_path, monkeypatch):
    """DESIGN section 6: how long a header is, is said nowhere: with too few bytes it asks for more."""
    path = tmp_path / "tiny.gguf"
    ggufs.write(ggufs.model_of("llama"), path)
    whole, size = header_of(path)
    data = path.read_bytes()
    table = len(data[: whole.end].rstrip(b"\0"))
    for end in (*range(60), *range(60, table - 16, 397)):
        assert read_header(data[:end], size, "x") is None
    assert read_header(data[: whole.end], size, "x") == whole
    monkeypatch.setattr(layouts, "FIRST", 100)
    assert header_of(path) == (whole, size)


BAD: dict[str, tuple[bytes, type[PooledError], str]] = {
    "nothing": (b"", ModelNotFound, "ends before its header"),
    "only a beginning": (b"GGUF\3\0", ModelNotFound, "ends before its header"),
    "another format": (file(magic=b"GGML"), ModelNotFound, "does not begin as one"),
    "a safetensors file": (struct.pack("<Q", 2) + b"{}" + bytes(99), ModelNotFound, "does not begin as one"),
    "an old version": (file(version=1), ModelNotSupported, "version 1"),
    "a version to come": (file(version=4), ModelNotSupported, "version 4"),
    "big-endian": (file(version=3 << 24), ModelNotSupported, "big-endian"),
    "too many tensors": (file(counts=(1 << 40, 1)), ModelNotFound, "1099511627776 tensors"),
    "too many facts": (file(counts=(1, 1 << 40)), ModelNotFound, "1099511627776 facts"),
    "more tensors than there are": (file(counts=(60000, 1)), ModelNotFound, "it holds|impossible|has 0 dim"),
    "a long key": (file([struct.pack("<Q", 1 << 30)], counts=(1, 1)), ModelNotFound, "text .* 1073741824"),
    "a long text": (
        file([fact("a", STRING, struct.pack("<Q", 1 << 62))]), ModelNotFound, "text .* 46116860184",
    ),
    "a text that is none": (file([fact("a", STRING, text(b"\xff"))]), ModelNotFound, "text in its header"),
    "a type that is none": (file([fact("a", 99, b"")]), ModelNotFound, "type 99"),
    "a list of lists": (
        file([fact("a", LIST, struct.pack("<IQ", LIST, 1))]), ModelNotFound, "the type 9",
    ),
    "a bomb of empty texts": (
        file([fact("a", LIST, struct.pack("<IQ", STRING, 1 << 33))]), ModelNotFound, "4000000 entries",
    ),
    "a bomb of numbers": (
        file([fact("a", LIST, struct.pack("<IQ", U32, 1 << 61))]), ModelNotFound, "4000000 entries",
    ),
    "many lists": (
        file([fact(f"a{i}", LIST, struct.pack("<IQ", 0, 1 << 21) + bytes(1 << 21)) for i in range(2)]),
        ModelNotFound, "4000000 entries",
    ),
    "a fact twice": (file([ARCH, ARCH]), ModelNotFound, "general.architecture twice"),
    "a tensor twice": (file(tensors=[ONE, tensor("token_embd.weight", [9], 0, 256)]), ModelNotFound, "twice"),
    "no dimensions": (file(tensors=[tensor("output.weight", [], 0, 0)]), ModelNotFound, "0 dimensions"),
    "five dimensions": (file(tensors=[tensor("a", [1] * 5, 0, 0)]), ModelNotFound, "5 dimensions"),
    "an empty one": (file(tensors=[tensor("a", [0, 2], 0, 0)]), ModelNotFound, "impossible shape"),
    "one that overflows": (
        file(tensors=[tensor("a", [1 << 31] * 4, 0, 0)]), ModelNotFound, "impossible shape",
    ),
    "half a group": (file(tensors=[tensor("a", [33], 8, 0)]), ModelNotFound, "33 numbers, which Q8_0"),
    "a type of numbers that is not read": (
        file(tensors=[tensor("a", [32], 24, 0)]), ModelNotSupported, "type 24",
    ),
    "an unknown type of numbers": (file(tensors=[tensor("a", [32], 77, 0)]), ModelNotSupported, "type 77"),
    "overlap": (file(tensors=[ONE, tensor("output_norm.weight", [32], 0, 224)]), ModelNotFound, "overlaps"),
    "the same place": (file(tensors=[ONE, tensor("output.weight", [32], 0, 0)]), ModelNotFound, "overlaps"),
    "a hole": (
        file(tensors=[ONE, tensor("output_norm.weight", [32], 0, 288)]), ModelNotFound, "does not follow",
    ),
    "far away": (
        file(tensors=[ONE, tensor("output_norm.weight", [32], 0, 1 << 63)]), ModelNotFound, "does not follow",
    ),
    "not aligned": (
        file(tensors=[ONE, tensor("output_norm.weight", [32], 0, 260)]), ModelNotFound, "does not follow",
    ),
    "a wild alignment": (
        file([ARCH, fact("general.alignment", U32, struct.pack("<I", 7))]), ModelNotFound, "aligned to 7",
    ),
    "an endless alignment": (
        file([ARCH, fact("general.alignment", U32, struct.pack("<I", 1 << 31))]), ModelNotFound, "aligned to",
    ),
    "one byte short": (file(body=383), ModelNotFound, "1 byte shorter than its header says"),
    "too long": (file(body=417), ModelNotFound, "33 bytes longer than its header says"),
    "one of several": (
        file([ARCH, fact("split.count", 2, struct.pack("<H", 3))]), ModelNotSupported, "one of 3 parts",
    ),
    "no architecture": (file([]), ModelNotFound, "names no architecture"),
    "another architecture": (
        file([fact("general.architecture", STRING, text("deepseek2"))]), ModelNotSupported,
        "architecture deepseek2, and of GGUF files only llama, qwen2, qwen3, gemma2, gemma3, phi3 are read",
    ),
    "a mixture": (
        file([ARCH, fact("llama.expert_count", U32, struct.pack("<I", 8))]), ModelNotSupported,
        "llama with a mixture of experts",
    ),
    "a tensor of another model": (
        file(tensors=[tensor("blk.0.ssm_a", [32], 0, 0)], body=128), ModelNotSupported, r"blk\.0\.ssm_a",
    ),
    "a table of long positions": (
        file(tensors=[tensor("rope_factors_long.weight", [32], 0, 0)], body=128), ModelNotSupported,
        "rope_factors_long",
    ),
    "rows that are no heads": (
        file(
            [ARCH, fact("llama.attention.head_count", U32, struct.pack("<I", 3))],
            [tensor("blk.0.attn_q.weight", [32, 4], 0, 0)], body=512,
        ),
        ModelNotFound, "4 rows for 3 heads",
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", BAD)
def test_a_bad_header_is_refused_by_name(how):
    """DESIGN section 6: what a header says is bounded and proved before anything is made of it."""
    data, kind, words = BAD[how]
    with pytest.raises(kind, match=words) as caught:
        read(data)
    assert "x.gguf" in caught.value.what
    assert caught.value.next_step


def test_a_plain_file_is_read():
    """DESIGN section 6: the file that the bad ones are made of is a good one, padded at its end or not."""
    assert [t.name for t in read(file()).tensors] == ["model.embed_tokens.weight", "model.norm.weight"]
    shorter = [tensor("token_embd.weight", [33], 0, 0)]
    for body in (132, 160):
        assert read(file(tensors=shorter, body=body)).tensors[0].hi % 32 == 4
    with pytest.raises(ModelNotFound, match="longer"):
        read(file(tensors=shorter, body=161))
    wide = fact("general.alignment", U32, struct.pack("<I", 128))
    assert read(file([ARCH, wide], alignment=128)).header % 128 == 0


def test_a_long_header_is_not_waited_for(monkeypatch):
    """DESIGN section 6: a header that never ends is given up at 100 MB."""
    monkeypatch.setattr(reader, "MAX_HEADER", 5000)
    lists = [fact(f"k{i}", LIST, struct.pack("<IQ", 0, 900) + bytes(900)) for i in range(8)]
    with pytest.raises(ModelNotFound, match="its header would have over"):
        read(file([ARCH, *lists]))


@given(at=st.integers(0, 400), value=st.integers(0, 255), size=st.integers(-40, 40))
@settings(max_examples=300, deadline=None)
def test_any_altered_header_ends_in_words(at, value, size):
    """DESIGN section 6: whatever byte is altered, it is read, or refused in words: never another error."""
    data = bytearray(file([ARCH, fact("llama.attention.head_count", U32, struct.pack("<I", 2))]))
    data[at % len(data)] = value
    try:
        found = gguf_layout(bytes(data), len(data) + size, "x.gguf")
    except PooledError:
        return
    assert all(0 < t.lo <= t.hi <= len(data) + size for t in found.tensors)


def written(
    tmp_path: Path, kind: str, more: Callable[[Any], None] = lambda writer: None, **changes: Any
) -> Any:
    path = tmp_path / f"{kind}.gguf"
    ggufs.write(ggufs.model_of(kind, **changes), path, more=more)
    return header_of(path)[0]


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("llama", {"llama.block_count": None}, "its llama.block_count is missing"),
        ("llama", {"llama.block_count": "3"}, "its llama.block_count is '3'"),
        ("llama", {"llama.embedding_length": True}, "embedding_length is True"),
        ("llama", {"llama.attention.head_count": [4, 4]}, r"head_count is \[4, 4\]"),
        ("llama", {"llama.attention.head_count": 0}, "head_count is 0"),
        ("llama", {"llama.rope.freq_base": float("nan")}, "freq_base is nan"),
        ("llama", {"llama.rope.freq_base": 1e999}, "freq_base is inf"),
        ("llama", {"llama.rope.dimension_count": 32}, "only a part of each head"),
        ("llama", {"llama.attention.value_length": 32}, "another width than its keys"),
        ("llama", {"llama.rope.scaling.type": "yarn"}, "stretches its positions by 'yarn'"),
        ("llama", {"llama.rope.scale_linear": 2.0}, "a way of old files"),
        ("llama", {"llama.attention.sliding_window": 64}, "looks back only so far"),
        ("phi3", {"phi3.rope.scaling.type": "longrope"}, "stretches its positions by 'longrope'"),
        ("gemma2", {"gemma2.attention.sliding_window": None}, "sliding_window is missing"),
        ("qwen3", {"tokenizer.ggml.tokens": ["a"] * 289}, "289 tokens, and an embedding of 288"),
        ("qwen3", {"tokenizer.ggml.eos_token_id": 5000}, "its eos token is 5000 of 288"),
    ],
)
def test_facts_that_are_none_or_would_be_computed_otherwise(tmp_path, kind, changes, words):
    """DESIGN section 6: a config is whole, and says what was meant; else the model is refused."""
    header = written(tmp_path, kind)
    facts = {key: value for key, value in (header.facts | changes).items() if value is not None}
    with pytest.raises((ModelNotFound, ModelNotSupported), match=words):
        config_of(header._replace(facts=facts), "x.gguf")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "bert"}, "tokenizer of the kind 'bert'"),
        ({"model": 3}, "tokenizer.ggml.model is 3"),
        ({"pre": "a-new-one"}, "cuts text as 'a-new-one' does"),
        ({"tokens": []}, "holds no tokens"),
        ({"tokens": [1, 2]}, "are no texts"),
        ({"tokens": ["a" * 513]}, "tokens has over 512 characters"),
        ({"tokens": ["a", "a"], "token_type": [1, 1]}, "stands there twice"),
        ({"token_type": [1]}, "do not belong to its tokens"),
        ({"merges": ["a"]}, "a merge of its tokenizer is none"),
        ({"merges": ["xx yy"]}, "contradicts itself"),
        ({"bos_token_id": 288}, "bos token is 288 of 288"),
    ],
)
def test_a_tokenizer_that_is_none(tmp_path, changes, words):
    """DESIGN section 6: a tokenizer that contradicts itself, or is not known, is refused in words."""
    header = written(tmp_path, "qwen3")
    facts = header.facts | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    with pytest.raises((ModelNotFound, ModelNotSupported), match=words):
        build(header._replace(facts=facts), "x.gguf")


def test_large_gemmas_scale_their_queries_otherwise(tmp_path):
    """DESIGN section 6: what a file leaves out is told as llama.cpp does: by the number of layers."""
    header = written(tmp_path, "gemma2")
    assert config_of(header, "x")["query_pre_attn_scalar"] == 32
    large = header._replace(facts=header.facts | {"gemma2.block_count": 46})
    assert config_of(large, "x")["query_pre_attn_scalar"] == 256 // 4


def test_numbers_of_a_file_decide_its_dtype(tmp_path):
    """DESIGN section 6: a room of it runs in bfloat16, unless most numbers are float32."""
    for kind, dtype in (("F32", "float32"), ("F16", "bfloat16"), ("Q8_0", "bfloat16")):
        path = tmp_path / "x.gguf"
        ggufs.write(ggufs.model_of("llama"), path, kind)
        assert config_of(header_of(path)[0], "x")["dtype"] == dtype
    assert float(np.float32(1e-6)) != 1e-6
    assert config_of(header_of(path)[0], "x")["rms_norm_eps"] == 1e-6
