"""PROTOCOL section 2: room codes and invite links."""

from __future__ import annotations

import random
import string
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.errors import BadCode
from pooled_nb.mesh import codes, specs
from pooled_nb.mesh.codes import ALPHABET, Invite, draw, parse, room_id, shown

KEY = "A" * 22
KEY_LETTERS = string.ascii_letters + string.digits + "-_"


def test_alphabet() -> None:
    """PROTOCOL section 2: "30: no I L O U 0 1"."""
    assert ALPHABET == "ABCDEFGHJKMNPQRSTVWXYZ23456789"
    assert len(set(ALPHABET)) == 30
    assert not set("ILOU01") & set(ALPHABET)


def test_drawn_without_modulo_bias() -> None:
    """PROTOCOL section 2: "drawn without modulo bias": every character comes from equally many bytes."""
    bytes_of: Counter[str] = Counter()
    for b in range(256):
        # A source that says b, then a known filler: the first character shows whether b counted.
        stream = iter([bytes([b]) + b"\1" * 11] + [b"\1" * 12] * 3)
        code = draw(lambda n, s=stream: next(s))
        if code != "BBBBBB":
            bytes_of[code[0]] += 1
        else:
            bytes_of["B or thrown away"] += 1
    assert set(bytes_of.values()) == {8, 8 + 16}
    assert bytes_of["B or thrown away"] == 8 + 16


def test_drawn_codes_are_codes() -> None:
    """PROTOCOL section 2: six characters of the alphabet, by the system's own randomness."""
    drawn = {draw() for _ in range(200)}
    assert len(drawn) > 190
    assert all(len(code) == 6 and parse(code).code == code for code in drawn)


@settings(deadline=None, max_examples=200)
@given(st.randoms(use_true_random=False))
def test_any_way_of_writing_it(rng: random.Random) -> None:
    """PROTOCOL section 2: "upper-cased; white space, -, _, . dropped", alone and in links."""
    code = draw(rng.randbytes)
    typed = "".join(rng.choice("-_. \t") * rng.randrange(2) + rng.choice((c, c.lower())) for c in code)
    assert parse(typed) == parse(shown(code)) == Invite(code)
    place = rng.choice(("/r/{}", "/deep/room/{}/", "/?code={}", "/x#{}", "/r/{}?code=ABCD#EFGH"))
    link = "https://example.org" + place.format(shown(code))
    assert parse(link).code == code
    assert parse(f"{link}{'&' if '#' in link else '#'}k={KEY}&x=1") == Invite(code, KEY)


@settings(deadline=None, max_examples=400)
@given(st.text(max_size=60) | st.text(alphabet=string.printable, max_size=60))
def test_any_text(text: str) -> None:
    """PROTOCOL section 2: any text is a code or one clear error, with what to do next."""
    try:
        invite = parse(text)
    except BadCode as refused:
        error = refused
    else:
        assert len(invite.code) in (4, 6)
        assert set(invite.code) <= set(ALPHABET)
        return
    assert error.what.endswith(".")
    assert error.next_step


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "No room code"),
        ("   ", "No room code"),
        ("ABCDE", "this has 5"),
        ("AB0D", "character 0"),
        ("4TK+G9P", "only the letters"),
        ("https://example.org/r/ABID", "names no room"),
        ("http://[", "cannot be read|can be read"),
        ("A" * 3000, "too long"),
    ],
)
def test_errors_help(text: str, word: str) -> None:
    """PROTOCOL section 2: a wrong code is told apart: empty, length, a letter that is left out, a link."""
    with pytest.raises(BadCode, match=word):
        parse(text)


def test_order_of_places_in_a_link() -> None:
    """PROTOCOL section 2: "path … then query … then fragment …, the first that is a code"."""
    assert parse("https://h/r/4TKG9P?code=AAAAAA#BBBBBB").code == "4TKG9P"
    assert parse("https://h/r/nothing?code=AAAAAA#BBBBBB").code == "AAAAAA"
    assert parse("https://h/r/nothing?code=no#BBBBBB").code == "BBBBBB"
    assert parse(f"https://h/room#4TK-G9P&k={KEY}") == Invite("4TKG9P", KEY)
    assert parse("example.org/r/4TKG9P").code == "4TKG9P"


def test_signal_in_a_link() -> None:
    """PROTOCOL section 2: "``signal=`` in the query names the server"."""
    assert parse("https://h/r/4TKG9P?signal=ws%3A%2F%2Fhost%3A9000%2Fp").signal == "ws://host:9000/p"
    assert parse("https://h/r/4TKG9P?signal=").signal is None
    assert parse("https://h/r/4TKG9P").signal is None


def test_the_key_is_never_shown() -> None:
    """DESIGN section 7: secrets never reach exceptions or what is printed."""
    key = "SECRETSECRETSECRETSECRET"
    assert key not in repr(parse(f"https://h/r/4TKG9P#k={key}"))
    with pytest.raises(BadCode) as caught:
        parse(f"https://h/r/ABID#k={key}")
    assert key not in str(caught.value) + repr(caught.value)


def test_room_id() -> None:
    """PROTOCOL section 2: "registers under ``pooled-room-<CODE>`` (upper case, no hyphen)"."""
    assert room_id(parse("4tk-g9p").code) == "pooled-room-4TKG9P"
    assert codes.LENGTH == 6


hosts = st.sampled_from(["example.org", "192.168.1.7", "localhost", "[fd00::1]", "h"])
places = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "ws://", "wss://", "http://", "https://"]),
    hosts,
    st.sampled_from(["", ":9000", ":443"]),
    st.sampled_from(["", "/", "/peer", "/a/r/b/", "/r/ABCDEF"]),
)


@settings(deadline=None, max_examples=200)
@given(st.randoms(use_true_random=False), st.text(KEY_LETTERS, min_size=22, max_size=64), places)
def test_what_is_made_is_read(rng: random.Random, key: str, spec: str) -> None:
    """PROTOCOL section 2: a link holds code, server and key, the key in the fragment alone; a person may
    paste it with white space around it.
    """
    code = draw(rng.randbytes)
    for signal in (spec, "cloud"):
        link = codes.link(code, key, signal)
        assert parse(f" {link}\n") == Invite(code, key, signal)
        before, _, fragment = link.partition("#")
        assert key not in before
        assert fragment == f"k={key}"
        assert specs.parse(parse(link).signal or "") == specs.parse(signal)


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=70).filter(lambda text: "&" not in text))
def test_a_key_of_the_wrong_form_is_no_key(text: str) -> None:
    """PROTOCOL section 2: "a key of the wrong form is no key"; the code still leads to the lobby."""
    invite = parse(f"https://h/r/4TKG9P#k={text}")
    good = 22 <= len(text) <= 64 and set(text) <= set(KEY_LETTERS)
    assert invite == Invite("4TKG9P", text if good else None)


@pytest.mark.parametrize(
    ("signal", "base"),
    [
        ("ws://127.0.0.1:9123/", "http://127.0.0.1:9123/r/"),
        ("wss://rooms.example.org/x", "https://rooms.example.org:443/x/r/"),
        ("192.168.1.7", "http://192.168.1.7:9000/r/"),
        ("cloud", "pooled://room/r/"),
        ("nonsense in a spec", "pooled://room/r/"),
    ],
)
def test_where_a_link_leads(signal: str, base: str) -> None:
    """PROTOCOL section 2: a server that is a web server shows a page there; what only introduces, none."""
    link = codes.link("4TKG9P", KEY, signal)
    assert link.startswith(f"{base}4TKG9P?signal=")
    assert parse(link) == Invite("4TKG9P", KEY, signal)


def test_no_relay_is_in_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2, ICE: credentials never in links, wherever this device has its relay from."""
    monkeypatch.setenv("POOLED_TURN", "turn:mira:hunter2@relay.example:3478")
    link = codes.link("4TKG9P", KEY, "wss://rooms.example.org/")
    assert not [word for word in ("turn", "mira", "hunter2", "relay") if word in link]
