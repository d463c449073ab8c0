"""Control tokens in what people type: they are read as plain text, whoever made the tokenizer.

A tokenizer takes ``<|im_end|>`` or ``</think>`` for one token wherever it stands. Which texts these are is
told by the tokenizer's own table of added tokens; the lists in its config name only some of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any


class Control:
    """The added tokens of one tokenizer, and how to write their texts without them.

    Runs of blanks are added tokens of some vocabularies, too; they control nothing and are left alone.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        table: dict[int, Any] = tokenizer.added_tokens_decoder
        added = {i: token for i, token in table.items() if str(token.content).strip()}
        self._ids = frozenset(added)
        texts = {str(token.content) for token in added.values()} | set(tokenizer.all_special_tokens)
        texts |= {text.strip() for text in texts}
        longest = sorted(filter(None, texts), key=lambda text: (-len(text), text))
        self._texts = re.compile("|".join(map(re.escape, longest))) if longest else None
        # These are found in the text as the tokenizer's normalizer leaves it: in other letters, say.
        self._normalized = any(token.normalized for token in added.values())

    def parts(self, text: str) -> Iterator[tuple[str, bool]]:
        """Cut a text into pieces, and say of each whether it must be written by `plain`."""
        at = 0
        for found in self._texts.finditer(text) if self._texts else ():
            yield from self._rest(text[at : found.start()])
            yield found[0], True
            at = found.end()
        yield from self._rest(text[at:])

    def _rest(self, text: str) -> Iterator[tuple[str, bool]]:
        """A piece without any of the texts: only what a normalizer makes of it may still be one."""
        if text:
            yield text, self._normalized and not self._ids.isdisjoint(self._encode(text))

    def plain(self, text: str) -> list[int]:
        """Tokens of a text that has no control token in it, though it reads like one."""
        ids = self._encode(text, split=True)
        if self._ids.isdisjoint(ids) or len(text) < 2:
            return ids
        # Only special tokens are split on demand; the others are never seen in a text that is cut in two.
        middle = max(1, len(text) // 2)
        return [*self.plain(text[:middle]), *self.plain(text[middle:])]

    def _encode(self, text: str, *, split: bool = False) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=split))
