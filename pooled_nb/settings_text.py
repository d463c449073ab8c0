"""How a room answers, in words."""

from __future__ import annotations

from pooled_nb.room.core import ChatSettings
from pooled_nb.room.questions import LENGTHS

SEES = {
    "all": "everyone in the room",
    "host": "the host's screen only",
    "asker": "the host and whoever asked",
}
WHO = {
    "all": "One chat for the whole room: each question and answer goes to every device, and the next "
    "question builds on them.",
    "host": "One chat for the whole room; only the host's screen shows the questions and answers.",
    "asker": "One chat for the whole room; the host and whoever asked see a question and its answer.",
}
"""What is common, and who sees it (PROTOCOL section 7, `ai-visibility`)."""


REDEAL = {
    True: "on (by itself, 60 s after a device dropped)",
    False: "off (only when you say so)",
}
"""When layers are dealt again that lost their device (PROTOCOL section 8)."""


def settings_text(now: ChatSettings, *, is_host: bool) -> str:
    """Every setting on a line of its own, and for whom they count."""
    named = {tokens: name for name, tokens in LENGTHS.items()}
    name = f"{named[now.max_tokens]}, " if now.max_tokens in named else ""
    thinking = {None: "auto (the model's own way)", True: "on", False: "off"}[now.thinking]
    rows = [
        ("style", now.style),
        ("length", f"{name}{now.max_tokens:,} tokens"),
        ("visibility", f"{now.visibility} ({SEES[now.visibility]})"),
        ("persona", now.persona),
        ("thinking", thinking),
    ]
    if is_host:
        rows.append(("system", now.system or "–"))
        rows.append(("redeal", REDEAL[now.redeal]))
    who = "Change them with %pooled set --help." if is_host else "The host sets them."
    lines = [f"{left:10}  {right}" for left, right in rows]
    return "\n".join([*lines, f"They count for everyone, from the next question on. {who}"])
