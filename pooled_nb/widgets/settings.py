"""How the room answers, as its panel shows it, and what a choice there means. Pure."""

from __future__ import annotations

from typing import Any

from pooled_nb.room.core import ChatSettings
from pooled_nb.room.questions import LENGTHS
from pooled_nb.widgets.formats import line

_GROUPS: dict[str, tuple[str, dict[str, tuple[str, object]]]] = {
    "style": (
        "Style",
        {
            "greedy": ("Greedy", "greedy"),
            "focused": ("Focused", "focused"),
            "creative": ("Creative", "creative"),
        },
    ),
    "max_tokens": ("Length", {str(n): (word.capitalize(), n) for word, n in LENGTHS.items()}),
    "persona": (
        "Wording",
        {"plain": ("Plain", "plain"), "kind": ("Kind", "kind"), "expert": ("Expert", "expert")},
    ),
    "visibility": (
        "Who sees it",
        {"all": ("Everyone", "all"), "asker": ("Asker", "asker"), "host": ("Host", "host")},
    ),
    "thinking": ("Thinking", {"auto": ("Automatic", None), "on": ("On", True), "off": ("Off", False)}),
    "redeal": ("After a drop", {"on": ("Re-deal in 60 s", True), "off": ("Leave it to me", False)}),
}
"""Of each setting its label, and of each choice its name, its label and its value."""


HOSTS_OWN = ("redeal",)
"""What stays on the host: the others do not know it."""


def settings(now: ChatSettings, *, may: bool, host: bool) -> dict[str, Any]:
    """Groups of choices. The system text is the host's own and no part of it."""
    keys = [key for key in _GROUPS if host or key not in HOSTS_OWN]
    return {"may": may, "groups": [_group(key, getattr(now, key)) for key in keys]}


def chosen(key: str, name: str) -> dict[str, object] | None:
    """What a choice sets; None for one that was not offered."""
    _, choices = _GROUPS.get(key, ("", {}))
    return {key: choices[name][1]} if name in choices else None


def _group(key: str, now: object) -> dict[str, Any]:
    label, choices = _GROUPS[key]
    options = [[name, words] for name, (words, _) in choices.items()]
    # A number may be none of those offered: then it is shown, and choosing it changes nothing.
    value = next((name for name, (_, value) in choices.items() if value == now), line(str(now), 40))
    if value not in choices:
        options.append([value, f"{now:,} tokens" if isinstance(now, int) else value])
    return {"key": key, "label": label, "value": value, "options": options}
