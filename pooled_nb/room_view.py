"""A room as any thread sees it; the room itself lives on the mesh loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import msgspec

from pooled_nb import forks, saved, show
from pooled_nb._notebook import cell, in_notebook, while_waiting
from pooled_nb.door_text import waits
from pooled_nb.errors import BadOption, NotReady, PooledError, RoomClosed, RoomError
from pooled_nb.job import SLICE_S, Job
from pooled_nb.mesh.codes import shown
from pooled_nb.output import Output
from pooled_nb.progress import Waiting, waiting
from pooled_nb.room import core as seam
from pooled_nb.room.sentences import CLOSING
from pooled_nb.room_commands import chosen
from pooled_nb.room_door import RoomDoor
from pooled_nb.room_output import is_shown, show_panel
from pooled_nb.status import Status
from pooled_nb.threads import mesh

if TYPE_CHECKING:
    from pooled_nb.widgets.room_panel import RoomPanel

PARTING: dict[seam.Role, str] = {
    "host": "The room closes after this answer; an interrupt closes it at once.",
    "worker": "This device hands its layers over, then leaves; an interrupt leaves at once.",
    "guest": "This device leaves after its answer; an interrupt leaves at once.",
}
"""What a polite leaving waits for."""
LOOK_S = 0.1
"""How often a wait for devices, or for the end, looks up."""

log = logging.getLogger("pooled_nb")


def _here(status: seam.Status) -> int:
    """How many devices are in the room; the deal may know more."""
    return sum(not device.gone for device in status.devices)


class Room(RoomDoor):
    """A room that this process hosts or has joined. Made by `pooled_nb.host` and `pooled_nb.join`.

    Use it from any thread. ``with`` and ``async with`` leave it at the end.

    Attributes
    ----------
    last
        The newest answer asked here, whole or not.
    asked_again
        Answers to questions of yours that were left when a room's process died, and which it asked again when
        it was resumed: live.
    notices
        The newest sentences for the person: a device left, signaling is down, …
    progress
        How far opening or loading is: percent (None: not known) and a few words.
    """

    _panel: RoomPanel | None = None

    # On the mesh loop.

    async def _start(self, core: seam.RoomCore, devices: int, *, fast: bool = False) -> None:
        # Who may not start it is told so, and waits for nobody.
        while core.role == "host" and (here := _here(now := core.status())) < devices:
            if now.state == "closed":
                break
            # Else who waits for devices waits for the one that waits for them.
            asks = f"; {waits(now.lobby)}. {self._how_to_answer()}" if now.lobby else ""
            self._report(None, f"{here} of {devices} devices are here{asks}")
            await asyncio.sleep(LOOK_S)
        await core.start(self._report, fast=fast)

    async def _seen(self) -> None:
        self._look()

    # From any thread.

    @property
    def code(self) -> str:
        """As those type it who join: ``4TK-G9P``; empty while it opens."""
        return shown(self._core.code) if self._core is not None else ""

    @property
    def role(self) -> seam.Role | None:
        """``host``, ``worker`` or ``guest``; None while it opens."""
        return self._core.role if self._core is not None else None

    @property
    def what(self) -> str:
        """For a sentence: ``hosts room 4TK-G9P``."""
        if self._core is None:
            return "opens a room"
        return f"{'hosts' if self.role == 'host' else 'is in'} room {self.code}"

    def done(self) -> bool:
        """Whether it has opened, or failed to."""
        return self._opening.done()

    def result(self, timeout: float | None = None, *, view: Waiting | None = None) -> Room:
        """Block until it is open; raises why it did not open. An interrupt gives up opening it."""
        if self._forked:
            raise forks.elsewhere()
        self._opening.result(timeout, tick=self._asking(view))
        return self

    def status(self) -> Status:
        """The room now; after it was left, as it was last."""
        self.result()
        self._refresh()
        assert self._status is not None
        return Status(**msgspec.structs.asdict(self._status))

    def _refresh(self) -> None:
        if not self._left:
            with contextlib.suppress(RoomClosed):
                mesh.run(self._seen())

    @overload
    def start(
        self, *, devices: int | None = None, fast: bool = False, wait: Literal[True] = True
    ) -> Self: ...
    @overload
    def start(self, *, devices: int | None = None, fast: bool = False, wait: Literal[False]) -> Job[Self]: ...
    def start(self, *, devices: int | None = None, fast: bool = False, wait: bool = True) -> Self | Job[Self]:
        """Deal the model's layers over the devices now here, and load them (host only).

        Parameters
        ----------
        devices
            Wait until so many are here, this one counted.
        fast
            Give up the promise of equal tokens for speed. Counts at the first start only.
        wait
            False: return at once; await what comes back, or call its ``result``.

        Raises
        ------
        ModelTooBig
            The memory lent does not hold it: how many GB are short, and who could give more.
        NotReady
            There is nothing to start now: says why.
        BadOption
            ``devices`` is below 1.
        """
        core = self._open_core()
        if devices is not None and devices < 1:
            raise BadOption(f"A room of {devices} devices is none.", "Wait for 1 or more.")
        self._report(None, "dealing the layers")
        with waiting(self.progress[1], quiet=self._quiet or not wait) as view:
            done = self._do(lambda: self._start(core, devices or 1, fast=fast), wait, view)
            if wait:
                self._acted(said=view.finish(show.line_bundle(self.status().sentence)))
        return done

    @overload
    def redeal(self, *, devices: int | None = None, wait: Literal[True] = True) -> Self: ...
    @overload
    def redeal(self, *, devices: int | None = None, wait: Literal[False]) -> Job[Self]: ...
    def redeal(self, *, devices: int | None = None, wait: bool = True) -> Self | Job[Self]:
        """Deal the layers anew over the devices now here: some have come, or one is gone (host only).

        An answer that waits for a device goes on over the new deal; nothing that is shown changes.
        Parameters and errors are those of `start`.

        Raises
        ------
        NotReady
            Nothing is dealt yet.
        """
        if self.role == "host" and self.status().state == "open":
            raise NotReady("Nothing is dealt yet.", "Start the room, or ask.")
        return self.start(devices=devices, wait=True) if wait else self.start(devices=devices, wait=False)

    @overload
    def stop(self, *, wait: Literal[True] = True) -> Self: ...
    @overload
    def stop(self, *, wait: Literal[False]) -> Job[Self]: ...
    def stop(self, *, wait: bool = True) -> Self | Job[Self]:
        """End the running answer after the lap in flight, else take back the newest question waiting here."""
        return self._do(self._open_core().stop, wait)

    @overload
    def reset(self, *, wait: Literal[True] = True) -> Self: ...
    @overload
    def reset(self, *, wait: Literal[False]) -> Job[Self]: ...
    def reset(self, *, wait: bool = True) -> Self | Job[Self]:
        """Begin a new chat (host only)."""
        return self._do(self._open_core().reset, wait)

    def _wait_politely(self, parting: Job[Self]) -> bool:
        role = self.role or "guest"
        words = PARTING[role]

        def tick() -> None:
            status = self.seen()
            what = status.sentence.removeprefix(CLOSING) if status is not None and role == "host" else ""
            view.report(None, f"{words} {what}".strip())
            view.tick()

        with waiting(words, quiet=self._quiet) as view:
            parting.result(tick=tick)
            return view.finish(show.line_bundle(self.status().sentence))

    def wait(self) -> Room:
        """Block until the room is over, or this device has left it: what a script that only lends does."""
        self.result()
        with waiting("in the room", quiet=self._quiet) as view:
            while not self._left:
                view.report(None, self.status().sentence)
                view.tick()
                for _ in range(round(LOOK_S / SLICE_S)):
                    while_waiting()
                    time.sleep(SLICE_S)
            said = view.finish(show.line_bundle(self.status().sentence))
        return self._acted(said=said)

    @overload
    def close(self, *, wait: Literal[True] = True) -> Self: ...
    @overload
    def close(self, *, wait: Literal[False]) -> Job[Self]: ...
    def close(self, *, wait: bool = True) -> Self | Job[Self]:
        """Close the room for everyone (host only).

        Raises
        ------
        RoomError
            This device does not host it.
        """
        if self._core is not None and self.role != "host":
            raise RoomError("Only the host can close this room.", "Leave it with room.leave().")
        return self.leave(wait=True) if wait else self.leave(wait=False)

    def _open_core(self) -> seam.RoomCore:
        self.result()
        if self._core is None or self._left:
            raise RoomClosed("This room is over.", "Host or join another one.")
        return self._core

    def __await__(self) -> Generator[Any, None, Room]:
        return self._opened().__await__()

    async def _opened(self) -> Room:
        if self._forked:
            raise forks.elsewhere()
        await self._opening
        return self

    def __enter__(self) -> Room:
        return self.result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    async def __aenter__(self) -> Room:
        return await self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave(wait=False)

    # For panels (see `pooled_nb.widgets.sources.RoomSource`).

    def command(
        self, name: str, options: dict[str, object], done: Callable[[str], None] | None = None
    ) -> None:
        """Do what a button says; returns at once and never raises.

        What is refused becomes a notice, or goes to ``done`` alone, which is told of every end.
        """

        def told(why: str) -> None:
            if done is not None:
                done(why)
            elif why:
                self._noticed(why)

        try:
            self._command(name, options, told)
        except PooledError as error:
            told(str(error))
        except Exception:
            log.warning("a panel's command failed", exc_info=True)
            told("This failed.")

    def _command(self, name: str, options: dict[str, object], told: Callable[[str], None]) -> None:
        self._open_now()
        match name:
            case "start" | "redeal":
                job: Job[Any] = self.start(wait=False)
            case "stop":
                job = self.stop(wait=False)
            case "reset":
                job = self.reset(wait=False)
            case "set":
                job = self.set(**chosen(options), wait=False)
            case "continue" | "regen":
                answer = self.ask_again(name)
                answer.on_end(lambda: told(answer.why))
                return
            case "close" | "leave":
                job = self.close(wait=False) if name == "close" else self.leave(wait=False)
            case _:
                found = self._door_command(name, options)
                if found is None:
                    return
                job = found

        def ended() -> None:
            error = job.error()
            told(str(error) if isinstance(error, PooledError) else "This failed." if error else "")

        job.on_end(ended)

    def _open_now(self) -> None:
        """Do as `_open_core` does, without waiting for it to open."""
        if self._core is None and not self._left:
            raise NotReady("This room is not open yet.", "Try again in a moment.")
        self._open_core()

    def panel(self) -> RoomPanel:
        """The panel of this room, for a notebook: one, shown as often as wanted."""
        if self._panel is None:
            from pooled_nb.widgets.room_panel import RoomPanel

            self._panel = RoomPanel(self, fallback=self.saved)
            self._panel._ipython_display_ = self._show_panel  # IPython's own hook
        return self._panel

    def saved(self) -> dict[str, str]:
        """What a notebook keeps of the room: what is shown where no panel can be."""
        status = self._status
        if status is None:
            return show.line_bundle(repr(self))
        return saved.bundle(status) if not self._left else show.status_bundle(status)

    def _has_buttons(self) -> bool:
        return in_notebook() and is_shown(self)

    # For people.

    def __repr__(self) -> str:
        if self._status is None:
            return "<Room, not open>"
        return f"<Room {self.code}, {self.role}, {self._status.state}>"

    def _ipython_display_(self) -> None:
        acted_in, said_in = self._acted_in, self._said_in
        self._acted_in = self._said_in = None
        if acted_in is None or acted_in != cell() or not (self._left or is_shown(self)):
            self._show_panel()
        elif said_in is None:
            # What `start`, `set`, `leave`, … give back: the panel that is there shows the rest.
            Output().show(show.line_bundle(self._status.sentence if self._status else repr(self)))

    def _show_panel(self) -> None:
        if self._left or self._core is None or not in_notebook():
            raise NotImplementedError  # IPython then shows it in the ordinary way
        show_panel(self)

    def _repr_markdown_(self) -> str:
        status = self._shown()
        return show.status_markdown(status) if status is not None else repr(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        status = self._shown()
        return show.status_bundle(status) if status is not None else show.line_bundle(repr(self))

    def _shown(self) -> seam.Status | None:
        # Showing it never fails and never waits for it to open.
        with contextlib.suppress(PooledError):
            return self.status() if self._core is not None else None
        return self._status
