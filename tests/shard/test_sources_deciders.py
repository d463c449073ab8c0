"""What decides in fetching: answers, retries, rates and needs, without disk or network."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard import FileFact, LoadSpec
from pooled_nb.shard.layout import BLOCK, Layout, Tensor
from pooled_nb.shard.sources.answers import Again, Expired, Part, Refused, judge
from pooled_nb.shard.sources.needs import (
    OPEN,
    REQUEST,
    chooser,
    layer_sizes,
    requests,
    small_files,
    wanted,
    weights_files,
    worthwhile,
)
from pooled_nb.shard.sources.rate import Rate
from pooled_nb.shard.sources.retry import LONGEST_S, TRIES, Retry
from pooled_nb.shard.tensors import in_range


def ask(status: int, *, led: bool = False, size: int | None = None, **headers: str) -> Part:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return judge(status, named, 10, 20, size=size, name="m", led=led)


def spec(**changes: object) -> LoadSpec:
    given: dict[str, object] = {
        "repo": "a/b", "revision": "0" * 40, "folder": None, "config_sha256": "", "lo": 0, "hi": 1,
        "ends": False, "ctx": 1, "dtype": "float32",
    }  # fmt: skip
    return LoadSpec(**(given | changes))  # type: ignore[arg-type]


# --- answers


def test_a_part_is_what_was_asked_for_or_less():
    """RFC 9110 section 14.4: ``Content-Range`` says which bytes came; a server may send fewer."""
    assert ask(206, Content_Range="bytes 10-19/50") == Part(10, 20, 50, True)
    assert ask(206, content_range="bytes 10-12/50", size=50) == Part(10, 13, 50, True)
    assert ask(206, content_range="bytes 10-19/*", size=50) == Part(10, 20, 50, True)
    assert ask(200, content_length="50") == Part(0, 50, 50, False)
    assert ask(200, size=50) == Part(0, 50, 50, False)


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (206, {}, "does not say which"),
        (206, {"content_range": "bytes 10-19/*"}, "how large"),
        (206, {"content_range": "bytes 9-19/50"}, "were asked for"),
        (206, {"content_range": "bytes 10-20/50"}, "were asked for"),
        (206, {"content_range": "bytes 12-11/50"}, "were asked for"),
        (206, {"content_range": "bytes 10-19/51", "size": 50}, "it has 51 bytes now, and had 50"),
        (206, {"content_range": "items 10-19/50"}, "does not say which"),
        (206, {"content_type": "multipart/byteranges"}, "does not say which"),
        (200, {}, "how large"),
        (200, {"content_length": "-1"}, "how large"),
        (200, {"content_length": "49", "size": 50}, "it has 49 bytes now"),
        (416, {"content_range": "bytes */7"}, "it has 7 bytes now"),
        (416, {}, "it ends before byte 10"),
    ],
)
def test_another_file_or_part_is_refused(status, headers, words):
    """DESIGN section 6: a range, a size or a file that is not the one that was meant is refused by name."""
    with pytest.raises(ModelNotFound, match=words) as caught:
        ask(status, **headers)
    assert caught.value.next_step


def test_what_passes_what_expires_and_what_stays():
    """RFC 9110 section 15: 408, 429 and 5xx pass; a link that was led to earlier may have expired."""
    for status in (408, 429, 500, 502, 503, 504):
        with pytest.raises(Again):
            ask(status)
    for status in (401, 403, 404, 410):
        with pytest.raises(Expired):
            ask(status, led=True)
        with pytest.raises(Refused):
            ask(status)


@pytest.mark.parametrize(
    ("headers", "after"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:09 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 9.0),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:09 GMT"}, None),
        ({"retry_after": "soon"}, None),
        ({"ratelimit": '"api";r=0;t=55'}, 55.0),
        ({}, None),
    ],
)
def test_how_long_a_server_asks_to_wait(headers, after):
    """RFC 9110 section 10.2.3: seconds or a date, by the server's clock; or the hub's RateLimit."""
    with pytest.raises(Again) as caught:
        ask(429, **headers)
    assert caught.value.after == after


HEADERS = st.sampled_from(["content-range", "content-length", "retry-after", "date", "ratelimit"])


@given(st.integers(100, 599), st.dictionaries(HEADERS, st.text(max_size=30)), st.booleans())
def test_no_answer_is_a_surprise(status, headers, led):
    """DESIGN section 10: everything from the network is typed and bounded."""
    try:
        part = judge(status, headers, 10, 20, size=None, name="m", led=led)
    except (Again, Expired, Refused, ModelNotFound):
        return
    assert (part.lo == 10 and part.hi <= 20) or not part.ranged


# --- retries


def test_waits_grow_and_end():
    """DESIGN section 6: retry with exponential backoff and jitter, bounded."""
    for draw in (0.0, 0.999):
        retry = Retry(lambda draw=draw: draw)
        waits = [retry.failed() for _ in range(TRIES)]
        assert waits[-1] is None
        known = [wait for wait in waits if wait is not None]
        assert known == sorted(known)
        assert 0.25 <= known[0] <= 0.5
        assert all(wait <= LONGEST_S for wait in known)


def test_a_server_that_asks_to_wait_is_obeyed_for_so_long():
    """DESIGN section 6: Retry-After; minutes are waited, hours are said to the person."""
    assert Retry(lambda: 0.0).failed(60) == 60.25
    assert Retry(lambda: 0.0).failed(0) == 0.25
    assert Retry().failed(3600) is None


def test_what_came_counts_as_progress():
    """DESIGN section 6: a line that breaks every minute brings a model all the same."""
    retry = Retry()
    for _ in range(3 * TRIES):
        retry.came(2 << 20)
        assert retry.failed() is not None
    for _ in range(TRIES - 2):
        retry.came(1)
        assert retry.failed() is not None
    retry.came(1)
    assert retry.failed() is None


# --- words


def test_the_words_of_a_download():
    """DESIGN section 1: how much, how fast, how long."""
    rate = Rate(3_400_000_000, 0.0)
    assert rate.words(0, 0, 0.0) == "fetching 0.0 of 3.4 GB"
    assert rate.words(1_200_000_000, 180_000_000, 4.0) == "fetching 1.2 of 3.4 GB (45 MB/s, 49 s left)"
    # What was here before is not fast: it did not come.
    assert Rate(10_000_000, 0.0).words(9_000_000, 0, 5.0) == "fetching 9.0 of 10.0 MB"
    assert Rate(200_000_000_000, 0.0).words(0, 2_000_000, 1.0) == "fetching 0 of 200 GB (2.0 MB/s, 28 h left)"
    assert (
        Rate(1_000_000_000, 0.0).words(0, 4_000_000, 1.0) == "fetching 0.0 of 1.0 GB (4.0 MB/s, 4 min left)"
    )
    assert Rate(1_000_000, 0.0).words(0, 40_000, 1.0) == "fetching 0.0 of 1.0 MB (40 kB/s, 25 s left)"


def test_the_rate_is_that_of_the_last_seconds():
    """DESIGN section 1: a network that becomes slow is said to be slow."""
    rate = Rate(1_000_000_000, 0.0)
    for second in range(1, 21):
        rate.words(second * 10_000_000, second * 10_000_000, float(second))
    for second in range(1, 21):
        words = rate.words(200_000_000 + second * 1_000_000, 200_000_000 + second * 1_000_000, 20.0 + second)
    assert "(1.0 MB/s" in words


# --- needs


def layout(*sizes: tuple[str, int], header: int = 100) -> Layout:
    at, tensors = header, []
    for name, size in sizes:
        tensors.append(Tensor(name, "U8", (size,), at, at + size))
        at += size
    return Layout(at, header, tuple(tensors))


NAMES = [*(f"model.layers.{i}.w" for i in range(4)), "lm_head.weight", "visual.blocks.1.x", "mtp.fc.weight"]
TENSORS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, BLOCK)), max_size=12)
PIECES = st.lists(st.tuples(st.integers(1, 3 * BLOCK), st.booleans()), max_size=30)


@given(TENSORS, st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_every_wanted_tensor_is_in_a_block_and_no_other(sizes, lo, hi, ends):
    """DESIGN section 6: only what a device computes is fetched."""
    head = layout(*((f"{name}.{i}", size) for i, (name, size) in enumerate(sizes)))
    chosen = chooser(spec(lo=lo, hi=hi, ends=ends), None, [head])
    found = [t for block in wanted(head, chosen) for t in block.tensors]
    assert found == [t for t in head.tensors if in_range(t.name, lo, hi, ends)]


@given(PIECES, st.integers(0, 1 << 36), st.booleans())
def test_requests_are_of_neighbours_and_bounded(pieces, total, ranged):
    """DESIGN section 6: neighbours come in one request of at most 64 MiB, or of one block."""
    at, blocks = 0, []
    for size, gap in pieces:
        at += 1000 * gap
        blocks.append((at, at + size))
        at += size
    asks = requests("m", blocks, total, ranged=ranged)
    assert [piece for one in asks for piece in one.pieces] == blocks
    if not ranged:
        assert len(asks) <= 1
        return
    for one in asks:
        assert len(one.pieces) <= OPEN
        assert all(a[1] == b[0] for a, b in zip(one.pieces, one.pieces[1:], strict=False))
        assert len(one.pieces) == 1 or one.pieces[-1][1] - one.pieces[0][0] <= REQUEST


def test_names_of_what_a_load_reads():
    """PROTOCOL section 6: by the room's list; a worker reads no tokenizer."""
    files = {n: FileFact(size=1) for n in ("config.json", "tokenizer.json", "b.safetensors", "a.safetensors")}
    assert small_files(spec(files=files)) == ["config.json"]
    assert small_files(spec(files=files, ends=True)) == ["config.json", "tokenizer.json"]
    assert small_files(spec()) == ["config.json"]
    assert weights_files(spec(files=files), None) == ["a.safetensors", "b.safetensors"]
    assert weights_files(spec(), None) == ["model.safetensors"]
    where = {
        "model.layers.0.w": "b.safetensors",
        "model.layers.1.w": "../x.safetensors",
        "lm_head.weight": "a.bin",
    }
    assert weights_files(spec(hi=2, ends=True), where) == ["b.safetensors"]


def test_draft_layers_are_chosen_by_all_names_of_the_model():
    """PROTOCOL section 7: a model's own draft layers come with the ends, where they are asked for."""
    where = {f"model.layers.{i}.w": "m.safetensors" for i in range(3)} | {
        "model.layers.3.eh_proj.weight": "m.safetensors"
    }
    without = chooser(spec(ends=True), where, ())
    with_them = chooser(spec(ends=True, draft_layers=1), where, ())
    assert [n for n in where if without(n)] == ["model.layers.0.w"]
    assert [n for n in where if with_them(n)] == ["model.layers.0.w", "model.layers.3.eh_proj.weight"]


def test_sizes_by_layer_are_those_of_the_files():
    """PROTOCOL section 6: dealing and consent know real sizes; other towers are of no device."""
    one = layout(("model.layers.0.w", 5), ("model.layers.1.w", 7), ("lm_head.weight", 11), ("visual.x", 100))
    two = layout(("model.layers.1.v", 1), ("model.layers.9.w", 50))
    assert layer_sizes([one, two], 2) == ([5, 8], 11)


def test_what_is_sent_in_vain_is_little():
    """DESIGN section 6: a server without ranges is used where most of the file is wanted."""
    assert worthwhile(BLOCK, 0)
    assert worthwhile(100 * BLOCK, 99 * BLOCK)
    assert not worthwhile(100 * BLOCK, 98 * BLOCK)
