"""What only a host can do, as any other device answers it: in words (`RoomCore`)."""

from __future__ import annotations

from collections.abc import Callable

from pooled_nb.errors import NotReady
from pooled_nb.room.core import ChatSettings
from pooled_nb.room.doorfacts import GateChoices, Invite


class NotHost:
    """The part of `RoomCore` that a device which joined cannot do."""

    async def start(self, progress: Callable[[int, str], None] | None = None, *, fast: bool = False) -> None:
        """Only the host starts a room."""
        raise NotReady("Only the host starts the room.", "Ask the host to start it.")

    async def configure(self, settings: ChatSettings) -> None:
        """Only the host sets how the room answers."""
        raise NotReady("Only the host sets how the room answers.", "Ask the host, or say it with a question.")

    async def reset(self) -> None:
        """Only the host begins a new chat."""
        raise NotReady("Only the host begins a new chat.", "Ask the host.")

    async def allow(self, number: int) -> str:
        """Only the host lets devices in."""
        raise NotReady("Only the host lets devices in.", "Ask the host.")

    async def deny(self, number: int) -> str:
        """Only the host sends devices away."""
        raise NotReady("Only the host lets devices in.", "Ask the host.")

    async def kick(self, id: str) -> str:
        """Only the host throws devices out."""
        raise NotReady("Only the host takes devices out.", "Ask the host.")

    def invite(self) -> Invite:
        """Only the host has the link."""
        raise NotReady("Only the host has the invite link.", "Ask the host for it.")

    async def renew_invite(self) -> Invite:
        """Only the host has the link."""
        return self.invite()

    async def set_gate(self, choices: GateChoices) -> None:
        """Only the host says who comes in."""
        raise NotReady("Only the host says who comes in.", "Ask the host.")
