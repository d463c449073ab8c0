"""Weights in whole rooms: who has what, who gives it, what vouches for it (PROTOCOL sections 2 and 6)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.deal import Inv, InvReq, Load
from pooled_nb.mesh.messages.weights import NbBad, NbHash, NbHashes, Wack, Wget, Wpart
from pooled_nb.mesh.network import Path
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.weights.deviceside import QUESTIONS
from pooled_nb.room.weights.hashes import Word
from pooled_nb.room.weights.means import Means
from pooled_nb.room.weights.runner import inline
from pooled_nb.shard import Piece
from tests.room.rooms import Rooms, open_rooms
from tests.room.toy import ToyShard
from tests.room.weights.pipe import Disk
from tests.room.weights.toyfiles import WEIGHTS, ToyHoldings, ToyModel
from tests.sim.clock import simulate

MODEL = ToyModel(block=90_000, each=1)
URL = f"toy/model@1/{WEIGHTS}"
SIZE = len(MODEL.files[WEIGHTS])
WHOLE = (*MODEL.blocks, MODEL.head)


def means(*pieces: Piece, gives: bool = True, wrong: bool = False) -> Means:
    """Of a device that has these pieces."""
    return Means(holdings=ToyHoldings(MODEL, pieces, wrong=wrong), runner=inline, gives=gives)


@dataclass
class Ear:
    """Everything that a device of a room hears from now on."""

    room: HostRoom | DeviceRoom

    def __post_init__(self) -> None:
        self.heard: list[tuple[str, Message]] = []
        listen = self.room.on_message

        def overhear(sender: str, message: Message) -> None:
            self.heard.append((sender, message))
            listen(sender, message)

        self.room.on_message = overhear  # type: ignore[method-assign]  # heard, and passed on

    def of(self, kind: type[Message]) -> list[Message]:
        return [m for _, m in self.heard if isinstance(m, kind)]

    async def get(self, to: HostRoom | DeviceRoom, lo: int, hi: int, *, url: str = URL) -> bytes | None:
        """Take a range as an honest device does; None: a miss."""
        number = len(self.heard) + 1
        mesh, start = self.room.mesh, len(self.heard)
        assert mesh.send(to.mesh.id, Wget(id=number, url=url, lo=lo, hi=hi - 1, win=200_000))
        got, seen = b"", start
        for _ in range(1_000):
            await asyncio.sleep(0.01)
            for sender, part in self.heard[seen:]:
                if isinstance(part, Wpart) and part.id == number and sender == to.mesh.id:
                    if part.miss:
                        return None
                    got += part.data or b""
                    mesh.send(to.mesh.id, Wack(id=number, got=len(got)))
                    if part.done:
                        return got
            seen = len(self.heard)
        raise AssertionError("no answer")


async def opened(*workers: Means | None, host: Means | None = None, start: bool = True) -> Rooms:
    """A room with these workers; started, if nothing else is said."""
    rooms = await open_rooms(model=MODEL.facts, means=host or means(*WHOLE))
    for device in workers:
        await rooms.add(shard=ToyShard(), means=device)
    if start:
        await rooms.host.start()
        await asyncio.sleep(0.1)
    return rooms


def in_rooms(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run it in virtual time."""
    simulate(scenario)


def paths(rooms: Rooms, path: Path, *, of: str | None = None) -> None:
    """All links, or one device's, go that way, as both ends see it."""
    for connection in rooms.net._connections:
        if of is None or of in (connection.own, connection.remote):
            connection.path = path


def loads_of(ear: Ear) -> list[Load]:
    return [m for m in ear.of(Load) if isinstance(m, Load)]


def inv_of(ear: Ear) -> dict[str, dict[str, list[str]]]:
    """What the newest deal said others have."""
    nb = loads_of(ear)[-1].nb
    assert nb is not None
    return nb.inv or {}


def test_who_has_what_is_asked_and_told() -> None:
    """PROTOCOL section 6, ``ai-inv-req``, ``inv``: before the deal, of each device, in every ``ai-load``."""

    async def scenario() -> None:
        blocks = MODEL.blocks
        rooms = await opened(means(blocks[1], blocks[2], blocks[4]), means(), start=False)
        one, two = rooms.devices
        ears = [Ear(room) for room in (one, two, rooms.host)]
        await rooms.host.start()
        host = {WEIGHTS: [f"0-{SIZE - 1}"]}
        of_one = {WEIGHTS: [f"{blocks[1].lo}-{blocks[2].hi - 1}", f"{blocks[4].lo}-{blocks[4].hi - 1}"]}
        assert inv_of(ears[0]) == {rooms.host.mesh.id: host}
        assert inv_of(ears[1]) == {rooms.host.mesh.id: host, one.mesh.id: of_one}
        assert one._weights.have() == {rooms.host.mesh.id: {WEIGHTS: [(0, SIZE)]}}
        assert rooms.host._weights.have() == {
            one.mesh.id: {WEIGHTS: [(blocks[1].lo, blocks[2].hi), (blocks[4].lo, blocks[4].hi)]}
        }
        for ear in ears[:2]:
            assert ear.of(InvReq) == [InvReq(url=URL)], "once a weights file, and never a small one"
        await rooms.host.start()
        assert ears[0].of(InvReq) == [InvReq(url=URL)] * 2, "what they have is another by now"
        await rooms.close()

    in_rooms(scenario)


def test_nothing_is_said_of_another_model_nor_where_it_may_not_be_given() -> None:
    """PROTOCOL section 6, ``ai-inv``: "asked about another file, or for a gated model: ``have: []``"."""

    async def scenario() -> None:
        rooms = await opened(means(*WHOLE), means(*WHOLE, gives=False), None, start=False)
        ear = Ear(rooms.host)
        before = InvReq(url=URL)
        rooms.host.mesh.send(rooms.devices[0].mesh.id, before)
        await asyncio.sleep(0.1)
        assert ear.of(Inv) == [Inv(url=URL, have=[])], "no model is named yet"
        await rooms.host.start()
        ear.heard.clear()
        urls = [
            URL,
            "toy/model@2/model.safetensors",
            "toy/other@1/model.safetensors",
            "toy/model@1/config.json",
        ]
        urls += ["toy/model@1/../x", "/etc/passwd", ""]
        for device in rooms.devices:
            for url in urls:
                rooms.host.mesh.send(device.mesh.id, InvReq(url=url))
        await asyncio.sleep(0.1)
        for device, has in zip(rooms.devices, (True, False, False), strict=True):
            said = [m for sender, m in ear.heard if sender == device.mesh.id and isinstance(m, Inv)]
            assert [m.url for m in said] == urls
            assert [m.have for m in said] == [[f"0-{SIZE - 1}"] if has else [], *[[]] * 6]
        await rooms.close()

    in_rooms(scenario)


def test_only_the_host_is_answered() -> None:
    """PROTOCOL section 6, ``ai-inv-req`` is the host's: what a device has is no other device's affair."""

    async def scenario() -> None:
        rooms = await opened(means(*WHOLE), means())
        one, two = rooms.devices
        ear = Ear(two)
        for to in (one, rooms.host):
            assert two.mesh.send(to.mesh.id, InvReq(url=URL))
        await asyncio.sleep(1)
        assert ear.of(Inv) == []
        await rooms.close()

    in_rooms(scenario)


def test_a_storm_of_questions() -> None:
    """PROTOCOL section 3: a host that asks without end is answered by one look at a time, within bounds."""

    async def scenario() -> None:
        disk = Disk()
        rooms = await opened(Means(holdings=ToyHoldings(MODEL, WHOLE), runner=disk))
        ear, id = Ear(rooms.host), rooms.devices[0].mesh.id
        disk.jobs, disk.stuck = 0, asyncio.Event()
        for n in range(3_000):
            rooms.host.mesh.send(id, InvReq(url=f"toy/model@1/{n // 2}.safetensors"))
        await asyncio.sleep(5)
        assert disk.now == 1
        disk.stuck.set()
        await asyncio.sleep(1)
        assert len(ear.of(Inv)) == disk.jobs == QUESTIONS
        rooms.host.mesh.send(id, InvReq(url=URL))
        await asyncio.sleep(0.1)
        assert ear.of(Inv)[-1] == Inv(url=URL, have=[f"0-{SIZE - 1}"])
        await rooms.close()

    in_rooms(scenario)


def test_an_old_device_that_does_not_answer_holds_nobody_up() -> None:
    """PROTOCOL section 6: the deal comes after 1.5 s at most."""

    async def scenario() -> None:
        rooms = await opened(means(), start=False)
        rooms.devices[0]._weights._asked = lambda url: None  # type: ignore[method-assign]  # says nothing
        loop = asyncio.get_running_loop()
        before = loop.time()
        await rooms.host.start()
        assert 1.5 <= loop.time() - before < 2
        assert rooms.host.status().state == "online"
        await rooms.close()

    in_rooms(scenario)


def test_nobody_waits_for_a_device_that_leaves() -> None:
    """PROTOCOL section 6: who goes while it is asked costs the others nothing."""

    async def scenario() -> None:
        rooms = await opened(means(), start=False)
        rooms.devices[0]._weights._asked = lambda url: None  # type: ignore[method-assign]  # says nothing
        starting = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(0.3)
        assert not starting.done()
        await rooms.devices[0].leave()
        await asyncio.sleep(0.3)
        assert starting.done()
        await starting
        await rooms.close()

    in_rooms(scenario)


@pytest.mark.parametrize("what", ["hangs", "fails"])
def test_a_host_whose_disk_does_not_answer(what: str) -> None:
    """PROTOCOL section 6: what the host has is looked at as long as others are waited for, and no longer."""

    class Failing(ToyHoldings):
        def have(self, repo: str, revision: str, name: str) -> list[tuple[int, int]]:
            raise RuntimeError("the disk says something that nobody knows")

    async def scenario() -> None:
        disk = Disk(stuck=asyncio.Event() if what == "hangs" else None)
        rooms = await opened(means(), host=Means(holdings=Failing(MODEL), runner=disk), start=False)
        ear, loop = Ear(rooms.devices[0]), asyncio.get_running_loop()
        before = loop.time()
        await rooms.host.start()
        assert loop.time() - before < 2
        assert inv_of(ear) == {}
        await rooms.host.start()
        assert disk.jobs == (1 if what == "hangs" else 2), "one look at a time"
        await rooms.close()

    in_rooms(scenario)


# -- giving ----------------------------------------------------------------------------------------


def test_host_and_workers_give() -> None:
    """PROTOCOL section 6, ``ai-wget``: from the host, from a worker, and to the host from a worker."""

    async def scenario() -> None:
        rooms = await opened(means(*WHOLE), means())
        one, two = rooms.devices
        ear, data = Ear(two), MODEL.files[WEIGHTS]
        for giver in (rooms.host, one):
            assert await ear.get(giver, 0, SIZE) == data
            assert await ear.get(giver, 5, 70_000) == data[5:70_000]
            assert await ear.get(giver, 5, SIZE + 1) is None
            assert giver._weights.given.to == {two.mesh.id: SIZE + 70_000 - 5}
            assert giver._weights.given.bytes == SIZE + 70_000 - 5
        assert await Ear(rooms.host).get(one, 0, 100) == data[:100]
        await rooms.close()

    in_rooms(scenario)


def test_small_files_of_the_hosts_folder() -> None:
    """PROTOCOL section 6, ``ai-wget``: a model of the host's own folder comes whole over the room."""

    async def scenario() -> None:
        rooms = await opened(means(), host=means(*MODEL.pieces))
        ear = Ear(rooms.devices[0])
        assert await ear.get(rooms.host, 0, 700, url="toy/model@1/config.json") == MODEL.files["config.json"]
        await rooms.close()

    in_rooms(scenario)


def test_only_files_of_the_deal() -> None:
    """PROTOCOL section 6, ``ai-wget``: what else lies in the model's folder is nobody's affair."""

    async def scenario() -> None:
        notes = Piece(name="notes.txt", lo=0, hi=5, size=5)
        rooms = await opened(means(*MODEL.pieces), means(), host=means(*MODEL.pieces))
        one, two = rooms.devices
        ear = Ear(two)
        for giver in (rooms.host, one):
            holdings = giver._weights._giving._holdings
            assert isinstance(holdings, ToyHoldings)
            holdings.here[notes] = b"notes"
            assert await ear.get(giver, 0, 5, url="toy/model@1/notes.txt") is None
            assert await ear.get(giver, 0, 700, url="toy/model@1/config.json") is not None
            assert await ear.get(giver, 0, 10) is not None
        await rooms.close()

    in_rooms(scenario)


@pytest.mark.parametrize("path", ["relayed", "unknown"])
def test_nothing_over_a_relay(path: Path) -> None:
    """PROTOCOL section 2: "model weights never cross a relayed link", nor is anything listed over one."""

    async def scenario() -> None:
        rooms = await opened(means(*WHOLE), means(), start=False)
        one, two = rooms.devices
        paths(rooms, path)
        ears = [Ear(two), Ear(rooms.host)]
        await rooms.host.start()
        await asyncio.sleep(0.1)
        assert rooms.host._weights.have() == {}
        assert await ears[0].get(rooms.host, 0, 10) is None
        assert await ears[1].get(one, 0, 10) is None
        paths(rooms, "direct")
        assert await ears[0].get(rooms.host, 0, 10) == MODEL.files[WEIGHTS][:10]
        await rooms.close()

    in_rooms(scenario)


def test_a_guest_gets_nothing() -> None:
    """PROTOCOL section 6: "to admitted workers only", of the host and of a worker."""

    async def scenario() -> None:
        rooms = await opened(means(*WHOLE), start=False)
        guest = await rooms.add(gb=0.0)
        one, ears = rooms.devices[0], [Ear(guest), Ear(rooms.devices[0])]
        assert await ears[1].get(rooms.host, 0, 10) is None, "nobody holds layers yet"
        await rooms.host.start()
        await guest.mesh.connect(one.mesh.id)
        await asyncio.sleep(0.1)
        assert await ears[0].get(rooms.host, 0, 10) is None
        assert await ears[0].get(one, 0, 10) is None
        assert await ears[1].get(rooms.host, 0, 10) == MODEL.files[WEIGHTS][:10]
        await rooms.close()

    in_rooms(scenario)


@pytest.mark.parametrize("host_gives", [True, False])
def test_who_gives_nothing(host_gives: bool) -> None:
    """PROTOCOL section 6: a person's word, or the place's, that this device gives nothing away."""

    async def scenario() -> None:
        rooms = await opened(
            means(*WHOLE, gives=not host_gives), means(), host=means(*WHOLE, gives=host_gives)
        )
        one, two = rooms.devices
        ear = Ear(two)
        assert (await ear.get(rooms.host, 0, 10) is not None) == host_gives
        assert (await ear.get(one, 0, 10) is not None) == (not host_gives)
        assert list(two._weights.have()) == [rooms.host.mesh.id if host_gives else one.mesh.id]
        await rooms.close()

    in_rooms(scenario)


def test_a_device_that_has_nothing_to_say() -> None:
    """PROTOCOL section 6: without files of its own a device answers, with an empty list and with misses."""

    async def scenario() -> None:
        rooms = await opened(None, None, host=Means())
        one, two = rooms.devices
        ear = Ear(two)
        assert await ear.get(rooms.host, 0, 10) is None
        assert await ear.get(one, 0, 10) is None
        assert inv_of(ear) == {} if loads_of(ear) else True
        await rooms.close()

    in_rooms(scenario)


def test_it_ends_with_the_room() -> None:
    """PROTOCOL section 6: a range that is being given ends when either end leaves; nothing is left behind."""

    async def scenario() -> None:
        rooms = await opened(means(*WHOLE), means())
        one, two = rooms.devices
        for to in (rooms.host, one):
            two.mesh.send(to.mesh.id, Wget(id=1, url=URL, lo=0, hi=SIZE - 1, win=70_000))
        await asyncio.sleep(0.5)
        assert one._weights._giving._links
        await two.leave()
        await asyncio.sleep(0.5)
        assert not one._weights._giving._links
        assert not rooms.host._weights._giving._links
        await rooms.close()

    in_rooms(scenario)


# -- what it must be -------------------------------------------------------------------------------


def sha(lo: int, hi: int) -> str:
    return hashlib.sha256(MODEL.files[WEIGHTS][lo:hi]).hexdigest()


def test_what_the_host_gives_it_vouches_for() -> None:
    """PROTOCOL section 6, ``nb-hash``: before the end of the range, to who gets it and to all others."""

    async def scenario() -> None:
        rooms = await opened(means(), means())
        one, two = rooms.devices
        ears = [Ear(one), Ear(two)]
        block = MODEL.blocks[2]
        assert await ears[0].get(rooms.host, block.lo, block.hi) == MODEL.data(block)
        await asyncio.sleep(0.1)
        kinds = [type(m) for _, m in ears[0].heard if not isinstance(m, Wpart) or m.done]
        assert kinds[:2] == [NbHash, Wpart]
        for device in (one, two):
            assert await device._weights.word(URL, block.lo, block.hi) == Word(MODEL.sha256(block))
        assert ears[1].of(NbHash) == [
            NbHash(url=URL, lo=block.lo, hi=block.hi - 1, sha256=MODEL.sha256(block))
        ]
        await rooms.close()

    in_rooms(scenario)


def test_the_host_is_asked_what_a_range_is() -> None:
    """PROTOCOL section 6, ``nb-hash`` without ``sha256``: what it holds it hashes; else nobody vouches."""

    async def scenario() -> None:
        blocks = MODEL.blocks
        rooms = await opened(means(), host=means(*blocks[:3]))
        weights = rooms.devices[0]._weights
        assert await weights.word(URL, blocks[1].lo, blocks[1].hi) == Word(MODEL.sha256(blocks[1]))
        assert await weights.word(URL, 2_000, 3_000) == Word(sha(2_000, 3_000))
        assert await weights.word(URL, blocks[4].lo, blocks[4].hi) is None
        assert await weights.word(URL, SIZE - 1, SIZE + 1) is None
        await rooms.close()

    in_rooms(scenario)


def test_the_first_device_that_reads_it_from_the_hub() -> None:
    """PROTOCOL section 6, ``by``: passed on to those that are here, and to those that load later."""

    async def scenario() -> None:
        rooms = await opened(means(), means(), host=means())
        one, two = rooms.devices
        one._weights.read(URL, 10, 20, sha(10, 20))
        await asyncio.sleep(0.1)
        word = Word(sha(10, 20), one.mesh.id)
        assert await two._weights.word(URL, 10, 20) == word
        rooms.host._weights.read(URL, 20, 30, sha(20, 30))
        late = await rooms.add(shard=ToyShard(), means=means())
        ear = Ear(late)
        await rooms.host.start()
        order = [type(m) for _, m in ear.heard if isinstance(m, NbHashes | Load)]
        assert order == [NbHashes, NbHashes, Load], "before it is told to load"
        assert await late._weights.word(URL, 10, 20) == word
        assert await late._weights.word(URL, 20, 30) == Word(sha(20, 30))
        await rooms.close()

    in_rooms(scenario)


def test_who_names_what_is_wrong_is_found_out() -> None:
    """PROTOCOL section 6: the host's own word wins; nothing that the other named counts any more."""

    async def scenario() -> None:
        rooms = await opened(means(*WHOLE), means())
        one, two = rooms.devices
        ear = Ear(two)
        one._weights.read(URL, 20, 30, sha(20, 30))
        one._weights.read(URL, 10, 20, sha(0, 1))
        await asyncio.sleep(0.1)
        assert two._weights.known(URL, 10, 20) == Word(sha(10, 20)), "the host's own disk says it"
        assert two._weights.known(URL, 20, 30) == Word(sha(20, 30))
        assert not [m for m in ear.of(NbHash) if isinstance(m, NbHash) and m.by and m.sha256]
        assert sum("has other weights than this device" in text for text in rooms.notices) == 1
        assert one.mesh.id not in rooms.host._weights.have()
        await rooms.close()

    in_rooms(scenario)


def test_what_is_named_is_looked_up_before_it_is_passed_on() -> None:
    """PROTOCOL section 6: a host vouches itself for what it holds; a stranger's word is for the rest."""

    async def scenario() -> None:
        disk, blocks = Disk(), MODEL.blocks
        rooms = await opened(
            means(), means(), host=Means(holdings=ToyHoldings(MODEL, blocks[:2]), runner=disk)
        )
        one, two = rooms.devices
        disk.stuck = asyncio.Event()
        held, other = blocks[1], blocks[4]
        for block in (held, other):
            one._weights.read(URL, block.lo, block.hi, sha(0, 1))
        asked = asyncio.create_task(two._weights.word(URL, held.lo, held.hi))
        ear = Ear(two)
        await asyncio.sleep(1)
        rooms.host._weights.remind(two.mesh.id)
        await asyncio.sleep(1)
        assert ear.heard == [], "nobody is told before the disk has answered"
        assert rooms.host._weights.known(URL, held.lo, held.hi) is None
        disk.stuck.set()
        assert await asked == Word(MODEL.sha256(held))
        await asyncio.sleep(1)
        assert two._weights.known(URL, other.lo, other.hi) is None, "who lied of one is believed in none"
        two._weights.read(URL, other.lo, other.hi, sha(1, 2))
        await asyncio.sleep(1)
        assert one._weights.known(URL, other.lo, other.hi) == Word(sha(1, 2), two.mesh.id)
        disk.stuck = asyncio.Event()
        disputed = MODEL.blocks[0]
        two._weights.read(URL, disputed.lo, disputed.hi, MODEL.sha256(disputed))
        three = await rooms.add(shard=ToyShard(), means=means())
        workers = rooms.host._weights._workers
        rooms.host._weights._word._workers = lambda: [*workers(), three.mesh.id]  # type: ignore[method-assign]
        three._weights.read(URL, disputed.lo, disputed.hi, sha(0, 2))
        await asyncio.sleep(1)
        disk.stuck.set()
        await asyncio.sleep(1)
        assert one._weights.known(URL, disputed.lo, disputed.hi) == Word(MODEL.sha256(disputed))
        assert not rooms.host._weights._word._checking
        await rooms.close()

    in_rooms(scenario)


def test_who_names_more_than_is_looked_up_is_not_believed() -> None:
    """PROTOCOL section 3: no device gets past the host's own look by asking it for too much."""

    async def scenario() -> None:
        rooms = await opened(means(), means())
        one, two = rooms.devices
        for n in range(3):
            one._weights.read(URL, n, SIZE, sha(n, SIZE))
        await asyncio.sleep(0.1)
        one._weights.read(URL, 0, SIZE - 9, sha(0, 1))
        await asyncio.sleep(1)
        assert two._weights.known(URL, 0, SIZE) == Word(sha(0, SIZE))
        assert two._weights.known(URL, 0, SIZE - 9) is None
        await rooms.close()

    in_rooms(scenario)


@pytest.mark.parametrize("how", ["its link broke", "a start"])
def test_a_word_that_was_taken_back_unheard(how: str) -> None:
    """PROTOCOL section 6, ``nb-hash``: a device that was away when a word was taken back has it no more."""

    async def scenario() -> None:
        rooms = await opened(means(), means(), host=means())
        one, two = rooms.devices
        host = rooms.host
        one._weights.read(URL, 10, 20, sha(10, 20))
        one._weights.read(URL, 20, 30, sha(20, 30))
        await asyncio.sleep(0.1)
        assert two._weights.known(URL, 20, 30) == Word(sha(20, 30), one.mesh.id)
        if how == "a start":
            host._weights._word._all = lambda messages: None  # type: ignore[method-assign]  # nobody hears it
        else:
            for connection in rooms.net.connections(two.mesh.id, host.mesh.id):
                connection.become("failed")
        host._weights.read(URL, 10, 20, sha(0, 1))
        if how == "a start":
            await host.start()
        await asyncio.sleep(10)
        assert two._weights.known(URL, 20, 30) is None
        assert two._weights.known(URL, 10, 20) == Word(sha(0, 1))
        await rooms.close()

    in_rooms(scenario)


def test_who_gave_what_is_wrong_is_named_and_listed_no_more() -> None:
    """PROTOCOL section 6, ``nb-bad``: to the host's person, once; nobody is sent there for weights again."""

    async def scenario() -> None:
        rooms = await opened(means(*WHOLE), means())
        one, two = rooms.devices
        for _ in range(3):
            two._weights.bad(URL, 0, 10, one.mesh.id)
        two._weights.bad(URL, 0, 10, "nobody")
        two._weights.bad(URL, 0, 10, two.mesh.id)
        await asyncio.sleep(0.1)
        wrong = [text for text in rooms.notices if "wrong weights" in text]
        assert wrong == [
            f"{two.mesh.name} says that it got wrong weights from {one.mesh.name}. Nobody is sent there for "
            "more."
        ]
        ear = Ear(two)
        await rooms.host.start()
        assert list(inv_of(ear)) == [rooms.host.mesh.id]
        two._weights.bad(URL, 0, 10, rooms.host.mesh.id)
        await asyncio.sleep(0.1)
        assert rooms.notices[-1].endswith("from this device."), "nobody is kept from the host"
        await rooms.close()

    in_rooms(scenario)


def test_what_guests_and_others_say_of_hashes() -> None:
    """PROTOCOL section 6: a guest names, asks and accuses in vain; a device believes its host alone."""

    async def scenario() -> None:
        rooms = await opened(means(*WHOLE), means())
        one, two = rooms.devices
        guest = await rooms.add(gb=0.0)
        ear = Ear(guest)
        for message in (
            NbHash(url=URL, lo=0, hi=9, sha256=sha(1, 2)),
            NbHash(url=URL, lo=0, hi=9),
            NbBad(url=URL, lo=0, hi=9, id=one.mesh.id),
        ):
            guest.mesh.send(rooms.host.mesh.id, message)
        lie = NbHash(url=URL, lo=0, hi=9, sha256=sha(1, 2))
        assert one.mesh.send(two.mesh.id, lie)
        await asyncio.sleep(0.2)
        assert ear.of(NbHash) == []
        assert one.mesh.id in rooms.host._weights.have()
        assert await two._weights.word(URL, 0, 10) == Word(sha(0, 10))
        await rooms.close()

    in_rooms(scenario)


def test_who_lost_its_host_waits_for_no_word() -> None:
    """PROTOCOL section 3: with the link what was asked over it is gone, also where this device leaves."""

    async def scenario() -> None:
        rooms = await opened(means(), means())
        rooms.host._weights.heard = lambda *_: None  # type: ignore[method-assign]  # answers nothing
        words = [asyncio.create_task(device._weights.word(URL, 0, 10)) for device in rooms.devices]
        words.append(asyncio.create_task(rooms.devices[0]._weights.word(URL, 0, 10)))
        await asyncio.sleep(1)
        assert not any(word.done() for word in words)
        close = rooms.devices[1]._lending.close

        async def ends_its_load() -> None:
            assert await words[1] is None
            await close()

        rooms.devices[1]._lending.close = ends_its_load  # type: ignore[method-assign]  # it waits for a word
        await asyncio.wait_for(rooms.devices[1].leave(), 10)
        assert await rooms.devices[1]._weights.word(URL, 5, 6) is None
        await asyncio.sleep(0.1)
        assert [word.done() for word in words] == [False, True, False]
        await rooms.host.abandon()
        await asyncio.sleep(1)
        assert [word.result() for word in words] == [None] * 3
        await rooms.close()

    in_rooms(scenario)
