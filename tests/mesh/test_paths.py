"""PROTOCOL section 2, ICE: whether a path is relayed, and why there is none, in words."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pooled_nb.mesh.paths import obstacle, path_of


@dataclass
class Told:
    host: str
    type: str


HERE = Told("192.168.1.5", "host")
TOLD = [Told("192.168.1.7", "host"), Told("203.0.113.7", "srflx")]
RELAYED = [*TOLD, Told("198.51.100.1", "relay")]


@pytest.mark.parametrize(
    ("own", "other", "told", "path"),
    [
        (HERE, TOLD[0], TOLD, "direct"),
        (HERE, TOLD[1], RELAYED, "direct"),
        (Told("198.51.100.9", "relay"), TOLD[0], TOLD, "relayed"),
        (HERE, RELAYED[2], RELAYED, "relayed"),
        (HERE, Told("192.168.1.7", "prflx"), RELAYED, "direct"),
        (HERE, Told("192.168.1.8", "prflx"), TOLD, "direct"),
        (HERE, Told("192.168.1.8", "prflx"), [], "direct"),
        (HERE, Told("198.51.100.1", "prflx"), RELAYED, "relayed"),
        (HERE, Told("198.51.100.2", "prflx"), RELAYED, "unknown"),
    ],
)
def test_direct_or_relayed(own: Told, other: Told, told: list[Told], path: str) -> None:
    """DESIGN section 4: relayed if either end's type is relay. An address that the other end did not tell
    may be its relay where it has one: "not known to be direct".
    """
    assert path_of(own, other, told) == path


@pytest.mark.parametrize(
    ("told", "names", "trouble", "words"),
    [
        (0, 0, "", ["no address"]),
        (0, 2, "", [".local", "nobody here resolves"]),
        (3, 1, "", ["none of the ways"]),
        (3, 0, "the relay x:1: no answer", ["none of the ways", "the relay x:1: no answer"]),
    ],
)
def test_why_there_is_none(told: int, names: int, trouble: str, words: list[str]) -> None:
    """PROTOCOL section 2: "with the reason"."""
    said = obstacle(told=told, names=names, trouble=trouble)
    assert all(word in said for word in words)
