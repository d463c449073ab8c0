"""Text of others made harmless for Markdown and terminals."""

from __future__ import annotations

import mistune
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pooled_nb import plain

PAGE = MarkdownIt("commonmark", {"html": True})
"""A page that runs what it is given, as CommonMark says."""
OTHER = mistune.create_markdown(escape=False, plugins=["url", "table", "strikethrough"])
"""What nbconvert renders notebooks with; it makes links of addresses."""

PIECES = st.sampled_from(
    [
        *(
            "`",
            "``",
            "```\n",
            "~~~\n",
            "\n",
            "\n\n",
            "    ",
            "> ",
            "- ",
            "1. ",
            "\\",
            "***",
            "# ",
            "x",
            " ",
            "|",
            "\t",
        ),
        *("<", "<b>", "<img src=x>", "<script>", "<!--", "-->", "<a href='`'>", "<https://e.org>", "&lt;"),
        *("[a](javascript:x)", "[a]: data:x\n", "[a](https://e.org)", "[a]", "![x](y)", "![", "]("),
    ]
)


def active(page: str) -> list[str]:
    """What a page would run or fetch."""
    return [
        mark for mark in ("<img", "<script", "<b>", "<!--", 'href="javascript', 'href="data') if mark in page
    ]


@given(st.lists(PIECES, max_size=14).map("".join))
@example("[a]: data:x\n\t<b>")  # code below a definition, and markup where a page takes that for words
@settings(deadline=None, max_examples=300)
def test_no_answer_runs_or_fetches_anything(text: str) -> None:
    """DESIGN section 7: a finished answer becomes static Markdown; what a model wrote is never markup."""
    safe = plain.markdown(text)
    assert active(PAGE.render(safe)) == []


@pytest.mark.parametrize(
    "text",
    [
        "**bold** and `a < b`, see [it](https://example.org/a_b).",
        "```python\nif a < b: print('![x](y)')\n```",
        "- one\n\n  ```\n  x < y\n  ```\n- two",
        "    indented < code",
        "`` a ` < b ``",
        "| a | b |\n| - | - |\n| 1 | 2 |",
    ],
)
def test_what_is_harmless_stays_as_written(text: str) -> None:
    assert plain.markdown(text) == text


def test_words_look_as_written() -> None:
    text = "1 < 2, <b>no</b> ![no](http://example.org/x.png) \\<i> `<u>`"
    page = PAGE.render(plain.markdown(text))
    assert "1 &lt; 2, &lt;b&gt;no&lt;/b&gt; ![no](http://example.org/x.png)" in page
    assert "<code>&lt;u&gt;</code>" in page


@pytest.mark.parametrize(
    "fence", ["```python\nx = 1", "~~~~\nx\n~~~", "```\nx\n``` no end", "```", "a\n\n```\n\n"]
)
def test_what_follows_an_answer_is_not_its_code(fence: str) -> None:
    """An answer cut off inside a code block: the line below it is no code."""
    page = PAGE.render(f"{plain.markdown(fence)}\n\n*64 tokens*")
    assert page.endswith("<p><em>64 tokens</em></p>\n")
    assert page.count("<pre>") == 1


@given(st.text(alphabet="a.:/@&;<>[]()!|#`*_~$\\ 1-=+wht\x1b\x07\n日", max_size=40))
@settings(deadline=None, max_examples=200)
def test_a_name_is_shown_as_it_stands(name: str) -> None:
    """CASES: a name is text, whatever is in it."""
    inside = PAGE.renderInline(plain.literal(name))
    words = " ".join(plain.visible(name).split())
    want = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    assert inside == want


@pytest.mark.parametrize(
    "name", ["https://evil.example", "www.evil.com", "a@evil.com", "mailto:a@evil.com", "evil.com"]
)
def test_an_address_in_a_name_is_no_link(name: str) -> None:
    assert "<a " in OTHER(name) or "://" not in name
    assert "<a " not in OTHER(plain.literal(name))


@pytest.mark.parametrize("line", ["- a", "1. a", "12) a", "=", "# a", "> a"])
def test_a_name_begins_no_list_or_heading(line: str) -> None:
    assert PAGE.render(plain.literal(line)).startswith("<p>")


def test_lines_and_tabs_stay() -> None:
    assert plain.visible("a\tb\nc\r\n\x1b[31md\x9b\x7f é") == "a\tb\nc\n[31md é"
