"""The documentation says all of what there is: its build (``make docs``) finds what is said wrongly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePath

import pooled_nb

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = "\n".join(path.read_text("utf-8") for path in sorted(DOCS.glob("*.md")))
NOT_OURS = ("node_modules", "_build", ".*")
"""Folders that are made here, and hold pages of others."""


def pages(folder: Path) -> Iterator[Path]:
    """Our pages below a folder, those of hosting sites' own folder with them."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and (path.name == ".github" or not any(map(path.match, NOT_OURS))):
            yield from pages(path)
        elif path.suffix == ".md":
            yield path


FILES = list(pages(ROOT))


def test_every_public_name_is_documented() -> None:
    python = (DOCS / "python.md").read_text("utf-8")
    wanted = {name for name in pooled_nb.__all__ if name not in ("PooledError", "__version__")}
    assert not {name for name in wanted if f":: pooled_nb.{name}\n" not in python}


def test_every_page_is_reached_from_the_first() -> None:
    index = (DOCS / "index.md").read_text("utf-8")
    named = set(re.findall(r"^([\w-]+)$", index, re.MULTILINE))
    assert {path.stem for path in DOCS.glob("*.md")} - {"index"} == named


def test_every_picture_is_shown_somewhere() -> None:
    shown = PAGES + (ROOT / "README.md").read_text("utf-8")
    pictures = {path.relative_to(DOCS).as_posix() for path in (DOCS / "images").rglob("*.png")}
    named = re.findall(r"\{pictures\} (\S+)", PAGES)
    by_name = {picture for picture in pictures for name in named if PurePath(picture).match(name)}
    assert not {picture for picture in pictures - by_name if picture not in shown}


def test_every_link_inside_the_repository_leads_somewhere() -> None:
    lost = []
    for path in FILES:
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text("utf-8")):
            if "://" not in target and not (path.parent / target).exists():
                lost.append(f"{path.relative_to(ROOT)}: {target}")
    assert not lost


def test_every_row_of_a_table_belongs_to_one() -> None:
    """A blank line parts a row from its table, and it is shown as text with bars."""
    alone = []
    for path in FILES:
        lines = ["", *path.read_text("utf-8").splitlines(), ""]
        for number, (before, line, after) in enumerate(zip(lines, lines[1:], lines[2:], strict=False), 1):
            begins = line.startswith("|") and not before.startswith("|")
            if begins and not re.fullmatch(r"\|[\s|:-]+\|", after):
                alone.append(f"{path.relative_to(ROOT)}:{number}")
    assert not alone


def test_every_part_of_make_is_in_its_help() -> None:
    """What a person may type after ``make`` is said by ``make help``."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    phony = makefile.split(".PHONY:")[1].split("\n.")[0].replace("\\\n", " ").split()
    said = re.findall(r"^([a-z-]+):.*  ## ", makefile, re.MULTILINE)
    assert set(phony) - set(said) == {"npm"}
