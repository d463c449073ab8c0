"""List the rows of the protocol that no test names: ``make protocol``.

A row is a line of a table, a bullet, or a paragraph of ``docs/PROTOCOL.md``. A test names it in a docstring
or a comment, in one passage (no blank line between) that also says ``PROTOCOL section N``:

    PROTOCOL section 5: "half frames older than 30 s"   words of the row, quoted (… parts two quotes)
    PROTOCOL section 5: half frames older than 30 s, …  three words or more of it between two marks
    PROTOCOL section 3: `ai-load`, ``pledge``           a message, which names its row in a table
    PROTOCOL section 5, receiving: …                    the bold word with which a row begins

A section named without any of these counts as touched, its rows do not. Words that fit more than three rows
name none; a quote that fits no row is listed by ``--stale``: the row was worded anew, or it quotes another.

It prints the gaps and the counts, and always succeeds: it is a list to work on, no gate.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LATER = {9, 10, 11}
"""Sections whose parts are not built yet: counted, their gaps only with ``--all``."""
VAGUE = 3

_SECTION = re.compile(r"^## (\d+)\. (.*)")
_NAMED = re.compile(r"PROTOCOL(?:\.md)?,? sections? (\d+(?:(?:, | and | or )\d+)*)((?:, [a-z -]+)?)")
_QUOTE = re.compile(r'"([^"]{6,400})"|“([^”]{6,400})”')
_WORD = re.compile(r"`{1,2}([^`\n]{2,60})`{1,2}|\b((?:ai|nb)-[a-z-]+)\b")
_MARKS = re.compile(r"[.,;:()…\"“”]+(?:\s|$)|[(\"“”]")


@dataclass
class Row:
    """One rule: where it stands, its words, and the words that begin it."""

    section: int
    line: int
    text: str
    title: str
    table: bool
    named_by: list[str] = field(default_factory=list)


def plain(text: str) -> str:
    """Words without markup, case and line ends, so that a quote need not repeat them."""
    text = re.sub(r"[*`\\]|\(nb\)", "", text).replace("“", '"').replace("”", '"').replace("’", "'")
    return re.sub(r"\s+", " ", text).strip().lower()


def rows_of(text: str) -> tuple[list[Row], dict[int, str]]:
    """All rows, and the titles of the sections."""
    rows: list[Row] = []
    titles: dict[int, str] = {}
    section = 0
    open_row = False
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if head := _SECTION.match(line):
            section, open_row = int(head[1]), False
            titles[section] = head[2]
            continue
        stripped = line.strip()
        head_of_table = (
            number < len(lines) and re.fullmatch(r"\|[\s|:-]+\|", lines[number].strip()) is not None
        )
        if not section or not stripped or re.fullmatch(r"\|[\s|:-]+\|", stripped) or head_of_table:
            open_row = False
            continue
        table, bullet = stripped.startswith("|"), re.match(r"(?:-|\d+\.) ", stripped)
        # A line that ends no sentence goes on; in a paragraph each line that does is a rule of its own.
        if open_row and not table and not bullet:
            rows[-1].text += " " + stripped
        else:
            body = stripped.strip("|").strip() if table else stripped[bullet.end() :] if bullet else stripped
            rows.append(Row(section, number, body, _title(body, table), table))
        open_row = not table and (
            line.startswith(" ") or bullet is not None or not stripped.endswith((".", ":"))
        )
    return [row for row in rows if not _introduces(row)], titles


def _title(body: str, table: bool) -> str:
    if table:
        return plain(body.split("|")[0])
    lead = re.match(r"\*{0,2}([^.:*]{3,60})\*{0,2}[.:,]", body)
    return plain(lead[1]) if lead else ""


def _introduces(row: Row) -> bool:
    """A line that only says what follows."""
    return row.text.endswith(":") and len(row.text) < 80


def passages(folder: Path) -> Iterator[tuple[str, str]]:
    """``(place, text)`` of every docstring and comment, paragraph by paragraph."""
    for path in sorted(folder.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        texts = [*_docstrings(source), *_comments(source)]
        for line, text in texts:
            for part in re.split(r"\n\s*\n", text):
                yield f"{path.relative_to(folder.parent)}:{line}", part


def _docstrings(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def _comments(source: str) -> Iterator[tuple[int, str]]:
    block: list[str] = []
    for number, line in enumerate([*source.splitlines(), ""], 1):
        if line.lstrip().startswith("#"):
            block.append(line.lstrip().lstrip("# "))
        elif block:
            yield number - len(block), "\n".join(block)
            block = []


def name_rows(rows: list[Row], folder: Path) -> tuple[dict[int, int], list[str]]:
    """Mark rows that tests name; return how often each section is touched, and quotes that fit no row."""
    touched: dict[int, int] = {}
    stale: list[str] = []
    for place, text in passages(folder):
        mentions = list(_NAMED.finditer(text))
        if not mentions:
            continue
        sections = {int(n) for m in mentions for n in re.findall(r"\d+", m[1])}
        for n in sections:
            touched[n] = touched.get(n, 0) + 1
        here = [row for row in rows if row.section in sections]
        for m in mentions:
            _by_title(here, m[2].removeprefix(", "), place)
        for quote in (a or b for a, b in _QUOTE.findall(text)):
            if not _by_quote(here, quote, place):
                stale.append(f'{place}: "{" ".join(quote.split())}"')
        for part in _MARKS.split(text):
            if len(part.split()) >= 3:
                _mark([row for row in here if plain(part) in plain(row.text)], place)
        for word in {plain(a or b) for a, b in _WORD.findall(text)}:
            pattern = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
            _mark([row for row in here if row.table and pattern.search(row.title)], place)
    return touched, stale


def _by_title(here: list[Row], title: str, place: str) -> None:
    if title := plain(title):
        _mark([row for row in here if row.title.startswith(title)], place)


def _by_quote(here: list[Row], quote: str, place: str) -> bool:
    known = True
    for part in quote.split("…"):
        words = plain(part).strip(" .,;:()")
        if len(words) < 6:
            continue
        fits = [row for row in here if words in plain(row.text)]
        known = known and bool(fits)
        _mark(fits, place)
    return known


def _mark(fits: list[Row], place: str) -> None:
    for row in fits if len(fits) <= VAGUE else ():
        row.named_by.append(place)


def main() -> None:
    """Print the gaps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("protocol", nargs="?", type=Path, default=ROOT / "docs" / "PROTOCOL.md")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests")
    parser.add_argument("--all", action="store_true", help="gaps of sections that come later, too")
    parser.add_argument("--stale", action="store_true", help="quotes that fit no row")
    parser.add_argument("--named", action="store_true", help="also what names each row")
    options = parser.parse_args()
    rows, titles = rows_of(options.protocol.read_text(encoding="utf-8"))
    touched, stale = name_rows(rows, options.tests)
    for section, title in titles.items():
        mine = [row for row in rows if row.section == section]
        gaps = [row for row in mine if not row.named_by]
        later = " (comes later)" if section in LATER else ""
        print(
            f"section {section}, {title}{later}: {len(mine) - len(gaps)} of {len(mine)} rows named, "
            f"{touched.get(section, 0)} passages"
        )
        for row in mine if options.named else gaps:
            if section in LATER and not options.all:
                break
            places = f"  <- {', '.join(sorted(set(row.named_by)))}" if row.named_by else ""
            print(f"  line {row.line}: {row.text[:100]}{'…' if len(row.text) > 100 else ''}{places}")
    if options.stale:
        print(f"{len(stale)} quotes fit no row:")
        print("\n".join(f"  {line}" for line in stale))
    named = sum(bool(row.named_by) for row in rows if row.section not in LATER)
    whole = sum(row.section not in LATER for row in rows)
    print(
        f"{named} of {whole} rows named in the sections that are built; "
        f"{len(stale)} quotes fit no row (--stale)"
    )


if __name__ == "__main__":
    main()
