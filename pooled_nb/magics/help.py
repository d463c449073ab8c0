"""What ``%pooled --help`` and ``%%ask --help`` say, from the table of verbs."""

from __future__ import annotations

from collections.abc import Iterable

from pooled_nb.magics.verbs import ASK, VERBS, Option

CHAT = "The chat is common to the room: the model sees what others asked before, and so may they."
ASK_HELP = "ask the room; the question is the cell's text"


def overview() -> str:
    """Every verb with a few words."""
    lines = [(f"%pooled {name} {verb.target}".rstrip(), verb.what) for name, verb in VERBS.items()]
    lines.insert(0, ("%pooled", "the room's panel"))
    lines.append(("%%ask", ASK_HELP))
    more = "Options: %pooled VERB --help and %%ask --help."
    return f"{_columns(lines)}\n\n{CHAT}\n{more}"


def verb_help(name: str) -> str:
    """One verb with its options."""
    verb = VERBS[name]
    options = " [options]" if verb.options else ""
    target = f" [{verb.target}]" if verb.optional else f" {verb.target}" if verb.target else ""
    parts = [f"%pooled {name}{target}{options}\n{_sentence(verb.what)}", verb.more, _options(verb.options)]
    parts.append(f"Example: {verb.example}" if verb.example else "")
    return "\n\n".join(part for part in parts if part)


def ask_help() -> str:
    """``%%ask`` with its options."""
    return (
        "Ask the room; the answer streams into the cell and stays there.\n\n"
        "    %%ask -o answer --max 200\n"
        "    Why is the sky blue?\n\n"
        "    %ask Why is the sky blue?\n\n"
        f"{_options(ASK)}\n\n"
        f"{CHAT}\n"
        "Interrupting the kernel stops the answer and the cell, and keeps the room. Braces and dollar signs\n"
        "of the question are left alone; -- before it lets it begin with a dash."
    )


def pooled_doc() -> str:
    """Return what ``%pooled?`` shows: all of it."""
    verbs = [f"%pooled {name}: {verb.what}\n{_options(verb.options)}" for name, verb in VERBS.items()]
    return (
        "Host a room, join one, look at it, leave it.\n\n" + overview() + "\n\n" + "\n\n".join(verbs).rstrip()
    )


def _options(options: Iterable[Option]) -> str:
    return _columns([(f"  {', '.join(o.names)} {o.value}".rstrip(), _with_choices(o)) for o in options])


def _with_choices(option: Option) -> str:
    return f"{option.what} ({', '.join(option.choices)})" if option.choices else option.what


def _columns(lines: list[tuple[str, str]]) -> str:
    width = max((len(left) for left, _ in lines), default=0)
    return "\n".join(f"{left:{width}}  {right}".rstrip() for left, right in lines)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
