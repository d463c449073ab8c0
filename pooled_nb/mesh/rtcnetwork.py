"""The real network: PeerJS signaling and aiortc behind `network.Network`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pooled_nb.errors import RoomError, SignalingDown
from pooled_nb.mesh import specs
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.endpoint import RtcEndpoint
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.peerjs import shapes


class RtcNetwork:
    """See `network.Network`.

    Parameters
    ----------
    clock
        The mesh loop's clock.
    ice
        How every connection of its endpoints looks for a path; or what says so of the server that answered,
        called with its base URL (``ws://127.0.0.1:9000/``). A list may name near and far servers, and only
        the one that answered tells where the others of the room are.
    """

    def __init__(self, clock: Clock, ice: IcePolicy | Callable[[str], IcePolicy]) -> None:
        self._clock = clock
        self._ice = ice

    async def register(
        self, id: str | None, servers: Sequence[str], *, token: str | None = None
    ) -> RtcEndpoint:
        """See `network.Network.register`."""
        if id is not None and not shapes.id_allowed(id):
            raise RoomError(f"{id!r} is no id that a signaling server takes.", "Use letters and digits only.")
        # ``local`` alone names no port: whoever hosts, or read the runtime file, puts the server's URL there.
        parsed = [server for server in map(specs.parse, servers) if server.kind != "local"]
        if not parsed:
            raise SignalingDown(
                "There is no signaling server to ask.",
                "Start the room on this machine, or name a server (--signal, signal=).",
            )
        id = id or shapes.random_id()
        resumes = token is not None
        token = token or shapes.random_token()
        endpoint = RtcEndpoint(
            id=id,
            token=token,
            resumes=resumes,
            clock=self._clock,
            ice=lambda index: self._policy(parsed[index].base),
            urls=[server.socket_url(id, token) for server in parsed],
            shown=[server.shown for server in parsed],
        )
        await endpoint.register()
        return endpoint

    def _policy(self, base: str) -> IcePolicy:
        return self._ice if isinstance(self._ice, IcePolicy) else self._ice(base)
