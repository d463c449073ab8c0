"""Tokens to text, in whole characters."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from pooled_nb.shard.text import TextStream, plain_decode
from tests.shard.tinychat import tokenizer


@cache
def byte_level() -> Any:
    return tokenizer()


@cache
def byte_fallback() -> Any:
    """SentencePiece-like: words with a leading mark, single bytes for what the vocabulary lacks."""
    words = ["<unk>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "▁a", "▁hello", "b", "é", "▁▁", "日", "."]
    backend = Tokenizer(
        models.BPE({t: i for i, t in enumerate(words)}, [], byte_fallback=True, unk_token="<unk>")
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken("</s>", special=True, normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")


KINDS = {"byte level": byte_level, "byte fallback": byte_fallback}


@pytest.mark.parametrize("kind", list(KINDS))
@given(data=st.data())
@settings(deadline=None, max_examples=300)
def test_the_pieces_are_the_whole_text(kind, data):
    """DESIGN section 2: streamed text, in any pieces, is what all tokens together decode to."""
    tok = KINDS[kind]()
    ids = data.draw(st.lists(st.integers(0, len(tok) - 1), max_size=120))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=20)))
    stream = TextStream(tok)
    pieces = [stream.push(ids[a:b]) for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
    pieces.append(stream.flush())
    assert "".join(pieces) == plain_decode(tok, ids)


@pytest.mark.parametrize("kind", list(KINDS))
@given(text=st.text(max_size=40))
@example(text="👩‍👩‍👧 né 日本 🇫🇷")
@example(text="a" * 100 + "🎉")
@settings(deadline=None, max_examples=100)
def test_a_character_is_shown_whole_or_not_yet(kind, text):
    """CASES, Answers: nothing is ever half shown: an emoji over several tokens comes in one piece."""
    if "\ufffd" in text:
        return
    tok = KINDS[kind]()
    ids = tok.encode(text, add_special_tokens=False, split_special_tokens=True)
    whole = plain_decode(tok, ids)
    stream = TextStream(tok)
    shown = ""
    for token in ids:
        piece = stream.push([token])
        assert "\ufffd" not in piece or "\ufffd" in whole
        shown += piece
        assert whole.startswith(shown)
    assert shown + stream.flush() == whole


def test_bytes_of_a_character_wait_for_the_last():
    """DESIGN section 2: whole characters only; what never became one comes with the flush."""
    tok = byte_level()
    ids = tok.encode("x🎉y", add_special_tokens=False)
    stream = TextStream(tok)
    seen = [stream.push([token]) for token in ids]
    assert [piece for piece in seen if piece] == ["x", "🎉", "y"]
    cut = TextStream(tok)
    assert "".join(cut.push([token]) for token in ids[:-2]) == "x"
    assert cut.flush() == "\ufffd"


def test_spaces_between_words_are_kept_and_the_first_is_not():
    """CASES, Answers: text arrives as typed: the mark at a word's head is a space, but for the first word."""
    tok = byte_fallback()
    vocabulary = tok.get_vocab()
    ids = [vocabulary[t] for t in ["▁hello", "▁a", "b", "▁", "▁▁", "."]]
    stream = TextStream(tok)
    assert [stream.push([i]) for i in ids] == ["hello", " a", "b", " ", "  ", "."]


def test_bytes_on_both_sides_of_a_control_token_are_one_run():
    """CASES, Answers: a decoder drops control tokens first, then reads the bytes."""
    tok = byte_fallback()
    ids = [1, tok.unk_token_id, 129]
    stream = TextStream(tok)
    assert [stream.push([i]) for i in ids] == ["", "", ""]
    assert stream.flush() == plain_decode(tok, ids)


def test_control_tokens_add_no_text():
    """PROTOCOL section 7: the end token is never shown."""
    tok = byte_level()
    stream = TextStream(tok)
    assert stream.push(tok.encode("hi", add_special_tokens=False)) == "hi"
    assert stream.push([tok.convert_tokens_to_ids("<|im_end|>")]) == ""
    assert stream.flush() == ""


def test_a_long_answer_decodes_a_bounded_window():
    """DESIGN section 3: streaming costs the same for the thousandth token as for the first."""
    tok = byte_level()
    longest = 0

    class Counting:
        added_tokens_decoder = tok.added_tokens_decoder

        def decode(self, ids: list[int], **kwargs: Any) -> str:
            nonlocal longest
            longest = max(longest, len(ids))
            return tok.decode(ids, **kwargs)

        def convert_ids_to_tokens(self, token: int) -> str:
            return tok.convert_ids_to_tokens(token)

    ids = tok.encode("the quick brown fox 🎉 jumps. " * 60, add_special_tokens=False)
    stream = TextStream(Counting())
    text = "".join(stream.push([token]) for token in ids) + stream.flush()
    assert text == plain_decode(tok, ids)
    assert longest < 64 < len(ids)


@pytest.mark.parametrize("kind", list(KINDS))
@given(data=st.data())
@settings(deadline=None, max_examples=200)
def test_a_text_that_goes_on_has_no_seam(kind, data):
    """PROTOCOL section 7, ``cont: 1``: cut anywhere, also within an emoji, both parts are the one text."""
    tok = KINDS[kind]()
    ids = data.draw(st.lists(st.integers(0, len(tok) - 1), max_size=80))
    cut = data.draw(st.integers(0, len(ids)))
    whole = TextStream(tok)
    pieces = [whole.push([token]) for token in ids]
    before = TextStream(tok)
    shown = "".join(before.push([token]) for token in ids[:cut])
    after = TextStream(tok)
    for token in ids[:cut]:
        after.push([token])
    assert [after.push([token]) for token in ids[cut:]] == pieces[cut:]
    assert shown == "".join(pieces[:cut])
    assert after.flush() == whole.flush()
