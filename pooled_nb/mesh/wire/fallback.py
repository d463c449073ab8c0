"""Frames as control messages, for a link whose wire channels are all closed (PROTOCOL section 5)."""

from __future__ import annotations

from typing import Any

from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.wire.slices import ALL_SLOTS, check

KINDS = {
    "ai-hidden": Kind.HIDDEN,
    "ai-hidden-b": Kind.HIDDEN_B,
    "ai-hiddenret": Kind.RET,
    "ai-hiddenret-b": Kind.RET_B,
}
"""``t`` of a frame's message."""
_NAMES = {kind: t for t, kind in KINDS.items()}


def is_frame(value: object) -> bool:
    """Whether a control message is a frame, good or bad: none of the registered messages."""
    t = value.get("t") if isinstance(value, dict) else None
    return isinstance(t, str) and t in KINDS


def to_map(frame: Frame) -> dict[str, Any]:
    """The map that says a frame: optional fields absent, flags 1.

    Raises
    ------
    ValueError
        A field that the wire could not carry either.
    """
    check(frame)
    out: dict[str, Any] = {
        "t": _NAMES[frame.kind],
        _pos(frame.kind): frame.pos,
        "n": frame.n,
        "data": frame.payload,
    }
    optional = {
        "enc": int(frame.enc),
        "spec": int(frame.spec),
        "reset": int(frame.reset),
        "sv": frame.sv,
        "ld": frame.ld,
        "dp": list(frame.dp),
        "epoch": frame.epoch,
        "last": int(frame.last),
        "probe": frame.probe,
    }
    out |= {key: value for key, value in optional.items() if value}
    if frame.rb is not None:
        out["rb"] = frame.rb
    return out


def from_map(value: object) -> Frame | None:
    """The frame that a peer's map says; None where it must be ignored.

    An optional field of the wrong type or out of range counts as absent (PROTOCOL section 3), except what
    decides how the payload is read or which state it meets: a frame with a bad one of these is dropped.
    """
    if not isinstance(value, dict) or not is_frame(value):
        return None
    kind = KINDS[value["t"]]
    pos, n, data = value.get(_pos(kind)), _int(value.get("n", 1)), value.get("data")
    pos, enc, rb = _int(pos), _int(value.get("enc", 0)), _int(value.get("rb", -1))
    slots = [_int(value.get("sv", 0)), _int(value.get("ld", 0))]
    dp = _slots(value.get("dp", []))
    epoch, probe = _int(value.get("epoch", 0)), _int(value.get("probe", 0))
    if pos is None or n is None or enc is None or rb is None or dp is None or epoch is None or probe is None:
        return None
    if slots[0] is None or slots[1] is None or not isinstance(data, bytes) or not 0 <= enc <= Encoding.F32:
        return None
    control = not kind.is_return
    frame = Frame(
        kind=kind,
        pos=pos,
        n=n,
        payload=data,
        enc=Encoding(enc),
        spec=control and bool(value.get("spec")),
        reset=control and bool(value.get("reset")),
        rb=rb if control and rb >= 0 else None,
        sv=slots[0] if control else 0,
        ld=slots[1] if control else 0,
        dp=dp if control else (),
        epoch=epoch,
        last=bool(value.get("last")),
        probe=probe,
    )
    try:
        check(frame)
    except ValueError:
        return None
    return frame


def _pos(kind: Kind) -> str:
    return "basePos" if kind.is_batch else "pos"


def _int(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else None


def _slots(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) > 2:
        return None
    found = [_int(slot) for slot in value]
    kept = tuple(slot for slot in found if slot is not None and slot != 0)
    if None in found or any(not 0 <= slot <= ALL_SLOTS for slot in kept):
        return None
    return (ALL_SLOTS,) if kept[:1] == (ALL_SLOTS,) else kept
