"""What a device that joined does about weights, besides loading its own (PROTOCOL section 6)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping

from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.messages.weights import NbBad, NbHash, NbHashes, Wack, Wget
from pooled_nb.room.weights.giving import Given, Giving, may_cross
from pooled_nb.room.weights.hashes import Hashes, Span, Word, message_of, span_of
from pooled_nb.room.weights.inventory import Ranges, listing_of, words_of
from pooled_nb.room.weights.runner import Runner
from pooled_nb.room.weights.urls import is_weights, split
from pooled_nb.shard import Holdings

log = logging.getLogger(__name__)

WORD_S = 60.0
"""So long the host's word for a range is waited for: it may hash it first, and others before it."""
QUESTIONS = 512
"""Files that may be asked about before the first is answered; more are not."""


class DeviceWeights:
    """Answers what it has, gives, and knows the host's word. `Others` of its own load.

    Parameters
    ----------
    holdings
        What this device has of models' files; None: nothing.
    gives
        Whether its person, and the place it runs at, allow to give weights away.
    """

    def __init__(self, *, mesh: Mesh, holdings: Holdings | None, runner: Runner, gives: bool) -> None:
        self._mesh, self._run = mesh, runner
        self._holdings = holdings if gives else None
        self._repo = ""
        """Of the model that the room starts, as everybody heard it."""
        self._model: tuple[str, str] | None = None
        self._files: frozenset[str] | None = None
        """Of the deal; None: it is not known here."""
        self._asks: frozenset[str] = frozenset()
        self._others: dict[str, dict[str, Ranges]] = {}
        self._hashes = Hashes()
        self._words: dict[Span, asyncio.Future[None]] = {}
        self._stopped = False
        self._questions: deque[str] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._giving = Giving(
            out=mesh,
            clock=mesh.clock,
            holdings=holdings,
            runner=runner,
            gives=gives,
            asks=lambda id: id == mesh.creator or id in self._asks,
            model=lambda: self._model,
            files=lambda: self._files,
        )

    @property
    def given(self) -> Given:
        """What this device gave so far."""
        return self._giving.given

    # -- what others say ---------------------------------------------------------------------------

    def heard(self, sender: str, message: Message) -> None:
        """What a device says of weights; anything else is nothing to this."""
        if isinstance(message, Wget):
            self._giving.asked(sender, message)
        elif isinstance(message, Wack):
            self._giving.acknowledged(sender, message)
        elif sender == self._mesh.creator:
            self._host_says(message)

    def _host_says(self, message: Message) -> None:
        match message:
            case wire.InvReq():
                self._asked(message.url)
            case NbHash() | NbHashes():
                self._hashes.heard(message)
                if isinstance(message, NbHash) and (span := span_of(message.url, message.lo, message.hi)):
                    self._answered(span)
            case wire.StartReq() | wire.Redeal():
                self._repo = message.model or self._repo
                self._hashes = Hashes()  # before each deal the host tells all of it anew
            case wire.ReadyAll():
                self._repo = message.model or self._repo
            case wire.Load() if message.nb is not None:
                self._dealt(message.nb)
            case wire.LayersHeld() if message.ranges is not None:
                self._asks = frozenset(message.ranges)
                self._giving.look()
            case wire.Wait() | wire.StartFailed():
                self._model, self._files, self._asks, self._others = None, None, frozenset(), {}
                self._giving.look()
            case _:
                pass

    def _dealt(self, nb: wire.NbLoad) -> None:
        self._repo, self._model, self._files = nb.repo, (nb.repo, nb.revision), frozenset(nb.files)
        self._asks = frozenset(nb.ranges)
        sizes = {name: size for name, fact in nb.files.items() if (size := _size(fact))}
        self._others = listing_of(nb.inv, sizes)
        self._giving.look()

    def left(self, id: str) -> None:
        """The link to a device ended."""
        self._giving.left(id)
        if id == self._mesh.creator:
            self._hashes = Hashes()  # what the host takes back meanwhile is not heard here
            for span in list(self._words):
                self._answered(span)

    def stop(self) -> None:
        """The room is about to be over: no word is waited for any more, so that loads end at once."""
        self._stopped = True
        for span in list(self._words):
            self._answered(span)

    async def close(self) -> None:
        """The room is over."""
        self.stop()
        self._questions.clear()
        if self._answering is not None:
            await asyncio.gather(self._answering, return_exceptions=True)
        await self._giving.close()

    # -- what it has -------------------------------------------------------------------------------

    def _asked(self, url: str) -> None:
        """The host asks what is here of a file."""
        if len(self._questions) >= QUESTIONS or url in self._questions:
            return
        self._questions.append(url)
        if self._answering is None or self._answering.done():
            loop = asyncio.get_running_loop()
            self._answering = loop.create_task(self._answer(), name="pooled-inventory")

    async def _answer(self) -> None:
        while self._questions:
            url = self._questions[0]
            have = await self._have(url)
            if self._questions:
                self._questions.popleft()
                self._mesh.send(self._mesh.creator, wire.Inv(url=url, have=words_of(have)))

    async def _have(self, url: str) -> Ranges:
        """What is here of it that may be given; nothing of another model than the one that is started."""
        file, holdings = split(url), self._holdings
        if holdings is None or file is None or not is_weights(file.name) or file.repo != self._repo:
            return []
        if self._model != (file.repo, file.revision):
            self._model, self._files = (file.repo, file.revision), None
        if not may_cross(self._mesh.facts(self._mesh.creator)):
            return []
        try:
            return await self._run(lambda: holdings.have(*file))
        except Exception:  # whatever it is, the host waits for an answer
            log.warning("what is here of a file is not known", exc_info=True)
            return []

    # -- of its own load: `Others` -----------------------------------------------------------------

    def have(self) -> Mapping[str, Mapping[str, Ranges]]:
        """See `Others.have`."""
        return self._others

    def known(self, url: str, lo: int, hi: int) -> Word | None:
        """See `Others.known`."""
        return self._hashes.of(url, lo, hi)

    async def word(self, url: str, lo: int, hi: int) -> Word | None:
        """See `Others.word`. What is not known is asked of the host."""
        span = Span(url, lo, hi)
        word = self._hashes.of(*span)
        if word is not None:
            return word
        future = self._words.get(span)
        if future is None:
            if self._stopped or not self._mesh.send(self._mesh.creator, message_of(span, None)):
                return None
            future = self._words[span] = asyncio.get_running_loop().create_future()
            timer = self._mesh.clock.call_later(WORD_S, lambda: self._answered(span))
            future.add_done_callback(lambda _: timer.cancel())
        await asyncio.shield(future)
        return self._hashes.of(*span)

    def read(self, url: str, lo: int, hi: int, sha256: str) -> None:
        """See `Others.read`."""
        word = self._hashes.of(url, lo, hi)
        if word is None or word.sha256 != sha256:
            message = message_of(Span(url, lo, hi), Word(sha256))
            self._mesh.send(self._mesh.creator, message)

    def bad(self, url: str, lo: int, hi: int, id: str) -> None:
        """See `Others.bad`."""
        self._mesh.send(self._mesh.creator, NbBad(url=url, lo=lo, hi=hi - 1, id=id))

    def _answered(self, span: Span) -> None:
        future = self._words.pop(span, None)
        if future is not None and not future.done():
            future.set_result(None)


def _size(fact: object) -> int:
    """Bytes of a file as a deal says them; 0: it does not."""
    size = fact.get("size") if isinstance(fact, dict) else None
    return size if isinstance(size, int) and size > 0 else 0
