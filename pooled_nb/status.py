"""The room at one moment, as people look at it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pooled_nb import show
from pooled_nb.mesh.codes import shown
from pooled_nb.room import core as seam


class Status(seam.Status, frozen=True, kw_only=True):
    """The room at one moment, for reading and for showing. Holds no secret."""

    @property
    def shown_code(self) -> str:
        """The code as people read it: ``4TK-G9P``."""
        return shown(self.code)

    def __await__(self) -> Generator[Any, None, Status]:
        return self._itself().__await__()

    async def _itself(self) -> Status:
        return self

    def __str__(self) -> str:
        return show.status_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_markdown_(self) -> str:
        return show.status_markdown(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return show.status_bundle(self)
