"""How a control message is read and written (PROTOCOL section 3).

One map, its type the string ``t``. Anything else is ignored: no map, unknown ``t``, unknown fields.
A flag is 1 or absent; an optional field is absent, never null; a field of the wrong type counts as
absent, and a message that needs it is dropped. Nothing here raises on what a peer sent.
"""

from __future__ import annotations

import functools
import types
import typing
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

Flag = Annotated[bool, Meta(description="flag")]
"""Any true value is read as True; written as 1, or left out."""

Text40 = Annotated[str, Meta(max_length=200)]
"""A name before it is cut to 40 characters: longer than 200 is not a name."""
Id = Annotated[str, Meta(min_length=1, max_length=100)]
# `\Z`, since `$` would let a line feed at the end pass.
Secret = Annotated[str, Meta(min_length=22, max_length=64, pattern=r"^[A-Za-z0-9_-]+\Z")]
Digest = Annotated[str, Meta(min_length=64, max_length=64, pattern=r"^[0-9a-f]+\Z")]
Sentence = Annotated[str, Meta(max_length=2_000)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Real = Annotated[float, Meta(ge=0, le=1e9)]


class Part(Struct, frozen=True, kw_only=True):
    """A map inside a message, read by the same rules. What is secret is in no text form of it."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        hidden = {name for name, _, hint, _, _ in _fields(type(self)) if Secret in (hint, *get_args(hint))}
        said = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return [(name, "..." if name in hidden and value is not None else value) for name, value in said]


class Message(Part, frozen=True, kw_only=True):
    """Base of every control message. ``t`` is its type on the wire."""

    t: ClassVar[str] = ""


_REGISTRY: dict[str, type[Message]] = {}


def message(t: str) -> Any:
    """Class decorator: register a message under its ``t``."""

    def register(cls: type[Message]) -> type[Message]:
        cls.t = t
        assert t not in _REGISTRY, f"two messages named {t}"
        _REGISTRY[t] = cls
        return cls

    return register


def known() -> dict[str, type[Message]]:
    """Every message by its ``t``."""
    return dict(_REGISTRY)


def read(value: object) -> Message | None:
    """The message a peer's map says, or None where it must be ignored."""
    if not isinstance(value, dict):
        return None
    t = value.get("t")
    cls = _REGISTRY.get(t) if isinstance(t, str) else None
    if cls is None:
        return None
    found = _read_part(cls, value)
    return typing.cast("Message | None", found)


def write(msg: Message) -> dict[str, Any]:
    """The map that says this message: flags as 1, nothing that is None or a false flag."""
    return {"t": msg.t, **_write_part(msg)}


_ABSENT = object()


@functools.cache
def _fields(cls: type[Part]) -> tuple[tuple[str, str, Any, bool, bool], ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    rows = []
    for f in msgspec.structs.fields(cls):
        hint = hints[f.name]
        rows.append((f.name, f.encode_name, hint, f.required, hint == Flag))
    return tuple(rows)


def _read_part(cls: type[Part], value: dict[Any, Any]) -> Part | None:
    got: dict[str, Any] = {}
    for name, key, hint, required, flag in _fields(cls):
        raw = value.get(key, _ABSENT)
        if flag:
            got[name] = raw is not _ABSENT and bool(raw)
            continue
        item = _ABSENT if raw is _ABSENT or raw is None else _read_value(hint, raw)
        if item is not _ABSENT:
            got[name] = item
        elif required:
            return None
    return cls(**got)


def _read_value(hint: Any, raw: Any) -> Any:
    """``raw`` as ``hint``, or `_ABSENT`. Parts are read by their own rules, also in lists and maps."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        for option in args:
            if option is not type(None) and (item := _read_value(option, raw)) is not _ABSENT:
                return item
        return _ABSENT
    if isinstance(hint, type) and issubclass(hint, Part):
        return (_read_part(hint, raw) or _ABSENT) if isinstance(raw, dict) else _ABSENT
    if origin is Annotated and get_origin(args[0]) in (list, dict):
        metas = [m for m in args[1:] if isinstance(m, Meta)]
        # Counted before any item is read: what is too long to be taken must cost nothing.
        if not isinstance(raw, (list, dict)) or not all(_fits(m, len(raw)) for m in metas):
            return _ABSENT
        return _read_value(args[0], raw)
    if origin is list and isinstance(args[0], type) and issubclass(args[0], Part):
        if not isinstance(raw, list):
            return _ABSENT
        items = [_read_value(args[0], r) for r in raw]
        return [i for i in items if i is not _ABSENT]
    if hint is bytes:
        return bytes(raw) if isinstance(raw, (bytes, bytearray, memoryview)) else _ABSENT
    try:
        # `ints` arrive as doubles from a browser that computed them; a whole double is an int.
        if isinstance(raw, float) and raw.is_integer() and abs(raw) < 2**53:
            try:
                return msgspec.convert(int(raw), hint)
            except msgspec.ValidationError:
                pass
        return msgspec.convert(raw, hint, str_keys=True)  # a map's keys are texts, its numbers, too
    except (msgspec.ValidationError, RecursionError):
        return _ABSENT


def _fits(bounds: Meta, n: int) -> bool:
    return (bounds.max_length is None or n <= bounds.max_length) and n >= (bounds.min_length or 0)


def _write_part(part: Part) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, key, _hint, _required, flag in _fields(type(part)):
        value = getattr(part, name)
        if flag:
            if value:
                out[key] = 1
        elif value is not None:
            out[key] = _write_value(value)
    return out


def _write_value(value: Any) -> Any:
    if isinstance(value, Part):
        return _write_part(value)
    if isinstance(value, (list, tuple)):
        return [_write_value(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _write_value(v) for k, v in value.items()}
    return value
