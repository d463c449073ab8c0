"""Random values: any at all, and such as a message nearly wants."""

from __future__ import annotations

import functools
import types
import typing
from random import Random
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from pooled_nb.mesh.messages import Part, known

DIGITS = "0123456789abcdef"
BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
TEXTS = ("", "a", "x" * 41, "\x00", "\ud800", "żółw", "<b>", "\r\n", "ai-ask", "1", "null", "📓" * 30)
NUMBERS = (0, 1, -1, 4, 255, 2**31, -(2**31) - 1, 2**53, 2**63, 2**64 - 1, 0.5, -0.0, 1e300, 5e-324)
TYPES = tuple(known())


def text(rng: Random, alphabet: str, n: int) -> str:
    some = "".join(rng.choices(alphabet, k=min(n, 64)))
    return some if n <= 64 else (some * (n // 64 + 1))[:n]


def scalar(rng: Random) -> Any:
    match rng.randrange(6):
        case 0:
            return rng.choice(NUMBERS)
        case 1:
            return rng.choice(TEXTS)
        case 2:
            return rng.choice((None, True, False))
        case 3:
            return rng.randbytes(rng.choice((0, 1, 15, 16, 200)))
        case 4:
            return rng.randrange(-(2**33), 2**33)
        case _:
            return text(rng, BASE64, rng.choice((1, 21, 22, 43, 64, 65)))


def any_value(rng: Random, depth: int = 3) -> Any:
    if depth == 0 or rng.random() < 0.6:
        return scalar(rng)
    n = rng.choice((0, 1, 2, 3, 17))
    if rng.random() < 0.5:
        return [any_value(rng, depth - 1) for _ in range(n)]
    return {rng.choice((*TYPES, "t", "name", "id", "meta", "x")): any_value(rng, depth - 1) for _ in range(n)}


def near(rng: Random, hint: Any) -> Any:
    """A value of this type, mostly within its bounds, sometimes just outside or of another type."""
    if rng.random() < 0.06:
        return any_value(rng)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bounded(rng, args[0], [m for m in args[1:] if isinstance(m, Meta)])
    if origin in (Union, types.UnionType):
        return near(rng, rng.choice(args))
    if origin is typing.Literal:
        return rng.choice(args)
    if origin is list:
        return [near(rng, args[0]) for _ in range(rng.choice((0, 1, 2, 3)))]
    if origin is dict:
        return {str(near(rng, args[0])): near(rng, args[1]) for _ in range(rng.choice((0, 1, 2)))}
    if isinstance(hint, type) and issubclass(hint, Part):
        return fields(rng, hint)
    plain = {bool: (0, 1, True), int: (0, 1, 7, 2**31 - 1), float: (0.0, 0.5, 3.0), bytes: (b"", b"abc")}
    if hint in plain:
        return rng.choice(plain[hint])
    return rng.choice(TEXTS) if hint is str else None


def _bounded(rng: Random, base: Any, metas: list[Meta]) -> Any:
    if base is not str:
        return near(rng, base)
    low = max((m.min_length or 0 for m in metas), default=0)
    high = min((m.max_length or 300 for m in metas), default=300)
    high = min(high, 20_000)
    n = (
        rng.choice((low, min(low + 3, high), high, high + 1))
        if rng.random() < 0.3
        else rng.randint(low, min(high, low + 12))
    )
    return text(rng, DIGITS if low in (32, 64) else BASE64, n)


def fields(rng: Random, cls: type[Part]) -> dict[str, Any]:
    return {key: near(rng, hint) for key, hint, required in _fields(cls) if required or rng.random() < 0.7}


@functools.cache
def _fields(cls: type[Part]) -> list[tuple[str, Any, bool]]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return [(f.encode_name, hints[f.name], f.required) for f in msgspec.structs.fields(cls)]


def message(rng: Random) -> Any:
    """What a peer may send: a message, nearly one, or anything."""
    if rng.random() < 0.04:
        return any_value(rng)
    t = rng.choice(TYPES)
    made = {"t": t, **fields(rng, known()[t])}
    if rng.random() < 0.1:
        made[rng.choice((*made, "t", "extra"))] = any_value(rng)
    return made
