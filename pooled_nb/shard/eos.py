"""Every token that ends a turn: the model's files name it in up to four places, seldom the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def end_tokens(folder: Path, tokenizer: Any, after_answer: str) -> frozenset[int]:
    """Ids that end a turn, by config, generation config, tokenizer and template.

    Parameters
    ----------
    folder
        Where the model's files lie.
    tokenizer
        Its tokenizer.
    after_answer
        Text that the template writes right after an answer. The control token it begins with ends a turn
        where the files name no end but the tokenizer's own. Where they do, they are believed: what follows
        an answer may as well end only a part of it (Harmony's ``<|end|>`` closes the thinking, too).
    """
    config = read_json(folder / "config.json")
    text = config.get("text_config")
    named: list[Any] = [
        source.get("eos_token_id") for source in (config, text if isinstance(text, dict) else {})
    ]
    named.append(read_json(folder / "generation_config.json").get("eos_token_id"))
    ids: set[int] = {
        i for value in named for i in (value if isinstance(value, list) else [value]) if _is_id(i)
    }
    own: set[int] = {i for i in (tokenizer.eos_token_id,) if _is_id(i)}
    if after_answer and ids <= own:
        first = tokenizer.encode(after_answer.lstrip(), add_special_tokens=False)[:1]
        ids |= set(first) & set(tokenizer.added_tokens_decoder)
    return frozenset(ids | own)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty where there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
