"""The real network: PeerJS signaling and a WebRTC stack behind `network.Network`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pooled_nb.errors import RoomError, SignalingDown
from pooled_nb.mesh import specs, stacks
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.endpoint import RtcEndpoint
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.peerjs import shapes
from pooled_nb.mesh.peerjs.session import IdRefused
from pooled_nb.mesh.stack import Stack

DRAWS = 3
"""Ids that a device which needs no certain one draws, when a server says that they are taken."""


class RtcNetwork:
    """See `network.Network`.

    Parameters
    ----------
    clock
        The mesh loop's clock.
    ice
        How every connection of its endpoints looks for a path; or what says so of the server that answered,
        called with its base URL (``ws://127.0.0.1:9000/``) for each new connection. A list may name near and
        far servers, and only the one that answered tells where the others of the room are.
    ready
        Called with the same URL once a server answered, and waited for: what ``ice`` has to ask for first.
    transport
        Which WebRTC stack its connections run on: one of `stacks.NAMES`.

    Raises
    ------
    BadOption
        There is no such stack, or it is not installed.
    """

    def __init__(
        self,
        clock: Clock,
        ice: IcePolicy | Callable[[str], IcePolicy],
        ready: Callable[[str], Awaitable[None]] | None = None,
        *,
        transport: str = stacks.DEFAULT,
    ) -> None:
        stacks.check(transport)
        self._clock = clock
        self._ice, self._ready = ice, ready
        self._transport = transport
        self._stack: Stack | None = None

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
        stack = await self._loaded()
        if id is not None:
            return await self._register(id, parsed, token, stack)
        taken: IdRefused | None = None
        for _ in range(DRAWS):
            # A drawn id is taken by chance once in the life of the universe, or by the word of a bad server.
            try:
                return await self._register(shapes.random_id(), parsed, token, stack)
            except IdRefused as error:
                taken = error
        assert taken is not None
        raise RoomError(taken.what, "Name another signaling server (--signal, signal=).")

    async def _loaded(self) -> Stack:
        if self._stack is None:
            # That takes some 400 ms, once in a process: not on the loop, where another room may be.
            self._stack = await asyncio.get_running_loop().run_in_executor(None, stacks.get, self._transport)
        await self._stack.settle()
        return self._stack

    async def _register(
        self, id: str, parsed: list[specs.Server], token: str | None, stack: Stack
    ) -> RtcEndpoint:
        resumes = token is not None
        token = token or shapes.random_token()
        ready = self._ready
        endpoint = RtcEndpoint(
            id=id,
            token=token,
            resumes=resumes,
            clock=self._clock,
            ice=lambda index: self._policy(parsed[index].base),
            ready=None if ready is None else lambda index: ready(parsed[index].base),
            stack=stack,
            urls=[server.socket_url(id, token) for server in parsed],
            shown=[server.shown for server in parsed],
        )
        await endpoint.register()
        return endpoint

    def _policy(self, base: str) -> IcePolicy:
        return self._ice if isinstance(self._ice, IcePolicy) else self._ice(base)
