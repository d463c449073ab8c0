"""Where layers come from, in whole rooms (PROTOCOL section 6, DESIGN section 6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from msgspec import structs

from pooled_nb.errors import ModelNotFound, PooledError
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.messages.weights import NbBad, Wget, Wpart
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.weights.fetching import Tally
from pooled_nb.room.weights.hashes import Word
from pooled_nb.room.weights.means import Means
from pooled_nb.room.weights.runner import inline
from pooled_nb.shard import LoadSpec, Missing, Piece
from tests.room.rooms import Rooms, alone, ask, open_rooms
from tests.room.weights.toyfiles import FedShard, ToyHoldings, ToyModel
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork

HUB = ToyModel()
URL = f"toy/model@1/{HUB.head.name}"
LOCAL = ToyModel(repo="local/mine")
MANY = ToyModel(block=100_000, each=8)
SLOW = 500_000.0
"""Bytes a second of each link: what one device gives takes so long that others are asked, too."""


class Fed:
    """A room of devices that have parts of a model, and the requests between them.

    Attributes
    ----------
    wgets
        Who asked whom for what.
    """

    def __init__(self, model: ToyModel) -> None:
        self.model = model
        self.rooms: Rooms
        self.wgets: list[tuple[str, str, Piece]] = []
        self.shards: dict[str, FedShard] = {}
        self.bad: list[NbBad] = []

    async def open(
        self,
        *,
        host: Iterable[Piece] | None = None,
        hub: bool = False,
        net: SimNetwork | None = None,
        download_gb: float = 8.0,
        host_gb: float = 0.05,
    ) -> Fed:
        """``host``: what it has; None: all of it."""
        holdings = ToyHoldings(self.model, self.model.pieces if host is None else host)
        shard = self.shards["host"] = FedShard(holdings, hub=hub)
        means = Means(holdings=holdings, runner=inline, download_gb=download_gb)
        self.rooms = await open_rooms(
            host_gb=host_gb, model=self.model.facts, host_shard=shard, means=means, net=net or SimNetwork()
        )
        self._overhear("host", self.rooms.host)
        return self

    async def add(
        self,
        name: str,
        has: Iterable[Piece] = (),
        *,
        wrong: bool = False,
        hub: bool = False,
        gb: float = 0.05,
        **means: Any,
    ) -> DeviceRoom:
        holdings = ToyHoldings(self.model, has, wrong=wrong)
        shard = self.shards[name] = FedShard(holdings, hub=hub)
        device = await self.rooms.add(
            gb=gb, shard=shard, name=name, means=Means(holdings=holdings, runner=inline, **means)
        )
        self._overhear(name, device)
        return device

    def _overhear(self, name: str, room: Any) -> None:
        listen = room.on_message

        def hear(sender: str, message: Message) -> None:
            if isinstance(message, Wget):
                file = message.url.rpartition("/")[2]
                size = len(self.model.files[file])
                piece = Piece(name=file, lo=message.lo, hi=message.hi + 1, size=size)
                self.wgets.append((self.name(sender), name, piece))
            if isinstance(message, NbBad):
                self.bad.append(message)
            listen(sender, message)

        room.on_message = hear

    def name(self, id: str) -> str:
        return next((m.name for m in self.rooms.host.mesh.roster if m.id == id), id)

    def layers(self, name: str) -> tuple[int, int]:
        spec = self.shards[name].spec
        assert spec is not None, f"{name} holds nothing"
        return spec.lo, spec.hi

    def asked_of(self, giver: str) -> set[Piece]:
        return {piece for _, of, piece in self.wgets if of == giver}

    def right(self, name: str) -> bool:
        """Whether all that a device holds is what it should be."""
        return all(data == self.model.data(piece) for piece, data in self.shards[name].holdings.here.items())


def play(scenario: Callable[[Fed], Awaitable[None]], model: ToyModel = HUB) -> None:
    async def whole() -> None:
        fed = Fed(model)
        await scenario(fed)
        await fed.rooms.close()
        for name, shard in fed.shards.items():
            assert not shard.holdings.taken, f"{name} let go of no piece"

    simulate(whole)


@pytest.mark.parametrize("model", [HUB, LOCAL], ids=["hub", "local"])
def test_only_the_host_has_the_model(model: ToyModel) -> None:
    """DESIGN section 6: "A model that exists only in the host's folder reaches the workers over the room"."""

    async def scenario(fed: Fed) -> None:
        await fed.open()
        for name in ("ada", "bo"):
            await fed.add(name)
        await fed.rooms.host.start()
        for name in ("ada", "bo"):
            lo, hi = fed.layers(name)
            assert fed.shards[name].fetched == [], "there is no hub here"
            assert set(fed.shards[name].holdings.here) == set(fed.model.of(lo, hi)), "only what it computes"
            assert fed.right(name)
        assert {of for _, of, _ in fed.wgets} == {"host"}
        heard = await ask(fed.rooms.host, "Why?", max_tokens=8)
        assert heard.text == (await alone(["Why?"], max_tokens=8))[0].text
        assert fed.rooms.devices[0].status().unverified == ""

    play(scenario, model)


def test_three_workers_are_spread_over_who_has_it() -> None:
    """DESIGN section 6: sources are spread, and the host is not the only one who gives."""

    async def scenario(fed: Fed) -> None:
        await fed.open(net=SimNetwork(bandwidth=SLOW))
        for name in ("ada", "bo", "cy"):
            await fed.add(name)
        await fed.rooms.host.start()
        ranges = {name: fed.layers(name) for name in fed.shards}
        fed.wgets.clear()
        # A second deal, with the ranges moved: what one has the others take from it too.
        await fed.add("dee")
        await fed.rooms.host.start()
        assert {name: fed.layers(name) for name in ranges} != ranges
        givers = {of for _, of, _ in fed.wgets}
        assert "host" in givers
        assert len(givers) > 1, fed.wgets
        assert all(fed.right(name) for name in fed.shards)
        asked = [(who, piece) for who, _, piece in fed.wgets]
        assert len(asked) == len(set(asked)), "nobody asks twice for what it got"

    play(scenario, MANY)


def test_who_has_nothing_to_take_it_from_goes_to_the_hub() -> None:
    """PROTOCOL section 6: "Any failure falls back to the network"; what was read there the host hears of."""

    async def scenario(fed: Fed) -> None:
        await fed.open(host=fed_host(HUB), hub=True)
        await fed.add("ada", hub=True)
        await fed.rooms.host.start()
        await asyncio.sleep(1)
        blocks = HUB.of(*fed.layers("ada"))[2:]
        assert fed.shards["ada"].fetched == blocks, "the small files came from the host"
        for piece in blocks:
            found = await fed.rooms.host._weights.word(URL, piece.lo, piece.hi)
            assert found is not None, "it was named to the host"
            assert (found.sha256, found.by) == (HUB.sha256(piece), fed.rooms.devices[0].mesh.id)

    play(scenario)


def test_what_only_another_device_vouches_for_is_shown() -> None:
    """DESIGN section 6: "the first device that reads it from the hub names its hash": taken, and shown."""

    async def scenario(fed: Fed) -> None:
        await fed.open(host=fed_host(HUB), hub=True)
        ada = await fed.add("ada", hub=True)
        await fed.rooms.host.start()
        await asyncio.sleep(1)
        blocks = HUB.of(*fed.layers("ada"))[2:]
        bo = await fed.add("bo", hub=True, gb=0.05)
        await fed.rooms.host.start()
        await asyncio.sleep(1)
        mine = [piece for piece in HUB.of(*fed.layers("bo")) if piece in blocks]
        assert mine, "some of it was with ada before"
        assert not set(fed.shards["bo"].fetched) & set(mine)
        assert {piece for who, of, piece in fed.wgets if (who, of) == ("bo", "ada")} == set(mine)
        mb = sum(p.hi - p.lo for p in mine) / 1e6
        said = f"{mb:.3g} MB of its layers came from ada; that they are right, only ada says."
        assert bo.status().unverified == said
        tally = Tally()
        tally.unverified = Counter({("", ada.mesh.id): 10**9, ("", bo.mesh.id): 1_839 * 10**9})
        assert bo._supply._doubts(tally) == (
            "1.84 TB of its layers came from another room; that they are right, only ada and bo say."
        )
        assert ada.status().unverified == ""

    play(scenario)


@pytest.mark.parametrize("after", [0.2, 2.0, 5.0])
def test_a_word_that_is_taken_back_while_it_is_fetched(after: float) -> None:
    """DESIGN section 6: what nobody vouches for (any more) is not loaded, also where it came by then."""

    async def scenario(fed: Fed) -> None:
        await fed.open(host=fed_host(HUB), hub=True, net=SimNetwork(bandwidth=200_000.0))
        ada = await fed.add("ada", hub=True)
        await fed.rooms.host.start()
        await asyncio.sleep(1)
        blocks = HUB.of(*fed.layers("ada"))[2:]
        bo = await fed.add("bo", hub=True, gb=0.05)
        starting = asyncio.ensure_future(fed.rooms.host.start())
        for _ in range(1_000):
            if [1 for who, of, _ in fed.wgets if (who, of) == ("bo", "ada")]:
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(after)
        came = fed.shards["bo"].holdings.came.keys() & set(blocks)
        assert bool(came) == (after == 5.0)
        fed.rooms.host._weights._word._lied(ada.mesh.id)
        await starting
        mine = {piece for piece in HUB.of(*fed.layers("bo")) if piece in blocks}
        assert mine
        assert mine <= set(fed.shards["bo"].fetched), "the hub's, all of it"
        assert bo.status().unverified == ""

    play(scenario)


def test_what_stays_missing_although_it_came() -> None:
    """PROTOCOL section 6: "Any failure falls back to the network": the room is not asked without end."""

    async def scenario(fed: Fed) -> None:
        await fed.open()
        await fed.add("ada", hub=True)
        holdings = fed.shards["ada"].holdings
        holdings.counts = lambda piece, spec: (  # type: ignore[method-assign]  # the shard sees it otherwise
            piece != HUB.blocks[-1] and ToyHoldings.counts(holdings, piece, spec)
        )
        await asyncio.wait_for(fed.rooms.host.start(), 300)
        assert HUB.blocks[-1] in fed.shards["ada"].fetched
        assert [p for _, _, p in fed.wgets].count(HUB.blocks[-1]) == 2

    play(scenario)


def fed_host(model: ToyModel) -> list[Piece]:
    """What a host of the hub's model holds: the ends of it, so that what others hold is not here."""
    return [model.config, model.head, *model.of(0, 2)[2:]]


def test_a_poisoned_peer() -> None:
    """DESIGN section 6: a wrong byte is refused, named, fetched elsewhere, and that device gives no more."""

    async def scenario(fed: Fed) -> None:
        await fed.open(net=SimNetwork(bandwidth=SLOW))
        ada = await fed.add("ada", gb=0.03)
        mal = await fed.add("mal", MANY.pieces, wrong=True, gb=0.03)
        await fed.rooms.host.start()
        assert fed.right("ada")
        asked = [piece for who, of, piece in fed.wgets if (who, of) == ("ada", "mal")]
        assert 1 <= len(asked) <= 4, "no more than were under way"
        assert any("mal gave wrong bytes" in text for text in fed.rooms.heard["ada"])
        assert {bad.id for bad in fed.bad} == {mal.mesh.id}
        assert any("mal" in text and "wrong" in text for text in fed.rooms.notices)
        fed.wgets.clear()
        fed.shards["ada"].holdings.here.clear()
        fed.rooms.host._weights._stock._struck.clear()  # ada goes by what it saw itself
        await fed.add("bo", gb=0.03)
        await fed.rooms.host.start()
        assert not [piece for who, of, piece in fed.wgets if (who, of) == ("ada", "mal")]
        await asyncio.sleep(1)
        assert ada.status().state == "online"

    play(scenario, MANY)


def test_a_relayed_link_carries_nothing() -> None:
    """PROTOCOL section 2: "Model weights never cross a relayed link": not asked for either."""

    async def scenario(fed: Fed) -> None:
        await fed.open()
        ada = await fed.add("ada", hub=True)
        for connection in fed.rooms.net.connections(ada.mesh.id, fed.rooms.host.mesh.id):
            connection.path = "relayed"
        for connection in fed.rooms.net.connections(fed.rooms.host.mesh.id, ada.mesh.id):
            connection.path = "relayed"
        await fed.rooms.host.start()
        assert fed.wgets == []
        assert fed.shards["ada"].fetched

    play(scenario)


def test_a_local_model_behind_a_relay_is_said() -> None:
    """PROTOCOL section 2: who cannot get it hears why, and what to do; the room deals without it."""

    async def scenario(fed: Fed) -> None:
        await fed.open(host_gb=1.0)
        ada = await fed.add("ada")
        for a, b in ((ada, fed.rooms.host), (fed.rooms.host, ada)):
            for connection in fed.rooms.net.connections(a.mesh.id, b.mesh.id):
                connection.path = "relayed"
        await fed.rooms.host.start()
        assert fed.shards["ada"].spec is None
        trouble = ada.status().sentence
        assert "runs over a relay, which carries no weights" in trouble
        assert "Copy the model's folder" in trouble

    play(scenario, LOCAL)


def test_where_files_may_not_be_shared_nothing_is_taken() -> None:
    """DESIGN section 7: a runtime that forbids file sharing takes nothing from devices."""

    async def scenario(fed: Fed) -> None:
        await fed.open()
        await fed.add("ada", hub=True, takes=False)
        await fed.rooms.host.start()
        assert fed.wgets == []
        assert fed.shards["ada"].fetched

    play(scenario)


def test_a_device_that_says_nothing_is_passed_over() -> None:
    """PROTOCOL section 6: "15 s stall": the next source gives it, and the load is no longer than that."""

    async def scenario(fed: Fed) -> None:
        await fed.open(net=SimNetwork(bandwidth=SLOW))
        await fed.add("ada", gb=0.03)
        mute = await fed.add("mute", MANY.pieces, gb=0.03)
        answer = mute._weights.heard
        mute._weights.heard = lambda sender, message: (  # type: ignore[method-assign]  # it takes, and says nothing
            None if isinstance(message, Wget) else answer(sender, message)
        )
        began = asyncio.get_running_loop().time()
        await fed.rooms.host.start()
        assert [1 for who, of, _ in fed.wgets if (who, of) == ("ada", "mute")]
        assert 15 <= asyncio.get_running_loop().time() - began < 60
        assert fed.right("ada")
        assert not any("wrong" in text for text in fed.rooms.heard["ada"]), "silence is no lie"

    play(scenario, MANY)


def test_a_start_that_is_stopped_frees_everything() -> None:
    """PROTOCOL section 6, ``ai-start-failed``: devices let go of what they load, and keep what came."""

    async def scenario(fed: Fed) -> None:
        await fed.open(net=SimNetwork(bandwidth=100_000.0))
        await fed.add("ada")
        starting = asyncio.ensure_future(fed.rooms.host.start())
        await asyncio.sleep(10)
        ada = fed.rooms.devices[0]
        assert "fetching" in ada.status().loading
        assert "from host" in ada.status().loading
        assert "MB/s" in ada.status().loading
        assert fed.shards["host"].spec is not None, "the host has loaded its part"
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert fed.shards["host"].spec is None
        await asyncio.sleep(5)
        assert ada.status().loading == ""
        holdings = fed.shards["ada"].holdings
        assert holdings.taken == set()
        assert holdings.parts, "what came is kept"
        came = sum(map(len, holdings.parts.values())) + sum(map(len, holdings.here.values()))
        await asyncio.sleep(30)
        assert sum(map(len, holdings.parts.values())) + sum(map(len, holdings.here.values())) == came
        await fed.rooms.host.start()
        assert fed.right("ada")

    play(scenario)


@pytest.mark.parametrize("after", [2.0, 6.0])
def test_it_comes_back_while_it_fetches(after: float) -> None:
    """PROTOCOL section 3: the load that is under way goes on over the new link, from where it was."""

    async def scenario(fed: Fed) -> None:
        await fed.open(net=SimNetwork(bandwidth=200_000.0))
        ada = await fed.add("ada")
        host = fed.rooms.host
        starting = asyncio.ensure_future(host.start())
        await asyncio.sleep(after)
        here = set(fed.shards["ada"].holdings.here)
        assert {LOCAL.config, LOCAL.head} <= here, "it is amidst"
        assert (len(here) > 2) == (after == 6.0)
        place = f"local/mine@1/{LOCAL.head.name}", 5, 6
        host._weights.read(*place, "a" * 64)
        await asyncio.sleep(0.5)
        assert ada._weights.known(*place) == Word("a" * 64)
        for connection in fed.rooms.net.connections(ada.mesh.id, host.mesh.id):
            connection.become("failed")
        broke = asyncio.get_running_loop().time()
        await asyncio.sleep(0.05)
        assert ada._weights.known(*place) is None, "what the host takes back now is not heard"
        worker = ada._lending.worker
        assert worker is not None
        assert (worker.trouble, worker.progress is None) == ("", False), "its load goes on"
        await starting
        took = asyncio.get_running_loop().time() - broke
        assert ada._weights.known(*place) == Word("a" * 64), "it is told again before its load"
        rest = sum(p.hi - p.lo for p in LOCAL.of(*fed.layers("ada")) if p not in here)
        assert took < rest / 200_000 + 8, "it is asked again as soon as it is back, and not after a stall"
        assert host.status().state == "online"
        assert not any("cannot hold" in text for text in fed.rooms.notices), fed.rooms.notices
        assert fed.right("ada")
        assert fed.shards["ada"].loads == 1

    play(scenario, LOCAL)


def test_the_host_takes_what_it_lacks() -> None:
    """DESIGN section 6: "another device in the room that has the range" gives it to the host, too."""

    async def scenario(fed: Fed) -> None:
        await fed.open(host=fed_host(HUB), hub=True)
        await fed.add("ada", hub=True)
        bo = await fed.add("bo", hub=True)
        await fed.rooms.host.start()
        await asyncio.sleep(1)
        lo, hi = fed.layers("host")
        assert (lo, hi) == (0, 2)
        assert fed.shards["host"].fetched == []
        await bo.leave()
        await asyncio.sleep(1)
        await fed.rooms.host.start()
        lo, hi = fed.layers("host")
        assert hi > 2
        taken = {piece for who, _, piece in fed.wgets if who == "host"}
        assert taken == set(HUB.of(2, hi)[2:])
        assert fed.shards["host"].fetched == []
        assert "only ada says" in fed.rooms.host.status().unverified

    play(scenario)


@pytest.mark.parametrize("comes", [True, False])
def test_another_kernel_of_the_machine_fetches_it(comes: bool) -> None:
    """DESIGN section 6: kernels of one machine share what they fetch; one that hangs is left behind."""

    async def scenario(fed: Fed) -> None:
        await fed.open(host_gb=1.0)
        ada = await fed.add("ada")
        holdings = fed.shards["ada"].holdings
        holdings.elsewhere = set(LOCAL.blocks)
        starting = asyncio.ensure_future(fed.rooms.host.start())
        await asyncio.sleep(30)
        assert not starting.done()
        if comes:
            holdings.here.update({piece: LOCAL.data(piece) for piece in LOCAL.blocks})
            await starting
            assert fed.shards["ada"].spec is not None
            assert {piece for _, _, piece in fed.wgets} == {LOCAL.config, LOCAL.head}
        else:
            await starting
            assert "no device of the room gives it" in ada.status().sentence

    play(scenario, LOCAL)


def test_a_full_disk_is_said_to_both() -> None:
    """PROTOCOL section 6, ``ai-error {load: 1}``: in words, and the room deals without it."""

    async def scenario(fed: Fed) -> None:
        await fed.open(host_gb=1.0)
        ada = await fed.add("ada")
        fed.shards["ada"].holdings.full = True
        await fed.rooms.host.start()
        assert "The disk is full" in ada.status().sentence
        assert any("The disk is full" in text for text in fed.rooms.notices)

    play(scenario)


# -- consent ---------------------------------------------------------------------------------------


def test_a_person_is_asked_with_sizes() -> None:
    """PROTOCOL section 6: "A worker asks its person before it downloads more than its setting allows"."""

    async def scenario(fed: Fed) -> None:
        await fed.open()
        ada = await fed.add("ada", download_gb=0.000_5, free_gb=lambda: 12.0)
        host = fed.rooms.host
        starting = asyncio.ensure_future(host.start())
        await asyncio.sleep(90)
        asks = ada.status().asks
        assert asks is not None
        assert (asks.model, asks.free_gb) == ("toy/model", 12.0)
        size = sum(p.hi - p.lo for p in HUB.of(asks.lo, asks.hi))
        assert asks.gb == pytest.approx(size / 1e9)
        assert "download" in ada.status().can
        assert ada.status().sentence == asks.text
        assert f"layers {asks.lo + 1}–{asks.hi}" in asks.text
        assert "12 GB are free" in asks.text
        assert fed.wgets == [], "nothing is fetched meanwhile"
        line = next(line for line in host.status().devices if line.name == "ada")
        assert line.asks
        assert "It waits for the person of ada." in host.status().sentence
        await ada.allow_download(yes=True)
        await starting
        assert ada.status().asks is None
        assert "download" not in ada.status().can
        line = next(line for line in host.status().devices if line.name == "ada")
        assert not line.asks
        assert fed.shards["ada"].spec is not None
        assert fed.shards["ada"].spec.max_download_gb == 0.000_5 or fed.shards["ada"].fetched == []
        with pytest.raises(PooledError, match="asks for no download"):
            await ada.allow_download(yes=True)

    play(scenario)


@pytest.mark.parametrize("answer", [False, None])
def test_no_and_nothing_are_no(answer: bool | None) -> None:
    """PROTOCOL section 6: the host hears a sentence, and deals without it; two minutes are waited for."""

    async def scenario(fed: Fed) -> None:
        await fed.open(host_gb=1.0)
        ada = await fed.add("ada", download_gb=0.000_5)
        host = fed.rooms.host
        began = asyncio.get_running_loop().time()
        starting = asyncio.ensure_future(host.start())
        await asyncio.sleep(30)
        assert ada.status().asks is not None
        if answer is not None:
            await ada.allow_download(yes=answer)
        await starting
        took = asyncio.get_running_loop().time() - began
        assert took < 40 if answer is not None else 119 < took < 130
        said = "its person said no" if answer is not None else "its person did not answer"
        assert any(said in text for text in fed.rooms.notices)
        assert said in ada.status().sentence
        assert fed.wgets == []
        assert fed.shards["ada"].spec is None
        assert host.status().state == "online"

    play(scenario)


def test_the_host_asks_its_own_person() -> None:
    """PROTOCOL section 6: also on the host itself, before its own load; no ends the start in words."""

    async def scenario(fed: Fed) -> None:
        await fed.open(host=[], hub=True, download_gb=0.000_5, host_gb=1.0)
        host = fed.rooms.host
        starting = asyncio.ensure_future(host.start())
        await asyncio.sleep(5)
        assert host.status().asks is not None
        assert "download" in host.status().can
        await host.allow_download(yes=False)
        with pytest.raises(ModelNotFound, match="its person said no"):
            await starting
        starting = asyncio.ensure_future(host.start())
        await asyncio.sleep(5)
        await host.allow_download(yes=True)
        await starting
        assert host.status().state == "online"
        assert host.status().asks is None

    play(scenario)


def test_what_drafts_counts_as_well() -> None:
    """PROTOCOL section 6: what a load makes a device download is all of it, a model that drafts too."""

    async def scenario(fed: Fed) -> None:
        await fed.open(download_gb=0.000_5)
        shard = fed.shards["host"]
        supply = fed.rooms.host._supply
        draft = LoadSpec(
            repo="toy/small",
            revision="1",
            folder=None,
            config_sha256="0" * 64,
            lo=0,
            hi=1,
            ends=True,
            ctx=64,
            dtype="float32",
        )
        lacks = shard.missing

        async def missing(wanted: LoadSpec, progress: Any = None) -> Missing:
            return Missing(bytes=700_000) if wanted.repo == "toy/small" else await lacks(wanted)

        shard.missing = missing  # type: ignore[method-assign]  # a second model, of which nothing is here
        loading = asyncio.ensure_future(
            supply.load(shard, structs.replace(draft, repo="toy/model", draft=draft), lambda *_: None)
        )
        await asyncio.sleep(1)
        asks = fed.rooms.host.status().asks
        assert asks is not None
        assert asks.gb == pytest.approx(0.000_7)
        await fed.rooms.host.allow_download(yes=True)
        await loading

    play(scenario)


def test_a_question_goes_with_its_load() -> None:
    """PROTOCOL section 6, ``ai-start-failed``: nobody is asked about a load that was stopped."""

    async def scenario(fed: Fed) -> None:
        await fed.open()
        ada = await fed.add("ada", download_gb=0.0)
        starting = asyncio.ensure_future(fed.rooms.host.start())
        await asyncio.sleep(5)
        assert ada.status().asks is not None
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await asyncio.sleep(1)
        assert ada.status().asks is None

    play(scenario)


def test_progress_never_goes_back_and_is_said() -> None:
    """PROTOCOL section 6: ``ai-progress {pct}`` over fetching and reading together."""

    async def scenario(fed: Fed) -> None:
        await fed.open(net=SimNetwork(bandwidth=200_000.0))
        heard: list[int] = []
        listen = fed.rooms.host.on_message

        def hear(sender: str, message: Message) -> None:
            if isinstance(message, wire.Progress):
                heard.append(message.pct)
            listen(sender, message)

        fed.rooms.host.on_message = hear  # type: ignore[method-assign]  # heard, and passed on
        await fed.add("ada")
        await fed.rooms.host.start()
        assert heard == sorted(heard)
        assert len(set(heard)) > 5
        assert not [m for m in heard if not 0 <= m <= 100]

    play(scenario)


def test_hashes_are_named_in_turns() -> None:
    """PROTOCOL section 6, ``nb-hash``: of a whole model that was read from the hub; the loop is not held."""

    async def scenario(fed: Fed) -> None:
        await fed.open(host_gb=1.0)
        await fed.rooms.host.start()
        supply, spec = fed.rooms.host._supply, fed.shards["host"].spec
        assert spec is not None
        named: list[int] = []
        supply._others.read = lambda url, lo, hi, sha256: named.append(lo)  # type: ignore[method-assign]
        naming = asyncio.create_task(supply._name(spec, MANY.blocks))
        turns: list[int] = []
        for _ in range(100):
            before = len(named)
            await asyncio.sleep(0)
            turns.append(len(named) - before)
        await naming
        assert named == [piece.lo for piece in MANY.blocks]
        assert max(turns) <= 8

    play(scenario, MANY)


def test_parts_of_nothing_are_nothing() -> None:
    """PROTOCOL section 6: a part that nobody asked for changes nothing."""

    async def scenario(fed: Fed) -> None:
        await fed.open()
        ada = await fed.add("ada")
        assert fed.rooms.host.mesh.send(ada.mesh.id, Wpart(id=1, off=0, data=b"x"))
        assert ada.mesh.send(fed.rooms.host.mesh.id, Wpart(id="1", done=True))
        await asyncio.sleep(1)
        await fed.rooms.host.start()
        assert fed.right("ada")

    play(scenario)
