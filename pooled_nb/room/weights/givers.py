"""Decides who may have pieces of what a load lacks (PROTOCOL section 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pooled_nb.room.weights.inventory import Ranges, covers
from pooled_nb.room.weights.urls import is_weights
from pooled_nb.shard import Piece

LOCAL = "local/"
"""What models are called that are in a folder of the host's, and in no hub."""


@dataclass(frozen=True, slots=True)
class Giver:
    """A device that has pieces.

    Attributes
    ----------
    has
        What of each file, by name; None: all of every file.
    """

    has: Mapping[str, Ranges] | None

    def gives(self, piece: Piece) -> bool:
        """Whether it has this piece whole."""
        if self.has is None:
            return True
        return covers(self.has.get(piece.name, []), piece.lo, piece.hi)


def givers_of(
    repo: str,
    pieces: Sequence[Piece],
    have: Mapping[str, Mapping[str, Ranges]],
    *,
    host: str,
    me: str,
) -> dict[str, Giver]:
    """Who may have some of it, by id.

    Parameters
    ----------
    have
        What each device said that it has of weights files; of small files nobody is asked.
    host, me
        Ids. The host of a model of its own folder has all of it, and of every model the small files, which
        it read before it dealt.
    """
    givers = {id: Giver(dict(files)) for id, files in have.items() if files and id != me}
    if host == me:
        return givers
    if repo.startswith(LOCAL):
        return {**givers, host: Giver(None)}
    if small := {p.name: [(p.lo, p.hi)] for p in pieces if not is_weights(p.name)}:
        of_host = givers[host].has if host in givers else None
        givers[host] = Giver({**(of_host or {}), **small})
    return givers
