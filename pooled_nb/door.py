"""Who waits, the invite link, who comes in and by which ways: as people look at them."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from html import escape
from typing import Any, Self

from msgspec import Struct

from pooled_nb import door_text, show
from pooled_nb.mesh.codes import shown
from pooled_nb.plain import literal, visible
from pooled_nb.room import doorfacts


class _Looked(Struct, frozen=True, kw_only=True):
    """What can be awaited, as everything that the front door gives, and shows itself as words."""

    def _text(self) -> str:
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, Self]:
        return self._itself().__await__()

    async def _itself(self) -> Self:
        return self

    def __str__(self) -> str:
        return visible(self._text())

    def __repr__(self) -> str:
        return str(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return show.line_bundle(str(self))["text/html"]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._repr_html_()}


class Lobby(list[doorfacts.LobbyLine]):
    """Who waits to be let in, longest first; shown as a table."""

    def __str__(self) -> str:
        if not self:
            return door_text.NOBODY
        rows = [door_text.LOBBY_HEAD, *door_text.lobby_rows(self)]
        return visible(f"{_columns(rows)}\n{door_text.LOBBY_NEXT}")

    __repr__ = __str__

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        if not self:
            return show.line_bundle(door_text.NOBODY)
        rows = door_text.lobby_rows(self)
        head, line = door_text.LOBBY_HEAD, "|" + " --- |" * len(door_text.LOBBY_HEAD)
        table = [f"| {' | '.join(map(literal, row))} |" for row in (head, *rows)]
        page = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
        return {
            "text/plain": str(self),
            "text/markdown": "\n".join([table[0], line, *table[1:], "", literal(door_text.LOBBY_NEXT)]),
            "text/html": f"<table><thead><tr>{_cells('th', head)}</tr></thead><tbody>{page}</tbody></table>"
            f"<small>{escape(door_text.LOBBY_NEXT)}</small>",
        }


class Invite(_Looked, doorfacts.Invite, frozen=True, kw_only=True):
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


class Gate(_Looked, doorfacts.GateChoices, frozen=True, kw_only=True):
    """Who comes in."""

    def _text(self) -> str:
        return door_text.gate(self)


class Network(_Looked, doorfacts.NetworkFacts, frozen=True, kw_only=True):
    """By which ways this device reaches others. Holds no secret."""

    def _text(self) -> str:
        return door_text.network(self)


def _columns(rows: Iterable[tuple[str, ...]]) -> str:
    from rich.cells import cell_len  # as wide as a terminal draws it

    rows = [tuple(visible(" ".join(cell.split())) for cell in row) for row in rows]
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(c + " " * (w - cell_len(c)) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _cells(tag: str, cells: Iterable[str]) -> str:
    return "".join(f"<{tag} style='text-align:left'><bdi>{escape(visible(c))}</bdi></{tag}>" for c in cells)
