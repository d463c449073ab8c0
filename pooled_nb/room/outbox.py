"""What the host's room needs of the mesh to be heard."""

from __future__ import annotations

from typing import Protocol

from pooled_nb.mesh.messages import Message


class Outbox(Protocol):
    """Control messages out; the mesh is one."""

    def send(self, to: str, message: Message) -> bool:
        """To one device; False where there is no link."""

    def broadcast(self, message: Message, *, but: str | None = None) -> None:
        """To all devices."""
