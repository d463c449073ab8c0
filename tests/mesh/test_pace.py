"""Floods, and honest traffic that must not be taken for one (PROTOCOL section 3, before and after admission).

Work is counted in values (`pooled_nb.mesh.pace`), each a microsecond of the loop, never by a wall clock.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.mesh import link as link_module
from pooled_nb.mesh.binarypack import MAX_ITEMS, pack
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.messages import chat, deal
from pooled_nb.mesh.pace import DEVICE, MESSAGE, QUANTUM_S, STRANGER, Budget, Inbox, cost
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, device, leave, room
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork

LAG_S = 0.05
"""What one device may take of the loop at a time."""
VALUE_S = 1.2e-6
"""Seconds for a value on a slow machine (`binarypack.MAX_ITEMS`: 20 ms)."""


def most_at_once(work: list[tuple[float, float]]) -> float:
    """The most values that were read in any `LAG_S` seconds."""
    most = total = 0.0
    begin = 0
    for at, values in work:
        total += values
        while work[begin][0] <= at - LAG_S:
            total -= work[begin][1]
            begin += 1
        most = max(most, total)
    return most


def count_work(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """(time, values) of everything that links read from now on."""
    work: list[tuple[float, float]] = []

    def counted(values: int, size: int) -> float:
        work.append((asyncio.get_running_loop().time(), cost(values, size)))
        return work[-1][1]

    monkeypatch.setattr(link_module, "cost", counted)
    return work


def test_credit_order_and_bound() -> None:
    """PROTOCOL section 3: what a link may cost, and that a slowed one loses nothing and keeps its order."""
    inbox = Inbox(Budget(rate=100.0, burst=50.0, queue=10_000), 0.0)
    for i in range(20):
        assert inbox.put(bytes([i]))
    took: list[tuple[float, int]] = []
    now = 0.0
    while (wait := inbox.wait()) is not None:
        while (data := inbox.take(now)) is not None:
            took.append((now, data[0]))
            inbox.spent(20.0)
        now += inbox.wait() or wait
    assert [i for _, i in took] == list(range(20))
    assert [i for at, i in took if at == 0.0] == [0, 1, 2]  # 50, 30, 10, then none is left
    assert took[-1][0] == pytest.approx((20 * 20 - 50) / 100, abs=0.25)
    assert inbox.take(now) is None
    for _ in range(3):  # a quiet hour is worth one burst
        inbox.put(b"x")
    assert inbox.take(now + 3600) == b"x"
    inbox.spent(60.0)
    assert inbox.take(now + 3600) is None
    assert inbox.wait() == pytest.approx(0.1 + QUANTUM_S)
    assert not inbox.put(b"x" * 10_000)
    inbox.clear()
    assert inbox.wait() is None
    assert inbox.put(b"x")


def test_the_bound_that_is_stated() -> None:
    """PROTOCOL section 2, values: one device takes at most 50 ms of the loop at a time, a stranger 7."""
    largest = cost(MAX_ITEMS, 4 * MAX_ITEMS)
    assert (DEVICE.burst + largest + DEVICE.rate * LAG_S) * VALUE_S < LAG_S
    assert (STRANGER.burst + cost(1 << 10, 16_300) + STRANGER.rate * LAG_S) * VALUE_S < LAG_S / 7


WORST = {"t": "ai-inv", "url": "u", "have": [[]] * 4_000 + [1] * (MAX_ITEMS - 4_020)}


def test_a_device_that_floods_is_slowed_then_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 3: messages just under the bound of values, as fast as the network takes them: the
    loop reads no more of them than it may in any 50 ms; beyond what may wait, the link ends in words; others
    notice nothing.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        peer = await RawPeer.dial(net, ROOM, id="flooder")
        peer.say("hello", name="flooder", v=4)
        await asyncio.sleep(0.1)
        work = count_work(monkeypatch)
        data = pack(WORST)
        for _ in range(60):
            peer.connection.control.send(data)
        assert one.mesh.send(ROOM, chat.Stop())
        await asyncio.sleep(0.1)
        assert host.messages == [(one.mesh.id, chat.Stop())]
        await asyncio.sleep(3)
        assert 16_384 < most_at_once(work) * VALUE_S / 1e-6 < LAG_S / 1e-6
        assert 15 < sum(values > MAX_ITEMS - 100 for _, values in work) < 25  # six a second, none lost
        assert host.gone == []
        for _ in range(1_000):
            peer.connection.control.send(data)
        await asyncio.sleep(1)
        assert host.gone == [("flooder", "it sent more than a device may", False)]
        assert peer.told[-1] == {"t": "bye", "reason": "This device sent more than the room can take."}
        assert peer.connection.state == "closed"
        assert most_at_once(work) * VALUE_S < LAG_S
        assert one.names == ["host", "one"]
        await leave(one, host)

    simulate(scenario)


@pytest.mark.parametrize("what", ["hellos", "full", "small", "chunks"])
def test_a_stranger_that_floods(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 3, before admission: hellos, small messages by the thousand and full ones cost the
    loop next to nothing; the link ends in words, and who came before and comes after is let in.
    """
    floods: dict[str, Any] = {
        "hellos": {"t": "hello", "v": 4, "name": "x" * 30, "meta": {"gpu": "y" * 100, "webgpu": 1}},
        "full": {"t": "nonsense", "x": [[]] * 1_000, "y": "z" * 15_000},
        "small": {"t": "ping", "ts": 1},
        "chunks": {"__peerData": 1, "n": 0, "total": 200, "data": b"\0" * 16_300},
    }

    async def scenario() -> None:
        net = SimNetwork()
        host = device(net, "host", ask=True)
        await host.mesh.create(CODE, ["local"])
        peer = await RawPeer.dial(net, ROOM, id="flooder")
        peer.say("hello", name="flooder", v=4, join=1)
        await asyncio.sleep(0.1)
        assert [r.id for r in host.gates.keeper.lobby] == ["flooder"]
        work = count_work(monkeypatch)
        data = pack(floods[what])
        for _ in range(20_000 if len(data) < 1_000 else 1_000):
            peer.connection.control.send(data)
        await asyncio.sleep(1)
        assert peer.connection.state == "closed"
        assert peer.told[-1] == {"t": "bye", "reason": "This device sent more than the room can take."}
        assert most_at_once(work) * VALUE_S < LAG_S / 7
        assert not host.gates.keeper.lobby
        assert host.gone == []
        late = RawPeer.dial(net, ROOM, id="late")
        (await late).say("hello", name="late", v=4, join=1)
        await asyncio.sleep(0.1)
        assert [r.id for r in host.gates.keeper.lobby] == ["late"]
        await leave(host)

    simulate(scenario)


# -- honest traffic ----------------------------------------------------------------------------------


def test_a_hundred_small_messages_a_second() -> None:
    """PROTOCOL section 3: 100 messages of 35 bytes a second for a minute are no flood, and none waits."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        message = chat.Token(text="twelve bytes and more")
        for _ in range(6_000):
            assert one.mesh.send(ROOM, message)
            await asyncio.sleep(0.01)
        assert len(host.messages) >= 5_999 - 2
        await asyncio.sleep(0.1)
        assert len(host.messages) == 6_000
        assert host.gone == []
        await leave(one, host)

    simulate(scenario)


@pytest.mark.parametrize("stalled", [False, True])
def test_a_thousand_tokens_a_second(stalled: bool) -> None:
    """PROTOCOL section 3: `ai-token` at 1,000 a second to a guest, from a host that is the creator and from
    one that is not; and three seconds of them at once after a stall, in order.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        await one.mesh.connect(two.mesh.id)
        if stalled:
            net.partition(ROOM, two.mesh.id)
            net.partition(one.mesh.id, two.mesh.id)
        for i in range(3_000):
            host.mesh.send(two.mesh.id, chat.Token(text=f"{i}"))
            one.mesh.send(two.mesh.id, chat.Token(text=f"{i}"))
            await asyncio.sleep(0.001)
        if stalled:
            net.heal(ROOM, two.mesh.id)
            net.heal(one.mesh.id, two.mesh.id)
            await asyncio.sleep(0.8)
        else:
            await asyncio.sleep(0.05)
        for sender in (ROOM, one.mesh.id):
            texts = [m.text for id, m in two.messages if id == sender]  # type: ignore[attr-defined]
            assert texts == [f"{i}" for i in range(3_000)]
        assert two.gone == []
        await leave(one, two, host)

    simulate(scenario)


def test_frames_and_weights_over_the_control_channel() -> None:
    """PROTOCOL section 5: once the wire is gone frames go as messages, a prompt of 4 MB and decode frames at
    100 a second, and are no flood; PROTOCOL section 7: nor are weights at 20 MB/s.
    """

    async def scenario() -> None:
        net = SimNetwork(bandwidth=20e6)
        host, one = await room(net, "host", "one")
        host.mesh.chain([one.mesh.id])
        for connection in net.connections(one.mesh.id, ROOM):
            connection.wire.closed()
            connection.other.wire.closed()
        big = Frame(kind=Kind.HIDDEN_B, pos=0, n=16, payload=b"\1" * 3_900_000, enc=Encoding.BF16)
        assert one.mesh.send_frame(ROOM, big)
        for i in range(300):
            small = Frame(kind=Kind.HIDDEN, pos=i, n=1, payload=b"\2" * 8_192, enc=Encoding.BF16)
            assert one.mesh.send_frame(ROOM, small)
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert [f.pos for _, f in host.frames] == [0, *range(300)]
        for _ in range(25):  # 98 MB in five seconds
            assert one.mesh.send(ROOM, chat.GenStart(mid=1, text="w" * 390_000))
            for _ in range(9):
                assert one.mesh.send(ROOM, chat.GenStart(mid=1, text="w" * 390_000))
            await asyncio.sleep(0.2)
        await asyncio.sleep(0.2)
        assert len(host.messages) == 250
        assert host.gone == []
        await leave(one, host)

    simulate(scenario)


def test_a_long_chat_and_many_rosters() -> None:
    """PROTOCOL section 3, order after admission: `ai-history` of a long chat, as large as a message may be;
    and a roster after every change while a hundred devices arrive at once.
    """

    async def scenario() -> None:
        net = SimNetwork()
        creators = await RawPeer.listen(net, ROOM)
        one = device(net, "one")
        joining = asyncio.ensure_future(one.mesh.join(CODE, ["local"]))
        await asyncio.sleep(0.1)
        creator = creators[0]
        creator.say("hello", name="host", v=4)
        creator.say("admit")
        members: list[dict[str, Any]] = [{"id": ROOM, "name": "host"}, {"id": one.mesh.id, "name": "one"}]
        for i in range(100):
            meta = {"webgpu": 1, "contribGB": 4.5, "gpu": "a GPU", "gbps": 20.5, "ua": "Jupyter"}
            members.append({"id": f"device {i}", "name": f"laptop {i}", "meta": meta, "a": 1})
            creator.say("roster", members=members)
        items = [{"text": "how are you?", "reply": "y" * 80_000} for _ in range(40)]
        creator.say("ai-history", items=items)
        await asyncio.wait_for(joining, 1)
        await asyncio.sleep(1)
        assert len(one.names) == 102
        (history,) = [m for _, m in one.messages]
        assert isinstance(history, chat.History)
        assert len(history.items) == 40
        assert one.closed == []
        await leave(one)

    simulate(scenario)


MANY = deal.Inv(url="u", have=["h"] * 4_000)
"""Twenty of these are read at once or within a second, as a device's credit goes."""


def test_last_words_are_read_though_the_link_closed() -> None:
    """PROTOCOL section 3, `leaving`: who says much and leaves has left; nothing that it said before is lost
    because it had to wait, though it closes 300 ms later, and what is said to it meanwhile goes nowhere.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        (connection,) = net.connections(ROOM, one.mesh.id)
        for _ in range(20):
            assert one.mesh.send(ROOM, MANY)
        await one.mesh.leave()
        assert connection.state == "closed"
        assert len(host.messages) < 20
        assert not host.mesh.send(one.mesh.id, chat.Queue(n=1))
        host.mesh.broadcast(chat.Queue(n=1))
        await asyncio.sleep(3)
        assert host.messages == [(one.mesh.id, MANY)] * 20
        assert host.gone == [("one", "it left", True)]
        await leave(two, host)

    simulate(scenario)


def test_a_link_that_closes_while_it_waits_ends_after_all() -> None:
    """PROTOCOL section 3, dead links: without a last word it ends once all is read, as any that closed."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        for _ in range(20):
            assert one.mesh.send(ROOM, MANY)
        await asyncio.sleep(0.1)
        (connection,) = net.connections(ROOM, one.mesh.id)
        net.signaling(False)  # it cannot knock: what a new link replaces is not read to its end
        await connection.close()
        assert host.away == []
        assert len(host.messages) < 20
        await asyncio.sleep(3)
        assert len(host.messages) == 20
        assert host.away == [("one", "it closed the link")]
        assert host.gone == []
        await leave(one, host)

    simulate(scenario)


def test_what_a_message_costs() -> None:
    """PROTOCOL section 3: every message costs something, whatever is in it."""
    assert cost(0, 0) == MESSAGE
    assert cost(5, 2_048) == MESSAGE + 7
