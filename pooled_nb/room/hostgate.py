"""The host's door: who waits, who is let in, who is taken out, and the invite link (PROTOCOL section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from pooled_nb.errors import NotReady, RoomClosed
from pooled_nb.mesh import codes
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.room import doorwords, sentences
from pooled_nb.room.core import State
from pooled_nb.room.doorfacts import GateChoices, Invite, LobbyLine, Starts
from pooled_nb.room.keeping import SavedGate, Slot
from pooled_nb.room.lines import lobby_line
from pooled_nb.room.memory import Memory
from pooled_nb.room.roomfile import TOUCH_S, Opened, SavedRoom, SavedWays, slot_of
from pooled_nb.room.saver import Saver

MAX_TOLD = 256
"""Devices of which the host's person was told that they asked, and that only the host starts the room."""


class Threshold(Protocol):
    """What the gate needs of the room around it."""

    code: str

    @property
    def state(self) -> State:
        """The room's state now."""

    def say(self, sentence: str) -> None:
        """A sentence for the host's person."""

    def changed(self) -> None:
        """Something that is shown changed."""


class HostGate:
    """What `HostRoom` does at its door.

    Parameters
    ----------
    keeper
        Invite key, passes, lobby.
    starts
        Whose question may start the room.
    """

    def __init__(
        self, *, room: Threshold, mesh: Mesh, clock: Clock, keeper: Gatekeeper, starts: Starts
    ) -> None:
        self.keeper = keeper
        self.starts: Starts = starts
        self._room, self._mesh, self._clock = room, mesh, clock
        self._saver: Saver | None = None
        self._memory: Saver | None = None
        self._unsaved = False
        self._kicking = ""
        self._told: set[str] = set()
        keeper.on_change = self._changed

    # -- what is shown -----------------------------------------------------------------------------

    @property
    def lobby(self) -> list[LobbyLine]:
        """Who waits, longest first."""
        return [lobby_line(request) for request in self.keeper.lobby]

    @property
    def choices(self) -> GateChoices:
        """Who comes in now."""
        settings = self.keeper.settings
        return GateChoices(ask=settings.ask, api=settings.api, older=settings.older, starts=self.starts)

    def kicks(self, id: str) -> bool:
        """Whether this device is on its way out now because the host's person said so."""
        return id == self._kicking

    # -- what the host's person does ---------------------------------------------------------------

    def decide(self, number: int, *, allow: bool) -> str:
        """Let a device of the lobby in, or send it away; returns its name. Raises `NotReady`."""
        self._check_open()
        request = self.keeper.decide(number, allow=allow)
        if request is None:
            raise NotReady("This device waits no longer.", "See who does: %pooled lobby.")
        self._mesh.decided()
        self._room.changed()
        return request.name

    def kick(self, id: str) -> str:
        """Throw a device out; returns its name. Raises `NotReady`.

        Whoever holds the link could come back with it, and so could the device: its key is renewed.
        """
        self._check_open()
        name = next((m.name for m in self._mesh.roster if m.id == id and id != self._mesh.id), None)
        if name is None:
            raise NotReady(
                "This device is not in the room.",
                "See who is: %pooled status. Who only waits to be let in is sent away with %pooled deny.",
            )
        self.keeper.revoke(self._mesh.seat(id))
        self.keeper.deny(id)
        self.keeper.renew_key()
        self._kicking = id
        self._mesh.kick(id, sentences.THROWN_OUT)
        self._kicking = ""
        self._room.say(doorwords.kicked(name, ask=self.keeper.settings.ask))
        self._room.changed()
        return name

    def invite(self) -> Invite:
        """The link of now. Raises `NotReady` before the room is open."""
        self._check_open()
        return Invite(
            code=self._room.code, link=codes.link(self._room.code, self.keeper.key, self._mesh.server)
        )

    def renew(self) -> Invite:
        """A new link: the old ones only lead to the lobby."""
        self._check_open()
        self.keeper.renew_key()
        self._room.say(doorwords.renewed(ask=self.keeper.settings.ask))
        return self.invite()

    def choose(self, choices: GateChoices) -> None:
        """Who comes in from now on; who waits still waits for a word."""
        self._check_open()
        before, self.starts = self.choices, choices.starts
        self.keeper.settings = GateSettings(ask=choices.ask, api=choices.api, older=choices.older)
        for sentence in doorwords.chosen(before, choices, waiting=len(self.keeper.lobby)):
            self._room.say(sentence)
        self.remember()
        self._room.changed()

    def refuses_start(self, sender: str, name: str) -> bool:
        """Whether this device's question may not start the room; the host's person hears of it once."""
        if self.starts != "host":
            return False
        if sender not in self._told and len(self._told) < MAX_TOLD:
            self._told.add(sender)
            self._room.say(f"{name} asks, and only you start this room: %pooled start does.")
        return True

    # -- what is saved -----------------------------------------------------------------------------

    def save_in(
        self,
        slot: Slot | None,
        *,
        embedded: bool,
        opened: Opened | None = None,
        memory: Callable[[], Memory | None] = lambda: None,
        ways: Callable[[], SavedWays] = SavedWays,
    ) -> None:
        """Keep the gate, and what the room remembers, in files from now on, since the room is open.

        Parameters
        ----------
        memory, ways
            What it remembers now, and by which ways its host was told to reach others. See `roomfile`.
        """

        def gate() -> SavedGate:
            secrets = self.keeper.secrets
            return SavedGate(
                code=self._room.code,
                server=self._mesh.server,
                embedded=embedded,
                token=self._mesh.token,
                key=secrets.key,
                mesh_key=secrets.mesh_key,
                passes=list(secrets.passes),
            )

        def room() -> SavedRoom | None:
            now = memory()
            if now is None:
                return None
            return SavedRoom(
                code=self._room.code, gate=self.choices, ways=ways(), opened=opened or Opened(), memory=now
            )

        beside = slot_of(slot)
        self._saver = Saver(slot, clock=self._clock, what=gate, say=self._say_once)
        self._memory = Saver(
            beside, clock=self._clock, what=room, say=self._say_once, again_s=TOUCH_S, touches=True
        )
        self._saver.changed()
        self._memory.changed()

    def remember(self) -> None:
        """What the room remembers may have changed."""
        if self._memory is not None:
            self._memory.changed()

    async def close(self, *, keep: bool = False) -> None:
        """The room is closed on purpose: nothing of it is kept. ``keep``: its host's next process goes on."""
        savers = [saver for saver in (self._memory, self._saver) if saver is not None]
        if keep:  # in this order: with the gate others may take the room
            for saver in savers:
                await saver.close(keep=True)
        else:
            await asyncio.gather(*(saver.close(keep=False) for saver in savers))

    def _say_once(self, sentence: str) -> None:
        """One full disk is one sentence."""
        if not self._unsaved:
            self._unsaved = True
            self._room.say(sentence)

    def _changed(self) -> None:
        if self._saver is not None:
            self._saver.changed()
        self._room.changed()

    def _check_open(self) -> None:
        if self._room.state == "closed":
            raise RoomClosed("The room is over.", "Host a new one.")
        if not self._mesh.id:
            raise NotReady("The room is not open yet.", "Wait until it is.")


class DoorVerbs:
    """The part of `RoomCore` that a host's gate does."""

    _gate: HostGate

    async def allow(self, number: int) -> str:
        """See `RoomCore.allow`."""
        return self._gate.decide(number, allow=True)

    async def deny(self, number: int) -> str:
        """See `RoomCore.deny`."""
        return self._gate.decide(number, allow=False)

    async def kick(self, id: str) -> str:
        """See `RoomCore.kick`."""
        return self._gate.kick(id)

    def invite(self) -> Invite:
        """See `RoomCore.invite`."""
        return self._gate.invite()

    async def renew_invite(self) -> Invite:
        """See `RoomCore.renew_invite`."""
        return self._gate.renew()

    async def set_gate(self, choices: GateChoices) -> None:
        """See `RoomCore.set_gate`."""
        self._gate.choose(choices)
