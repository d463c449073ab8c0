"""Files of a model in memory: what a device holds of them, and a shard that lacks what it does not hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable
from random import Random

from msgspec import structs

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard import FileFact, Loaded, LoadSpec, Missing, ModelFacts, Piece, Sent
from tests.room.toy import LAYERS, MODEL, ToyShard

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
HEAD = 1_000
"""Bytes of the header."""


class ToyModel:
    """A config, a header and so many blocks for each layer, of random bytes.

    Parameters
    ----------
    block
        Bytes of each.
    each
        Blocks of one layer.
    """

    def __init__(self, *, repo: str = "toy/model", block: int = 300_000, each: int = 2) -> None:
        self.repo, self.revision = repo, "1"
        size = HEAD + LAYERS * each * block
        self.files = {CONFIG: Random(1).randbytes(700), WEIGHTS: Random(2).randbytes(size)}
        self.config = Piece(name=CONFIG, lo=0, hi=700, size=700)
        self.head = Piece(name=WEIGHTS, lo=0, hi=HEAD, size=size)
        self.blocks = [
            Piece(name=WEIGHTS, lo=HEAD + n * block, hi=HEAD + (n + 1) * block, size=size)
            for n in range(LAYERS * each)
        ]
        self.each = each

    @property
    def facts(self) -> ModelFacts:
        """As a room deals it."""
        files = {
            CONFIG: FileFact(size=700, sha256=hashlib.sha256(self.files[CONFIG]).hexdigest()),
            WEIGHTS: FileFact(size=len(self.files[WEIGHTS])),
        }
        return structs.replace(MODEL, repo=self.repo, files=files)

    @property
    def pieces(self) -> list[Piece]:
        """All of them."""
        return [self.config, self.head, *self.blocks]

    def of(self, lo: int, hi: int) -> list[Piece]:
        """Those of layers ``[lo, hi)``."""
        return [self.config, self.head, *self.blocks[lo * self.each : hi * self.each]]

    def data(self, piece: Piece) -> bytes:
        """What it is."""
        return self.files[piece.name][piece.lo : piece.hi]

    def sha256(self, piece: Piece) -> str:
        """Its hash."""
        return hashlib.sha256(self.data(piece)).hexdigest()


class ToyIncoming:
    """See `Incoming`."""

    def __init__(self, holdings: ToyHoldings, piece: Piece) -> None:
        self._holdings, self._piece = holdings, piece
        self._data = bytearray(holdings.parts.get(piece, b""))
        self.over = ""

    @property
    def at(self) -> int:
        return len(self._data)

    def write(self, data: bytes) -> None:
        assert not self.over, "written after its end"
        if self._holdings.full:
            raise ModelNotFound("The disk is full.", "Free some of it.")
        self._data += data

    def begin_again(self) -> None:
        assert not self.over
        self._data.clear()

    def finish(self, sha256: str = "") -> str:
        found = hashlib.sha256(self._data).hexdigest()
        right = sha256 in ("", found)
        self._end("finished" if right else "thrown away")
        if right:
            assert len(self._data) == self._piece.hi - self._piece.lo, "finished before it was whole"
            self._holdings.here[self._piece] = bytes(self._data)
            self._holdings.came[self._piece] = found
        return found if right else ""

    def keep(self) -> None:
        self._end("kept")
        self._holdings.parts[self._piece] = bytes(self._data)

    def drop(self) -> None:
        self._end("dropped")

    def _end(self, how: str) -> None:
        assert not self.over, f"it is {self.over} already"
        self.over = how
        self._holdings.parts.pop(self._piece, None)
        self._holdings.taken.remove(self._piece)
        self._holdings.ends.append((self._piece, how))


class ToyHoldings:
    """See `Holdings`: pieces that are here, and what came of others.

    Attributes
    ----------
    here, parts
        Pieces that are whole, and the beginnings of others.
    came, confirmed
        Those of them that devices sent, by their hashes; and what a room vouches for of these.
    taken
        Pieces that are on their way, which is one at a time of each.
    ends
        How each of them ended.
    elsewhere
        Pieces that another kernel of the machine is fetching.
    """

    def __init__(self, model: ToyModel, pieces: Iterable[Piece] = (), *, wrong: bool = False) -> None:
        self.model = model
        self.here = {p: model.data(p) if not wrong else _wrong(model.data(p)) for p in pieces}
        self.parts: dict[Piece, bytes] = {}
        self.came: dict[Piece, str] = {}
        self.confirmed: set[tuple[str, Sent]] = set()
        self.is_closed = False
        self.taken: set[Piece] = set()
        self.ends: list[tuple[Piece, str]] = []
        self.elsewhere: set[Piece] = set()
        self.full = False
        self.hashes = True

    def have(self, repo: str, revision: str, name: str) -> list[tuple[int, int]]:
        if (repo, revision) != (self.model.repo, self.model.revision):
            return []
        found: list[tuple[int, int]] = []
        for lo, hi in sorted((p.lo, p.hi) for p in self.here if p.name == name and self.gives(p)):
            if found and found[-1][1] == lo:
                found[-1] = (found[-1][0], hi)
            else:
                found.append((lo, hi))
        return found

    def read(self, repo: str, revision: str, name: str, lo: int, hi: int) -> bytes:
        out = b""
        for piece in sorted((p for p in self.here if p.name == name and self.gives(p)), key=lambda p: p.lo):
            a, b = max(lo, piece.lo), min(hi, piece.hi)
            if a < b:
                out += self.here[piece][a - piece.lo : b - piece.lo]
        if len(out) != hi - lo:
            raise ModelNotFound("It is not here.", "Fetch it elsewhere.")
        return out

    def sha256(self, repo: str, revision: str, name: str, lo: int, hi: int) -> str:
        own = self.here.keys() - self.came.keys()
        piece = next((p for p in own if (p.name, p.lo, p.hi) == (name, lo, hi)), None)
        return hashlib.sha256(self.here[piece]).hexdigest() if piece and self.hashes else ""

    def take(self, repo: str, revision: str, piece: Piece) -> ToyIncoming | None:
        own = self.here.keys() - self.came.keys()
        if piece in own or piece in self.taken or piece in self.elsewhere:
            return None
        self.taken.add(piece)
        return ToyIncoming(self, piece)

    def sent(self, repo: str, revision: str, name: str) -> list[Sent]:
        return [(p.lo, p.hi, sha256) for p, sha256 in self.came.items() if p.name == name]

    def confirm(self, repo: str, revision: str, name: str, sent: Collection[Sent]) -> None:
        self.confirmed |= {(name, one) for one in sent}

    def closed(self, repo: str, revision: str) -> bool:
        return self.is_closed

    def gives(self, piece: Piece) -> bool:
        """Whether it may be given away."""
        sha256 = self.came.get(piece)
        return sha256 is None or (piece.name, (piece.lo, piece.hi, sha256)) in self.confirmed

    def counts(self, piece: Piece, spec: LoadSpec) -> bool:
        """Whether it is here for this load."""
        if piece not in self.here or piece not in self.came:
            return piece in self.here
        return (piece.lo, piece.hi, self.came[piece]) in spec.sent.get(piece.name, [])


class FedShard(ToyShard):
    """A toy that loads only what is here, or in the hub.

    Attributes
    ----------
    fetched
        Pieces that it fetched from the hub.
    """

    def __init__(self, holdings: ToyHoldings, *, hub: bool = True, again: bool = True, **more: float) -> None:
        super().__init__(**more)  # type: ignore[arg-type]  # by keyword
        self.holdings, self.hub, self.again = holdings, hub, again
        self.fetched: list[Piece] = []
        self.asked_missing = 0
        self.hub_s = 0.0

    async def missing(self, spec: LoadSpec, progress: Callable[[int, str], None] | None = None) -> Missing:
        self.asked_missing += 1
        model = self.holdings.model
        lacks = [p for p in model.of(spec.lo, spec.hi) if not self.holdings.counts(p, spec)]
        small = [p for p in lacks if p in (model.config, model.head)]
        total = sum(p.hi - p.lo for p in lacks)
        if small and self.again:
            return Missing(pieces=small, bytes=total, again=True)
        return Missing(pieces=lacks, bytes=total)

    async def load(self, spec: LoadSpec, progress: Callable[[int, str], None] | None = None) -> Loaded:
        model, here = self.holdings.model, self.holdings.here
        lacks = [p for p in model.of(spec.lo, spec.hi) if not self.holdings.counts(p, spec)]
        if lacks and not self.hub:
            raise ModelNotFound("The hub cannot be reached.", "Try again.")
        for piece in lacks:
            here[piece] = model.data(piece)
            self.holdings.came.pop(piece, None)
            self.fetched.append(piece)
        return await super().load(spec, progress)


def _wrong(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])
