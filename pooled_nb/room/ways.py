"""By which ways this device reaches others: STUN, a relay, relay only (PROTOCOL section 2, ICE).

What a person chose for this room counts before what is remembered (`networkbox`), that before the
environment (``POOLED_TURN``, ``POOLED_STUN``, ``POOLED_RELAY_ONLY``), and a relay of the deployment
(`turnapi`) counts last. Asked for each new connection: what changed counts from the next one on. How frames
travel over it is the room's from its opening on (`wirechoice`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections.abc import Mapping
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from msgspec import structs

from pooled_nb.errors import BadOption
from pooled_nb.mesh import stacks, turn
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.ice import PUBLIC_STUN, IcePolicy, TurnServer
from pooled_nb.mesh.turnapi import Fetch, TurnApi
from pooled_nb.mesh.unseen import Unseen
from pooled_nb.mesh.wiresettings import DEFAULT, WireSettings
from pooled_nb.room import networkbox, wirechoice
from pooled_nb.room.doorfacts import NetworkChoice, NetworkFacts, RelayFrom, WireChoice
from pooled_nb.room.networkbox import NetworkBox

YES, NO = wirechoice.YES, ("", *wirechoice.NO)
_WAYS = ("turn", "stun", "relay_only")


class Signaled(Protocol):
    """What is asked of the mesh."""

    @property
    def server(self) -> str:
        """The signaling server that answered, as people know it."""

    @property
    def signaling_up(self) -> bool:
        """Whether it is reachable now."""


class Chosen(NamedTuple):
    """Settings of one source, read. None: it says nothing."""

    relay: TurnServer | None = None
    no_relay: bool = False
    """No relay at all, whatever another source says."""
    stun: tuple[str, ...] | None = None
    relay_only: bool | None = None


class Ways:
    """Which ways one device uses. Runs on the mesh loop.

    Parameters
    ----------
    choice
        What the person said for this room.
    env
        None: this process's environment.
    box
        What is remembered; None: read it.
    fetch
        How a deployment is asked; None: over HTTP.

    Raises
    ------
    BadOption
        The choice cannot be read, or what is said of the wire is not to be had. No text of it is repeated.
    """

    def __init__(
        self,
        clock: Clock,
        choice: NetworkChoice | None = None,
        *,
        env: Mapping[str, str] | None = None,
        box: NetworkBox | None = None,
        fetch: Fetch | None = None,
    ) -> None:
        self._clock, self._fetch = clock, fetch
        self._env = os.environ if env is None else env
        self._choice = choice or NetworkChoice()
        self._box = networkbox.read() if box is None else box
        self._environment: Chosen | None = None
        self._mine = _chosen(self._choice, self._box)
        self._wires = (*map(wirechoice.said, (self._choice, self._box)), wirechoice.from_env(self._env))
        wirechoice.check_transport(wirechoice.settled(DEFAULT, *self._wires).transport)
        self._fits = DEFAULT
        self._wire: WireChoice | None = None
        self._base = ""
        self._api: TurnApi | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False
        self._silent: dict[str, float] = {}
        self._choosing = asyncio.Lock()

    # -- for connections ---------------------------------------------------------------------------

    def policy(self, base: str) -> IcePolicy:
        """How the next connection looks for a path.

        Parameters
        ----------
        base
            URL of the signaling server that answered (``ws://127.0.0.1:9000/``): it tells where the others
            of the room are. On this machine: loopback alone, whatever else is set.

        Raises
        ------
        BadOption
            The environment names what cannot be read. Once it was read, it is not read again.
        """
        self._base = base
        if is_local(base):
            self._stop_asking()
            return IcePolicy.local()
        relays, source = self._relays()
        if source in ("", "server") and not self._no_relay:
            self._ask_at(base)
            relays = self._api.relays if self._api else ()
        else:
            self._stop_asking()
        return IcePolicy(stun=self._stun(), relays=relays, relay_only=self.relay_only, silent=self._silent)

    async def ready(self, base: str) -> None:
        """Wait, for a bounded time, for what a deployment says of its relay. Raises as `policy`."""
        self.policy(base)
        if self._api is not None:
            await self._api.ready()

    def wiring(self, fits: WireSettings) -> WireSettings:
        """How the links of this room carry frames; ``fits``: what does without any setting."""
        self._fits, self._wire = fits, wirechoice.settled(fits, *self._wires)
        return wirechoice.settings(self._wire)

    @property
    def transport(self) -> str:
        """What makes this room's connections."""
        return wirechoice.settled(DEFAULT, *self._wires).transport or stacks.DEFAULT

    @property
    def has_relay(self) -> bool:
        """Whether a relay is configured for this room: then a link that is not known to be direct counts as
        relayed (PROTOCOL section 2).
        """
        return bool(self._base) and not is_local(self._base) and bool(self._relays()[0])

    @property
    def relay_from(self) -> RelayFrom:
        """Who names the relay; empty where there is none, or none has been given yet."""
        relays, source = self._none() if not self._base or is_local(self._base) else self._relays()
        return source if relays else ""

    @property
    def asks(self) -> bool:
        """Whether the deployment is asked for a relay."""
        return self._api is not None

    @property
    def relay_only(self) -> bool:
        """Whether nothing but a relay may be used."""
        mine = self._mine.relay_only
        return bool(self._from_env().relay_only) if mine is None else mine

    @property
    def choice(self) -> NetworkChoice:
        """What this device's person said for this room; a relay in it is a secret."""
        return self._choice

    async def close(self) -> None:
        """Ask nobody any more."""
        self._closed = True
        self._stop_asking()
        await asyncio.gather(*self._closing, return_exceptions=True)

    # -- for people --------------------------------------------------------------------------------

    def facts(self, mesh: Signaled) -> NetworkFacts:
        """What is shown. Holds no secret."""
        local = not self._base or is_local(self._base)
        relays, _ = self._none() if local else self._relays()
        return NetworkFacts(
            signaling=mesh.server,
            up=mesh.signaling_up,
            stun=[] if local else [url.removeprefix("stun:") for url in self._stun()],
            relay=relays[0].place if relays else "",
            relay_from=self.relay_from,
            relay_only=not local and self.relay_only,
            wire=self._wire,
            later=self._later(),
        )

    async def choose(self, choice: NetworkChoice) -> None:
        """Take what a person sets, from the next connection on; and remember it where that is wanted.

        Raises
        ------
        BadOption
            It cannot be read, and nothing changed; or it counts, and cannot be remembered; or it would change
            how frames travel in an open room. No text of it is repeated.
        """
        if (wire := wirechoice.said(choice)) != WireChoice() and not choice.remember:
            raise BadOption(
                "How frames travel in an open room stays as it is.",
                "Say --remember (remember=True), too: your next room begins with that.",
            )
        wirechoice.check_transport(wire.transport)
        async with self._choosing:  # each reads what the one before wrote
            merged = _merged(self._choice, choice)
            box = self._box
            if choice.remember:  # with nothing else said: what counts in this room
                # Another kernel of this user may have written it meanwhile.
                box = _remembered(networkbox.read(), choice if _says_something(choice) else merged)
            self._mine = _chosen(merged, box)  # what cannot be read changes nothing
            self._choice, self._box = merged, box
            if self._base:
                self.policy(self._base)
            if choice.remember:
                await asyncio.get_running_loop().run_in_executor(None, networkbox.write, box)

    # -- inside ------------------------------------------------------------------------------------

    def _later(self) -> WireChoice:
        """How frames will travel otherwise in the next room, by what was remembered since this one opened."""
        _, before, env = self._wires
        box = wirechoice.said(self._box)
        if self._wire is None or box == before:
            return WireChoice()
        return wirechoice.differs(self._wire, wirechoice.settled(self._fits, box, env))

    @staticmethod
    def _none() -> tuple[tuple[TurnServer, ...], RelayFrom]:
        return (), ""

    def _relays(self) -> tuple[tuple[TurnServer, ...], RelayFrom]:
        if self._mine.no_relay:
            return self._none()
        if self._mine.relay:
            return (self._mine.relay,), "settings"
        environment = self._from_env()
        if environment.relay:
            return (environment.relay,), "environment"
        if self._api is not None and not environment.no_relay:
            return self._api.relays, "server"
        return self._none()

    @property
    def _no_relay(self) -> bool:
        return self._mine.no_relay or (self._mine.relay is None and self._from_env().no_relay)

    def _stun(self) -> tuple[str, ...]:
        for said in (self._mine.stun, self._from_env().stun):
            if said is not None:
                return said
        return PUBLIC_STUN if _is_far(self._base) else ()

    def _texts(self) -> tuple[Unseen, str, str]:
        """Relay, STUN servers and relay-only. Raises nothing: a traceback may show all of the environment."""
        env = self._env
        relay = Unseen(env.get("POOLED_TURN", "").strip())
        return relay, env.get("POOLED_STUN", "").strip(), env.get("POOLED_RELAY_ONLY", "").strip().lower()

    def _from_env(self) -> Chosen:
        if self._environment is None:
            self._environment = _from_env(*self._texts())
        return self._environment

    def _ask_at(self, base: str) -> None:
        if not self._closed and (self._api is None or self._api.base != base):
            self._stop_asking()
            self._api = TurnApi(self._clock, base, self._fetch)

    def _stop_asking(self) -> None:
        if self._api is None:
            return
        task = asyncio.get_running_loop().create_task(self._api.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        self._api = None


def remember(choice: NetworkChoice) -> NetworkFacts:
    """What later rooms of this user begin with, said while there is no room (a join found no path).

    Parameters
    ----------
    choice
        What changes; with nothing said nothing does.

    Returns
    -------
    NetworkFacts
        What is remembered now.

    Raises
    ------
    BadOption
        It cannot be read, and nothing changed; or it cannot be saved. No text of it is repeated.
    """
    wirechoice.check_transport(wirechoice.said(choice).transport)
    box = _remembered(networkbox.read(), choice)
    mine = _chosen(NetworkChoice(), box)
    if _says_something(choice):
        networkbox.write(box)
    return NetworkFacts(
        stun=[url.removeprefix("stun:") for url in mine.stun or ()],
        relay=mine.relay.place if mine.relay else "",
        relay_from="settings" if mine.relay else "",
        relay_only=bool(mine.relay_only),
        later=wirechoice.said(box),
    )


def is_local(base: str) -> bool:
    """Whether a room with this signaling server is one of this machine alone."""
    host = urlsplit(base).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_far(base: str) -> bool:
    """Whether devices that meet there may be anywhere: then STUN servers in the open are asked."""
    try:
        return not ipaddress.ip_address(urlsplit(base).hostname or "").is_private
    except ValueError:
        return True


def _chosen(choice: NetworkChoice, box: NetworkBox) -> Chosen:
    """What this user's settings say, this room's before what is remembered. Raises `BadOption`."""
    wirechoice.said(choice)
    wirechoice.said(box, of="The network box's")
    said, setting = (choice.turn, "turn") if choice.turn is not None else (box.turn, "The network box")
    said = None if said is None else Unseen(said)
    off = said is not None and said.strip().lower() == turn.OFF
    stun = choice.stun if choice.stun is not None else box.stun
    return Chosen(
        relay=turn.parse(said, setting) if said and not off else None,
        no_relay=off,
        stun=None if stun is None else turn.stun(stun, "stun"),
        relay_only=choice.relay_only if choice.relay_only is not None else box.relay_only,
    )


def _from_env(said: Unseen, stun: str, only: str) -> Chosen:
    """What the environment says. Raises `BadOption`."""
    off = said.lower() == turn.OFF
    if only not in YES + NO:
        raise BadOption("POOLED_RELAY_ONLY is neither yes nor no.", "Set it to 1 or 0.")
    return Chosen(
        relay=None if off else turn.parse(said),
        no_relay=off,
        stun=turn.stun(stun.split(",")) if stun else None,
        relay_only=only in YES if only else None,
    )


def _says_something(choice: NetworkChoice) -> bool:
    return any(getattr(choice, name) is not None for name in (*_WAYS, *wirechoice.FIELDS))


def _merged(before: NetworkChoice, now: NetworkChoice) -> NetworkChoice:
    return structs.replace(before, **{n: getattr(now, n) for n in _WAYS if getattr(now, n) is not None})


def _remembered(before: NetworkBox, now: NetworkChoice) -> NetworkBox:
    """An empty text forgets the relay that was remembered, ``auto`` how frames were to travel."""
    given: dict[str, object] = {}
    if now.turn is not None:
        given["turn"] = now.turn.strip() or None
    if now.stun is not None:
        given["stun"] = now.stun
    if now.relay_only is not None:
        given["relay_only"] = now.relay_only
    for name in wirechoice.FIELDS:
        if (value := getattr(now, name)) is not None:
            given[name] = None if value == wirechoice.AUTO else value
    return structs.replace(before, **given)
