"""What a typed line means. Decides only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from msgspec import Struct

from pooled_nb.download_text import ANSWERS
from pooled_nb.errors import BadOption
from pooled_nb.room.core import ChatSettings, Role
from pooled_nb.room_commands import THINKING, chosen
from pooled_nb.terminal.arguments import STYLES, nearest

Do = Literal[
    "status", "stop", "start", "redeal", "new", "continue", "again", "help", "leave", "leave politely"
]
DoorDo = Literal["lobby", "allow", "deny", "kick", "invite", "gate", "network", "download"]


class Ask(Struct, frozen=True):
    """A question."""

    text: str


class Order(Struct, frozen=True):
    """A command that stands alone."""

    what: Do


class Door(Struct, frozen=True):
    """A command about who comes in and by which ways, with what stands after it."""

    what: DoorDo
    rest: str = ""


class Set(Struct, frozen=True):
    """Change how the room answers; nothing to change: show it."""

    changes: dict[str, Any]


class Say(Struct, frozen=True):
    """It makes no sense: the sentence that says so."""

    words: str


COMMANDS: Mapping[str, tuple[Do | DoorDo | Literal["set"], bool, str]] = {
    "/status": ("status", False, "the room: its devices, layers and state"),
    "/start": ("start", True, "deal the layers over the devices now here"),
    "/redeal": ("redeal", True, "deal anew: devices have come, or one is gone"),
    "/stop": ("stop", False, "end the running answer"),
    "/continue": ("continue", False, "go on with the last answer"),
    "/again": ("again", False, "make the last answer anew"),
    "/new": ("new", True, "begin a new chat"),
    "/set": ("set", True, "how the room answers: /set style focused; alone it shows the settings"),
    "/lobby": ("lobby", True, "who waits to be let in, with the digits to compare"),
    "/allow": ("allow", True, "let in who waits: its name or number, or nothing for the only one"),
    "/deny": ("deny", True, "send away who waits; whoever joins anew is asked about anew"),
    "/kick": ("kick", True, "throw a device out, by its name"),
    "/invite": ("invite", True, "the link that lets its holder in without asking; /invite new makes another"),
    "/gate": ("gate", True, "who comes in: /gate ask off; alone it shows that"),
    "/network": ("network", False, "how devices meet: /network turn asks for a relay; alone it shows that"),
    "/download": ("download", False, "answer what this device asks: /download allow, or /download refuse"),
    "/help": ("help", False, "this list"),
    "/leave": (
        "leave",
        False,
        "leave the room; so do exit, quit and Ctrl-D. /leave --after-answer waits for the answer",
    ),
}
"""What it does, whether only the host may, and its line in the help."""

ALIASES = {"/reset": "/new", "/quit": "/leave", "/exit": "/leave", "/close": "/leave", "/?": "/help"}
KEYS: Mapping[str, tuple[str, str]] = {
    "style": ("style", ", ".join(STYLES)),
    "length": ("max_tokens", "short, medium, long, or a number of tokens"),
    "visibility": ("visibility", "all, host, asker"),
    "persona": ("persona", "plain, kind, expert"),
    "thinking": ("thinking", "on, off, auto"),
    "system": ("system", "a text that stands before the chat; without one there is none"),
    "redeal": ("redeal", "on, off"),
}
"""Words of ``/set``: the field, and what it takes."""
HOST_ONLY = ("system", "redeal")
"""What the others are not told: it stays on the host."""
POLITELY = ("--after-answer", "after-answer")

_COMMAND = re.compile(r"/[a-z?]+")


def read(line: str, role: Role | None) -> Ask | Order | Door | Set | Say | None:
    """What this line means to a device of this role; None: nothing.

    A line that begins with a slash is a command, unless its first word is none by its form (``/usr/bin …``).
    """
    text = line.strip()
    if not text:
        return None
    if text.lower() in ("exit", "quit"):
        return Order("leave")
    head, _, rest = text.partition(" ")
    if not _COMMAND.fullmatch(head.lower()):
        return Ask(text)
    name = ALIASES.get(head.lower(), head.lower())
    if name not in COMMANDS:
        return Say(f"There is no {head}.{nearest(name, [*COMMANDS])} /help lists what there is.")
    what, host_only, _ = COMMANDS[name]
    if host_only and role != "host" and not (what == "set" and not rest.strip()):
        return Say(f"Only the host's device has {head}. /help lists what there is here.")
    if what == "set":
        return _set(rest.strip())
    if what in get_args(DoorDo):
        return _door(what, head, rest.strip())  # type: ignore[arg-type] # it is one of them
    if what == "leave" and rest.strip().lower() in POLITELY:
        return Order("leave politely")
    if rest.strip():
        return Say(f"{head} stands alone; {rest.strip()[:40]!r} is too much.")
    return Order(what)  # type: ignore[arg-type] # what is left


def _door(what: DoorDo, head: str, rest: str) -> Door | Say:
    if what == "lobby" and rest:
        return Say(f"{head} stands alone.")
    if what == "kick" and not rest:
        return Say("Say whom: /kick NAME, as /status shows it.")
    if what == "invite" and rest not in ("", "new"):
        return Say("/invite shows the link, /invite new makes another.")
    if what == "download" and rest not in ANSWERS:
        return Say("Write /download allow, or /download refuse.")
    return Door(what, rest)


def _set(rest: str) -> Set | Say:
    if not rest:
        return Set({})
    key, _, value = rest.partition(" ")
    if key not in KEYS:
        return Say(f"There is no setting {key!r}.{nearest(key, [*KEYS])} There are {', '.join(KEYS)}.")
    field, takes = KEYS[key]
    value = value.strip()
    if field == "system":
        return Set({"system": value})
    if field == "max_tokens":
        try:
            return Set(chosen({"key": field, "value": value}))
        except BadOption as error:
            return Say(str(error))
    if value not in takes.split(", "):
        return Say(f"{key} takes {takes}.")
    return Set(chosen({"key": field, "value": value}))


def help_lines(role: Role | None) -> list[str]:
    """What there is for this role."""
    width = max(map(len, COMMANDS))
    mine = [(name, words) for name, (_, host, words) in COMMANDS.items() if role == "host" or not host]
    return [
        *(f"{name:{width}}  {words}" for name, words in mine),
        "Anything else is a question. Ctrl-C stops its answer.",
    ]


def settings_lines(settings: ChatSettings, role: Role | None) -> list[str]:
    """The settings, as ``/set`` takes them on the host; others hear who sets them."""
    thinking = next(word for word, value in THINKING.items() if value == settings.thinking)
    values = {
        "style": settings.style,
        "length": f"{settings.max_tokens} tokens",
        "visibility": settings.visibility,
        "persona": settings.persona,
        "thinking": thinking,
        "system": settings.system or "–",
        "redeal": "on" if settings.redeal else "off",
    }
    width = max(map(len, KEYS))
    if role != "host":
        lines = [f"{key:{width}}  {values[key]}" for key in KEYS if key not in HOST_ONLY]
        return [*lines, "The host sets them, for everyone."]
    lines = [f"{key:{width}}  {values[key]}  ({takes})" for key, (_, takes) in KEYS.items()]
    return [*lines, "They count for everyone, from the next question on: /set style focused"]


def goodbye(code: str, role: Role | None, others: int) -> str:
    """What leaving does, said before it is done."""
    if role != "host":
        return f"Leaving room {code}."
    if not others:
        return f"Closing room {code}."
    return f"Closing room {code} for everyone: {_devices(others)} in it."


def once_more(key: str, role: Role | None, others: int) -> str:
    """What pressing the key again will do."""
    if role != "host":
        return f"{key} once more leaves."
    if not others:
        return f"{key} once more closes the room."
    return f"This device hosts the room. {key} once more closes it for everyone: {_devices(others)} in it."


def _devices(others: int) -> str:
    return f"{others} other device{'s are' if others != 1 else ' is'}"
