"""A frame as slices, and slices as a frame: the 32-byte header of PROTOCOL section 5."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from pooled_nb.errors import FrameRefused
from pooled_nb.mesh.frame import Encoding, Frame, Kind

MAGIC = 0x5357
HEADER = 32
SLICE = 4_600
"""Bytes of one data-channel message at most."""
ROOM = SLICE - HEADER
"""Payload bytes of every slice but a frame's last."""
LAST_ID = 2**32 - 1
MAX_PAYLOAD = 1 << 26
"""Bytes of one frame: 256 columns of 65,536 numbers in 4 bytes. What claims more is no frame."""
ALL_SLOTS = 0xFFFF
"""First of ``dp``: drop all."""

_HEAD = struct.Struct(">HBBIIHHHBBIHHHH")
_BASICS = struct.Struct(">HBxI4xHHHBxI8x")
"""Of it, what every slice is looked at for: the rest is read once a frame (`join`)."""
assert _HEAD.size == _BASICS.size == HEADER
_INDEX = 14

_KINDS, _ENCODINGS = tuple(Kind), tuple(Encoding)
"""By their numbers on the wire."""
_SPEC, _RESET = 1, 2
_LAST = 8


@dataclass(slots=True)  # not frozen, which takes twice as long to make
class Slice:
    """One data-channel message of a frame, read and found consistent in itself.

    Attributes
    ----------
    id
        Frame id on this link and direction, from 1.
    index, count
        Which of how many.
    total
        Payload bytes of the whole frame.
    head
        The header with its index blanked: the same bytes on every slice of the frame.
    data
        This slice's payload.
    """

    id: int
    index: int
    count: int
    total: int
    head: bytes
    data: bytes


def count_of(payload: int) -> int:
    """Slices of a frame with that many payload bytes."""
    return -(-payload // ROOM)


def encode(frame: Frame, id: int) -> list[bytes]:
    """A frame as its slices.

    Parameters
    ----------
    frame
        At least one payload byte.
    id
        1 to 2³² − 1.

    Raises
    ------
    ValueError
        A field that the header cannot carry, or that this kind must not: a mistake of the caller.
    """
    check(frame, id)
    return cut(frame, id)


def cut(frame: Frame, id: int) -> list[bytes]:
    """See `encode`, of a frame that `check` found right."""
    flags = _SPEC * frame.spec | _RESET * frame.reset | (0 if frame.rb is None else frame.rb + 1) << 2
    traits = frame.enc | _LAST * frame.last | frame.probe << 4
    dp0, dp1 = (*frame.dp, 0, 0)[:2] if frame.dp else (0, 0)
    payload = frame.payload
    total = len(payload)
    count = count_of(total)
    head = _HEAD.pack(
        *(MAGIC, frame.kind, flags, id, frame.pos, frame.n, 0, count, traits),
        *(frame.epoch, total, frame.sv, frame.ld, dp0, dp1),
    )
    if count == 1:
        return [head + payload]
    before, after = head[:_INDEX], head[_INDEX + 2 :]
    return [
        b"%b%b%b%b" % (before, index.to_bytes(2, "big"), after, payload[index * ROOM : (index + 1) * ROOM])
        for index in range(count)
    ]


def decode(data: bytes | bytearray | memoryview) -> Slice | None:
    """One data-channel message as a slice; None where it must be ignored (PROTOCOL section 5, receiving).

    That is: no magic, an unknown kind or encoding, an index out of range, or a size that is not what the
    header implies.
    """
    if not HEADER < len(data) <= SLICE:
        return None
    raw = bytes(data)
    magic, kind, id, n, index, count, traits, total = _BASICS.unpack_from(raw)
    if magic != MAGIC or kind >= len(_KINDS) or traits & 7 >= len(_ENCODINGS) or id == 0 or n == 0:
        return None
    if not 0 < total <= MAX_PAYLOAD or count != -(-total // ROOM) or index >= count:
        return None
    if len(raw) - HEADER != (ROOM if index < count - 1 else total - ROOM * (count - 1)):
        return None
    head = raw[:HEADER] if index == 0 else raw[:_INDEX] + b"\0\0" + raw[_INDEX + 2 : HEADER]
    return Slice(id, index, count, total, head, raw[HEADER:])


def id_of(data: bytes) -> int:
    """Frame id of a slice that `encode` made."""
    return int.from_bytes(data[4:8], "big")


def join(head: bytes, payload: bytes) -> Frame | None:
    """The frame that a `Slice.head` and the payload of all its slices say.

    None where that is nothing that a device may send (`check`): columns in a kind of one, drops of all
    beside a save, ``0xffff`` second. Each slice of it was right, so it is no gap; but a device that forwards
    it would fail where it stands, and the mistake would look like that device's.
    """
    _m, kind, flags, _id, pos, n, _i, _c, traits, epoch, _total, sv, ld, dp0, dp1 = _HEAD.unpack(head)
    if kind >= Kind.RET:  # carries no control (PROTOCOL section 5)
        flags = sv = ld = dp0 = dp1 = 0
    frame = Frame(
        kind=_KINDS[kind],
        pos=pos,
        n=n,
        payload=payload,
        enc=_ENCODINGS[traits & 7],
        spec=bool(flags & _SPEC),
        reset=bool(flags & _RESET),
        rb=(flags >> 2) - 1 if flags >> 2 else None,
        sv=sv,
        ld=ld,
        dp=(ALL_SLOTS,) if dp0 == ALL_SLOTS else tuple(filter(None, (dp0, dp1))),
        epoch=epoch,
        last=bool(traits & _LAST),
        probe=traits >> 4,
    )
    return None if _wrong(frame, 1) else frame


def _is_plain(frame: Frame) -> bool:
    """Whether it has one column and no control, as most frames, and so can have nothing wrong in those."""
    return (
        frame.n == 1
        and frame.rb is None
        and not (frame.spec or frame.reset or frame.sv or frame.ld or frame.dp)
        and 0 <= frame.pos < 2**32
        and 0 <= frame.epoch <= 255
        and 0 <= frame.probe <= 15
    )


def check_payload(frame: Frame, dim: int) -> Frame:
    """The frame, once its payload is ``n`` hidden states of ``dim`` numbers.

    With encoding 0 a payload of twice the size is f32, as older peers send it: the frame returned says so.

    Raises
    ------
    FrameRefused
        Any other size, or a kind of one column with several.
    """
    if not frame.kind.is_batch and frame.n != 1:
        raise FrameRefused(
            f"A frame of one column came with {frame.n}.", "The answer fails; update the device that sent it."
        )
    numbers = frame.n * dim
    if len(frame.payload) == numbers * frame.enc.width:
        return frame
    if frame.enc is Encoding.F16 and len(frame.payload) == numbers * Encoding.F32.width:
        return replace(frame, enc=Encoding.F32)
    raise FrameRefused(
        f"A frame of {frame.n} columns has {len(frame.payload)} bytes, not {numbers * frame.enc.width}.",
        "The answer fails; check that every device loaded the same model.",
    )


def check(frame: Frame, id: int = 1) -> None:
    """Raise ValueError, naming the fields, where the wire cannot carry a frame."""
    if bad := _wrong(frame, id):
        raise ValueError(f"a frame that the wire cannot carry: {', '.join(bad)}")


def _wrong(frame: Frame, id: int) -> list[str]:
    """The fields that the wire cannot carry."""
    if _is_plain(frame) and 0 < len(frame.payload) <= MAX_PAYLOAD and 1 <= id <= LAST_ID:
        return []
    slots = (frame.sv, frame.ld, *frame.dp)
    control = frame.spec or frame.reset or frame.rb is not None or any(slots)
    wrong = {
        "id": not 1 <= id <= LAST_ID,
        "payload": not 0 < len(frame.payload) <= MAX_PAYLOAD,
        "pos": not 0 <= frame.pos < 2**32,
        "n": not 1 <= frame.n < 2**16 or (frame.n > 1 and not frame.kind.is_batch),
        "rb": frame.rb is not None and not 0 <= frame.rb <= 62,
        "slots": not all(0 <= slot <= ALL_SLOTS for slot in slots) or len(frame.dp) > 2,
        "dp": 0 in frame.dp or (ALL_SLOTS in frame.dp and (frame.dp != (ALL_SLOTS,) or frame.sv != 0)),
        "epoch": not 0 <= frame.epoch <= 255,
        "probe": not 0 <= frame.probe <= 15,
        "control on a return": frame.kind.is_return and control,
    }
    return [name for name, is_wrong in wrong.items() if is_wrong]
