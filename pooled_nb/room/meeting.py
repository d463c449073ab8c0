"""Where the devices of a room meet: signaling servers of hosts and joiners (PROTOCOL section 2)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pooled_nb.errors import PooledError, RoomNotFound, SignalingDown
from pooled_nb.mesh import codes, lan, runtime, specs
from pooled_nb.mesh.addresses import own_addresses
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.wiresettings import DEFAULT, ONE_MACHINE, WireSettings
from pooled_nb.room.core import unheard
from pooled_nb.room.keeping import SavedGate
from pooled_nb.room.ways import Ways, is_local

LOCAL = "local"


class Opens(Protocol):
    """What of a `HostRoom` is asked here."""

    async def open(self, servers: list[str], token: str | None = None) -> None:
        """Register the room's code."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a host registers.

    Attributes
    ----------
    specs
        Servers, tried in order.
    server, url
        The one that is embedded in this process, and its place among them; None and empty: there is none.
    """

    specs: list[str]
    server: SignalServer | None = None
    url: str = ""

    async def close(self) -> None:
        """Stop the embedded server."""
        if self.server is not None:
            await self.server.close()


async def place_of(servers: Sequence[str], *, to_lan: bool, saved: SavedGate | None) -> Place:
    """The specs to register at; ``local`` becomes a server of our own.

    Parameters
    ----------
    to_lan
        It is for the local network, not for this machine alone.
    saved
        The same room before its process was killed. Its embedded server ended with it, but where the port
        is still free the new one takes it: links that were given out, and whoever typed the address, still
        lead there.
    """
    specs_ = list(servers) or [LOCAL]
    if LOCAL not in specs_:
        return Place(specs_)
    host = "0.0.0.0" if to_lan else "127.0.0.1"
    port = specs.parse(saved.server).port if saved is not None and saved.embedded else 0
    try:
        server = await SignalServer.start(host=host, port=port)
    except SignalingDown:
        if not port:
            raise
        server = await SignalServer.start(host=host)
    url = f"ws://{lan_address()}:{server.port}/" if to_lan else server.url
    return Place([url if s == LOCAL else s for s in specs_], server, url)


async def register(room: Opens, place: Place, saved: SavedGate | None) -> bool:
    """Open the room at the first server that answers; whether it took back the code it had there.

    The saved token takes the id over at once, where a server would hold it for who is gone. It goes to its
    own server and to no other: there it would let strangers take the room's place.

    Raises
    ------
    SignalingDown, RoomError
        See `Mesh.create`.
    """
    others = place.specs
    if saved is not None and saved.server in place.specs:
        others = [spec for spec in place.specs if spec != saved.server]
        try:
            await room.open([saved.server], saved.token)
        except SignalingDown:
            if not others:
                raise
        else:
            return True
    await room.open(others)
    return False


async def where(
    invite: codes.Invite,
    servers: Sequence[str] | None,
    *,
    on_lan: bool = False,
    tell: Callable[[str], None] = unheard,
) -> tuple[list[str], str | None]:
    """Signaling servers to try for a code, and the model's folder where the room is one of this machine.

    This machine's own rooms first, then the link's server, then what the local network says (``on_lan``),
    then the list. ``tell``: hears why the network could not be asked, where there is somewhere else to look.

    Raises
    ------
    RoomNotFound
        There is nowhere to look.
    BadOption, SignalingDown
        The local network cannot be asked, and there is nowhere else to look.
    """
    here = runtime.find(invite.code)
    if servers is None:
        servers = [s.strip() for s in os.environ.get("POOLED_SIGNAL", "").split(",") if s.strip()]
    listed = [invite.signal] if invite.signal else []
    named = [s for s in servers if s != LOCAL]
    near: list[str] = []
    if on_lan and not here:
        try:
            near = await lan.find(invite.code)
        except PooledError as error:
            if not listed and not named:
                raise
            tell(str(error))
    found = [*([here.server] if here else []), *listed, *near, *named]
    if not found:
        place = "on this machine or its network" if on_lan else "on this machine"
        raise RoomNotFound(
            f"No room {codes.shown(invite.code)} is open {place}.",
            "Check the code; for a room on another machine add --signal (or POOLED_SIGNAL) with the "
            "server that its host shows.",
        )
    return list(dict.fromkeys(found)), here.folder if here else None


async def announce(code: str, place: Place) -> tuple[lan.Announcement | None, str]:
    """Say on the local network that the room is at the embedded server; or why not, for the person."""
    if place.server is None:
        return None, ""  # a server with an address of its own is found by that
    try:
        return await lan.announce(code, place.url), ""
    except PooledError as error:
        return None, f"The room is not announced on the local network. {error}"


def lan_address() -> str:
    """This machine's address on its network; loopback where it has none."""
    return next(iter(own_addresses()), "127.0.0.1")


def wiring(servers: Sequence[str], ways: Ways | None = None) -> WireSettings:
    """How the links of a room at these servers carry frames, or as was set."""
    fits = ONE_MACHINE if all(is_local(specs.parse(s).base) for s in servers) else DEFAULT
    return fits if ways is None else ways.wiring(fits)
