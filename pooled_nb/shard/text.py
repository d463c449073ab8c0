"""Tokens to text, piece by piece: only whole characters, and together exactly what all of them decode to."""

from __future__ import annotations

import re
from typing import Any, Protocol

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
"""A byte-fallback token, as SentencePiece-like vocabularies write it."""
_UNKNOWN = "\ufffd"
_WINDOW = 32
"""Tokens decoded again with each piece; the window moves on where a word boundary allows it."""


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is used here."""

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """Tokens beside the vocabulary, by id; ``special`` tells control tokens."""

    def decode(
        self, token_ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> str:
        """Text of the tokens."""

    def convert_ids_to_tokens(self, ids: int) -> str | None:
        """A token as the vocabulary writes it; None for an id it lacks."""


def plain_decode(tokenizer: Tokenizer, ids: list[int]) -> str:
    """All tokens as text: special tokens left out, spaces as the model wrote them."""
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


class TextStream:
    """Text of one answer as its tokens come.

    A token may hold part of a character (an emoji takes up to four), and decoders see more than one
    token at a time: the first one's leading space goes, a run of byte tokens is one text or none. So a
    window of tokens is decoded as a whole, and what could still change is held back.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # Decoders leave control tokens out first: what stands on both sides of one is joined.
        self._control = frozenset(i for i, token in tokenizer.added_tokens_decoder.items() if token.special)
        self._ids: list[int] = []
        self._shown = 0  # characters of the window's text already handed out
        self._clean = 0  # tokens of the window whose text is all handed out

    def push(self, ids: list[int]) -> str:
        """Take the next tokens; return the text that is now certain."""
        self._ids += [token for token in ids if token not in self._control]
        if not self._ids or self._in_byte_run():
            return ""
        text = plain_decode(self._tokenizer, self._ids)
        # A trailing replacement character may be the start of a character to come.
        certain = text.rstrip(_UNKNOWN)
        piece = certain[self._shown :]
        self._shown = max(self._shown, len(certain))
        if len(certain) == len(text):
            self._settle(len(text))
        return piece

    def flush(self) -> str:
        """End the answer: the text still held back, replacement characters and all."""
        text = plain_decode(self._tokenizer, self._ids) if self._ids else ""
        piece = text[self._shown :]
        self._ids, self._shown, self._clean = [], 0, 0
        return piece

    def _in_byte_run(self) -> bool:
        """Whether the last token is a byte: a decoder makes all bytes of a run a text, or none of them."""
        return _BYTE.fullmatch(self._tokenizer.convert_ids_to_tokens(self._ids[-1]) or "") is not None

    def _settle(self, length: int) -> None:
        """All text is out: once the window is full, go on from the tokens that came since it last was so."""
        if len(self._ids) > _WINDOW and self._clean:
            kept = self._ids[self._clean :]
            tail = plain_decode(self._tokenizer, kept)
            if tail:
                self._ids, length = kept, len(tail)
        self._shown, self._clean = length, len(self._ids)
