"""PROTOCOL section 2: the control connection's BinaryPack."""

from __future__ import annotations

import math
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh import binarypack
from pooled_nb.mesh.binarypack import MAX_ITEMS, MAX_NESTS, PackError, pack, unpack

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40)
    | st.binary(max_size=70)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=20), inner, max_size=20),
    max_leaves=30,
)


def same(a: Any, b: Any) -> bool:
    """Equal, and of the type a browser would see: a whole float is an integer."""
    if isinstance(a, float) and a.is_integer() and -(2.0**63) <= a < 2.0**64:
        a = int(a)
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


@settings(deadline=None, max_examples=200)
@given(values)
def test_roundtrip(value: Any) -> None:
    """PROTOCOL section 2: what is packed is read back as it was."""
    assert same(value, unpack(pack(value)))


@settings(deadline=None, max_examples=400)
@given(st.binary(max_size=200))
def test_random_bytes_raise_one_type(data: bytes) -> None:
    """PROTOCOL section 2: a peer's bytes are read or refused, by one type of error and no other."""
    try:
        value = unpack(data)
    except PackError:
        return
    assert isinstance(value, (type(None), bool, int, float, str, bytes, list, dict))


@settings(deadline=None, max_examples=150)
@given(values, st.data())
def test_damaged_bytes_raise_one_type(value: Any, data: st.DataObject) -> None:
    """PROTOCOL section 2: a packed value with one byte changed, or cut, or grown."""
    packed = bytearray(pack(value))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] = data.draw(st.integers(0, 255))
    for damaged in (packed, packed[:at], packed + b"\0"):
        try:
            unpack(damaged)
        except PackError:
            continue


@pytest.mark.parametrize("n", range(1, 40))
def test_every_cut_is_refused(n: int) -> None:
    """PROTOCOL section 2: a message that was cut off is refused, never read as a shorter one."""
    packed = pack({"t": "roster", "members": [{"id": "a", "x": 70_000, "y": 0.5, "b": b"12345678"}]})
    assert len(packed) > 40
    with pytest.raises(PackError):
        unpack(packed[:-n])


@pytest.mark.parametrize("head", [b"\xdb", b"\xd9", b"\xdd", b"\xdf"], ids=["bytes", "text", "list", "map"])
def test_a_claimed_length_costs_nothing(head: bytes) -> None:
    """PROTOCOL section 2: a length above the data is refused before anything is reserved for it."""
    tracemalloc.start()
    try:
        with pytest.raises(PackError):
            unpack(head + struct.pack(">I", 0xFFFFFFF0) + b"\0" * 100)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_bounds() -> None:
    """PROTOCOL section 2: depth, number of values and size are bounded."""
    deep: list[Any] = []
    for _ in range(binarypack.MAX_DEPTH - 1):
        deep = [deep]
    assert unpack(pack(deep)) == deep
    with pytest.raises(PackError):
        pack([[deep]])
    with pytest.raises(PackError):
        unpack(b"\x91" * 100_000 + b"\xc0")
    with pytest.raises(PackError):
        unpack(b"\xdd" + struct.pack(">I", 1_000_000) + b"\x90" * 1_000_000)
    with pytest.raises(PackError):
        unpack(b"\xdb" + struct.pack(">I", binarypack.MAX_BYTES) + b"\0" * binarypack.MAX_BYTES)
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(PackError):
        pack(circle)


def test_what_a_browser_reads() -> None:
    """PROTOCOL section 2: undefined, both forms of large integers, float32, and keys that are not text."""
    assert [unpack(bytes([b])) for b in (0xC0, 0xC1, 0xD4, 0xD7)] == [None] * 4
    assert unpack(b"\xcf" + struct.pack(">Q", 2**32)) == unpack(b"\xd3" + struct.pack(">q", 2**32)) == 2**32
    assert unpack(b"\xcf" + struct.pack(">Q", 2**64 - 1)) == 2**64 - 1
    assert unpack(b"\xca" + struct.pack(">f", 0.5)) == 0.5
    assert math.isnan(unpack(b"\xcb" + struct.pack(">d", math.nan)))
    assert unpack(b"\x82\x05\x01\xb1a\x02") == {"5": 1, "a": 2}
    # A list, a map, bytes, null and a flag as keys: they name no field, and none may raise.
    for key in (b"\x90", b"\x80", b"\xa1a", b"\xc0", b"\xc3"):
        assert unpack(b"\x82" + key + b"\x01\xb1a\x02") == {"a": 2}


def test_numbers_travel_as_in_javascript() -> None:
    """PROTOCOL section 2: a whole number is an integer there, whatever it was here."""
    assert pack(3.0) == pack(3) == b"\x03"
    assert pack(-0.0) == b"\0"
    assert unpack(pack(1e300)) == 1e300
    assert unpack(pack(2.0**64)) == 2.0**64
    assert pack(True) == b"\xc3"


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, 2**64, -(2**63) - 1, {1: 2}, ..., {"a": {1, 2}}, [1j]], ids=repr
)
def test_what_cannot_be_said(value: object) -> None:
    """PROTOCOL section 2: what the other end could not read is refused here, in the same words."""
    with pytest.raises(PackError):
        pack(value)


def test_half_a_surrogate_pair() -> None:
    """PROTOCOL section 2: text that Python holds and UTF-8 does not becomes what a browser would send."""
    assert unpack(pack("a\ud800b")) == "a\ufffdb"
    assert unpack(pack("\ud83d\ude42")) == "🙂"
    with pytest.raises(PackError):
        unpack(b"\xb1\xff")


def test_too_many_values_are_not_read() -> None:
    """PROTOCOL section 2: a list or map of more values than a message may have is refused by its length,
    before its first value is looked at; one that holds them in small lists, at the first too many.
    """
    many = struct.pack(">I", MAX_ITEMS)
    # 0xc8 is no type: whoever reads the first value stumbles on it.
    for data in (b"\xdd" + many + b"\xc8" * MAX_ITEMS, b"\xdf" + many + b"\xc8" * 2 * MAX_ITEMS):
        with pytest.raises(PackError, match="too many values"):
            unpack(data)
    inner = b"\xdc" + struct.pack(">H", 1000) + b"\x01" * 1000
    rows = -(-MAX_ITEMS // 1001)
    with pytest.raises(PackError, match="too many values"):
        unpack(b"\xdc" + struct.pack(">H", rows) + inner * rows)
    assert len(unpack(b"\xdc" + struct.pack(">H", rows - 1) + inner * (rows - 1))) == rows - 1


@pytest.mark.parametrize("n", [1, 2, 100])
def test_fewer_values_may_be_asked_for(n: int) -> None:
    """PROTOCOL section 3, before admission: a reader may allow fewer values; keys count."""
    assert unpack(pack([0] * (n - 1)), max_items=n) == [0] * (n - 1)
    with pytest.raises(PackError):
        unpack(pack([0] * n), max_items=n)
    with pytest.raises(PackError):
        unpack(pack({str(i): 0 for i in range(-(-n // 2))}), max_items=n)


def test_nobody_sends_what_nobody_reads() -> None:
    """PROTOCOL section 2: what the other end would drop is refused by its sender."""
    fits = [0] * (MAX_ITEMS - 1)
    assert unpack(pack(fits)) == fits
    with pytest.raises(PackError, match="values"):
        pack([*fits, 0])
    with pytest.raises(PackError, match="values"):
        pack([[0] * 9] * (MAX_ITEMS // 10 + 1))
    with pytest.raises(PackError, match="lists and maps"):
        pack([[{"a": 1}]] * (MAX_NESTS // 2))


@pytest.mark.parametrize("nest", [b"\x90", b"\x80"], ids=["lists", "maps"])
def test_lists_and_maps_are_fewer(nest: bytes) -> None:
    """PROTOCOL section 2: of the values of a message at most a quarter are lists and maps: many of them stop
    the whole process, not only its loop.
    """
    fits = MAX_NESTS - 1
    assert len(unpack(b"\xdc" + struct.pack(">H", fits) + nest * fits)) == fits
    with pytest.raises(PackError, match="lists and maps"):
        unpack(b"\xdc" + struct.pack(">H", fits + 1) + nest * (fits + 1))
