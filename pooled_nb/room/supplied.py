"""What a room's own device fetches of the model: the part of `RoomCore` that both kinds of rooms share."""

from __future__ import annotations

from pooled_nb.room.weights.supply import Supply


class Supplied:
    """Its person's word about downloads (PROTOCOL section 6)."""

    _supply: Supply

    async def allow_download(self, *, yes: bool) -> None:
        """See `RoomCore.allow_download`."""
        self._supply.consent.answer(yes=yes)
