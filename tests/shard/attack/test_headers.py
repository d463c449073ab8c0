"""Whatever a header says, it is read whole and right, or refused by name before torch has any of it."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize

from pooled_nb.errors import ModelNotFound, PooledError
from pooled_nb.shard.headers import safetensors_layout
from tests.shard.attack.headers import LIES, huge
from tests.shard.attack.rig import NAME, Rig
from tests.shard.rawfiles import entry, raw


@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_lies(lie: str, rig: Rig) -> None:
    """DESIGN section 6: refused by the file's name, by inspect and by load alike."""
    rig.write(LIES[lie].tell(rig.read()))
    rig.refused(rf"^{NAME} is not a whole safetensors file: .*({LIES[lie].words})")


def test_a_header_of_100_mb(rig: Rig) -> None:
    """DESIGN section 6: its length alone refuses it: nothing of it is read."""
    huge(rig.folder / NAME)
    rig.refused(rf"^{NAME} is not a whole safetensors file: its header would have 100 MB")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes")
@pytest.mark.parametrize("odd", ["a pipe", "a device", "a folder"])
def test_what_is_no_file(odd: str, rig: Rig) -> None:
    """DESIGN section 1: no wait without an end, for a pipe that nobody writes to, say."""
    path = rig.folder / NAME
    path.unlink()
    if odd == "a pipe":
        os.mkfifo(path)
    elif odd == "a device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    rig.refused("safetensors|no plain file")


NAMES = st.sampled_from(["a", "b", "c", "__metadata__", "é"])
NUMBERS = st.sampled_from([0, 1, 2, 4, 8, 12, -1, True, 1.0, "1", None, 1 << 70])
KINDS = st.sampled_from(["F32", "BF16", "U8", "F4", "F64", "Q4_0", "", 3, None])


@st.composite
def headers(draw: Any) -> tuple[bytes, bytes]:
    """Tables that are nearly right: neighbours, then some of them changed."""
    table: dict[str, Any] = {}
    at = 0
    for name in draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=4)):
        count = draw(st.integers(0, 3))
        table[name] = entry("F32", [count], at, at + 4 * count)
        at += 4 * count
    for _ in range(draw(st.integers(0, 2))):
        change = draw(st.sampled_from(["dtype", "shape", "offsets", "add", "drop"]))
        name = draw(st.sampled_from([*table, "z"]))
        fact = dict(table.get(name) or entry("F32", [1], at, at + 4))
        if change == "dtype":
            fact["dtype"] = draw(KINDS)
        elif change == "shape":
            fact["shape"] = draw(st.lists(NUMBERS, max_size=3))
        elif change == "offsets":
            fact["data_offsets"] = draw(st.lists(NUMBERS, max_size=3))
        elif change == "drop":
            fact.pop(draw(st.sampled_from([*fact])))
        table[name] = fact
    data = bytes(max(0, at + draw(st.sampled_from([0, 0, 0, 1, -1, 4]))))
    return raw(table, data), data


@given(headers())
@settings(max_examples=400, deadline=None)
def test_what_the_library_refuses_is_refused(given: tuple[bytes, bytes]) -> None:
    """DESIGN section 6: no file gets to torch that the safetensors library itself would not read."""
    file, _ = given
    try:
        theirs = dict(deserialize(file))
    except SafetensorError:
        with pytest.raises(ModelNotFound) as caught:
            safetensors_layout(file, len(file), "m.safetensors")
        assert caught.value.what.startswith("m.safetensors is not a whole safetensors file: ")
        return
    layout = safetensors_layout(file, len(file), "m.safetensors")
    assert {t.name: (t.kind, list(t.shape), file[t.lo : t.hi]) for t in layout.tensors} == {
        name: (fact["dtype"], list(fact["shape"]), bytes(fact["data"])) for name, fact in theirs.items()
    }


@given(st.binary(max_size=200), st.integers(0, 1 << 64))
@settings(max_examples=200, deadline=None)
def test_any_bytes_at_all(data: bytes, size: int) -> None:
    """DESIGN section 8: what comes from outside ends in words, whatever it is."""
    for head in (data, raw(data)):
        with contextlib.suppress(PooledError):
            assert safetensors_layout(head, size, "m").size == size
