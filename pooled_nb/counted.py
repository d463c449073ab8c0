"""Sentences that count: told once a state, and kept without what was of that moment only. Pure."""

from __future__ import annotations

import re

_COUNT = re.compile(r"\d+(?= (?:of \d+ )?(?:s|min|%)(?!\w))")
_MOMENT = re.compile(r"(?:\d+ of|(?:again|itself|try) in|up to) \d+ (?:s|min)(?!\w)")
_SENTENCES = re.compile(r"(?<=[.!?…]) ")


def still(sentence: str) -> str:
    """The same text for as long as only its seconds, minutes or percent change."""
    return _COUNT.sub("#", sentence)


def lasting(text: str) -> str:
    """Without the sentences that count seconds: what they say is over when somebody reads it later."""
    return " ".join(part for part in _SENTENCES.split(text) if not _MOMENT.search(part))
