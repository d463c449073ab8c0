"""A conversation through the model's own chat template, as tokens that later turns extend.

What the template writes before, between and after the assistant's answers is tokenized piece by piece,
and an answer stands for the very tokens it was generated as. So the tokens of a conversation begin with
all the tokens of its earlier state, and the caches are used again (PROTOCOL section 7, ``fed``).
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError

from pooled_nb.errors import BadQuestion, ModelNotSupported
from pooled_nb.shard.control import Control
from pooled_nb.shard.door import Prompt, Turn
from pooled_nb.shard.eos import end_tokens
from pooled_nb.shard.stops import tags_of
from pooled_nb.shard.turns import fold_system, merge_runs

MARK = "\ue0f0answer\ue0f1"
"""Stands for an answer while the template runs: private-use characters, which no template touches."""

_OPEN, _CLOSE = "\ue0f2", "\ue0f3"
_HIDDEN = re.compile(f"{_OPEN}([0-9a-f]+){_CLOSE}")
_FIRST, _LAST = "\ue0f4", "\ue0f5"
"""Around a system text while it is tried whether the template writes it."""
_RESERVED = {ord(mark): "\ufffd" for mark in "\ue0f0\ue0f1\ue0f2\ue0f3\ue0f4\ue0f5"}
"""Who writes our own marks gets a replacement character."""

_KEEP = 4 << 20
"""Characters of leads kept: each is short, but for the first, and a conversation adds one with each turn."""


class Chat:
    """Tokenizer, template and end tokens of one model."""

    def __init__(self, tokenizer: Any, eos: frozenset[int]) -> None:
        self.tokenizer = tokenizer
        self.eos = eos
        self.tags = tags_of(tokenizer)
        self._kept: dict[bytes, str] = {}
        self._kept_size = 0
        self._hashes: list[Any] = []
        self._control = Control(tokenizer)

    @classmethod
    def load(cls, folder: Path) -> Chat:
        """Read the tokenizer's files; nothing of the network, no code of the model's.

        Raises
        ------
        ModelNotSupported
        """
        tokenizer = load_tokenizer(folder)
        chat = cls(tokenizer, frozenset())
        chat.eos = end_tokens(folder, tokenizer, chat.after_answer())
        return chat

    def render(self, turns: list[Turn], *, thinking: bool | None = None) -> Prompt:
        """See `Shard.render`.

        What the template writes where an answer begins is written as it was then: a question asked with
        other thinking changes nothing before it.

        A model without a template is no chat model: it goes on from the texts of the turns, line by line,
        without any roles.

        Raises
        ------
        BadQuestion
        """
        if not any(turn.role == "user" for turn in turns):
            raise BadQuestion("There is no question to answer.", "Ask something.")
        ids: list[int] = []
        generated: list[bool] = []
        # An answer that goes on is no turn the template sees: what it is asked is where the answer began.
        closed = turns[:-1] if turns[-1].role == "assistant" else turns
        turns = [*self._accepted(closed), *turns[len(closed) :]]
        self._begin(turns)
        start = 0
        for end, turn in enumerate(turns):
            if turn.role != "assistant":
                continue
            self._add(ids, generated, turns, start, end, turn.thinking)
            answer = list(turn.ids) if turn.ids is not None else self._encode(turn.text)
            # The end token is the template's to write: it was never run (PROTOCOL section 7).
            while answer and answer[-1] in self.eos:
                answer.pop()
            ids += answer
            generated += [True] * len(answer)
            start = end + 1
        if start < len(turns):
            self._add(ids, generated, turns, start, len(turns), thinking)
        return Prompt(ids=ids, generated=generated)

    def after_answer(self) -> str:
        """Text that the template writes right after an answer; empty without a template."""
        if not self.tokenizer.chat_template:
            return ""
        turns = [Turn(role="user", text="1"), Turn(role="assistant", text=MARK), Turn(role="user", text="2")]
        try:
            return self._written(turns).partition(MARK)[2].partition("2")[0]
        except TemplateError:
            return ""

    def _accepted(self, turns: list[Turn]) -> list[Turn]:
        """Return the turns as the template takes them: as they are, else merged, else system folded in."""
        turns = [Turn(role=t.role, text=self._hide(t), ids=t.ids, thinking=t.thinking) for t in turns]
        if not self.tokenizer.chat_template:
            return turns
        refusal: Exception | None = None
        for change in (list, merge_runs, fold_system, lambda all_: merge_runs(fold_system(all_))):
            changed = change(turns)
            try:
                written = self._written([_probe(turn) for turn in changed])
            except TemplateError as error:
                refusal = refusal or error
                continue
            # Some templates pass over a system turn in silence: then it is folded, too. Its text may stand
            # elsewhere as well, so it is private marks around it that are looked for.
            asked = sum(turn.role == "system" for turn in changed)
            if written.count(_FIRST) >= asked and written.count(_LAST) >= asked:
                return changed
        words = " ".join(str(refusal or "it leaves the system text out").split())[:300]
        raise BadQuestion(
            f"The model's chat template refuses this conversation: {words}", "Start a new chat."
        )

    def _hide(self, turn: Turn) -> str:
        """Keep what a person wrote from being read as control tokens: marks stand for them until the end."""
        text = turn.text.translate(_RESERVED)
        if turn.role == "assistant":
            return text
        return "".join(
            f"{_OPEN}{part.encode().hex()}{_CLOSE}" if control else part
            for part, control in self._control.parts(text)
        )

    def _written(self, turns: list[Turn], thinking: bool | None = None) -> str:
        """Run the template, up to where the assistant speaks; one that knows no thinking ignores it."""
        # Both names are in use: Qwen and SmolLM have the first, Granite and DeepSeek the other.
        said = {} if thinking is None else {"enable_thinking": thinking, "thinking": thinking}
        return str(
            self.tokenizer.apply_chat_template(
                [{"role": turn.role, "content": turn.text} for turn in turns],
                tokenize=False,
                add_generation_prompt=True,
                **said,
            )
        )

    def _begin(self, turns: list[Turn]) -> None:
        """Hash each beginning of the conversation: what is written between answers is kept by it."""
        self._hashes = [hashlib.sha256()]
        for turn in turns:
            self._hashes.append(_with(self._hashes[-1], turn))

    def _lead(self, turns: list[Turn], start: int, end: int, thinking: bool | None) -> str:
        """Return what is written from the answer before ``start`` to the assistant speaking at ``end``.

        Answers are left out of the key, as they are of what is written: marks stand for the last one.
        """
        if not self.tokenizer.chat_template:
            texts = [turn.text for turn in turns[start:end]]
            return "\n".join(["", *texts] if start else texts)
        seen = self._hashes[max(0, start - 1)]
        opening = not any(turn.role == "user" for turn in turns[:end])
        for turn in turns[start : end + 2] if opening else turns[start:end]:
            seen = _with(seen, turn)
        key = seen.digest() + bytes((start > 0, opening, 2 if thinking is None else thinking))
        if key in self._kept:
            return self._kept[key]
        lead = self._new_lead(turns, start, end, thinking)
        if len(lead) <= _KEEP:
            while self._kept_size + len(lead) > _KEEP:
                self._kept_size -= len(self._kept.pop(next(iter(self._kept))))
            self._kept[key] = lead
            self._kept_size += len(lead)
        return lead

    def _new_lead(self, turns: list[Turn], start: int, end: int, thinking: bool | None) -> str:
        marked = list(turns[:end])
        if start:
            marked[start - 1] = Turn(role="assistant", text=MARK)
        if any(turn.role == "user" for turn in marked):
            return self._written(marked, thinking).rpartition(MARK)[2]
        # The conversation opens with an answer: what the template writes before it.
        opening = [*marked, Turn(role="assistant", text=MARK), *turns[end + 1 : end + 2]]
        try:
            return self._written(opening, thinking).partition(MARK)[0]
        except TemplateError as error:
            raise BadQuestion(
                f"The model's chat template refuses this conversation: {error}", "Start with a question."
            ) from error

    def _add(
        self,
        ids: list[int],
        generated: list[bool],
        turns: list[Turn],
        start: int,
        end: int,
        thinking: bool | None,
    ) -> None:
        """Append the tokens of what is written around the answers; none of it runs at the answers' width."""
        bare = not self.tokenizer.chat_template and not ids
        for i, part in enumerate(_HIDDEN.split(self._lead(turns, start, end, thinking))):
            if i % 2:
                added = self._control.plain(bytes.fromhex(part).decode())
            else:
                added = self._encode(part, special=True, opening=bare and i == 0)
            ids += added
            generated += [False] * len(added)

    def _encode(self, text: str, *, special: bool = False, opening: bool = False) -> list[int]:
        if not text and not opening:
            return []
        return list(self.tokenizer.encode(text, add_special_tokens=opening, split_special_tokens=not special))


def _probe(turn: Turn) -> Turn:
    return Turn(role="system", text=f"{_FIRST}{turn.text}{_LAST}") if turn.role == "system" else turn


def _with(before: Any, turn: Turn) -> Any:
    """Hash one turn more."""
    after = before.copy()
    text = turn.text.encode("utf-8", "surrogatepass")
    after.update(f"{turn.role} {len(text)}\n".encode() + text)
    return after


def load_tokenizer(folder: Path) -> Any:
    """Read a folder's tokenizer.

    Raises
    ------
    ModelNotSupported
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # it raises whatever its files make it raise
        words = " ".join(str(error).split())[:200]
        raise ModelNotSupported(
            f"The tokenizer of this model cannot be read: {words}.",
            "Choose a model with a tokenizer.json of its own.",
        ) from error
