"""The forms that weights may be kept in, their names on the wire, and the memory they take. No torch."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

QUANT_FORMS = ("", "int8", "int4")
"""What a room may ask for; empty: weights as they are, in the room's dtype."""
QUANT_CLASSES = {"int8": "int8-row", "int4": "int4-g128"}
"""Names of our layouts, which is what ``ai-load.nb.quant`` says (PROTOCOL section 6).

``int8-row``: symmetric, one scale for each row of the weight (each number that comes out). ``int4-g128``: 16
steps from the smallest number of a group to its largest, in groups of `GROUPS` along the row; a row that no
group divides is kept as ``int8-row``. Scales are of the room's dtype. Only linear layers are kept so:
embedding, head, norms, routers and a mixture's experts stay as they are.
"""
GROUPS = (128, 64, 32)
"""Numbers of a group: the largest that divides the row."""


class Linears(Struct, frozen=True, kw_only=True):
    """What decides how much the linear weights of a layer take: of all, and of those that groups divide.

    Attributes
    ----------
    numbers, rows
        Of all of them.
    grouped, grouped_rows, groups
        Of those whose rows a group divides.
    """

    numbers: int = 0
    rows: int = 0
    grouped: int = 0
    grouped_rows: int = 0
    groups: int = 0


def form_of(name: str | None) -> str | None:
    """The form of a class by its name on the wire; None where it is not known here."""
    if name is None:
        return ""
    return next((form for form, known in QUANT_CLASSES.items() if known == name), None)


def group_of(row: int) -> int | None:
    """Numbers of a group in rows of this length; None where none divides it."""
    return next((size for size in GROUPS if row % size == 0), None)


def linear_sizes(shapes: Iterable[tuple[int, int]]) -> Linears:
    """What decides the size of weights of these shapes (rows, numbers of a row)."""
    shapes = list(shapes)
    grouped = [(rows, row, group) for rows, row in shapes if (group := group_of(row))]
    return Linears(
        numbers=sum(rows * row for rows, row in shapes),
        rows=sum(rows for rows, _ in shapes),
        grouped=sum(rows * row for rows, row, _ in grouped),
        grouped_rows=sum(rows for rows, _, _ in grouped),
        groups=sum(rows * (row // group) for rows, row, group in grouped),
    )


def kept_bytes(linears: Linears, form: str, itemsize: int) -> int:
    """Bytes of a layer's linear weights in a form.

    Parameters
    ----------
    form
        One of `QUANT_FORMS`.
    itemsize
        Bytes of a number of the room's dtype, in which scales are.
    """
    if not form:
        return linears.numbers * itemsize
    if form == "int8":
        return linears.numbers + linears.rows * itemsize
    plain = linears.numbers - linears.grouped + (linears.rows - linears.grouped_rows) * itemsize
    return linears.grouped // 2 + linears.groups * 2 * itemsize + plain


def saved_bytes(linears: Linears, form: str, itemsize: int) -> int:
    """Bytes that a form takes less than the room's dtype."""
    return kept_bytes(linears, "", itemsize) - kept_bytes(linears, form, itemsize)
