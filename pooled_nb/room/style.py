"""How the room answers: presets, wordings, and the settings of the host's person (PROTOCOL section 7)."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, get_args

import msgspec

from pooled_nb.errors import BadOption
from pooled_nb.mesh.messages import chat
from pooled_nb.room.core import AskOptions, ChatSettings, Persona, Style, Visibility
from pooled_nb.room.sentences import listed
from pooled_nb.shard import Sampling

MAX_SYSTEM = chat.MAX_QUESTION
"""Characters of a system prompt."""
MAX_LENGTH = 2**24
"""Tokens of one answer."""

PRESETS: dict[Style, tuple[float, int]] = {"greedy": (0.0, 0), "focused": (0.4, 20), "creative": (0.8, 40)}
"""Temperature and top-k of each style."""
ON_WIRE: dict[Style, str] = {"greedy": "exact", "focused": "focused", "creative": "creative"}
WORDINGS: dict[Persona, str] = {
    "plain": "",
    "kind": "You are kind and patient. Explain in everyday words, one step at a time, and encourage.",
    "expert": "You are an expert who speaks to experts. Be precise and thorough, use the terms of the field, "
    "and say where you are not sure.",
}
"""What each persona tells the model."""

STYLES: tuple[Style, ...] = get_args(Style)
PERSONAS: tuple[Persona, ...] = get_args(Persona)
VISIBILITIES: tuple[Visibility, ...] = get_args(Visibility)
CHOICES: dict[str, tuple[str, ...]] = {
    "style": STYLES, "persona": PERSONAS, "visibility": VISIBILITIES
}  # fmt: skip


def numbers(options: AskOptions, style: Style | None) -> tuple[float | None, int | None]:
    """Temperature and top-k: those given by number, else those of the question's style, else of ``style``."""
    chosen = options.style or style
    temperature, top_k = PRESETS[chosen] if chosen else (None, None)
    return (
        temperature if options.temperature is None else options.temperature,
        top_k if options.top_k is None else options.top_k,
    )


def draw_seed() -> int:
    """A seed for who gave none."""
    return secrets.randbelow(2**31)


def seed_of(rid: str) -> int:
    """The seed of a device's question that gives none: the ``rid`` that was drawn there names it, so that the
    same question, asked again of a host that was started anew, gives the same text.
    """
    return int.from_bytes(hashlib.sha256(f"pooled-seed-v1\n{rid}".encode()).digest()[:4], "big") >> 1


def sampling(options: AskOptions, style: Style, drawn: int | None = None) -> Sampling:
    """The sampler of one question; where no seed is given and tokens are drawn at all, it has a drawn one.

    ``drawn``: that which was drawn when the question was asked; None: it is drawn now.
    """
    temperature, top_k = numbers(options, style)
    greedy = Sampling(
        repetition_penalty=options.repetition_penalty or 1.0,
        presence_penalty=options.presence_penalty or 0.0,
        logit_bias=options.logit_bias or {},
        stop=tuple(options.stop or ()),
    )
    if not temperature:
        return greedy
    seed = drawn if options.seed is None else options.seed
    return msgspec.structs.replace(
        greedy,
        temperature=temperature,
        top_k=top_k or 0,
        top_p=options.top_p or 1.0,
        min_p=options.min_p or 0.0,
        seed=draw_seed() if seed is None else seed,
    )


def system_of(options: AskOptions, settings: ChatSettings) -> str:
    """The system prompt of one question: its own in place of the room's, which is system and persona."""
    if options.system is not None:
        return options.system
    return "\n\n".join(filter(None, [settings.system, WORDINGS[settings.persona]]))


def check_settings(settings: ChatSettings) -> ChatSettings:
    """Settings that a room may have, with plain types.

    Raises
    ------
    BadOption
        One of them is none; the sentence says which, and what may be given.
    """
    for name, choices in CHOICES.items():
        if (value := getattr(settings, name)) not in choices:
            raise BadOption(f"{name} is {value!r}.", f"Use {listed(choices).replace(' and ', ' or ')}.")
    length = plain(settings.max_tokens)
    if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= MAX_LENGTH:
        raise BadOption(f"max_tokens is {length!r}.", f"Use a whole number from 1 to {MAX_LENGTH:,}.")
    thinking = plain(settings.thinking)
    if thinking is not None and not isinstance(thinking, bool):
        raise BadOption(f"thinking is {thinking!r}.", "Use True, False, or None for the model's own way.")
    redeal = plain(settings.redeal)
    if not isinstance(redeal, bool):
        raise BadOption(f"redeal is {redeal!r}.", "Use True or False.")
    if why := wrong_system(settings.system):
        raise BadOption(*why)
    return msgspec.structs.replace(settings, max_tokens=length, thinking=thinking, redeal=redeal)


def wrong_system(text: Any) -> tuple[str, str] | None:
    """Why this is no system prompt, and what to do; None where it is one."""
    if not isinstance(text, str):
        return "The system prompt is no text.", "Pass a str."
    if len(text) > MAX_SYSTEM:
        return (
            f"The system prompt has {len(text):,} characters, and a room takes {MAX_SYSTEM:,}.",
            "Shorten it.",
        )
    if half(text):
        return "The system prompt holds half of a character (a lone surrogate).", "Type it again."
    return None


def half(text: str) -> bool:
    """Whether a text holds half of a character, which cannot travel."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def plain(value: Any) -> Any:
    """Numbers of numpy and torch as Python's; what holds more than one is no number, and stays as it is."""
    try:
        return value.item()
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return value


def style_message(settings: ChatSettings) -> chat.Style:
    """``ai-style`` that says these settings; the system prompt stays on the host."""
    return chat.Style(
        persona=settings.persona,
        sampling=ON_WIRE[settings.style],
        thinking=settings.thinking,
        nb=chat.NbStyle(max_tokens=settings.max_tokens),
    )


def is_default_style(settings: ChatSettings) -> bool:
    """Whether a newcomer knows these without being told (visibility has a message of its own)."""
    return style_message(settings) == style_message(ChatSettings())


def heard_style(message: chat.Style, before: ChatSettings) -> ChatSettings:
    """Settings after a host's ``ai-style``; what it names that is not known here counts as absent."""
    style = next((name for name, wire in ON_WIRE.items() if wire == message.sampling), before.style)
    persona = next((name for name in PERSONAS if name == message.persona), before.persona)
    length = message.nb.max_tokens if message.nb else None
    return ChatSettings(
        style=style,
        max_tokens=length or ChatSettings().max_tokens,
        visibility=before.visibility,
        persona=persona,
        thinking=None if message.thinking is None else bool(message.thinking),
    )


def heard_visibility(message: chat.Visibility, before: ChatSettings) -> ChatSettings:
    """Settings after a host's ``ai-visibility``; another mode than ours changes nothing."""
    mode = next((mode for mode in VISIBILITIES if mode == message.mode), before.visibility)
    return msgspec.structs.replace(before, visibility=mode)
