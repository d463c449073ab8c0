"""Every frame that the host sends to its chain, and every one that comes back."""

from __future__ import annotations

from pooled_nb.mesh.frame import Frame
from tests.room.rooms import Rooms


def tap(rooms: Rooms) -> tuple[list[Frame], list[Frame]]:
    """Lists that grow from now on: frames out, frames back."""
    sent: list[Frame] = []
    back: list[Frame] = []
    mesh = rooms.host.mesh
    send, on_frame = mesh.send_frame, rooms.host.on_frame

    def out(to: str, frame: Frame) -> bool:
        sent.append(frame)
        return send(to, frame)

    def came(sender: str, frame: Frame) -> None:
        back.append(frame)
        on_frame(sender, frame)

    mesh.send_frame = out  # type: ignore[method-assign]  # watched, and passed on
    rooms.host.on_frame = came  # type: ignore[method-assign]  # watched, and passed on
    return sent, back
