"""Weights files whose header lies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.shard.rawfiles import entry, raw


class Lie(NamedTuple):
    """How a right file becomes a wrong one, and what is said of it."""

    tell: Callable[[bytes], bytes]
    words: str


def _parts(file: bytes) -> tuple[dict[str, Any], bytes]:
    end = 8 + int.from_bytes(file[:8], "little")
    return json.loads(file[8:end]), file[end:]


def _changed(change: Callable[[dict[str, Any]], object], more: bytes = b"") -> Callable[[bytes], bytes]:
    """Change the table of a header."""

    def tell(file: bytes) -> bytes:
        table, data = _parts(file)
        change(table)
        return raw(table, data + more)

    return tell


def _text(text: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Change the text of a header."""

    def tell(file: bytes) -> bytes:
        end = 8 + int.from_bytes(file[:8], "little")
        return raw(text(file[8:end]), file[end:])

    return tell


NORM = "model.norm.weight"
UP = "model.layers.1.mlp.up_proj.weight"


def _set(key: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda table: table[NORM].__setitem__(key, value)


def _move(by: int) -> Callable[[dict[str, Any]], object]:
    def change(table: dict[str, Any]) -> None:
        table[UP]["data_offsets"] = [at + by for at in table[UP]["data_offsets"]]

    return change


def _size(table: dict[str, Any]) -> int:
    return max(fact["data_offsets"][1] for name, fact in table.items() if name != "__metadata__")


def _far(table: dict[str, Any]) -> None:
    table["far"] = entry("U8", [9], 1 << 60, (1 << 60) + 9)


def _beyond(table: dict[str, Any]) -> None:
    table["beyond"] = entry("U8", [9], _size(table), _size(table) + 9)


def _shared(table: dict[str, Any]) -> None:
    table["again"] = table[UP]


def _twice(text: bytes) -> bytes:
    end = json.dumps({NORM: json.loads(text)[NORM]}).encode()[1:]
    return text.rstrip()[:-1] + b"," + end


LIES: dict[str, Lie] = {
    "empty": Lie(lambda file: b"", "it ends before its header does"),
    "cut in its header": Lie(lambda file: file[:100], "it ends before its header does"),
    "a header longer than the file": Lie(
        lambda file: (len(file) * 2).to_bytes(8, "little") + file[8:], "it ends before its header does"
    ),
    "a header of nothing": Lie(lambda file: bytes(8) + file[8:], "it ends before its header does"),
    "one byte short": Lie(lambda file: file[:-1], "it is 1 byte shorter than its header says"),
    "one byte more": Lie(lambda file: file + b"\0", "it is 1 byte longer than its header says"),
    "no JSON": Lie(_text(lambda text: b"{" + text), "no JSON"),
    "no text": Lie(_text(lambda text: text.replace(b"norm", b"n\xffrm", 1)), "no JSON"),
    "half a character": Lie(_text(lambda text: text.replace(b"norm", rb"\ud800", 1)), "no JSON"),
    "a byte order mark": Lie(_text(lambda text: b"\xef\xbb\xbf" + text), "no table"),
    "a list": Lie(_text(lambda text: b"[" + text + b"]"), "no table"),
    "too deep": Lie(_text(lambda text: b'{"a":' * 200_000), "no JSON"),
    "too deep inside": Lie(
        _text(lambda text: text.rstrip()[:-1] + b',"deep":{"dtype":' + b"[" * 200_000), "no JSON|deep"
    ),
    "a name twice": Lie(_text(_twice), f"names {NORM} twice"),
    "metadata that are none": Lie(_changed(lambda t: t.update({"__metadata__": {"a": [1]}})), "no JSON"),
    "an entry that is none": Lie(_changed(lambda t: t.update({NORM: 5})), f"where {NORM} lies"),
    "no offsets": Lie(_changed(lambda t: t[NORM].pop("data_offsets")), f"where {NORM} lies"),
    "no shape": Lie(_changed(lambda t: t[NORM].pop("shape")), f"where {NORM} lies"),
    "a shape of half numbers": Lie(_changed(_set("shape", [32.0])), f"where {NORM} lies"),
    "a shape of truths": Lie(_changed(_set("shape", [True, 32])), f"where {NORM} lies"),
    "a shape of texts": Lie(_changed(_set("shape", ["32"])), f"where {NORM} lies"),
    "a shape below nothing": Lie(_changed(_set("shape", [-4, -8])), f"where {NORM} lies"),
    "a shape of a million": Lie(_changed(_set("shape", [2**63] * 1_000_000)), f"where {NORM} lies"),
    "a shape beyond all": Lie(_changed(_set("shape", [2**60] * 60)), f"{NORM} has another size"),
    "another shape": Lie(_changed(_set("shape", [33])), f"{NORM} has another size"),
    "another dtype": Lie(_changed(_set("dtype", "F64")), f"{NORM} has another size"),
    "a dtype that is none": Lie(_changed(_set("dtype", "F33")), "the dtype 'F33', which is none"),
    "half a byte": Lie(_changed(lambda t: t[NORM].update(dtype="F4", shape=[257])), "another size"),
    "offsets of three": Lie(_changed(_set("data_offsets", [0, 1, 2])), f"where {NORM} lies"),
    "offsets backwards": Lie(_changed(_set("data_offsets", [128, 0])), "impossible"),
    "offsets below nothing": Lie(_changed(_set("data_offsets", [-128, 0])), f"where {NORM} lies"),
    "offsets beyond numbers": Lie(_changed(_set("data_offsets", [0, 10**400])), f"{NORM} has another size"),
    "far away": Lie(_changed(_far), "leaves a hole"),
    "beyond the end": Lie(_changed(_beyond), "it is 9 bytes shorter"),
    "an overlap": Lie(_changed(_move(-4)), "overlaps"),
    "one range for two": Lie(_changed(_shared), "overlaps"),
    "a hole": Lie(_changed(lambda t: t.pop(UP)), "leaves a hole"),
    "an endless name": Lie(_changed(lambda t: t.update({"x" * 9999: 5})), "where x{100,}… lies"),
}


def huge(path: Path) -> None:
    """A header of more than 100 MB, which takes no room on the disk."""
    with path.open("wb") as stream:
        stream.write((100_000_001).to_bytes(8, "little"))
        stream.truncate(100_000_100)
