"""PROTOCOL section 5: frames and slices (the vectors say that every byte is right)."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.errors import FrameRefused
from pooled_nb.mesh.binarypack import pack, unpack
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.wire import Receiver, check_payload, decode, encode, fallback
from pooled_nb.mesh.wire.slices import HEADER, LAST_ID, MAX_PAYLOAD, ROOM, SLICE, count_of

slots = st.integers(0, 65534)


@st.composite
def frames(draw: st.DrawFn, max_payload: int = 3 * ROOM + 5) -> Frame:
    """Any frame that the wire can carry."""
    kind = draw(st.sampled_from(Kind))
    payload = draw(st.binary(min_size=1, max_size=64)) * draw(st.integers(1, max(1, max_payload // 64)))
    frame = Frame(
        kind=kind,
        pos=draw(st.integers(0, 2**32 - 1)),
        n=draw(st.integers(1, 256)) if kind.is_batch else 1,
        payload=payload,
        enc=draw(st.sampled_from(Encoding)),
        epoch=draw(st.integers(0, 255)),
        last=draw(st.booleans()),
        probe=draw(st.integers(0, 15)),
    )
    if kind.is_return:
        return frame
    dp = draw(st.lists(st.integers(1, 65534), max_size=2) | st.just([0xFFFF]))
    return replace(
        frame,
        spec=draw(st.booleans()),
        reset=draw(st.booleans()),
        rb=draw(st.none() | st.integers(0, 62)),
        sv=0 if dp == [0xFFFF] else draw(slots),
        ld=draw(slots),
        dp=tuple(dp),
    )


@settings(deadline=None, max_examples=150)
@given(frames(), st.integers(1, LAST_ID))
def test_roundtrip(frame: Frame, id: int) -> None:
    """PROTOCOL section 5: a frame's slices are full but the last, and are that frame again."""
    slices = encode(frame, id)
    assert [len(s) for s in slices[:-1]] == [SLICE] * (len(slices) - 1)
    assert HEADER < len(slices[-1]) <= SLICE
    receiver = Receiver()
    receiver.opened(0)
    out = [f for s in slices for f in receiver.slice(0, s, 0.0)]
    assert out == [frame]


@settings(deadline=None, max_examples=150)
@given(frames())
def test_fallback_roundtrip(frame: Frame) -> None:
    """PROTOCOL section 5: "A link falls back to control messages" that say the same frame, through
    BinaryPack.
    """
    said = fallback.to_map(frame)
    assert None not in said.values()
    assert fallback.is_frame(said)
    assert fallback.from_map(unpack(pack(said))) == frame


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=120), st.booleans())
def test_random_bytes_are_ignored(data: bytes, magic: bool) -> None:
    """PROTOCOL section 5, receiving: what is no slice is ignored, whatever it is."""
    found = decode(b"SW" + data if magic else data)
    assert found is None or found.index < found.count


def patched(data: bytes, at: int, form: str, value: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(form, out, at, value)
    return bytes(out)


def test_bad_headers() -> None:
    """PROTOCOL section 5, receiving: "whose index is out of range, with an unknown kind or encoding"."""
    frame = Frame(Kind.HIDDEN_B, 0, 2, b"x" * (ROOM + 8))
    first, last = encode(frame, 7)
    assert decode(first)
    assert decode(last)
    bad = [
        patched(first, 0, ">H", 0x5358),
        patched(first, 2, "B", 4),
        patched(first, 4, ">I", 0),
        patched(first, 14, ">H", 2),
        patched(first, 14, ">H", 1),
        patched(first, 16, ">H", 1),
        patched(first, 16, ">H", 3),
        patched(first, 18, "B", 3),
        patched(first, 20, ">I", ROOM),
        patched(last, 20, ">I", ROOM + 7),
        patched(last, 14, ">H", 0),
        first[:-1],
        last + b"x",
        last[:-1],
        first[:HEADER],
        b"",
        patched(first, 20, ">I", 2**32 - 1),
    ]
    assert [decode(data) for data in bad] == [None] * len(bad)
    assert decode(patched(first, 18, "B", 0xFA))  # probe, last and a known encoding


def test_header_field_by_field() -> None:
    """PROTOCOL section 5, the header: "`0x5357`"; "kind: 0 `ai-hidden`"; "flags: bit 0 `spec`";
    "frame id on this link"; "position (`pos`"; "columns `n`"; "slice index, slice count"; "bits 0–2";
    "epoch, echoed on returns"; "payload bytes of the whole frame"; "`sv` save as slot"; "`dp`: drop slots".
    """
    whole = Frame(Kind.HIDDEN_B, 0x01020304, 17, b"x" * (ROOM + 1), Encoding.F32, spec=True, rb=4)
    frame = replace(whole, sv=0x0A0B, ld=0x0C0D, dp=(0x0E0F, 0x1011), epoch=200, last=True, probe=9)
    head = encode(frame, 0x11223344)[1]
    fields = (">H", 0), ("B", 2), ("B", 3), (">I", 4), (">I", 8), (">H", 12), (">H", 14), (">H", 16)
    later = ("B", 18), ("B", 19), (">I", 20), (">H", 24), (">H", 26), (">H", 28), (">H", 30)
    got = [struct.unpack_from(form, head, at)[0] for form, at in fields + later]
    assert got[:8] == [0x5357, 1, 0b10101, 0x11223344, 0x01020304, 17, 1, 2]
    assert got[8:] == [0x9A, 200, ROOM + 1, 0x0A0B, 0x0C0D, 0x0E0F, 0x1011]


def test_edges() -> None:
    """PROTOCOL section 5: 4,568 bytes of payload a slice; flags carry columns 0 to 62."""
    assert [count_of(n) for n in (1, ROOM, ROOM + 1, 2 * ROOM)] == [1, 1, 2, 2]
    assert len(encode(Frame(Kind.HIDDEN, 0, 1, b"x" * ROOM), 1)) == 1
    assert encode(Frame(Kind.HIDDEN, 0, 1, b"x", rb=62), 1)[0][3] == 0xFC
    assert encode(Frame(Kind.HIDDEN, 0, 1, b"x", rb=0, spec=True, reset=True), 1)[0][3] == 7


FRAME = Frame(Kind.HIDDEN_B, 5, 2, b"12345678")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"payload": b""}, "payload"),
        ({"rb": 63}, "rb"),
        ({"rb": -1}, "rb"),
        ({"n": 0}, "n"),
        ({"kind": Kind.HIDDEN}, "n"),
        ({"sv": 65536}, "slots"),
        ({"dp": (1, 2, 3)}, "slots"),
        ({"dp": (0xFFFF,), "sv": 1}, "dp"),
        ({"dp": (0xFFFF, 2)}, "dp"),
        ({"dp": (0, 2)}, "dp"),
        ({"epoch": 256}, "epoch"),
        ({"probe": 16}, "probe"),
        ({"pos": -1}, "pos"),
        ({"kind": Kind.RET_B, "sv": 1}, "control on a return"),
        ({"kind": Kind.RET_B, "rb": 0}, "control on a return"),
    ],
)
def test_what_the_wire_cannot_carry(change: dict[str, Any], word: str) -> None:
    """PROTOCOL section 5: a mistake of ours is found before it travels, and named."""
    with pytest.raises(ValueError, match=word):
        encode(replace(FRAME, **change), 1)
    with pytest.raises(ValueError, match=word):
        fallback.to_map(replace(FRAME, **change))


def test_ids_of_the_header() -> None:
    """PROTOCOL section 5: "frame id on this link and direction, from 1"."""
    for id in (0, -1, LAST_ID + 1):
        with pytest.raises(ValueError, match="id"):
            encode(FRAME, id)


def test_a_return_carries_no_control() -> None:
    """PROTOCOL section 5: "a ``ret`` frame carries none": what one claims is not believed."""
    (data,) = encode(Frame(Kind.RET, 3, 1, b"ab"), 1)
    data = patched(patched(data, 3, "B", 0xFF), 24, ">I", 0x00050006)
    receiver = Receiver()
    receiver.opened(0)
    assert receiver.slice(0, data, 0.0) == [Frame(Kind.RET, 3, 1, b"ab")]


def test_payload_size() -> None:
    """PROTOCOL section 5: encoding 0 is f16 or f32 "by size; any other size is refused"."""
    dim = 4
    f16 = Frame(Kind.HIDDEN_B, 0, 3, b"x" * 24)
    assert check_payload(f16, dim) is f16
    f32 = replace(f16, payload=b"x" * 48)
    assert check_payload(f32, dim) == replace(f32, enc=Encoding.F32)
    for enc, size in ((Encoding.BF16, 24), (Encoding.F32, 48)):
        frame = replace(f16, enc=enc, payload=b"x" * size)
        assert check_payload(frame, dim) is frame
    for frame in (
        replace(f16, payload=b"x" * 23),
        replace(f16, payload=b"x" * 96),
        replace(f16, enc=Encoding.BF16, payload=b"x" * 48),
        replace(f16, enc=Encoding.F32, payload=b"x" * 24),
        replace(f16, kind=Kind.HIDDEN, payload=b"x" * 24),
    ):
        with pytest.raises(FrameRefused):
            check_payload(frame, dim)


@pytest.mark.parametrize(
    "change",
    [
        {"t": "ai-token"},
        {"t": None},
        {"basePos": None},
        {"basePos": 2**32},
        {"n": 0},
        {"n": "2"},
        {"data": "text"},
        {"data": b""},
        {"enc": 3},
        {"enc": -1},
        {"rb": 63},
        {"rb": [1]},
        {"dp": [1, 2, 3]},
        {"dp": 5},
        {"dp": ["5"]},
        {"sv": 70_000},
        {"epoch": 256},
        {"probe": 16},
        {"data": b"x" * 9, "n": 0.5},
    ],
    ids=str,
)
def test_bad_fallback_messages(change: dict[str, Any]) -> None:
    """PROTOCOL section 5: a frame as a message is a peer's word too: typed, bounded, or dropped."""
    good = fallback.to_map(FRAME)
    assert fallback.from_map(good) == FRAME
    assert fallback.from_map(good | change) is None


@settings(deadline=None, max_examples=200)
@given(
    st.dictionaries(
        st.sampled_from(
            ["pos", "basePos", "n", "enc", "data", "spec", "rb", "sv", "ld", "dp", "epoch", "probe"]
        ),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.binary()
        | st.lists(st.integers())
        | st.text(),
    ),
    st.sampled_from(sorted(fallback.KINDS)),
)
def test_any_fallback_message(fields: dict[str, Any], t: str) -> None:
    """PROTOCOL section 5: any map is a frame or nothing, and what is a frame can be sent again."""
    frame = fallback.from_map(fields | {"t": t})
    if frame is not None:
        assert len(frame.payload) <= MAX_PAYLOAD
        assert fallback.from_map(fallback.to_map(frame)) == frame


def test_optional_fields_of_a_message() -> None:
    """PROTOCOL section 5: "absent 0"; flags 1 or absent; a double from a browser is a number."""
    frame = fallback.from_map({"t": "ai-hidden", "pos": 3.0, "n": 1, "data": b"ab"})
    assert frame == Frame(Kind.HIDDEN, 3, 1, b"ab")
    assert fallback.to_map(frame) == {"t": "ai-hidden", "pos": 3, "n": 1, "data": b"ab"}
    assert not fallback.is_frame({"t": "ping"})
    assert not fallback.is_frame([1])


@pytest.mark.parametrize(
    ("good", "at", "form", "value"),
    [
        (Frame(Kind.HIDDEN, 0, 1, b"xx"), 12, ">H", 2),
        (Frame(Kind.RET, 0, 1, b"xx"), 12, ">H", 300),
        (Frame(Kind.HIDDEN, 0, 1, b"xx"), 28, ">I", 0x0005FFFF),
        (Frame(Kind.HIDDEN_B, 0, 3, b"xx", dp=(0xFFFF,)), 24, ">H", 1),
    ],
    ids=["columns in a kind of one", "the same on a return", "all as second drop", "drop all and save"],
)
def test_a_frame_that_no_device_may_send(good: Frame, at: int, form: str, value: int) -> None:
    """PROTOCOL section 5: "With `dp 0xffff` no `sv`", …: such a frame is dropped in its turn: nothing waits
    for it, nothing passes it, and nobody forwards what its own wire could not carry.
    """
    receiver = Receiver()
    receiver.opened(0), receiver.opened(1)
    (bad,) = encode(good, 2)
    assert receiver.slice(0, patched(bad, at, form, value), 0.0) == []
    (first,) = encode(good, 1)
    assert receiver.slice(0, first, 0.0) == [good]
    assert (receiver.refused, receiver.skipped, receiver.due) == (1, 0, 3)
    (third,) = encode(good, 3)
    assert receiver.slice(0, third, 0.0) == [good]


@settings(deadline=None, max_examples=500)
@given(frames(max_payload=64), st.binary(min_size=32, max_size=32), st.sets(st.integers(2, 31)))
def test_what_is_handed_over_can_be_sent_on(frame: Frame, noise: bytes, where: set[int]) -> None:
    """PROTOCOL section 5: whatever a header says, a frame that came out of it goes into a wire or a message
    without an error; a worker forwards what it gets.
    """
    (data,) = encode(frame, 1)
    torn = bytearray(data)
    for at in where - {4, 5, 6, 7}:
        torn[at] = noise[at]
    receiver = Receiver()
    receiver.opened(0)
    for found in receiver.slice(0, torn, 0.0):
        encode(found, 1)
        assert fallback.from_map(fallback.to_map(found)) == found
