"""One of the two devices of `benchmarks.weights` between which weights cross a link: all that a room does.

``python -m benchmarks.weights_peer give|take FOLDER LAYERS``. The giver says where it can be met, in a line
of JSON, and then, by each line that it hears, how much CPU it has taken. The taker hears where, in one line,
and by each further line takes the first layers into an empty cache. Disks, windows, acknowledgements, and
hashes at both ends are as in a room; no room deals and nothing is computed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.arrivals import Silent
from pooled_nb.mesh import codes, sctp
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.gatekeeper import Gatekeeper
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.loop import new_loop
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.link import DeviceMeta
from pooled_nb.mesh.messages.weights import NbHash, Wack, Wget, Wpart
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from pooled_nb.mesh.rtcnetwork import RtcNetwork
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.wiresettings import ONE_MACHINE
from pooled_nb.room.weights.giving import Giving
from pooled_nb.room.weights.hashes import Span, Word, message_of, span_of
from pooled_nb.room.weights.plan import AT_ONCE
from pooled_nb.room.weights.runner import in_thread
from pooled_nb.room.weights.taking import How, Order, Taking
from pooled_nb.room.weights.urls import url_of
from pooled_nb.shard import Piece, cache_folder, open_holdings
from pooled_nb.shard.headers import read_layout
from pooled_nb.shard.sources.needs import wanted
from pooled_nb.shard.tensors import in_range

REPO, REVISION = "local/bench", "1"


def pieces_of(folder: Path, layers: int) -> list[Piece]:
    """The blocks of the first layers."""
    found = []
    for file in sorted(folder.glob("*.safetensors")):
        layout = read_layout(file)
        for block in wanted(layout, lambda name: in_range(name, 0, layers, False)):
            found.append(Piece(name=file.name, lo=block.lo, hi=block.hi, size=layout.size))
    return found


class End(Silent):
    """What both have: a mesh, and an ear for it."""

    def __init__(self, gates: Any) -> None:
        self.clock = LoopClock()
        self.mesh = Mesh(
            network=RtcNetwork(self.clock, IcePolicy.local()),
            clock=self.clock,
            name="end",
            meta=DeviceMeta(ua="Jupyter", contrib_gb=0.0),
            listener=self,
            gates=gates,
            wiring=ONE_MACHINE,
        )


class Giver(End):
    """It vouches for what it gives, as a host does; each time it hashes it anew."""

    def __init__(self, folder: Path) -> None:
        self.keeper = Gatekeeper()
        super().__init__(self.keeper)
        self._giving = Giving(
            out=self.mesh,
            clock=self.clock,
            holdings=open_holdings({(REPO, REVISION): folder}),
            runner=in_thread,
            gives=True,
            asks=lambda id: True,
            model=lambda: (REPO, REVISION),
            vouches=self,
        )

    def knows(self, span: Span) -> bool:
        """See `grant.Vouches`."""
        return False

    def gives(self, to: str, span: Span, sha256: str) -> None:
        """See `grant.Vouches`."""
        self.mesh.send(to, message_of(span, Word(sha256)))

    def on_message(self, sender: str, message: Message) -> None:
        """See `MeshListener`."""
        if isinstance(message, Wget):
            self._giving.asked(sender, message)
        elif isinstance(message, Wack):
            self._giving.acknowledged(sender, message)


class Taker(End):
    """Takes pieces, few at a time."""

    def __init__(self, key: str | None) -> None:
        super().__init__(Newcomer(Credentials(key=key)))
        self._taking = Taking(outbox=self.mesh, clock=self.clock, run=in_thread)
        self._words: dict[Span, asyncio.Future[str]] = {}

    def on_message(self, sender: str, message: Message) -> None:
        """See `MeshListener`."""
        if isinstance(message, Wpart):
            self._taking.heard(sender, message)
        elif isinstance(message, NbHash):
            span = span_of(message.url, message.lo, message.hi)
            assert span is not None
            self._words[span].set_result(message.sha256 or "")

    async def take(self, pieces: list[Piece]) -> dict[str, float]:
        """Take them into an empty cache; seconds, CPU seconds, and megabytes (10⁶ bytes)."""
        shutil.rmtree(cache_folder() / "ranges", ignore_errors=True)
        holdings, turns = open_holdings(), asyncio.Semaphore(AT_ONCE)

        async def one(piece: Piece) -> None:
            url = url_of(REPO, REVISION, piece.name)
            word: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._words[Span(url, piece.lo, piece.hi)] = word

            async def sha256() -> str:
                return await word

            order = Order(
                device=self.mesh.creator,
                url=url,
                piece=piece,
                sha256=sha256,
                begin=partial(holdings.take, REPO, REVISION, piece),
                on_bytes=lambda n: None,
            )
            async with turns:
                taken = await self._taking.take(order)
            if taken.how is not How.HERE:
                raise RuntimeError(f"{piece.name} from {piece.lo}: {taken}")

        began, cpu = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for piece in pieces:
                group.create_task(one(piece))
        return {
            "s": time.perf_counter() - began,
            "cpu": time.process_time() - cpu,
            "mb": sum(piece.hi - piece.lo for piece in pieces) / 1e6,
        }


async def direct(mesh: Mesh) -> None:
    """Wait until the link is known to be direct: no other carries weights."""
    async with asyncio.timeout(30):
        while True:
            facts = [mesh.facts(member.id) for member in mesh.roster if member.id != mesh.id]
            if facts and all(fact is not None and fact.path == "direct" for fact in facts):
                return
            await asyncio.sleep(0.02)


async def main(side: str, folder: Path, layers: int) -> None:
    """Do what the lines say, until they end."""

    def say(what: dict[str, Any]) -> None:
        print(json.dumps(what), flush=True)

    if side == "give":
        server = await SignalServer.start()
        giver, code = Giver(folder), codes.draw()
        await giver.mesh.create(code, [server.url])
        tuned = (await sctp.settle()).tuned
        say({"url": server.url, "code": code, "key": giver.keeper.key, "tuned": tuned})
        while await asyncio.to_thread(sys.stdin.readline):
            await direct(giver.mesh)
            say({"cpu": time.process_time()})
        await giver.mesh.leave()
        await server.close()
        return
    told = json.loads(await asyncio.to_thread(sys.stdin.readline))
    taker, pieces = Taker(told["key"]), pieces_of(folder, layers)
    await taker.mesh.join(told["code"], [told["url"]])
    await direct(taker.mesh)
    say({})
    while await asyncio.to_thread(sys.stdin.readline):
        say(await taker.take(pieces))
    await taker.mesh.leave()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
    os._exit(0)  # nothing is left to say
