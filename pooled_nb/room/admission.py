"""How a device comes in: what its person is told and asked, and the pass it keeps (PROTOCOL section 4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pooled_nb.errors import RoomRefused
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.linkactions import Cause, End
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.newcomer import Newcomer
from pooled_nb.room import doorwords
from pooled_nb.room.doorfacts import Confirm, Doubt
from pooled_nb.room.keeping import SavedPass, Slot
from pooled_nb.room.saver import Saver

log = logging.getLogger(__name__)

NOBODY = "The host did not recognise your link, and nobody is here to compare the six digits with its screen."
FAILED = "The host did not recognise your link, and asking you to compare the six digits failed."
NEXT = "Join where a person can be asked (confirm=), or ask the host for a new invite link."


class Admission:
    """What `DeviceRoom` does at its host's door.

    Parameters
    ----------
    confirm
        Asks this device's person; None: nobody is there to say yes.
    on_change, say
        Something that is shown changed; a sentence for the person.
    """

    def __init__(
        self,
        *,
        code: str,
        mesh: Mesh,
        clock: Clock,
        newcomer: Newcomer,
        confirm: Confirm | None,
        on_change: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self.newcomer = newcomer
        self.digits = ""
        """What both screens showed on the way in; empty where nobody had to compare anything."""
        self._code, self._mesh, self._clock, self._confirm = code, mesh, clock, confirm
        self._on_change, self._say = on_change, say
        self._asking: asyncio.Task[None] | None = None
        self._doubt: Doubt | None = None
        self._unasked = ""
        """Why nobody answered the question; empty: somebody did, or there is none."""
        self._saver: Saver | None = None
        newcomer.on_change = self._changed

    def keep(self, slot: Slot | None, name: str) -> None:
        """Save the pass in this slot once there is one."""

        def what() -> SavedPass | None:
            newcomer = self.newcomer
            held = newcomer.credentials.pass_
            if not held or not newcomer.met:
                return None
            return SavedPass(code=self._code, name=name, pass_=held, met=newcomer.met)

        self._saver = Saver(slot, clock=self._clock, what=what, say=self._say)

    async def enter(self, servers: list[str]) -> None:
        """See `DeviceRoom.join`. The person hears how far the host is known."""
        again = self.newcomer.credentials.pass_ is not None
        try:
            await self._mesh.join(self._code, servers)
        except RoomRefused:
            if self._unasked:  # the gate says that the digits were not the same
                raise RoomRefused(self._unasked, NEXT) from None
            raise
        self._clock.call_later(0, lambda: self._tell_trust(again=again))

    async def close(self, end: End | None) -> None:
        """This device is in the room no longer. ``end``: how its link to the host ended; None: it left.

        A room that is over, or whose host threw this device out, has no place for it: the pass goes.
        Only who was let in hears that from its host: what is said before proves nothing.
        """
        self._stop_asking()
        if self._saver is not None:
            over = end is not None and end.cause in (Cause.BYE, Cause.CLOSED)
            await self._saver.close(keep=not over)

    def _changed(self) -> None:
        if self.newcomer.waiting:
            self.digits = self.newcomer.digits
        elif self.newcomer.trust == "proved":
            self.digits = ""  # of a link that broke while somebody was asked
        if self.newcomer.waiting != "confirm":
            self._stop_asking()
        else:
            doubt = doorwords.doubt(self.newcomer.digits)
            if self._asking is None or doubt != self._doubt:  # of another link, which came after a broken one
                self._stop_asking()
                self._doubt = doubt
                self._asking = asyncio.get_running_loop().create_task(self._ask(doubt), name="pooled-confirm")
        if self._saver is not None:
            self._saver.changed()
        self._on_change()

    async def _ask(self, doubt: Doubt) -> None:
        same: bool | None = None
        try:
            if self._confirm is not None:
                same = await self._confirm(doubt) is True
        except asyncio.CancelledError:
            if self._asking is not asyncio.current_task():
                raise  # nobody is to be asked any more
            log.warning("asking this device's person was broken off, which is no yes")
        except Exception:
            log.exception("asking this device's person failed, which is no yes")
        if self._asking is not asyncio.current_task():
            return  # it went on although it was cancelled: its answer comes too late
        self._asking = None
        if self.newcomer.confirm(same=bool(same), digits=doubt.digits):
            self._unasked = "" if same is not None else FAILED if self._confirm else NOBODY
            self._mesh.decided()

    def _stop_asking(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _tell_trust(self, *, again: bool) -> None:
        if text := doorwords.trust(self.newcomer.trust, self.digits, again=again):
            self._say(text)
