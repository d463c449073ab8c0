"""Who waits, the invite link, who comes in and by which ways: as people look at them."""

from __future__ import annotations

from typing import Any

from pooled_nb import door_text, show
from pooled_nb.looked import Looked, table
from pooled_nb.mesh.codes import shown
from pooled_nb.room import doorfacts


class Lobby(list[doorfacts.LobbyLine]):
    """Who waits to be let in, longest first; shown as a table."""

    def __str__(self) -> str:
        if not self:
            return door_text.NOBODY
        return self._table()["text/plain"]

    __repr__ = __str__

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        if not self:
            return show.line_bundle(door_text.NOBODY)
        return self._table()

    def _table(self) -> dict[str, str]:
        return table(door_text.LOBBY_HEAD, door_text.lobby_rows(self), door_text.LOBBY_NEXT)


class Invite(Looked, doorfacts.Invite, frozen=True, kw_only=True):
    """A link that lets its holder in without asking: a secret, shown by none of its texts.

    Attributes
    ----------
    code
        The room's code, which is no secret.
    link
        The link itself: for an environment variable (``POOLED_LINK``) or a file of yours, never for a cell.
        Its repr is not it, so that a cell that ends with it keeps nothing.
    """

    def _text(self) -> str:
        return door_text.invite(shown(self.code))

    def __repr__(self) -> str:
        return f"<Invite to room {shown(self.code)}, its link not shown>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("code", self.code)]


class Gate(Looked, doorfacts.GateChoices, frozen=True, kw_only=True):
    """Who comes in."""

    def _text(self) -> str:
        return door_text.gate(self)


class Network(Looked, doorfacts.NetworkFacts, frozen=True, kw_only=True):
    """By which ways this device reaches others. Holds no secret."""

    def _text(self) -> str:
        return door_text.network(self)
