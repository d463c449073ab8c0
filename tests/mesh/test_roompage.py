"""PROTOCOL section 2: "Links: path ``…/r/CODE`` or ``…/room/CODE``": what a browser shows behind one."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tornado.httpclient import AsyncHTTPClient

from pooled_nb.errors import BadCode
from pooled_nb.mesh import codes, roompage
from pooled_nb.mesh.signalserver import SignalServer
from tests.mesh.rtctools import nothing_left


class Tags(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


@pytest.mark.parametrize("text", [roompage.page("4TKG9P"), roompage.NO_ROOM])
def test_it_holds_nothing_that_runs_or_sends(text: str):
    """DESIGN section 7: the key stands in the fragment; no script can read it, nothing leaves the page."""
    tags = Tags(text).seen
    kinds = {tag for tag, _ in tags}
    assert kinds <= {"html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "pre"}
    for _, attrs in tags:
        assert set(attrs) <= {"lang", "charset", "name", "content", "class"}
    assert "url(" not in text
    assert "@import" not in text


def test_its_style_is_the_one_that_the_policy_lets_in():
    """DESIGN section 7: the policy names one style by its hash, and nothing else."""
    style = re.search(r"<style>(.*)</style>", roompage.page("4TKG9P"), re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert roompage.POLICY.startswith(f"default-src 'none'; style-src 'sha256-{digest}'; ")
    for part in ("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"):
        assert part in roompage.POLICY
    assert "prefers-color-scheme: dark" in style[1]


async def test_over_http():
    """PROTOCOL section 2, "a page without scripts for who opens a link in a browser": both paths, any
    spelling of a code; one that is none is 404 and not repeated.
    """
    async with nothing_left():
        server = await SignalServer.start(path="/rooms/")
        http = AsyncHTTPClient(force_instance=True)
        base = server.url.replace("ws://", "http://")
        for path in ("r/4TKG9P", "r/4tk-g9p", "room/4TK-G9P/", "r/4TKG9P?signal=ws://x&code=AAAAAA"):
            got = await http.fetch(base + path)
            assert "4TK-G9P" in got.body.decode()
            assert "AAA" not in got.body.decode()
            assert got.headers["Content-Type"] == "text/html; charset=utf-8"
            assert got.headers["Content-Security-Policy"] == roompage.POLICY
            assert got.headers["Referrer-Policy"] == "no-referrer"
            assert got.headers["Cache-Control"] == "no-store"
        for path in ("r/4TKG9", "r/%3Cscript%3E", "r/4TKG90", "room/x%22onload=", "r/" + "A" * 2_500):
            got = await http.fetch(base + path, raise_error=False)
            assert got.code == 404
            assert got.body.decode() == roompage.NO_ROOM
        for path in ("r/", "r/a/b", "s/4TKG9P"):
            got = await http.fetch(base + path, raise_error=False)
            assert got.code == 404
        http.close()
        await server.close()


async def test_an_invite_link_leads_there():
    """PROTOCOL section 2: the link that a host of our server gives out, as it stands, opens its page; the
    same text, pasted, is the invite.
    """
    key = "k" * 22
    async with nothing_left():
        server = await SignalServer.start(path="/rooms/")
        http = AsyncHTTPClient(force_instance=True)
        link = codes.link("4TKG9P", key, server.url)
        assert link.startswith(server.url.replace("ws://", "http://"))
        sent, _, kept = link.partition("#")  # what a browser sends, and what it keeps
        assert key not in sent
        assert kept == f"k={key}"
        got = await http.fetch(sent)
        assert got.code == 200
        assert got.body.decode() == roompage.page("4TKG9P")
        assert codes.parse(link) == codes.Invite("4TKG9P", key, server.url)
        http.close()
        await server.close()


near_codes = st.text(codes.ALPHABET + codes.ALPHABET.lower() + "-_. ", min_size=4, max_size=9)


@settings(deadline=None, max_examples=100)
@given(near_codes | st.text(max_size=12))
def test_any_code(text: str):
    """PROTOCOL section 2: whatever stands there, the page shows a code's own letters or none at all."""
    try:
        code = codes.parse(text).code
    except BadCode:
        return
    assert set(code) <= set(codes.ALPHABET)
    assert codes.shown(code) in roompage.page(code)
