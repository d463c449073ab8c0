"""By which ways a room's connections go: the part of `RoomCore` that both kinds of rooms share."""

from __future__ import annotations

from collections.abc import Callable

from pooled_nb.errors import NotReady
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.room.doorfacts import NetworkChoice, NetworkFacts
from pooled_nb.room.ways import Ways


class Networking:
    """What a room knows and sets of STUN, relay and signaling (PROTOCOL section 2, ICE)."""

    mesh: Mesh
    on_change: Callable[[], None]
    _ways: Ways | None
    """None: over a network that has none to choose (the simulator's)."""

    async def set_network(self, choice: NetworkChoice) -> NetworkFacts:
        """See `RoomCore.set_network`."""
        if self._ways is None:
            raise NotReady("This room's network has no settings.", "Nothing has to be set.")
        await self._ways.choose(choice)
        self.on_change()
        return self.network

    @property
    def network(self) -> NetworkFacts:
        """As of `Status.network`."""
        if self._ways is None:
            return NetworkFacts(signaling=self.mesh.server, up=self.mesh.signaling_up)
        return self._ways.facts(self.mesh)

    async def close_ways(self) -> None:
        """The room is over: no relay's credentials are asked for any more."""
        if self._ways is not None:
            await self._ways.close()
