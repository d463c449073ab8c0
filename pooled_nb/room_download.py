"""What a device asks its person before it downloads much, as any thread answers it."""

from __future__ import annotations

from typing import Literal, Self, overload

from pooled_nb.downloads import Downloads
from pooled_nb.job import Job
from pooled_nb.progress import Waiting
from pooled_nb.room_chat import RoomChat
from pooled_nb.room_life import Opening


class RoomDownload(RoomChat):
    """Asks, and hears. The base of `RoomDoor`."""

    def __init__(self, opening: Opening, *, quiet: bool = False) -> None:
        self._downloads = Downloads(self)
        super().__init__(opening, quiet=quiet)

    def ask_person(self, view: Waiting) -> None:
        """Ask about a download that a wait is about, in the thread that waits.

        Not where the room's panel is shown, which has buttons for it, nor where nothing is to be shown.
        """
        if not (self._quiet or self._has_buttons()):
            self._downloads.ask(view)

    def _has_buttons(self) -> bool:
        """Whether its panel is shown."""
        return False

    @overload
    def allow_download(self, yes: bool = True, *, wait: Literal[True] = True) -> Self: ...
    @overload
    def allow_download(self, yes: bool = True, *, wait: Literal[False]) -> Job[Self]: ...
    def allow_download(self, yes: bool = True, *, wait: bool = True) -> Self | Job[Self]:
        """Answer what this device asks (`Status.asks`): may it download so much for its layers.

        It asks above the GB of ``POOLED_MAX_DOWNLOAD`` for one load (8 when not set), and waits two minutes.

        Parameters
        ----------
        yes
            False: it downloads nothing, and holds no layers.
        wait
            False: return at once; await what comes back, or call its ``result``.

        Raises
        ------
        NotReady
            Nothing is asked (any more).
        """
        core = self._open_core()
        return self._do(lambda: core.allow_download(yes=yes is True), wait)
