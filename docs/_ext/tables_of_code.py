"""Parts of pages made of what is there, so that no page can say other things than the program does.

``magics``: what ``%pooled`` and ``%%ask`` understand. ``errors``: the tree of errors, with their words.
``pictures NAMES``: those of ``images/`` whose names fit, as the tests in a browser took them; one that
has no caption breaks the build.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from pooled_nb import errors
from pooled_nb.magics.help import ASK_HELP
from pooled_nb.magics.verbs import ASK, VERBS, Option


class Made(SphinxDirective):
    """A directive whose text is made."""

    def run(self) -> list[nodes.Node]:
        """Return the nodes of its text."""
        return list(self.parse_text_to_nodes("\n".join(self.text()), allow_section_headings=True))

    def text(self) -> Iterator[str]:
        """Give the lines of Markdown."""
        raise NotImplementedError


class MagicsTable(Made):
    """The verbs of ``%pooled`` with their options, then those of ``%%ask``."""

    def text(self) -> Iterator[str]:
        """Give the lines of Markdown."""
        yield from ("| line | what it does |", "|---|---|", "| `%pooled` | the room's panel |")
        for name, verb in VERBS.items():
            yield f"| {code(f'%pooled {name} {verb.target}')} | {verb.what} |"
        yield f"| `%%ask` | {ASK_HELP} |"
        for name, verb in VERBS.items():
            if verb.options:
                yield from ("", f"**{code(f'%pooled {name}')}** {verb.more}", "")
                yield from options(verb.options)
        yield from ("", "**`%%ask`**", "")
        yield from options(ASK)
        yield ""


class ErrorsTable(Made):
    """Every error, in words."""

    def text(self) -> Iterator[str]:
        """Give the lines of Markdown."""
        yield from ("| error | what it means | is a |", "|---|---|---|")
        for kind in vars(errors).values():
            if isinstance(kind, type) and issubclass(kind, errors.PooledError):
                first = (kind.__doc__ or "").strip().splitlines()[0]
                yield f"| `{kind.__name__}` | {first} | {code(kind.__mro__[1].__name__)} |"


class Pictures(Made):
    """Pictures, light or dark as the page is; lines ``NAME: WORDS`` give their order and captions."""

    required_arguments = 1
    has_content = True

    def text(self) -> Iterator[str]:
        """Give the lines of Markdown."""
        folder = Path(self.env.srcdir) / "images"
        captions = dict(line.split(": ", 1) for line in self.content)
        found = {path.stem: path for path in folder.glob(self.arguments[0])}
        for stem in sorted(found, key=lambda stem: list(captions).index(_theme(stem)[0])):
            name, theme = _theme(stem)
            other = f"{name}-{'dark' if theme == 'light' else 'light'}"
            shown = [f":figclass: only-{theme}"] if theme and other in found else []
            yield from ("", f":::{{figure}} images/{found[stem].name}", f":alt: {captions[name]}", *shown, "")
            yield from (captions[name], ":::")


def _theme(stem: str) -> tuple[str, str]:
    """Return the name without its theme, and the theme (empty: none)."""
    name, _, last = stem.rpartition("-")
    return (name, last) if last in ("light", "dark") else (stem, "")


def options(all_of_them: Iterable[Option]) -> Iterator[str]:
    """Give the rows of a table of options."""
    yield from ("| option | what it does |", "|---|---|")
    for option in all_of_them:
        names = ", ".join(code(f"{name} {option.value}") for name in option.names)
        more = f" ({', '.join(option.choices)})" if option.choices else ""
        yield f"| {names} | {option.what}{more} |"


def code(text: str) -> str:
    """Return it as code."""
    return f"`{text.strip()}`"


def setup(app: Sphinx) -> dict[str, Any]:
    """Make them known to Sphinx."""
    app.add_directive("magics", MagicsTable)
    app.add_directive("errors", ErrorsTable)
    app.add_directive("pictures", Pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
