"""This device at its signaling server: how it dials, is dialed, and what people hear of outages."""

from __future__ import annotations

from collections.abc import Callable

from pooled_nb.mesh.arrivals import Arrivals
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.entering import left_early
from pooled_nb.mesh.listener import Guarded
from pooled_nb.mesh.network import Connection, Endpoint
from pooled_nb.mesh.outage import Outage


class Registration:
    """One endpoint at a time, or none. Signaling only introduces devices: a room goes on without it.

    Attributes
    ----------
    endpoint
        The one that this device has now.
    on_signaling
        Called with False when signaling is lost, with True when it is back.
    server, token
        Of the newest one; they outlive it. The token is a secret.
    """

    def __init__(self, clock: Clock, listener: Guarded) -> None:
        self.endpoint: Endpoint | None = None
        self.server = self.token = ""
        self.on_signaling: Callable[[bool], None] = lambda up: None
        self._clock, self._listener = clock, listener
        self._outage = Outage()

    @property
    def is_up(self) -> bool:
        """Whether the signaling server is reachable now: new devices can find this one."""
        return self.endpoint is not None and not self._outage.down

    def take(
        self,
        endpoint: Endpoint,
        arrivals: Arrivals,
    ) -> None:
        """Be reachable over this endpoint from now on."""
        self.endpoint, self.server, self.token = endpoint, endpoint.server, endpoint.token
        if self._outage.down:  # of the endpoint before
            self._on_outage(False)
        endpoint.line_of, endpoint.has_room = arrivals.line_of, arrivals.has_room
        endpoint.on_connection = arrivals.take
        endpoint.on_outage = self._on_outage

    async def drop(self) -> None:
        """Leave signaling; links stay."""
        endpoint, self.endpoint = self.endpoint, None
        if endpoint is not None:
            endpoint.on_connection = endpoint.on_outage = None
            await endpoint.close()

    async def dial(self, to: str, *, label: str = "") -> Connection:
        """Dial a device. Raises as `Endpoint.dial`, and where this device has left signaling."""
        if self.endpoint is None:
            raise left_early()
        return await self.endpoint.dial(to, label=label)

    def hurry(self) -> bool:
        """Somebody is to be dialed: whether signaling is up; where it is not, it is tried again at once."""
        if self.endpoint is not None and self._outage.down:
            self.endpoint.hurry()
        return self.is_up

    def tick(self, now: float) -> None:
        """Time passes."""
        self._tell(self._outage.tick(now))

    def _on_outage(self, down: bool) -> None:
        self._tell(self._outage.changed(down, self._clock.now()))
        self.on_signaling(not down)

    def _tell(self, down: bool | None) -> None:
        if down is not None:
            self._listener.on_notice(
                "The signaling server does not answer. The room goes on; devices can join when it is back."
                if down
                else "The signaling server is back."
            )
