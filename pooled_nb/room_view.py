"""A room as any thread sees it; the room itself lives on the mesh loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Literal, Self, overload

import msgspec

from pooled_nb import forks, show
from pooled_nb.answer import Answer
from pooled_nb.errors import PooledError, RoomClosed, RoomError
from pooled_nb.job import Job
from pooled_nb.mesh.codes import shown
from pooled_nb.progress import Waiting, waiting
from pooled_nb.room import core as seam
from pooled_nb.room.questions import check_question
from pooled_nb.room_life import Opening, RoomLife
from pooled_nb.status import Status
from pooled_nb.threads import mesh

LOOK_S = 0.1
"""How often a wait for devices, or for the end, looks up."""


class Room(RoomLife):
    """A room that this process hosts or has joined. Made by `pooled_nb.host` and `pooled_nb.join`.

    Use it from any thread. ``with`` and ``async with`` leave it at the end.

    Attributes
    ----------
    last
        The newest answer asked here, whole or not.
    notices
        The newest sentences for the person: a device left, signaling is down, …
    progress
        How far opening or loading is: percent (None: not known) and a few words.
    """

    def __init__(self, opening: Opening, *, quiet: bool = False) -> None:
        self.last: Answer | None = None
        self._quiet = quiet
        super().__init__(opening)

    # On the mesh loop.

    async def _start(self, core: seam.RoomCore, devices: int) -> None:
        while (here := len(core.status().devices)) < devices and core.status().state != "closed":
            self.progress = (None, f"{here} of {devices} devices are here")
            await asyncio.sleep(LOOK_S)
        await core.start(self._report)

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
        self._opening.result(timeout, tick=self._ticker(view))
        return self

    def status(self) -> Status:
        """The room now; after it was left, as it was last."""
        self.result()
        if not self._left:
            with contextlib.suppress(RoomClosed):
                mesh.run(self._seen())
        assert self._status is not None
        return Status(**msgspec.structs.asdict(self._status))

    @overload
    def start(self, *, devices: int | None = None, wait: Literal[True] = True) -> Self: ...
    @overload
    def start(self, *, devices: int | None = None, wait: Literal[False]) -> Job[Self]: ...
    def start(self, *, devices: int | None = None, wait: bool = True) -> Self | Job[Self]:
        """Deal the model's layers over the devices now here, and load them (host only).

        Parameters
        ----------
        devices
            Wait until so many are here, this one counted.
        wait
            False: return at once; await what comes back, or call its ``result``.

        Raises
        ------
        ModelTooBig
            The memory lent does not hold it: how many GB are short, and who could give more.
        NotReady
            There is nothing to start now: says why.
        """
        core = self._open_core()
        self.progress = (None, "dealing the layers")
        with waiting(self.progress[1], quiet=self._quiet or not wait) as view:
            done = self._do(lambda: self._start(core, devices or 1), wait, view)
            if wait:
                view.finish(show.line_bundle(self.status().sentence))
        return done

    def ask(
        self,
        text: str,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        on_text: Callable[[str], None] | None = None,
        wait: bool = True,
    ) -> Answer:
        """Ask the room. On a host that has not started yet, the layers are dealt and loaded first.

        An interrupt stops this answer, keeps the room, and is raised; what had come is in `last`.

        Parameters
        ----------
        text
            The question, up to 8,000 characters.
        max_tokens
            The most tokens of the answer.
        temperature, top_k, top_p, seed
            How tokens are drawn. None: the room's way; temperature 0 is greedy.
        on_text
            Called with each piece of text, in the calling thread. Only with ``wait``.
        wait
            False: return the live answer at once.

        Raises
        ------
        BadQuestion, QueueFull, NotReady, AnswerFailed, RoomClosed
        """
        options = seam.AskOptions(
            max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
        )
        options = check_question(text, options)
        core = self._open_core()
        if not wait:
            self.last = Answer(core, text, options)
            return self.last
        # Text goes to on_text where there is one, else it grows in the display of the wait.
        with waiting("asking", quiet=self._quiet or on_text is not None) as view:
            self.last = answer = Answer(core, text, options)
            try:
                answer.result(on_text=on_text, view=view)
            finally:
                # What was read stays where it was read, whole or not.
                if view.finish(answer._repr_mimebundle_()):
                    answer.shown()
        return answer

    def stream(self, text: str, **options: Any) -> Answer:
        """Ask, and iterate over the answer: ``async for piece in room.stream("…")``, or ``for``.

        Takes the options of `ask`. Leaving the loop early stops the answer.
        """
        return self.ask(text, **options, wait=False)

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

    def wait(self) -> Room:
        """Block until the room is over, or this device has left it: what a script that only lends does."""
        self.result()
        with waiting("in the room", quiet=self._quiet) as view:
            while not self._left:
                view.report(None, self.status().sentence)
                view.tick()
                time.sleep(LOOK_S)
            view.finish(show.line_bundle(self.status().sentence))
        return self

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

    def _do(
        self, work: Callable[[], Awaitable[None]], wait: bool, view: Waiting | None = None
    ) -> Self | Job[Self]:
        job = mesh.submit(self._then(work))
        return job.result(tick=self._ticker(view)) if wait else job

    def _ticker(self, view: Waiting | None) -> Callable[[], None] | None:
        if view is None:
            return None

        def tick() -> None:
            view.report(*self.progress)
            view.tick()

        return tick

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

    # For people.

    def __repr__(self) -> str:
        if self._status is None:
            return "<Room, not open>"
        return f"<Room {self.code}, {self.role}, {self._status.state}>"

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
