"""Text of others made harmless: what a model, a device or a server wrote, for terminals and Markdown.

HTML is `html.escape`'s job; see `pooled_nb.show`.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it.token import Token

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_FINE_LINK = re.compile(r"(?:https?:|mailto:|[^:]*(?:[/?#]|$))", re.IGNORECASE)
_LINKS = re.compile(r"@|:(?=\S)|\.(?=[^\W\d_])")
_FIRST = re.compile(r"^(\d*)([.)])(?=\s|$)|^()([-=])")
_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN", "RLE", "RLO", "RLI"})


def visible(text: str) -> str:
    """Text without control characters other than line breaks and tabs: none of it is a terminal's command."""
    return _CONTROL.sub("", text)


def isolated(name: str) -> str:
    """A name that turns no text around it: one that reads from the right is isolated (Unicode's FSI, PDI)."""
    turns = any(unicodedata.bidirectional(c) in _RIGHT_TO_LEFT for c in name)
    return f"\u2068{name}\u2069" if turns else name


def literal(text: str) -> str:
    """One line that Markdown shows as it stands: no markup, no HTML, no link made of an address."""
    line = " ".join(visible(text).split())
    line = "".join(f"\\{c}" if c in r"\`*_{}[]<>#+!|~$&" else c for c in line)
    line = _LINKS.sub(lambda found: f"\\{found[0]}", line)
    return _FIRST.sub(lambda found: f"{found[1] or ''}\\{found[2] or found[4]}", line)


def markdown(text: str) -> str:
    """A model's Markdown without HTML, images and scripts, for pages that would run them; fences are closed.

    Code stays as it was written. Links are taken for words where one of them is not to the web or to mail;
    and all of the text is, should this reading of what is code ever differ from CommonMark's.
    """
    text = visible(text.replace("\r\n", "\n").replace("\r", "\n"))
    for marks in ("<![", "<["):
        safe = _closed("\n".join(_escaped(text, marks)))
        if _is_safe(safe):
            return safe
    return _closed(_entities(text, "<["))


def _tokens(text: str, *, html: bool, every_link: bool = True) -> list[Token]:
    from markdown_it import MarkdownIt  # 20 ms, and only where something is shown

    parser = MarkdownIt("commonmark", {"html": html})
    if every_link:  # it is seen here, to be judged here
        parser.validateLink = lambda url: True  # type: ignore[method-assign] # its own way to be told
    return parser.parse(text)


def _escaped(text: str, marks: str) -> Iterator[str]:
    """Lines: those of code blocks as they are, all others escaped outside of code spans."""
    lines = text.split("\n")
    at = 0
    for token in _tokens(text, html=False):
        if token.type not in ("fence", "code_block", "inline") or token.map is None or token.map[0] < at:
            continue
        begin, end = token.map
        yield from (_words(line, marks) for line in lines[at:begin])
        part = lines[begin:end]
        yield from _words("\n".join(part), marks).split("\n") if token.type == "inline" else part
        at = end
    yield from (_words(line, marks) for line in lines[at:])


def _words(text: str, marks: str) -> str:
    """Escaped outside of code spans, which are found as CommonMark section 6.1 says."""
    done, at = [], 0
    for run in re.finditer(r"\\.|`+", text, re.DOTALL):
        if run.start() < at or run[0][0] == "\\":
            continue
        closing = re.compile(rf"(?<!`){run[0]}(?!`)").search(text, run.end())
        if closing is not None:
            done += [_entities(text[at : run.start()], marks), text[run.start() : closing.end()]]
            at = closing.end()
    return "".join([*done, _entities(text[at:], marks)])


def _entities(text: str, marks: str) -> str:
    # Entities, since a backslash of the model's own would undo a backslash.
    text = text.replace("<", "&lt;")
    return text.replace("![", "!&#91;") if "!" in marks else text.replace("[", "&#91;")


def _closed(text: str) -> str:
    """With the fence closed that an answer cut off in the middle leaves open."""
    last = next(iter(_tokens(text, html=False)[-1:]), None)
    if last is None or last.type != "fence" or last.map is None:
        return text
    lines = text.split("\n")[last.map[0] : last.map[1]]
    while len(lines) > 1 and not lines[-1].strip():
        lines.pop()
    mark = re.escape(last.markup[0])
    if len(lines) > 1 and re.fullmatch(rf" {{0,3}}{mark}{{{len(last.markup)},}}\s*", lines[-1]):
        return text
    return f"{text.rstrip()}\n{last.markup}"


def _is_safe(text: str) -> bool:
    """Whether a CommonMark page would find no HTML, no image and no link but to the web and to mail."""
    # To a page that takes some links for words, a line below them may be no code, as it is to others.
    both = (_tokens(text, html=True), _tokens(text, html=True, every_link=False))
    for token in itertools.chain(*both):
        for part in (token, *(token.children or ())):
            if part.type in ("html_block", "html_inline", "image"):
                return False
            if part.type == "link_open" and not _FINE_LINK.match(str(part.attrs.get("href", ""))):
                return False
    return True
