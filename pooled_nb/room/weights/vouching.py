"""The host's word for the room's weights: what it says of ranges, and of who was wrong (``nb-hash``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product

from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.weights import NbBad, NbHash
from pooled_nb.room.weights.hashes import MOST_BY_ONE, HostHashes, Span, Word, message_of, span_of
from pooled_nb.room.weights.hashing import Hashing
from pooled_nb.room.weights.runner import Runner
from pooled_nb.shard import Holdings

TURN = 8
"""Messages of hashes that are sent in one turn of the loop."""
MOST_BLAMED = 1_024
"""Pairs of devices of which one blames the other: each is told once."""
WRONG = "{taker} says that it got wrong weights from {giver}."
STRUCK = " Nobody is sent there for more."
LIED = "{name} has other weights than this device. Neither what it says of them nor what it gives counts."


class Vouching:
    """Actor around `HostHashes`; `grant.Vouches` of what this device gives.

    Parameters
    ----------
    sizes
        Of the model's files, in bytes, by url.
    workers
        The deal's devices, but this one: they hear every word, and theirs count.
    strike
        A device gave what is wrong: it is listed no more.
    say
        Tells this device's person.
    """

    def __init__(
        self,
        *,
        mesh: Mesh,
        sizes: Mapping[str, int],
        holdings: Holdings | None,
        runner: Runner,
        workers: Callable[[], list[str]],
        strike: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        self._mesh, self._sizes = mesh, sizes
        self._workers, self._strike, self._say = workers, strike, say
        self._hashes = HostHashes(sizes)
        self._hashing = Hashing(
            holdings=holdings,
            runner=runner,
            most=2 * sum(sizes.values()),
            known=self.knows,
            told=self._hashed,
        )
        # Apart from questions: who names a whole model keeps nobody waiting that asks for one range.
        self._checks = Hashing(
            holdings=holdings,
            runner=runner,
            most=2 * sum(sizes.values()),
            known=self.knows,
            told=self._checked,
        )
        self._checking: dict[Span, str] = {}
        """Ranges that a device named, and that may be on this device's own disk: nobody is told yet."""
        self._kept: dict[str, int] = {}
        """How many words are in the table since each device had ranges of this one."""
        self._blamed: set[tuple[str, str]] = set()

    # -- what devices say --------------------------------------------------------------------------

    def heard(self, sender: str, message: NbHash | NbBad) -> None:
        """A device of the deal names a hash, asks for one, or says who was wrong."""
        span = span_of(message.url, message.lo, message.hi)
        if span is None or span.hi > self._sizes.get(span.url, 0) or sender not in self._workers():
            return
        if isinstance(message, NbBad):
            self.bad(message.id, by=sender)
        elif message.sha256 is not None:
            self._named(sender, span, message.sha256)
        elif self.knows(span):
            self._mesh.send(sender, message_of(span, self.of(span)))
        else:
            self._hashing.asked(sender, span)

    def _named(self, sender: str, span: Span, sha256: str) -> None:
        match self._hashes.named(sender, span, sha256):
            case "new":
                # What this device holds itself it says itself: another's word is for the rest alone.
                self._checking[span] = sender
                self._checks.asked(sender, span)
            case "wrong":
                self._lied(sender)
            case "disputed":
                self._checking.pop(span, None)
                self._tell(message_of(span, None))
            case _:
                pass

    def _hashed(self, sender: str, span: Span, sha256: str | None) -> None:
        """What a device asked for is known, or not to be had."""
        if sha256:
            self.gives(sender, span, sha256)
            return
        if sha256 is not None:
            self._pass_on(span, but=sender)
        self._mesh.send(sender, message_of(span, self.of(span)))

    def _checked(self, sender: str, span: Span, sha256: str | None) -> None:
        """What a device named is looked up."""
        if sha256:
            self.read(span, sha256)  # also where another device has contradicted it meanwhile
        elif sha256 is None:  # it named more than is looked up for one device
            self._unchecked({span})
        else:
            self._pass_on(span, but=sender)

    def _pass_on(self, span: Span, *, but: str) -> None:
        """This device has nothing of it: what another says of it is all that there is."""
        by = self._checking.pop(span, None)
        if by is not None and (word := self._hashes.of(*span)) is not None:
            for id in self._workers():
                if id not in (by, but):
                    self._mesh.send(id, message_of(span, word))

    def _unchecked(self, spans: Iterable[Span]) -> None:
        """What devices named of these is not looked up any more, and does not count."""
        for span in spans:
            if self._checking.pop(span, None) is not None:
                self._hashes.forget(span)

    # -- this device's own word --------------------------------------------------------------------

    def of(self, span: Span) -> Word | None:
        """What a range must be, as far as others are told."""
        return None if span in self._checking else self._hashes.of(*span)

    def knows(self, span: Span) -> bool:
        """See `grant.Vouches.knows`."""
        word = self._hashes.of(*span)
        return word is not None and not word.by

    def gives(self, to: str, span: Span, sha256: str) -> None:
        """See `grant.Vouches.gives`."""
        if not sha256:
            self._mesh.send(to, message_of(span, self._hashes.of(*span)))
            return
        self._mesh.send(to, message_of(span, Word(sha256)))
        # Any range may be asked for: the table is for those that all ask for, and no device fills it.
        if self._kept.get(to, 0) < MOST_BY_ONE:
            self._kept[to] = self._kept.get(to, 0) + 1
            self.read(span, sha256, but=to)

    def read(self, span: Span, sha256: str, *, but: str = "") -> None:
        """This device has these bytes, from the network or of old: everybody hears what they are."""
        if span.hi > self._sizes.get(span.url, 0) or self._hashes.of(*span) == Word(sha256):
            return
        self._checking.pop(span, None)
        if liar := self._hashes.vouch(span, sha256):
            self._lied(liar)
        self._tell(message_of(span, Word(sha256)), but=but)

    def remind(self, id: str) -> None:
        """Tell a device all of it, at once: nothing that follows may come before it."""
        for message in self._hashes.messages(but=self._checking):
            self._mesh.send(id, message)

    async def tell(self, ids: Sequence[str]) -> None:
        """Tell devices all of it, in turns."""
        messages = list(self._hashes.messages(but=self._checking)) if ids else []
        for n, (id, message) in enumerate(product(ids, messages)):
            self._mesh.send(id, message)
            if n % TURN == TURN - 1:
                await asyncio.sleep(0)

    # -- who was wrong -----------------------------------------------------------------------------

    def bad(self, id: str, *, by: str = "") -> None:
        """What a device gave was not what it must be. ``by``: who says so; empty: this one, to its person."""
        names = {m.id: m.name for m in self._mesh.roster}
        if id not in names or id == by or (by, id) in self._blamed or len(self._blamed) >= MOST_BLAMED:
            return
        self._blamed.add((by, id))
        if id != self._mesh.id:
            self._strike(id)
        if by:
            giver = "this device" if id == self._mesh.id else names[id]
            words = WRONG.format(taker=names.get(by, "A device"), giver=giver)
            self._say(words + (STRUCK if id != self._mesh.id else ""))

    def _lied(self, id: str) -> None:
        name = next((m.name for m in self._mesh.roster if m.id == id), "A device")
        self._strike(id)
        self._gone(id)
        self._all(self._hashes.disbelieve(id))
        self._say(LIED.format(name=name))

    # -- devices -----------------------------------------------------------------------------------

    def renamed(self, was: str, id: str) -> None:
        """A device has another id."""
        self._hashes.renamed(was, id)
        self._hashing.left(was)
        self._checks.left(was)
        self._kept[id] = self._kept.pop(was, 0)
        for span in [span for span, by in self._checking.items() if by == was]:
            self._checking[span] = id
            self._checks.asked(id, span)

    def left(self, id: str) -> None:
        """A device is gone."""
        self._hashing.left(id)
        self._gone(id)

    async def close(self) -> None:
        """The room is over."""
        await self._hashing.close()
        await self._checks.close()

    def _gone(self, id: str) -> None:
        """What a device named is not looked up for it any more."""
        self._checks.left(id)
        self._unchecked([span for span, by in self._checking.items() if by == id])

    def _tell(self, message: NbHash, *, but: str = "") -> None:
        for id in self._workers():
            if id != but:
                self._mesh.send(id, message)

    def _all(self, messages: Iterable[Message]) -> None:
        for message in messages:
            for id in self._workers():
                self._mesh.send(id, message)
