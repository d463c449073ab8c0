"""Who may come into a room, and by which ways, as any thread says it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack, cast, overload

import msgspec

from pooled_nb import whom
from pooled_nb._notebook import in_notebook
from pooled_nb.confirming import Confirming
from pooled_nb.door import Gate, Invite, Lobby, Network
from pooled_nb.door_text import asks
from pooled_nb.errors import NotReady
from pooled_nb.job import Job
from pooled_nb.mesh.gatejoiner import WAITS_FOR_HOST
from pooled_nb.plain import visible
from pooled_nb.progress import Waiting
from pooled_nb.room import core as seam
from pooled_nb.room import doorfacts
from pooled_nb.room_commands import gate_choices, network_choice
from pooled_nb.room_download import RoomDownload
from pooled_nb.room_life import Opening
from pooled_nb.threads import mesh
from pooled_nb.typed import Unseen

T = TypeVar("T")


class GateChanges(TypedDict, total=False):
    """What `RoomDoor.gate` takes: fields of `Gate`."""

    ask: bool
    starts: doorfacts.Starts
    api: bool
    older: bool


class NetworkChanges(TypedDict, total=False):
    """What `RoomDoor.network` takes."""

    turn: str | None
    stun: str | Sequence[str] | None
    relay_only: bool | None
    stripes: int | doorfacts.Auto | None
    twice: bool | doorfacts.Auto | None
    keepalive_ms: float | doorfacts.Auto | None
    transport: str | None
    remember: bool


class RoomDoor(RoomDownload):
    """Lets devices in, invites, throws out, chooses the ways. The base of `Room`.

    Attributes
    ----------
    lobby_hint
        How its person answers who asks to join, while a call waits; empty: as the place suggests.
    """

    lobby_hint = ""

    def __init__(
        self, opening: Opening, *, quiet: bool = False, confirming: Confirming | None = None
    ) -> None:
        self._confirming = confirming or Confirming()
        self._confirming.on_doubt = self._doubted
        super().__init__(opening, quiet=quiet)

    # While it opens.

    def _doubted(self, doubt: doorfacts.Doubt) -> None:
        self._noticed(f"{doubt.text} Answer with room.confirm(True) or room.confirm(False).")

    @property
    def doubt(self) -> doorfacts.Doubt | None:
        """What this device's person is to decide before it comes in: its ``text``, and six ``digits``.

        None where there is nothing to decide. See `confirm`.
        """
        return self._confirming.doubt

    def confirm(self, same: bool) -> Self:
        """Answer the `doubt`: whether the host's screen shows the same six digits. False: it does not join.

        Raises
        ------
        NotReady
            There is nothing to confirm.
        """
        if not self._confirming.answer(same=same is True):
            raise NotReady("There is nothing to confirm.", "See room.status() for how the room is.")
        return self

    def _asking(self, view: Waiting | None) -> Callable[[], None] | None:
        """What a thread does while it waits for the room to open: show how far it is, ask its person."""
        shows = self._ticker(view)
        if view is None and threading.current_thread() is not threading.main_thread():
            return shows

        def tick() -> None:
            if shows is not None:
                shows()
            self._confirming.ask(view or Waiting())

        return tick

    # The lobby.

    def _how_to_answer(self) -> str:
        if self.lobby_hint:
            return self.lobby_hint
        return (
            "Allow or Deny it in the panel."
            if in_notebook()
            else "room.allow() in another thread lets it in."
        )

    def _ticker(self, view: Waiting | None) -> Callable[[], None] | None:
        tick = super()._ticker(view)
        if tick is None or view is None:
            return None
        if self._quiet:
            return tick
        if type(view) is not Waiting:

            def also_asks() -> None:
                tick()
                self.ask_person(view)

            return also_asks
        told: set[int] = set()
        said: set[str] = set()

        def also_said() -> None:
            # A script without a terminal shows no progress; that somebody waits for a person it says.
            tick()
            words = self.progress[1]
            if self._core is None and words.startswith(WAITS_FOR_HOST) and words not in said:
                said.add(words)
                print(visible(words), file=sys.stderr, flush=True)
            question = self._status.asks.text if self._status is not None and self._status.asks else ""
            if question and question not in said:
                said.add(question)
                print(
                    visible(f"{question} room.allow_download() in another thread says yes."), file=sys.stderr
                )
            for line in self._status.lobby if self._status is not None else ():
                if line.number not in told:
                    told.add(line.number)
                    print(visible(f"{asks(line)} {self._how_to_answer()}"), file=sys.stderr, flush=True)

        return also_said

    @property
    def lobby(self) -> Lobby:
        """Who waits to be let in, longest first (host only; empty elsewhere)."""
        self._open_core()
        self._refresh()
        assert self._status is not None
        return Lobby(self._status.lobby)

    @overload
    def allow(self, who: str | int | None = None, *, wait: Literal[True] = True) -> Self: ...
    @overload
    def allow(self, who: str | int | None = None, *, wait: Literal[False]) -> Job[Self]: ...
    def allow(self, who: str | int | None = None, *, wait: bool = True) -> Self | Job[Self]:
        """Let a device of the `lobby` in (host only). Compare the digits with its screen first.

        Parameters
        ----------
        who
            Its name or its number; None: the only one that waits.
        wait
            False: return at once; await what comes back, or call its ``result``.

        Raises
        ------
        NotReady
            This device does not host the room, or that one does not wait.
        BadOption
            Several are meant.
        """
        core = self._open_core()
        return self._do(lambda: self._decide(core, who, allow=True), wait)

    @overload
    def deny(self, who: str | int | None = None, *, wait: Literal[True] = True) -> Self: ...
    @overload
    def deny(self, who: str | int | None = None, *, wait: Literal[False]) -> Job[Self]: ...
    def deny(self, who: str | int | None = None, *, wait: bool = True) -> Self | Job[Self]:
        """Send a device of the `lobby` away (host only). As `allow`; who joins anew is asked about anew."""
        core = self._open_core()
        return self._do(lambda: self._decide(core, who, allow=False), wait)

    async def _decide(self, core: seam.RoomCore, who: str | int | None, *, allow: bool) -> None:
        decide = core.allow if allow else core.deny
        if core.role != "host":
            await decide(0)  # says who may
        await decide(whom.waiting(core.status().lobby, who).number)

    @overload
    def kick(self, name: str, *, wait: Literal[True] = True) -> Self: ...
    @overload
    def kick(self, name: str, *, wait: Literal[False]) -> Job[Self]: ...
    def kick(self, name: str, *, wait: bool = True) -> Self | Job[Self]:
        """Throw a device out (host only). It and everyone who holds an older invite link has to ask again.

        Parameters
        ----------
        name
            As the room shows it.

        Raises
        ------
        NotReady
            This device does not host the room, or that one is not in it.
        BadOption
            It is this device.
        """
        core = self._open_core()

        async def throw_out() -> None:
            if core.role != "host":
                await core.kick("")  # says who may
            await core.kick(whom.here(core.status().devices, name).id)

        return self._do(throw_out, wait)

    # The invite link.

    @overload
    def invite(self, *, wait: Literal[True] = True) -> Invite: ...
    @overload
    def invite(self, *, wait: Literal[False]) -> Job[Invite]: ...
    def invite(self, *, wait: bool = True) -> Invite | Job[Invite]:
        """Give the link that lets its holder in without asking (host only).

        It is a secret: only ``.link`` of what comes back shows it. Hand it on by the environment
        (``POOLED_LINK``), a file, or the panel's Invite button; a cell would keep it.

        Raises
        ------
        NotReady
            This device does not host the room.
        """
        core = self._open_core()

        async def look() -> Invite:
            return _invite(core.invite())

        return self._get(look(), wait)

    @overload
    def renew_invite(self, *, wait: Literal[True] = True) -> Invite: ...
    @overload
    def renew_invite(self, *, wait: Literal[False]) -> Job[Invite]: ...
    def renew_invite(self, *, wait: bool = True) -> Invite | Job[Invite]:
        """Make a new link: whoever holds an older one has to ask (host only). As `invite`."""
        core = self._open_core()

        async def renew() -> Invite:
            return _invite(await core.renew_invite())

        return self._get(renew(), wait)

    # Who comes in, and by which ways.

    @overload
    def gate(self, *, wait: Literal[True] = True, **changes: Unpack[GateChanges]) -> Gate: ...
    @overload
    def gate(self, *, wait: Literal[False], **changes: Unpack[GateChanges]) -> Job[Gate]: ...
    def gate(self, *, wait: bool = True, **changes: Unpack[GateChanges]) -> Gate | Job[Gate]:
        """Say who comes in, from now on (host only); without anything to change it shows that.

        Parameters
        ----------
        ask
            You are asked about each device that comes without the invite link. False: the code is enough.
        starts
            Whose question may start the room: ``"all"`` or ``"host"``.
        api
            Programs that speak for others may come.
        older
            Devices that can prove nothing (of an older version) count by raw keys, which who stands between
            could take.

        Raises
        ------
        NotReady
            This device does not host the room.
        """
        core = self._open_core()
        gate_choices(doorfacts.GateChoices(), changes)  # what is wrong is said before anything is done

        async def choose() -> Gate:
            # On the loop: two changes in a row are both kept.
            if changes or core.role != "host":
                await core.set_gate(gate_choices(core.status().gate, changes))
            return Gate(**msgspec.structs.asdict(core.status().gate))

        return self._get(choose(), wait)

    @overload
    def network(self, *, wait: Literal[True] = True, **changes: Unpack[NetworkChanges]) -> Network: ...
    @overload
    def network(self, *, wait: Literal[False], **changes: Unpack[NetworkChanges]) -> Job[Network]: ...
    def network(self, *, wait: bool = True, **changes: Unpack[NetworkChanges]) -> Network | Job[Network]:
        """Say by which ways this device's new connections are looked for; alone it shows that.

        How frames travel in this room stays as it is, so the four settings of that come with ``remember``.

        Parameters
        ----------
        turn
            A relay, ``turn:USER:PASSWORD@HOST:PORT``: a secret, so ask for it (`getpass.getpass`) instead of
            writing it into a cell. ``""``: none.
        stun
            STUN servers (``stun:HOST:PORT``), in order; ``""``: none.
        relay_only
            Use nothing but the relay.
        stripes
            More connections for each link of the chain that this device dials, 0 to 8. A host dials none: the
            others decide.
        twice
            Small frames go over two connections: what one loses the other brings.
        keepalive_ms
            Milliseconds without a frame after which a link in use sends a byte, so that no radio naps; 0:
            never.
        transport
            ``"aiortc"``, or ``"wrtc"``, which takes less CPU (extra ``wrtc``). ``"auto"``, here and in the
            three before: what fits the place; 3 stripes, or none where all are on one machine.
        remember
            Keep it for later rooms, in a file that only you can read.

        Raises
        ------
        BadOption
            No relay or server can be read from it, which is not repeated; there is no such value; or what
            counts from the next room on is not to be remembered.
        """
        core = self._open_core()
        choice = network_choice(changes)

        async def choose() -> Network:
            facts = core.status().network if choice is None else await core.set_network(choice)
            return Network(**msgspec.structs.asdict(facts))

        return self._get(choose(), wait)

    def _get(self, work: Coroutine[Any, Any, T], wait: bool) -> T | Job[T]:
        job = mesh.submit(work)
        return job.result() if wait else job

    # For panels.

    def _door_command(self, name: str, options: dict[str, object]) -> Job[Any] | None:
        """What a button of the door or of the network box says; None: it is none of them."""
        core = self._open_core()
        work: Coroutine[Any, Any, object]
        match name, options:
            case "allow" | "deny", {"number": int(number)}:
                work = core.allow(number) if name == "allow" else core.deny(number)
            case "kick", {"id": str(id)}:
                work = core.kick(id)
            case "download", {"yes": bool(yes)}:
                work = core.allow_download(yes=yes)
            case "renew", _:
                work = core.renew_invite()
            case "gate", _:
                return self.gate(wait=False, **cast(GateChanges, options))
            case "network", _:
                return self.network(wait=False, **cast(NetworkChanges, options))
            case _:
                return None
        return mesh.submit(work)


def _invite(found: doorfacts.Invite) -> Invite:
    return Invite(code=found.code, link=Unseen(found.link))
