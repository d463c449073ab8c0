"""A device that sends wrong frames: its room's code is the real one, and so is everything below it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pooled_nb.mesh.frame import Frame, Kind

if TYPE_CHECKING:
    from pooled_nb.mesh.mesh import Mesh


def _shape(frame: Frame) -> list[Frame]:
    return [replace(frame, payload=bytes(frame.payload)[:-4])]


def _position(frame: Frame) -> list[Frame]:
    return [replace(frame, pos=frame.pos + 1)]


def _nan(frame: Frame) -> list[Frame]:
    return [replace(frame, payload=struct.pack("<f", float("nan")) + bytes(frame.payload)[4:])]


def _columns(frame: Frame) -> list[Frame]:
    payload = bytes(frame.payload)
    many = frame.kind if frame.n > 1 else Kind.RET_B if frame.kind.is_return else Kind.HIDDEN_B
    return [replace(frame, kind=many, n=frame.n + 1, payload=payload + payload[: len(payload) // frame.n])]


def _twice(frame: Frame) -> list[Frame]:
    return [frame, frame]


def _nothing(frame: Frame) -> list[Frame]:
    return []


def _stale(frame: Frame) -> list[Frame]:
    """As of an earlier deal, before the right one: it must not be taken for it."""
    wrong = replace(frame, epoch=(frame.epoch - 1) % 256, payload=bytes(len(frame.payload)))
    return [wrong, frame]


WAYS: dict[str, Callable[[Frame], list[Frame]]] = {
    "shape": _shape,
    "position": _position,
    "nan": _nan,
    "columns": _columns,
    "twice": _twice,
    "nothing": _nothing,
    "stale": _stale,
}
"""What can be wrong with a frame."""


class Tamper:
    """Stands between a device's room and its mesh."""

    def __init__(self) -> None:
        self.next: list[str] = []
        """What is wrong with the next frames, each of `WAYS`; empty: nothing."""

    def before(self, mesh: Mesh) -> None:
        """Tamper with what goes out over this mesh."""
        real = mesh.send_frame

        def send_frame(to: str, frame: Frame) -> bool:
            if not self.next:
                return real(to, frame)
            sent = [real(to, wrong) for wrong in WAYS[self.next.pop(0)](frame)]
            return all(sent)

        mesh.send_frame = send_frame  # type: ignore[method-assign]  # as its room uses it
