"""BinaryPack, as the npm package ``peerjs-js-binarypack`` 2.1 writes and reads it (PROTOCOL section 2).

It looks like msgpack and is not: strings and raw bytes have each other's type bytes, and a number that is
whole travels as an integer, whatever its type was. What the browser cannot say comes back as it reads it
there: ``undefined`` is None, and the keys of a map are text.
"""

from __future__ import annotations

import math
import struct
from typing import Any

MAX_BYTES = 256 * 16_300
"""Bytes of one packed message: 256 chunks (PROTOCOL section 2)."""
MAX_DEPTH = 64
"""Lists and maps within each other."""
MAX_ITEMS = 1 << 14
"""Values in one message, keys counted: each costs the loop a microsecond or two, whatever it is, and no
message may stop the loop for longer than a few hundredths of a second. The largest of ours, the roster of a
full room, has 15,109."""

MAX_NESTS = 1 << 12
"""Lists and maps among them. For every few hundred of these Python looks for garbage, and now and then in the
whole process, which stops everything. The largest of ours, that roster, has 1,282."""


class PackError(ValueError):
    """A value that BinaryPack cannot say, or bytes that are not BinaryPack."""


def pack(value: object) -> bytes:
    """Write one value.

    Parameters
    ----------
    value
        None, bool, int, finite float, str, bytes-like, or lists, tuples and maps of these. A tuple is
        written as a list, a whole float as an integer.

    Raises
    ------
    PackError
        Another type, a number out of range or not finite, nested deeper than `MAX_DEPTH`, or more than
        `MAX_ITEMS` values or `MAX_NESTS` lists and maps: the other end would drop it.
    """
    out = _Out()
    _pack(value, out, 0)
    return bytes(out)


class Meter:
    """How many values were read."""

    values = 0


def unpack(
    data: bytes | bytearray | memoryview, *, max_items: int = MAX_ITEMS, meter: Meter | None = None
) -> Any:
    """Read one value that fills ``data``.

    Parameters
    ----------
    data
        At most `MAX_BYTES`.
    max_items
        Values that it may hold, keys counted.
    meter
        Is told how many were read, also where that ended in an error.

    Raises
    ------
    PackError
        Anything malformed: cut off, text that is not UTF-8, too deep, too many values, bytes left over.
        A length above what is there, or above what may follow, is refused before anything is read of it.
    """
    if len(data) > MAX_BYTES:
        raise PackError(f"a message of {len(data)} bytes")
    reader = _Reader(bytes(data), max_items)
    try:
        value = reader.value(0)
    finally:
        if meter is not None:
            meter.values += max_items - reader.left
    if reader.at != len(reader.data):
        raise PackError("bytes are left over")
    return value


class _Out(bytearray):
    """What was written so far, and how many values that is."""

    items = nests = 0


def _head(out: bytearray, n: int, fix: int, c16: int, c32: int) -> None:
    if n < 16:
        out.append(fix | n)
    elif n < 1 << 16:
        out += struct.pack(">BH", c16, n)
    elif n < 1 << 32:
        out += struct.pack(">BI", c32, n)
    else:
        raise PackError(f"a length of {n}")


def _text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair; the browser's encoder writes U+FFFD for it
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _pack(value: object, out: _Out, depth: int) -> None:
    out.items += 1
    if out.items > MAX_ITEMS:
        raise PackError(f"more than {MAX_ITEMS} values")
    if value is None:
        out.append(0xC0)
    elif isinstance(value, bool):
        out.append(0xC3 if value else 0xC2)
    elif isinstance(value, int):
        _pack_int(int(value), out)
    elif isinstance(value, float):
        _pack_float(value, out)
    elif isinstance(value, str):
        raw = _text(value)
        _head(out, len(raw), 0xB0, 0xD8, 0xD9)
        out += raw
    elif isinstance(value, (bytes, bytearray, memoryview)):
        raw = bytes(value)
        _head(out, len(raw), 0xA0, 0xDA, 0xDB)
        out += raw
    elif depth >= MAX_DEPTH:
        raise PackError("nested too deep")
    elif isinstance(value, (list, tuple)):
        _nest(out)
        _head(out, len(value), 0x90, 0xDC, 0xDD)
        for item in value:
            _pack(item, out, depth + 1)
    elif isinstance(value, dict):
        _nest(out)
        _head(out, len(value), 0x80, 0xDE, 0xDF)
        for key, item in value.items():
            if not isinstance(key, str):
                raise PackError(f"a key of type {type(key).__name__}")
            _pack(key, out, depth + 1)
            _pack(item, out, depth + 1)
    else:
        raise PackError(f"a value of type {type(value).__name__}")


def _nest(out: _Out) -> None:
    out.nests += 1
    if out.nests > MAX_NESTS:
        raise PackError(f"more than {MAX_NESTS} lists and maps")


# The npm package tries the types in this order, so 2**32 .. 2**63 - 1 is signed (0xd3).
_INTS = (
    (-(1 << 5), (1 << 7) - 1, ">b"),
    (0, (1 << 8) - 1, ">BB"),
    (-(1 << 7), (1 << 7) - 1, ">Bb"),
    (0, (1 << 16) - 1, ">BH"),
    (-(1 << 15), (1 << 15) - 1, ">Bh"),
    (0, (1 << 32) - 1, ">BI"),
    (-(1 << 31), (1 << 31) - 1, ">Bi"),
    (-(1 << 63), (1 << 63) - 1, ">Bq"),
    (0, (1 << 64) - 1, ">BQ"),
)
_INT_TYPES = {
    ">BB": 0xCC,
    ">BH": 0xCD,
    ">BI": 0xCE,
    ">BQ": 0xCF,
    ">Bb": 0xD0,
    ">Bh": 0xD1,
    ">Bi": 0xD2,
    ">Bq": 0xD3,
}


def _pack_int(value: int, out: bytearray) -> None:
    for lo, hi, form in _INTS:
        if lo <= value <= hi:
            out += struct.pack(form, value) if form == ">b" else struct.pack(form, _INT_TYPES[form], value)
            return
    raise PackError(f"an integer of {value.bit_length()} bits")


def _pack_float(value: float, out: bytearray) -> None:
    if not math.isfinite(value):
        raise PackError("a number that is not finite")
    if value.is_integer() and -(2.0**63) <= value < 2.0**64:
        _pack_int(int(value), out)
    else:
        out += struct.pack(">Bd", 0xCB, value)


_NUMBERS = {
    0xCA: struct.Struct(">f"),
    0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
_U16, _U32 = _NUMBERS[0xCD], _NUMBERS[0xCE]
_SIZED = {
    0xD8: (_U16, 0xB0),
    0xD9: (_U32, 0xB0),
    0xDA: (_U16, 0xA0),
    0xDB: (_U32, 0xA0),
    0xDC: (_U16, 0x90),
    0xDD: (_U32, 0x90),
    0xDE: (_U16, 0x80),
    0xDF: (_U32, 0x80),
}
_UNDEFINED = {0xC0, 0xC1, 0xD4, 0xD5, 0xD6, 0xD7}


class _Reader:
    """One message and how far it was read."""

    __slots__ = ("at", "data", "left", "nests")

    def __init__(self, data: bytes, max_items: int) -> None:
        self.data = data
        self.at = 0
        self.left = max_items
        """How many more values may come."""
        self.nests = MAX_NESTS
        """How many more of them may be lists and maps."""

    def take(self, n: int) -> bytes:
        end = self.at + n
        if end > len(self.data):
            raise PackError("cut off")
        raw = self.data[self.at : end]
        self.at = end
        return raw

    def number(self, form: struct.Struct) -> Any:
        return form.unpack(self.take(form.size))[0]

    def value(self, depth: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise PackError("too many values")
        if depth > MAX_DEPTH:
            raise PackError("nested too deep")
        kind = self.take(1)[0]
        if kind < 0x80:
            return kind
        if kind >= 0xE0:
            return kind - 0x100
        if kind < 0xC0:
            return self.sized(kind & 0xF0, kind & 0x0F, depth)
        if kind in _UNDEFINED:
            return None
        if kind in (0xC2, 0xC3):
            return kind == 0xC3
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind not in _SIZED:
            raise PackError(f"type byte {kind:#x}, which nobody writes")
        form, family = _SIZED[kind]
        return self.sized(family, self.number(form), depth)

    def sized(self, family: int, n: int, depth: int) -> Any:
        if family == 0xA0:
            return self.take(n)
        if family == 0xB0:
            try:
                return self.take(n).decode()
            except UnicodeDecodeError as exc:
                raise PackError("text that is not UTF-8") from exc
        # A value takes at least one byte: more of them than bytes are left is a lie.
        values = n * (1 if family == 0x90 else 2)
        if values > len(self.data) - self.at:
            raise PackError("cut off")
        if values > self.left:  # before the first of them is read, not at the first too many
            raise PackError("too many values")
        self.nests -= 1
        if self.nests < 0:
            raise PackError("too many lists and maps")
        if family == 0x90:
            return [self.value(depth + 1) for _ in range(n)]
        return self.map(n, depth)

    def map(self, n: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(n):
            key, value = self.value(depth + 1), self.value(depth + 1)
            # A browser turns a number into its digits; any other key names no field of ours.
            if isinstance(key, str):
                found[key] = value
            elif isinstance(key, int) and not isinstance(key, bool):
                found[str(key)] = value
        return found
