"""What the front door gives for looking at: words, which may also be awaited."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from html import escape
from typing import Any, Self

from msgspec import Struct

from pooled_nb import show
from pooled_nb.plain import literal, visible


class Looked(Struct, frozen=True, kw_only=True):
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


def columns(rows: Iterable[tuple[str, ...]]) -> str:
    """Rows of a table as lines of text."""
    from rich.cells import cell_len  # as wide as a terminal draws it

    rows = [tuple(visible(" ".join(cell.split())) for cell in row) for row in rows]
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(c + " " * (w - cell_len(c)) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], below: str) -> dict[str, str]:
    """A table for a notebook, with a line below it."""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    lines = [f"| {' | '.join(map(literal, row))} |" for row in (head, *rows)]
    return {
        "text/plain": visible(f"{columns([head, *rows])}\n{below}"),
        "text/markdown": "\n".join([lines[0], "|" + " --- |" * len(head), *lines[1:], "", literal(below)]),
        "text/html": f"<table><thead><tr>{_cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"
        f"<small>{escape(below)}</small>",
    }


def _cells(tag: str, cells: Iterable[str]) -> str:
    return "".join(f"<{tag} style='text-align:left'><bdi>{escape(visible(c))}</bdi></{tag}>" for c in cells)
