"""Saves a room's secrets and memory while it lives, off the mesh loop: the newest, one write at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.room.keeping import Kept, Slot

log = logging.getLogger(__name__)

AGAIN_S = 3_600.0
"""Also without a change: by its age a file says when its room lived last."""


class Saver:
    """Keeps a file as the room is now. On the mesh loop; nothing here raises.

    Parameters
    ----------
    slot
        Where; None: nothing is saved.
    what
        What to save now; None: nothing yet.
    say
        Tells the person, once, that saving does not work.
    again_s
        So often the file says that its room lives.
    touches
        It says so by its time alone, where nothing has changed: it is large.
    """

    def __init__(
        self,
        slot: Slot | None,
        *,
        clock: Clock,
        what: Callable[[], Kept | None],
        say: Callable[[str], None],
        again_s: float = AGAIN_S,
        touches: bool = False,
    ) -> None:
        self._slot, self._clock, self._what, self._say = slot, clock, what, say
        self._again_s, self._touches = again_s, touches
        self._written: Kept | None = None
        self._due = self._again_due = self._told = False
        self._task: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        if slot is not None:
            self._timer = clock.call_later(again_s, self._again)

    def changed(self) -> None:
        """What is saved may have changed."""
        if self._slot is None:
            return
        self._due = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._save(self._slot), name="pooled-save")

    async def close(self, *, keep: bool) -> None:
        """The room is over for this process; ``keep`` what was saved for the next one, or forget it.

        What is kept is first written as it is now. What is to be forgotten is, also where whoever waits here
        is cut off: the thread that does it is not.
        """
        slot, self._slot = self._slot, None
        if self._timer is not None:
            self._timer.cancel()
        if slot is None:
            return
        if keep:
            if self._task is not None:
                await self._task
            self._due = True
            await self._save(slot)
        else:
            self._due = False
        await asyncio.shield(_in_thread(partial(slot.end, keep=keep)))
        if self._task is not None:
            await self._task

    def _again(self) -> None:
        self._timer = self._clock.call_later(self._again_s, self._again)
        self._again_due = True
        self.changed()

    async def _save(self, slot: Slot) -> None:
        saved = None
        try:
            while self._due:
                again, self._due, self._again_due = self._again_due, False, False
                saved = self._what()
                same = saved == self._written
                if saved is None or (same and not again):
                    continue
                if same and self._touches:
                    await _in_thread(slot.touch)
                    continue
                await _in_thread(partial(slot.write, saved))
                self._written = saved
        except Exception as error:
            if saved != self._written:  # what lies there may hold a pass or a key that counts no more
                self._written = None
                await _in_thread(slot.remove)
            # Its words may name a file, never what was to be in it.
            why = getattr(error, "strerror", None) or type(error).__name__
            log.warning("a room's secrets were not saved: %s", why)
            if not self._told:
                self._told = True
                self._say(
                    f"This room could not be saved for a restart ({why}). It goes on; free some space, or "
                    "name another folder in POOLED_DATA_DIR."
                )
        finally:
            self._task = None


def _in_thread(work: Callable[[], None]) -> asyncio.Future[None]:
    """Begin slow work with files in a thread.

    A script that ends has none to begin any more as its room closes (`atexit`): then it is done at once.
    """
    loop = asyncio.get_running_loop()
    try:
        return loop.run_in_executor(None, work)
    except RuntimeError:
        done: asyncio.Future[None] = loop.create_future()
        work()
        done.set_result(None)
        return done
